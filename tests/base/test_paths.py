"""Paths and globs of users: ~, and folders that would be read as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssm.base.errors import OutputError
from ssm.base.paths import absolute, home_expanded, path_names, require_outside


def test_a_tilde_is_the_home_folder_or_part_of_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor calls its files like this."""
    monkeypatch.setenv("HOME", "/home/me")
    assert home_expanded("~/texts") == Path("/home/me/texts")
    assert home_expanded("~$x.txt") == Path("~$x.txt")
    monkeypatch.chdir(tmp_path)
    assert absolute(["~/texts", "~$x.txt"]) == ("/home/me/texts", f"{tmp_path}/~$x.txt")
    require_outside("out", ["~$x.txt"])
    with pytest.raises(OutputError, match="is inside ~me, which is read as text"):
        require_outside("~me/out", ["~me"])


def test_one_path_or_several() -> None:
    assert path_names("a.txt") == path_names(Path("a.txt")) == path_names([Path("a.txt")]) == ("a.txt",)
    assert path_names(["*.txt", Path("b")]) == ("*.txt", "b")


@pytest.mark.parametrize(
    ("text", "out", "inside"),
    [
        ("texts", "texts/out", True),
        ("texts", "texts2", False),
        ("texts/*", "texts/out", True),
        ("texts/*", "texts/a/out", True),  # inside of a folder that the glob matches
        ("texts/*", "texts", False),
        ("texts/*.txt", "texts/out", False),
        ("texts/*.txt", "texts/out.txt", True),
        ("texts/**/*", "texts/out", True),
        ("texts/*/../*", "texts/out", True),
        ("texts/**/part", "texts/a/b/part/out", True),
        ("texts/**/part", "texts/a/b", False),
        ("t*s/a", "texts/a/out", True),
        ("link/*", "texts/out", True),
        ("texts/[ab]", "texts/b", True),
        ("[1]", "[1]/out", True),  # the folder has this name
        ("[1]", "1", False),
        ("[2]", "2", True),
        ("*", ".out", False),  # hidden, so a glob does not read it
        (".", ".out", True),
    ],
)
def test_a_folder_inside_a_text(
    text: str, out: str, inside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "[9]"  # no wildcard of the user
    for folder in ("texts/a", "[1]"):
        (here / folder).mkdir(parents=True)
    (here / "link").symlink_to("texts")
    monkeypatch.chdir(here)
    if inside:
        with pytest.raises(OutputError, match=r"is inside .*, which is read as text; give another -o"):
            require_outside(out, [text])
    else:
        require_outside(out, [text])

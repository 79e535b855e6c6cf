"""The files that a token store is made from."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ssm.base.errors import CheckpointError, DataError, UserError
from ssm.plan.sources import rule_inputs, settings_files, sizes_of, source_files, tokenizer_files, weight_files
from ssm.specs.data import DataSpec


def sources(corpus: dict[str, object], tokenizer: dict[str, object] | None = None) -> tuple[Path, ...] | None:
    content = {"name": "text", "corpus": corpus, "tokenizer": tokenizer or {"kind": "bytes"}}
    return source_files(DataSpec.parse(content, "test"))


def test_files_folders_globs_and_the_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b/c.txt", "b/.hidden", "b/d/e.txt", "rows.jsonl", "tokenizer.json", "other"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    corpus = {"kind": "files", "paths": ["a.txt", "b", "*.jsonl"]}
    tokenizer = {"kind": "file", "path": "tokenizer.json", "vocab_size": 9}
    text = tuple(tmp_path / name for name in ("a.txt", "b/c.txt", "b/d/e.txt", "rows.jsonl"))
    assert sources(corpus) == text
    assert sources(corpus, tokenizer) == (*text, tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").unlink()
    assert sources(corpus, tokenizer) is None


def test_names_that_begin_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("~$x.txt", "~$x.json", "~$x.safetensors")
    assert sources({"kind": "files", "paths": [names[0]]}) is None
    assert weight_files(names[2]) is tokenizer_files(names[1]) is None
    for name in names:
        Path(name).touch()
    text, tokenizer, weights = (tmp_path / name for name in names)
    known = {"kind": "file", "path": names[1], "vocab_size": 9}
    assert sources({"kind": "files", "paths": [names[0]]}, known) == (text, tokenizer)
    assert (weight_files(names[2]), tokenizer_files(names[1])) == ((weights,), (tokenizer,))
    assert settings_files(names[2]) == (tokenizer,)


@pytest.mark.parametrize("path", ["missing.txt", "missing/*.txt", "empty"])
def test_missing_files_are_no_error(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()
    assert sources({"kind": "files", "paths": [str(tmp_path / path)]}) is None


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """Otherwise nobody would notice that the other files changed."""
    for name in ("a.txt", "more.zip"):
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=r"more\.zip: \.zip files cannot be read"):
        sources({"kind": "files", "paths": [str(tmp_path)]})


@pytest.mark.parametrize(
    ("find", "error"),
    [(weight_files, CheckpointError), (settings_files, CheckpointError), (tokenizer_files, DataError)],
)
def test_paths_that_cannot_be_read(find: Callable[[str], object], error: type[UserError]) -> None:
    """A path in a folder without permission raises in the same way as a name that is too long."""
    with pytest.raises(error, match=r"^x+[^\n]*: cannot be read \(File name too long\)$"):
        find("x" * 300)


def test_other_corpora_have_no_files() -> None:
    assert sources({"kind": "stdlib"}) == ()
    assert sources({"kind": "hub", "name": "x"}, {"kind": "hub", "name": "x", "vocab_size": 9}) == ()


def test_inputs_of_a_rule() -> None:
    one, two = Path("/a/one.txt"), Path("/a/two.txt")
    assert rule_inputs((one, two), (), (one,)) == (one, two)
    assert rule_inputs((one,), None) is None
    with pytest.raises(DataError, match=r"^/a/\{x\}/three.txt: Snakemake reads braces"):
        rule_inputs((one,), (Path("/a/{x}/three.txt"),))


def test_sizes_see_an_older_file_in_the_place_of_another(tmp_path: Path) -> None:
    assert sizes_of(None) == sizes_of(()) == ""
    text, old = tmp_path / "text.txt", tmp_path / "old.txt"
    text.write_text("A new text.")
    old.write_text("An older text.")
    os.utime(old, (0, 0))
    before = sizes_of([text])
    text.touch()
    assert sizes_of([text]) == before
    old.replace(text)
    assert sizes_of([text]) != before

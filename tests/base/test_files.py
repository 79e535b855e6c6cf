"""Names that are held while they are written, and those that cannot be written."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ssm.base import files
from ssm.base.errors import OutputError
from ssm.base.files import claimed, whole_file, whole_folder


@pytest.mark.parametrize("path", [".", "", "..", "/", "a/.."])
def test_a_path_without_a_name_of_its_own(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for writing in (whole_file, whole_folder, claimed):
        with pytest.raises(OutputError, match="expected the name of a new"), writing(path):
            pytest.fail("nothing may be written")
    assert not list(tmp_path.iterdir())


def test_a_name_is_held_by_one_alone(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "report"
    with claimed(out):
        with pytest.raises(OutputError, match="report: another process is writing it"), claimed(out):
            pytest.fail("it is held")
        with claimed(out.with_name("report.2")), whole_folder(out):
            pass
    with claimed(out):
        pass
    assert [path.name for path in out.parent.iterdir()] == ["report"]


def test_what_the_killed_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    out, names = (
        tmp_path / "report",
        [".report.2.12-0123abcd.tmp", ".report.tmp", ".reports.12-0123abcd.tmp", "report.tmp"],
    )
    for name in (".report.12-0123abcd.tmp", *names):
        (tmp_path / name).mkdir()
        (tmp_path / name / "table").write_text("1")
    with claimed(out), whole_folder(out) as folder:
        assert folder.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "report"])


def test_one_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    out = tmp_path / "report"
    process = os.fork()
    if process == 0:
        with claimed(out), whole_folder(out) as folder:
            (folder / "table").write_text("1")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(process, 0)
    assert len(list(tmp_path.iterdir())) == 2  # the folder and the lock
    with claimed(out), whole_folder(out):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_without_locks_nobodys_folder_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "lock", lambda *_, **__: True)
    (tmp_path / ".report.12-0123abcd.tmp").mkdir()
    with claimed(tmp_path / "report"):
        pass
    assert (tmp_path / ".report.12-0123abcd.tmp").exists()

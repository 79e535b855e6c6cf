"""Names that are held while they are written, and those that cannot be written."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from small import content

from ssm.base import files
from ssm.base.errors import DataError, OutputError
from ssm.base.files import atomic_file, atomic_folder, name_lock, reading, replacing, require_writable
from ssm.base.paths import require_outside


@pytest.mark.parametrize("path", [".", "", "..", "/", "a/.."])
def test_a_path_without_a_name_of_its_own(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for writing in (atomic_file, atomic_folder, name_lock):
        with pytest.raises(OutputError, match="expected the name of a new"), writing(path):
            pytest.fail("nothing may be written")
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_known_before(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, reason in ((tmp_path / "file" / "table", "(Not a directory|File exists)"), (tmp_path, "Is a directory")):
        with pytest.raises(OutputError, match=rf"{path}: cannot be written \({reason}\)"):
            require_writable(path)
    require_writable(tmp_path / "deep" / "table")
    assert not list((tmp_path / "deep").iterdir())
    require_writable(tmp_path / "file")


def test_a_name_is_held_by_one_alone(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "report"
    with name_lock(out):
        with pytest.raises(OutputError, match="report: another process is writing it"), name_lock(out):
            pytest.fail("it is held")
        with name_lock(out.with_name("report.2")), atomic_folder(out):
            pass
    with name_lock(out):
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
    with name_lock(out), atomic_folder(out) as folder:
        assert folder.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "report"])


def test_one_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    out = tmp_path / "report"
    process = os.fork()
    if process == 0:
        with name_lock(out), atomic_folder(out) as folder:
            (folder / "table").write_text("1")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(process, 0)
    assert len(list(tmp_path.iterdir())) == 2  # the folder and the lock
    with name_lock(out), atomic_folder(out):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_without_locks_nobodys_folder_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "lock", lambda *_, **__: True)
    (tmp_path / ".report.12-0123abcd.tmp").mkdir()
    with name_lock(tmp_path / "report"):
        pass
    assert (tmp_path / ".report.12-0123abcd.tmp").exists()


MARK = "page.html"
WRITTEN = (MARK, "work", "tables/*.parquet")


def finished(folder: Path, says: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / MARK).write_text(says)


def made_anew(folder: Path, version: str, says: str) -> None:
    with replacing(folder, version, MARK, WRITTEN) as new:
        finished(new, says)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_to_a_folder_stays_and_its_folder_is_written(there: bool, tmp_path: Path) -> None:
    link, folder = tmp_path / "link", tmp_path / "disk" / "report"
    link.symlink_to(folder)
    if there:
        folder.mkdir(parents=True)
    with name_lock(link), atomic_folder(link) as new:
        (new / MARK).write_text("first")
    for version in ("00000000", "11111111"):
        made_anew(link, version, version)
        assert link.is_symlink()
        assert content(tmp_path) == {f"disk/report/{MARK}": version.encode()}


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    require_outside(loop, [str(tmp_path / "texts")])
    for writing in (atomic_folder(loop), name_lock(loop), replacing(loop, "01234567", MARK, WRITTEN)):
        with pytest.raises(OutputError, match="loop: is a link to itself"), writing:
            pytest.fail("it cannot be written")


def test_an_old_folder_stays_until_a_new_one_is_whole_and_what_was_begun_is_gone_on_with(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    finished(folder, "old")

    def begin(words: str) -> None:
        with replacing(folder, "0123abcd", MARK, WRITTEN) as new:
            new.mkdir(exist_ok=True)
            with (new / "work").open("a") as work:
                work.write(words)
            raise KeyboardInterrupt

    for words in ("one ", "two "):
        with pytest.raises(KeyboardInterrupt):
            begin(words)
        assert (folder / MARK).read_text() == "old"
    with replacing(folder, "0123abcd", MARK, WRITTEN) as new:
        finished(new, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    assert {path.name: path.read_text() for path in folder.iterdir()} == {MARK: "new", "work": "one two "}
    with replacing(folder, None, MARK, WRITTEN) as same:
        assert same == folder


@pytest.mark.parametrize("version", ["00000000", "11111111"])
@pytest.mark.parametrize("made_again", [False, True])  # as Snakemake makes it before it runs the command again
def test_a_kill_while_the_folders_are_exchanged_loses_nothing(
    made_again: bool, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, replace, moved = tmp_path / "report", Path.replace, list[Path]()
    finished(folder, "old")

    def replace_once(path: Path, target: Path) -> Path:
        if moved:
            raise KeyboardInterrupt
        moved.append(path)
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace_once)
        with pytest.raises(KeyboardInterrupt):
            made_anew(folder, "00000000", "first")
    assert moved == [folder]
    with name_lock(folder):  # a command without --replace
        pass
    if made_again:
        folder.mkdir()
    with pytest.raises(KeyboardInterrupt), replacing(folder, version, MARK, WRITTEN) as new:
        raise KeyboardInterrupt
    assert (folder / MARK).read_text() == "old"
    with replacing(folder, version, MARK, WRITTEN) as new:
        assert new.exists() == (version == "00000000")
        finished(new, "second")
    assert content(tmp_path) == {f"report/{MARK}": b"second"}


def test_an_old_folder_that_is_half_deleted_is_never_moved_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "report"
    finished(folder, "old")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            made_anew(folder, "00000000", "new")
    shutil.rmtree(folder)  # by the user
    with pytest.raises(KeyboardInterrupt), replacing(folder, "11111111", MARK, WRITTEN):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_what_was_begun_of_another_version_is_deleted_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    others = ["report.2", "report.0123abc", "report.0123ABCD", "reports.0123abcd", "report.0123abcd.txt"]
    others += ["report.20261127", ".report.0123ABCD.part", ".reports.0123abcd.part", ".report.0123abcd"]
    begun = [".report.0123abcd.part", ".report.ffffffff.part", ".report.12-0123abcd.tmp"]
    begun += ["..report.0123abcd.part.12-0123abcd.tmp", "..report.eeeeeeee.part.12-0123abcd.tmp"]  # of `atomic_folder`
    for name in others + begun:
        (tmp_path / name).mkdir()
    (tmp_path / "..report.dddddddd.part.lock").touch()
    folder.mkdir()  # as Snakemake makes it
    with replacing(folder, "00000000", MARK, WRITTEN) as new:
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, ".report.lock", "report"])
        with pytest.raises(OutputError, match="report: another process is writing it"):
            made_anew(folder, "11111111", "of a second call")
        finished(new, "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, "report"])


def test_what_was_not_made_like_this_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("Dear")
    (tmp_path / "file").write_text("Dear")
    for name in ("home", "file"):
        with (
            pytest.raises(OutputError, match=f"{name}: contains no page.html, so it was not made by this command"),
            replacing(tmp_path / name, "0123abcd", MARK, WRITTEN),
        ):
            pytest.fail("it is not ours")
    assert (tmp_path / "home" / "letter").exists()


@pytest.mark.parametrize(
    ("inputs", "contained"),
    [
        (["{}/model"], "{}/model"),
        (["/elsewhere", "{}/mod*"], "{}/mod*"),
        (["{}"], "{}"),
        (["{}/../re*/model"], "{}/../re*/model"),
        (["{}/../**"], "{}/../**"),
        (["{}/../linked/model"], "{}/../linked/model"),
        (["{}/outside/text"], "{}/outside/text"),
    ],
)
def test_a_folder_with_an_input_is_not_replaced(inputs: list[str], contained: str, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    finished(folder, "old")
    (folder / "model").write_text("weights")
    (tmp_path / "linked").symlink_to(folder)
    (folder / "outside").symlink_to(tmp_path / "texts")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "text").write_text("Dear")
    before = content(tmp_path)
    says = re.escape(f"{folder}: contains {contained.format(folder)}, which would be deleted; give another -o")
    given = [path.format(folder) for path in inputs]
    with pytest.raises(OutputError, match=f"^{says}$"), replacing(folder, "0123abcd", MARK, [], given):
        pytest.fail("its model would be deleted")
    assert content(tmp_path) == before
    (tmp_path / "loop").symlink_to("loop")
    beside = [f"{folder}.txt", f"{folder}/../model", f"{folder}/no/such-model", f"{folder}/*.txt", f"{tmp_path}/loop/x"]
    with replacing(folder, "0123abcd", MARK, [MARK, "model", "outside"], beside) as new:
        finished(new, "new")
    assert content(folder) == {MARK: b"new"}


@pytest.mark.parametrize("added", ["notes.txt", "tables/notes.txt", "deep/page.html"])
def test_a_folder_with_a_file_of_the_user_is_not_replaced(added: str, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    finished(folder, "old")
    for known in (
        "tables/1.parquet",
        "work/deep/file",
        ".lock",
        ".0123abcd.made",
        "work/.file.12-0123abcd.tmp",
        "tables/.nfs01",
    ):
        (folder / known).parent.mkdir(exist_ok=True, parents=True)
        (folder / known).touch()

    def replace_while_it_is_added() -> None:
        with replacing(folder, "0123abcd", MARK, WRITTEN) as new:
            finished(new, "new")
            (folder / added).parent.mkdir(exist_ok=True)
            (folder / added).write_text("mine")

    says = f"^{folder}: contains {added}, which ssm did not write; move it to another folder, or give another -o$"
    with pytest.raises(OutputError, match=says):
        replace_while_it_is_added()
    with pytest.raises(OutputError, match=says), replacing(folder, "ffffffff", MARK, WRITTEN):
        pytest.fail("its notes would be deleted")
    assert (folder / added).read_text() == "mine"
    (folder / added).unlink()
    with replacing(folder, "0123abcd", MARK, WRITTEN) as new:
        assert (new / MARK).read_text() == "new", "finished work is kept"
    assert content(tmp_path) == {"report/page.html": b"new"}


@pytest.mark.parametrize("inside", [".", "deep"])
def test_a_folder_with_the_current_folder_is_not_replaced(
    inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "report"
    finished(folder, "old")
    (folder / "deep").mkdir()
    monkeypatch.chdir(folder / inside)
    before = content(tmp_path)
    for out, says in ((folder, "contains the current folder"), (Path(), "of a new"), (Path(".."), "of a new")):
        with pytest.raises(OutputError, match=says), replacing(out, "0123abcd", MARK, WRITTEN):
            pytest.fail("the current folder would be deleted")
    assert content(tmp_path) == before


CLOSED = PermissionError(errno.EACCES, "Permission denied", "/closed/model")


def test_errors_about_other_files_do_not_blame_the_output(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for writing in (atomic_folder(out), name_lock(out), replacing(out, "01234567", "mark", [])):
        with pytest.raises(PermissionError, match="'/closed/model'"), writing:
            raise CLOSED
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OutputError, match=r"out: cannot be written \(No space left on device\)$"), atomic_folder(out):
        raise full
    with pytest.raises(OutputError, match=r"out: cannot be written \(No such file"), atomic_folder(out) as folder:
        (folder / "deep" / "file").touch()
    assert not list(tmp_path.iterdir())


def test_a_path_that_cannot_be_read_is_one_line() -> None:
    with pytest.raises(DataError, match=r"^/closed/model: cannot be read \(Permission denied\)$"), reading(DataError):
        raise CLOSED
    with pytest.raises(DataError, match=r"^no device$"), reading(DataError):
        raise OSError("no device")
    with pytest.raises(DataError, match=r"^text: cannot be read \(no device\)$"), reading(DataError, "text"):
        raise OSError("no device")

"""`ssm <command>`: dispatch, help and exit codes."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from plan.mini import write_config

from ssm.base.errors import DataError
from ssm.cli import main as command_line
from ssm.cli import say
from ssm.cli.main import VERBS, main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("verb", VERBS)
def test_no_argument_takes_the_value_of_an_unset_variable_as_a_path(verb: str) -> None:
    """`Path("")` is the current folder."""
    for action in command_line._parser(verb, command_line._module(verb))._actions:
        assert action.type is not Path, f"{action.dest}: use ssm.cli.path, which refuses ''"


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128, "y/" * 2000])
@pytest.mark.parametrize("words", [["plan", "--write"], ["compare"]])
def test_a_path_that_is_too_long_is_refused(words: list[str], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "expected a path (names of at most 255 bytes, 3,500 in all), got" in line
    assert len(line) < 300


@pytest.mark.parametrize("words", [["evaluate", "spec.json"], ["judge", "spec.json", "--tables", "tables"]])
def test_a_table_is_not_written_over_a_file_of_another_kind(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "novel.txt").write_text("Call me")
    assert main([*words, "--out", str(tmp_path / "novel.txt")]) == 2
    assert "argument --out: expected a name that ends in .parquet, got" in capsys.readouterr().err
    assert (tmp_path / "novel.txt").read_text() == "Call me"


def command_that(action: BaseException | int) -> ModuleType:
    """The module of a command that raises or returns `action`."""
    module = ModuleType("command")

    def run(args: argparse.Namespace) -> int:
        print("working")
        if isinstance(action, BaseException):
            raise action
        return action

    add_arguments = lambda parser: parser.add_argument("spec")  # noqa: E731
    module.__dict__.update(HELP="do nothing", EPILOG="", add_arguments=add_arguments, run=run)
    return module


@pytest.mark.parametrize(
    ("action", "words", "code", "message"),
    [
        (0, ["x.json"], 0, ""),
        (3, ["x.json"], 3, ""),
        (DataError("corpus.txt: empty"), ["x.json"], 2, "ssm train: corpus.txt: empty\n"),
        (PermissionError(13, "Permission denied", "/x"), ["x.json"], 2, "ssm train: /x: Permission denied\n"),
        (KeyboardInterrupt(), ["x.json"], 130, "ssm train: interrupted\n"),
        (0, [], 2, "ssm train: the following arguments are required: spec (see `ssm train --help`)\n"),
    ],
)
def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    action: BaseException | int,
    words: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.setattr(command_line, "_module", lambda verb: command_that(action))
    assert main(["train", *words]) == code
    assert capsys.readouterr().err == message


@pytest.mark.parametrize("verb", ["diagnose", "extend"])
def test_a_model_after_the_texts(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--text", "x.txt", "my/model", "-o", str(tmp_path / "out")]) == 2
    said = "the following arguments are required: MODEL; write it before --text, which takes every word after it"
    assert capsys.readouterr().err == f"ssm {verb}: {said} (see `ssm {verb} --help`)\n"


@pytest.mark.parametrize("verb", ["diagnose", "extend"])
def test_a_model_whose_name_is_too_long(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "x" * 256, "--text", "x.txt", "-o", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.endswith(": cannot be read (File name too long)\n")


class OutOfMemoryError(RuntimeError):
    """Named as torch's error on a GPU, which has no other mark."""


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nMore."), "CUDA out of memory. Tried to"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: 9"), "[enforce"),
        (RuntimeError("unable to mmap 16 bytes from file <x>: Cannot allocate memory (12)"), "unable to mmap"),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "libtorch_cpu.so"),
        (MemoryError(), "MemoryError"),
    ],
)
@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("diagnose", "model --text text -o out"),
        ("extend", "model --text text -o out"),
        ("train", "x.json --tokens data --out out"),
        ("judge", "x.json --tables tables --out x.parquet"),
    ],
)
def test_a_lack_of_memory_names_options_that_need_less(
    verb: str,
    arguments: str,
    error: Exception,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def lacking(*_: object) -> int:
        raise type(error)(*error.args)  # a new one, without notes

    module = importlib.import_module(f"ssm.cli.{verb}")
    monkeypatch.setattr(module, "run", lacking)
    assert main([verb, *arguments.split()]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"ssm {verb}: out of memory ({says}")
    assert said.count("\n") == 1
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    named = set(re.findall(r"--[a-z-]+", said))
    assert named <= set(parser._option_string_actions)
    assert bool(named) == (verb != "judge" and not isinstance(error, ImportError))


@pytest.mark.parametrize(
    ("given", "error", "advised"),
    [
        ([], "CUDA out of memory.", False),  # bfloat16 is the default there
        (["--precision", "float32"], "CUDA out of memory.", True),
        (["--precision=bfloat16"], "DefaultCPUAllocator: can't allocate memory", False),
        (["--tokenizer", "a --precision bfloat16"], "DefaultCPUAllocator: can't allocate memory", True),
        ([], "DefaultCPUAllocator: can't allocate memory", True),
    ],
)
def test_a_precision_in_use_is_not_advised(
    given: list[str],
    error: str,
    advised: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def lacking(*_: object) -> int:
        raise RuntimeError(error)

    for verb in ("diagnose", "extend"):
        monkeypatch.setattr(importlib.import_module(f"ssm.cli.{verb}"), "run", lacking)
        assert main([verb, "model", "--text", "text", "-o", "out", *given]) == 2
        assert ("--precision bfloat16" in capsys.readouterr().err) == advised


def test_a_lack_of_memory_outside_of_the_work_of_a_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking(verb: str) -> ModuleType:
        raise MemoryError

    monkeypatch.setattr(command_line, "_module", lacking)
    assert main(["train", "x.json"]) == 2
    assert capsys.readouterr().err == "ssm train: out of memory (MemoryError)\n"


def test_a_defect_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_line, "_module", lambda verb: command_that(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["train", "x.json"])


def test_characters_that_stdout_cannot_encode_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    say(["a caf\N{LATIN SMALL LETTER E WITH ACUTE}", "a byte of no letter: \udcff"])
    assert written.getvalue() == b"a caf\\xe9\na byte of no letter: \\udcff\n"


def test_an_unknown_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert capsys.readouterr().err == "ssm: unknown command 'trian'; did you mean 'train'?\n"


def test_every_file_of_the_folder_is_a_command() -> None:
    files = {path.stem for path in (ROOT / "ssm" / "cli").glob("*.py")}
    assert files - {"__init__", "main", "fork_server"} == set(VERBS)


def test_the_overview_has_one_line_for_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    for verb in VERBS:
        assert sum(line.startswith(f"  {verb} ") for line in overview.splitlines()) == 1
    assert max(map(len, overview.splitlines())) <= 80
    assert main([]) == 2
    assert capsys.readouterr().err == overview


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example_and_fits_into_80_columns(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: ssm {verb} ")
    assert f"ssm {verb} " in text[text.index("\nexample") :]
    assert max(map(len, text.splitlines())) <= 80


def test_help_and_plan_import_no_heavy_package_and_no_other_command(tmp_path: Path) -> None:
    code = (
        "import sys; from ssm.cli.main import main\n"
        f"assert main(['plan', '--config', {str(write_config(tmp_path / 'config'))!r}]) == 0\n"
        "loaded = {name for name in sys.modules if name.startswith('ssm.cli.')}\n"
        "assert loaded == {'ssm.cli.main', 'ssm.cli.plan'}, loaded\n"
        "assert main(['--help']) == 0\n"
        "assert main(['diagnose', 'nowhere', '--text', 'x', '-o', 'x']) == 2\n"
        "heavy = {'torch', 'polars', 'pyarrow', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_closed_pipe_gives_no_message() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "ssm", "--help"]
    result = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (result.returncode, result.stderr) == (141, b"")


def test_a_full_disk_behind_stdout_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "ssm", "--version"]
        result = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 2
    where = "standard output or a temporary file"
    assert result.stderr == f"ssm --version: {where}: cannot be written (No space left on device)\n"


def test_plan_writes_specs_with_changed_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path / "config")
    command = ["plan", "--config", str(config), "--figures", "lg_fig5", "--write", str(tmp_path / "specs")]
    assert main([*command, "--set", "dry_run={max_steps: 3}"]) == 0
    assert "training runs 2, tables 2, figures 1" in capsys.readouterr().out
    written = [json.loads(path.read_text()) for path in (tmp_path / "specs" / "runs").glob("*.json")]
    assert [run["training"]["budget"]["steps"] for run in written] == [3, 3]


def test_specs_that_cannot_be_written_are_all_that_plan_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    config = write_config(tmp_path / "config")
    assert main(["plan", "--config", str(config), "--write", str(tmp_path / "file" / "specs")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith(".json: cannot be written (Not a directory)\n")


def test_without_a_gpu_gpus_are_jobs_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    command = ["plan", "--config", str(write_config(tmp_path / "config")), "--scale", "smoke", "--gpus", "3"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "CPU hours" in shown
    assert "with 3 jobs in parallel" in shown

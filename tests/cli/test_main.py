"""The command line's front door: dispatch, help, exit codes."""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from plan.mini import write_config

from ssm.base.errors import DataError
from ssm.cli import main as front
from ssm.cli import say
from ssm.cli.main import VERBS, main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("verb", VERBS)
def test_the_value_of_an_unset_variable_is_no_path(verb: str) -> None:
    """It would be the current folder."""
    for action in front._parser(verb, front._module(verb))._actions:
        assert action.type is not Path, f"{action.dest}: ssm.cli.path refuses ''"


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128, "y/" * 2000])
@pytest.mark.parametrize("words", [["plan", "--write"], ["register", "--config"], ["compare"]])
def test_a_path_that_no_file_system_has(words: list[str], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "expected a path (names of at most 255 bytes, 3,500 in all), got" in line
    assert len(line) < 300


def verb_that(action: BaseException | int) -> ModuleType:
    """A verb's module whose run raises or returns `action`."""
    module = ModuleType("verb", "reads   nothing\nexample: ssm train x")

    def run(args: argparse.Namespace) -> int:
        print("working")
        if isinstance(action, BaseException):
            raise action
        return action

    module.__dict__.update(HELP="do nothing", add_arguments=lambda parser: parser.add_argument("spec"), run=run)
    return module


@pytest.mark.parametrize(
    ("action", "code", "says"),
    [
        (0, 0, ""),
        (3, 3, ""),
        (DataError("corpus.txt: empty"), 2, "ssm train: corpus.txt: empty\n"),
        (KeyboardInterrupt(), 130, "ssm train: interrupted\n"),
    ],
)
def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    action: BaseException | int,
    code: int,
    says: str,
) -> None:
    monkeypatch.setattr(front, "_module", lambda verb: verb_that(action))
    assert main(["train", "x.json"]) == code
    assert capsys.readouterr().err == says


def test_a_defect_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "_module", lambda verb: verb_that(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["train", "x.json"])


def test_wrong_arguments_exit_with_two(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(front, "_module", lambda verb: verb_that(0))
    assert main(["train"]) == 2
    says = "ssm train: the following arguments are required: spec (see `ssm train --help`)\n"
    assert capsys.readouterr().err == says


def test_what_stdout_cannot_spell_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    say(["a caf\N{LATIN SMALL LETTER E WITH ACUTE}", "a byte of no letter: \udcff"])
    assert written.getvalue() == b"a caf\\xe9\na byte of no letter: \\udcff\n"


def test_an_unknown_verb_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert capsys.readouterr().err == "ssm: unknown verb 'trian'; did you mean 'train'?\n"


def test_every_verb_of_the_folder_is_known() -> None:
    files = {path.stem for path in (ROOT / "ssm" / "cli").glob("*.py")}
    assert files - {"__init__", "main", "fork_server"} == set(VERBS)


def test_no_verb_prints_the_overview_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: ssm <verb>" in capsys.readouterr().err


def test_the_overview_has_a_line_per_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for verb in VERBS:
        (line,) = (line for line in lines if line.startswith(f"  {verb} "))
        assert len(line) <= 120


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_an_example_in_its_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: ssm {verb} ")
    assert "example" in text
    assert text.count(f"ssm {verb} ") >= 2


def test_only_the_chosen_verb_is_imported_and_help_and_plans_stay_light(tmp_path: Path) -> None:
    code = (
        "import sys; from ssm.cli.main import main\n"
        f"assert main(['plan', '--config', {str(write_config(tmp_path / 'config'))!r}]) == 0\n"
        "loaded = {name for name in sys.modules if name.startswith('ssm.cli.')}\n"
        "assert loaded == {'ssm.cli.main', 'ssm.cli.plan'}, loaded\n"
        "assert main(['--help']) == 0\n"
        "heavy = {'torch', 'polars', 'pyarrow', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_reader_that_goes_away_is_quiet(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code = "import sys; from ssm.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "plan", "--config", str(write_config(tmp_path / "config"))]
    result = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (result.returncode, result.stderr) == (141, b"")


def test_plan_writes_specs_and_takes_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path / "config")
    command = ["plan", "--config", str(config), "--figures", "lg_fig5", "--write", str(tmp_path / "specs")]
    assert main([*command, "--set", "dry_run={max_steps: 3}"]) == 0
    assert "training runs 2, tables 2, figures 1" in capsys.readouterr().out
    written = [json.loads(path.read_text()) for path in (tmp_path / "specs" / "runs").glob("*.json")]
    assert [run["training"]["budget"]["steps"] for run in written] == [3, 3]


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("scale", "ssm plan: --set scale: expected KEY=VALUE"),
        ("scale=[", "ssm plan: --set scale: the value is not valid YAML"),
        ("scael=smoke", "did you mean 'scale'?"),
    ],
)
def test_wrong_settings_are_one_line(capsys: pytest.CaptureFixture[str], setting: str, says: str) -> None:
    assert main(["plan", "--config", str(ROOT / "config"), "--set", setting]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1

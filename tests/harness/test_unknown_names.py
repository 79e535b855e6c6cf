"""Unknown names of tasks and models in `python -m ssm.harness`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from harness import world
from lm_eval.tasks import TaskManager

from ssm.harness.__main__ import main


@pytest.fixture(autouse=True)
def contained(monkeypatch: pytest.MonkeyPatch) -> None:
    """lm_eval reads only the tasks of the test, not its own thousands of tasks, and changes no global settings."""

    class Local(TaskManager):
        def __init__(self, **given: Any):
            super().__init__(**given, include_defaults=False)

    monkeypatch.setattr("lm_eval.tasks.TaskManager", Local)
    monkeypatch.setattr("lm_eval.__main__.setup_logging", lambda: None)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")


def set_arguments(monkeypatch: pytest.MonkeyPatch, folder: Path, model: str, tasks: str) -> None:
    """Set the arguments of the command."""
    words = ["--model", model, "--tasks", tasks, "--include_path", str(folder / "tasks")]
    monkeypatch.setattr(sys, "argv", ["ssm.harness", *words])


@pytest.mark.parametrize(
    ("model", "tasks", "said"),
    [
        ("ssm", "local_choice,local_roling", "--tasks local_roling: unknown; did you mean 'local_rolling'?"),
        ("ssm", "foo,bar", "--tasks foo: unknown; `python -m ssm.harness ls tasks` lists the valid names"),
        ("ssm", "/nowhere/mine.yaml", "--tasks /nowhere/mine.yaml: no such file"),
        ("sssm", "local_choice", "--model sssm: unknown; did you mean 'ssm'?"),
        ("qqq", "local_choice", "--model qqq: unknown; valid names: anthropic-chat, "),
    ],
)
def test_unknown_names_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model: str,
    tasks: str,
    said: str,
) -> None:
    world.tasks(tmp_path / "tasks")
    set_arguments(monkeypatch, tmp_path, model, tasks)
    assert main() == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"ssm.harness: {said}")
    assert not said.endswith("?") or line.endswith(said)


def test_other_errors_of_lm_eval_are_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world.tasks(tmp_path / "tasks")
    file = tmp_path / "tasks" / "choice.yaml"
    file.write_text(file.read_text().replace("multiple_choice", "none_of_them"))
    set_arguments(monkeypatch, tmp_path, "dummy", "local_choice")
    with pytest.raises(ValueError, match="none_of_them"):
        main()

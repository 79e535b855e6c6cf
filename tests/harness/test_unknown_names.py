"""Names that lm_eval does not know, typed to `python -m ssm.harness`."""

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
    """lm_eval looks where it is told alone, not through its own thousands of tasks; it leaves no settings behind."""

    class Local(TaskManager):
        def __init__(self, **given: Any):
            super().__init__(**given, include_defaults=False)

    monkeypatch.setattr("lm_eval.tasks.TaskManager", Local)
    monkeypatch.setattr("lm_eval.__main__.setup_logging", lambda: None)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")


def typed(monkeypatch: pytest.MonkeyPatch, folder: Path, model: str, tasks: str) -> None:
    """As if this had been typed."""
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
def test_names_that_nobody_knows_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model: str,
    tasks: str,
    said: str,
) -> None:
    world.tasks(tmp_path / "tasks")
    typed(monkeypatch, tmp_path, model, tasks)
    assert main() == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"ssm.harness: {said}")
    assert not said.endswith("?") or line.endswith(said)


def test_other_errors_of_lm_eval_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world.tasks(tmp_path / "tasks")
    file = tmp_path / "tasks" / "choice.yaml"
    file.write_text(file.read_text().replace("multiple_choice", "none_of_them"))
    typed(monkeypatch, tmp_path, "dummy", "local_choice")
    with pytest.raises(ValueError, match="none_of_them"):
        main()

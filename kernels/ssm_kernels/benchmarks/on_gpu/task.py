"""What the modules of the stages share: the setting of a run, and the two ways in which a task ends early.

The module of a stage has two functions:

    names(setting) -> list[str]                    names of its tasks, the most telling first
    run(setting, name) -> dict[str, Any]           does a task; returns what goes into the result file
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Setting:
    """The setting of a run."""

    rehearse: bool  # without a GPU, at tiny sizes
    out: Path  # the folder of the result files
    root: Path  # the folder of the project

    @property
    def device(self) -> str:
        """Torch's name of the device."""
        return "cpu" if self.rehearse else "cuda"


class TaskError(Exception):
    """The task found something wrong. The message has one line."""

    def __init__(self, message: str, found: dict[str, Any] | None = None) -> None:
        """
        Args:
            found: what goes into the result file in spite of it, as the result of `run`.
        """
        super().__init__(message)
        self.found = found


class TaskSkippedError(Exception):
    """The task cannot be done here, and need not. The message says in one line what is missing."""


def cannot_run(setting: Setting, missing: str) -> Exception:
    """The error for one of our backends that cannot run. On a GPU, a stage without it does not pass."""
    return TaskSkippedError(missing) if setting.rehearse else TaskError(missing)

"""One line for names of tasks and models that lm_eval does not know, with the nearest valid name."""

from __future__ import annotations

import re
from traceback import walk_tb

from ssm.base.errors import ConfigError, nearest

TASKS = re.compile(r"Tasks not found: (?P<name>[^,]*)")  # the first name of a list
MODEL = re.compile(r"Attempted to load model '(?P<name>.*)', but no model for this name found!")
LISTED = "`python -m ssm.harness ls tasks` lists the valid names"  # thousands


def unknown_name(error: ValueError) -> ConfigError | None:
    """The error of an unknown name in `--tasks` or `--model`; None for any other error."""
    text = str(error)
    if found := TASKS.match(text):
        if found["name"].endswith(".yaml"):
            return ConfigError(f"--tasks {found['name']}: no such file")
        return ConfigError(f"--tasks {found['name']}: unknown; {nearest(found['name'], _known(error), LISTED)}")
    if found := MODEL.match(text):
        from lm_eval.api.registry import model_registry

        return ConfigError(f"--model {found['name']}: unknown; {nearest(found['name'], model_registry.keys())}")
    return None


def _known(error: ValueError) -> list[str]:
    """The names of all tasks, from the TaskManager in the error's traceback. A new one would take seconds to build."""
    from lm_eval.tasks import TaskManager

    values = (value for frame, _ in walk_tb(error.__traceback__) for value in frame.f_locals.values())
    return next((value.all_tasks for value in values if isinstance(value, TaskManager)), [])

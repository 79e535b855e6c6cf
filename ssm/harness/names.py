"""Names that lm_eval does not know: what it says of them, in the words of our own command line."""

from __future__ import annotations

import re
from traceback import walk_tb

from ssm.base.errors import ConfigError, nearest

TASKS = re.compile(r"Tasks not found: (?P<name>[^,]*)")  # the first of several
MODEL = re.compile(r"Attempted to load model '(?P<name>.*)', but no model for this name found!")
LISTED = "`python -m ssm.harness ls tasks` lists the valid names"  # thousands


def unknown_name(error: ValueError) -> ConfigError | None:
    """What `--tasks` or `--model` should have been; None: the error is another one."""
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
    """The tasks of the manager that did not find one: another would look through all their files again, for seconds."""
    from lm_eval.tasks import TaskManager

    held = (value for frame, _ in walk_tb(error.__traceback__) for value in frame.f_locals.values())
    return next((value.all_tasks for value in held if isinstance(value, TaskManager)), [])

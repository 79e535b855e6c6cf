"""`python -m ssm.harness`: lm_eval with the additional model `ssm`."""

from __future__ import annotations

import re
import sys
from traceback import walk_tb

from ssm.base.errors import ConfigError, UserError, first_line, nearest

TASKS = re.compile(r"Tasks not found: (?P<name>[^,]*)")  # the first name of a list
MODEL = re.compile(r"Attempted to load model '(?P<name>.*)', but no model for this name found!")
LISTED = "`python -m ssm.harness ls tasks` lists the valid names"  # thousands


def main() -> int:
    """Run lm_eval's own command line with our arguments.

    Returns:
        The exit code. 2: an error that the user can correct, described by one line on stderr.
    """
    try:
        try:
            import lm_eval.__main__ as harness
        except ImportError as error:
            reason = f"lm_eval cannot be imported ({first_line(error)})"
            raise UserError(f"{reason}: pip install '.[harness]' in the clone") from error
        import ssm.harness.adapter  # noqa: F401  (registers the model)

        try:
            harness.cli_evaluate()
        except ValueError as error:
            unknown = unknown_name(error)
            if unknown is None:
                raise
            raise unknown from error
    except UserError as error:
        print(f"ssm.harness: {error}", file=sys.stderr)
        return 2
    return 0


def unknown_name(error: ValueError) -> ConfigError | None:
    """One line for a name in `--tasks` or `--model` that lm_eval does not have; None for any other error."""
    text = str(error)
    if match := TASKS.match(text):
        if match["name"].endswith(".yaml"):
            return ConfigError(f"--tasks {match['name']}: no such file")
        return ConfigError(f"--tasks {match['name']}: unknown; {nearest(match['name'], _known(error), LISTED)}")
    if match := MODEL.match(text):
        from lm_eval.api.registry import model_registry

        return ConfigError(f"--model {match['name']}: unknown; {nearest(match['name'], model_registry.keys())}")
    return None


def _known(error: ValueError) -> list[str]:
    """The names of all tasks, from the TaskManager in the error's traceback. A new one would take seconds to build."""
    from lm_eval.tasks import TaskManager

    values = (value for frame, _ in walk_tb(error.__traceback__) for value in frame.f_locals.values())
    return next((value.all_tasks for value in values if isinstance(value, TaskManager)), [])


if __name__ == "__main__":
    sys.exit(main())

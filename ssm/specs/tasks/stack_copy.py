"""The spec of copying in stack order."""

from __future__ import annotations

from typing import Literal

from ssm.specs.tasks.strings import StringTask


class StackCopyTask(StringTask):
    """Copy a string backward, as from a stack: `$ string | string backward .` (mi Sections 2 and 4).

    Lengths are in letters of the string.
    """

    task: Literal["stack_copy"] = "stack_copy"

"""The spec of copying in stack order: a string is read and has to be written from its last letter to its first."""

from __future__ import annotations

from typing import Literal

from ssm.specs.tasks.strings import StringTask


class StackCopyTask(StringTask):
    """$ string | string backwards . (mi Sections 2 and 4): what was read last comes first, as from a stack."""

    task: Literal["stack_copy"] = "stack_copy"

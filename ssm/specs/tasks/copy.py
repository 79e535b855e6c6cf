"""The spec of copying: a string is read and has to be written again."""

from __future__ import annotations

from typing import Literal

from ssm.specs.tasks.strings import StringTask


class CopyTask(StringTask):
    """$ string | string . (mi Section 2, equation 10; Jelassi et al. 2024)."""

    task: Literal["copy"] = "copy"

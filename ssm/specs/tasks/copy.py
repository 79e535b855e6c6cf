"""The spec of copying."""

from __future__ import annotations

from typing import Literal

from ssm.specs.tasks.strings import StringTask


class CopyTask(StringTask):
    """Copy a string: `$ string | string .` (mi Section 2, equation 10; Jelassi et al. 2024).

    Lengths are in letters of the string.
    """

    task: Literal["copy"] = "copy"

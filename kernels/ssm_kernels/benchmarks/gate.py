"""The gate of a benchmark: implementations that disagree are not timed."""

from __future__ import annotations

from ssm.base.errors import UserError


class GateError(UserError):
    """The implementations disagree, so their speeds cannot be compared."""


def agree(what: str, difference: float, tolerance: float) -> None:
    """Check that a difference is small. Raises `GateError`: it is above `tolerance`, or not a number."""
    if not difference <= tolerance:  # NaN fails too
        raise GateError(f"nothing was timed: the {what} differ by {difference:.3g}, more than {tolerance:g}")

"""The spec of how unstable a training is."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat

from ssm.specs.quantities.base import ArmQuantity


class Instability(ArmQuantity):
    """How the loss of a training rises again (ls figure 7), from its learning curve.

    The level before a row is the median of the 16 rows before it (of 4 or more at the beginning); the row's rise is its
    loss less the lowest level so far. The noise is the standard deviation of the later half of the rows about their
    levels, by their median absolute deviation. A level lags 8 rows behind, so that early rises, on a curve that still
    falls, are understated. A run that diverged counts as if its last row were at 2 log V, above which a run is called
    diverged: that row, or an earlier one, has its largest rise.
    """

    kind: Literal["instability"] = "instability"
    reads: ClassVar[tuple[str, ...]] = ("learning_curve",)
    # largest_rise: in nats. Over seeds a share: spiked, of those whose largest rise is over `noises` times the noise or
    # that diverged; diverged, of those that did.
    what: Literal["largest_rise", "spiked", "diverged"]
    noises: PositiveFloat = 6.0  # of 100 to 300 rows of normal noise the largest rise is about 3, and seldom 5

"""The spec of the paired ratio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import PositiveFloat

from ssm.specs.base import Name
from ssm.specs.quantities.base import ArmQuantity, Place, Placed


class RestartRatio(ArmQuantity):
    """Perplexity with the full history / perplexity of a model restarted T/2..T tokens before, on the same targets.

    `restarted` names the arm that is restarted: the base gives Rbase, nothing (the arm itself) gives Rown.
    """

    kind: Literal["restart_ratio"] = "restart_ratio"
    reads: ClassVar[tuple[str, ...]] = ("position_loss", "restart_loss")
    times_context: PositiveFloat  # read at [3/4 kT, kT), T being the arm's training context
    restarted: str | None = None
    restart_loss: Name | None = None

    def arms(self) -> tuple[str, ...]:
        return super().arms() if self.restarted is None else (*super().arms(), self.restarted)

    def places(self, panel: str, series: Sequence[Placed] = ()) -> tuple[Place, ...]:
        places = super().places(panel)
        if self.restarted is not None:
            places = (*places, (panel, self.restarted), (self.there(panel), self.restarted))
        return tuple(dict.fromkeys(places))

    def nameless(self, panel: str, series: Sequence[Placed] = ()) -> dict[str, Any]:
        content, itself = super().nameless(panel), self.against is None and self.restarted == self.arm
        if itself:  # another way to say that an arm is restarted itself
            content["restarted"] = None
        elif self.restarted is not None:
            content["restarted"] = self.places(panel).index((panel, self.restarted))
        return content

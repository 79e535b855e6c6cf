"""The spec of the best of several restarts."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from ssm.specs.base import Distinct
from ssm.specs.foreign import AnyModel
from ssm.specs.repairs.base import Axis, Point, Repair


class Restarts(Repair):
    """Several states read side by side; each token is predicted by the one that did best on the tokens before it.

    The first state is never restarted. The other K - 1 are every n tokens, evenly staggered. At a token that state
    predicts whose mean loss over the last `window` predictions, all of them made since it began, is least; of the token
    that is predicted nothing is known to the choice. A token takes K forward passes.
    """

    in_reading: ClassVar[bool] = True
    kind: Literal["restarts"] = "restarts"
    states: Annotated[int, Field(ge=2)] = 3  # K
    window: PositiveInt = 8
    every: Annotated[tuple[PositiveFloat, ...], Field(strict=False, min_length=1), Distinct] = (1.0, 2.0, 4.0, 8.0)

    @property
    def passes(self) -> int:
        return self.states

    def check(self, model: AnyModel) -> None:
        """Any model can start anew."""

    def start(self, model: AnyModel) -> Point:
        return (None,)

    def axes(self, model: AnyModel, context: int) -> tuple[Axis, ...]:
        return (Axis("every", (0,), tuple(float(max(1, round(times * context))) for times in self.every)),)

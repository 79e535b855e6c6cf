"""The spec of the best of several restarts."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from ssm.specs.base import PositiveFloats
from ssm.specs.foreign import AnyModel
from ssm.specs.repairs.base import Axis, Point, Repair


class Restarts(Repair):
    """K states read the text in parallel. The state that was best on the previous tokens predicts the next token.

    The first state is never restarted. Each of the other K - 1 states restarts every n tokens, at evenly staggered
    places. The state with the lowest mean loss over its last `window` predictions predicts. Predictions before its
    restart do not count, and neither does the token to predict. Each token takes K forward passes.
    """

    in_reading: ClassVar[bool] = True
    kind: Literal["restarts"] = "restarts"
    states: Annotated[int, Field(ge=2)] = 3  # K, number of states
    window: PositiveInt = 8  # predictions over which losses are compared
    # values of n to try, in training contexts T
    every: PositiveFloats = (1.0, 2.0, 4.0, 8.0)

    @property
    def passes(self) -> int:
        return self.states

    def check(self, model: AnyModel) -> None:
        """Accept any model: all can restart."""

    def start(self, model: AnyModel) -> Point:
        return (None,)

    def axes(self, model: AnyModel, context: int) -> tuple[Axis, ...]:
        return (Axis("every", (0,), tuple(float(max(1, round(times * context))) for times in self.every)),)

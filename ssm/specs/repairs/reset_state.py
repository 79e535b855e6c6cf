"""The spec of resetting or fading the state."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ssm.specs.base import Distinct, PositiveFloats
from ssm.specs.foreign import AnyModel
from ssm.specs.repairs.base import Axis, Point, Repair

Kept = Annotated[float, Field(ge=0, lt=1)]


class ResetState(Repair):
    """Reset the state every n tokens, or multiply the recurrent states by a factor below 1.

    A reset (factor 0) also clears the inputs of convolutions and the caches of attention. Other factors change only the
    recurrent states. Caches of attention then stay as they are, with or without a window.
    """

    in_reading: ClassVar[bool] = True
    kind: Literal["reset_state"] = "reset_state"
    # values of n to try, in training contexts T
    every: PositiveFloats = (0.5, 1.0, 2.0, 4.0, 8.0)
    # Factors to try. 0: reset the state.
    keeps: Annotated[tuple[Kept, ...], Field(strict=False, min_length=1), Distinct] = (0.0,)

    @property
    def words(self) -> str:
        return self.kind if self.keeps == (0.0,) else "fade state"

    def check(self, model: AnyModel) -> None:
        if self.keeps != (0.0,) and not model.recurrent:
            raise ValueError(f"repair '{self.kind}': no layer of '{model.name}' has a recurrent state that can fade")

    def start(self, model: AnyModel) -> Point:
        return None, self.keeps[0]

    def axes(self, model: AnyModel, context: int) -> tuple[Axis, ...]:
        every = Axis("every", (0,), tuple(float(max(1, round(times * context))) for times in self.every))
        keeps = Axis("keeps", (1,), self.keeps)
        return (every,) if len(self.keeps) == 1 else (every, keeps, every)

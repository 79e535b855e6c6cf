"""The spec of the zero state."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.initial_states.base import Held, InitialState, Needs, Sequences


class ZeroState(InitialState):
    """Every sequence starts from the zero state. This is the base model, and the control of post-training.

    With `order: stream` it is the control of TBTT: the same batches, but no state is carried over.
    """

    needs: ClassVar[Needs] = "nothing"
    from_zero: ClassVar[bool] = True
    policy: Literal["zero"] = "zero"

    def remembered(self, batch: int) -> float:
        return 0

    def held(self, sequences: Sequences) -> Held:
        return Held(before=0, within=sequences.micro, behind=0)

    def unlike_the_paper(self) -> tuple[str, ...]:
        return ()

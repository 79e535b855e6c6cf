"""The spec of State Passing (lg Section 4.4)."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.initial_states.base import Held, InitialState, Needs, Probability, Sequences, held_for_passing

PAPERS_P_ZERO = 0.1


class StatePassing(InitialState):
    """Sequences start from the final states of the previous batch, without gradients through them (lg Section 4.4)."""

    needs: ClassVar[Needs] = "a state of fixed size"
    order: Literal["shuffled"] = "shuffled"  # windows are read in random order
    policy: Literal["state_passing"] = "state_passing"
    p_zero: Probability = PAPERS_P_ZERO  # fraction of sequences that start from the zero state

    def remembered(self, batch: int) -> float:
        return batch

    def held(self, sequences: Sequences) -> Held:
        return held_for_passing(sequences, zeroes=self.p_zero > 0)

    def unlike_the_paper(self) -> tuple[str, ...]:
        if self.p_zero == PAPERS_P_ZERO:
            return ()
        return (f"{self.p_zero:g} of the sequences start from zero, the paper's {PAPERS_P_ZERO:g}",)

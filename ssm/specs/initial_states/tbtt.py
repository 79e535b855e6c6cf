"""The spec of truncated backpropagation through time (lg Section 4.5)."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.initial_states.base import Held, InitialState, Needs, Probability, Sequences, held_for_passing


class Tbtt(InitialState):
    """Truncated backpropagation through time (lg Section 4.5).

    Each row of the batch reads a stream of text in chunks. Each chunk starts from the final state of the chunk before.
    """

    needs: ClassVar[Needs] = "a state of fixed size"
    order: Literal["stream"] = "stream"  # each row of a batch continues the text of the batch before
    policy: Literal["tbtt"] = "tbtt"
    p_zero: Probability = 0.0  # fraction of chunks that start from the zero state
    reset_at_documents: bool = False  # reset the state at the start of each document, also inside a chunk

    @property
    def resets(self) -> bool:
        return self.reset_at_documents

    def remembered(self, batch: int) -> float:
        return batch

    def held(self, sequences: Sequences) -> Held:
        return held_for_passing(sequences, zeroes=self.p_zero > 0)

    def unlike_the_paper(self) -> tuple[str, ...]:
        return ("the state is reset where a document starts, and the paper mentions no reset",) if self.resets else ()

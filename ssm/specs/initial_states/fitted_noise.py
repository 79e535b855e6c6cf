"""The spec of fitted noise (lg Section 4.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from ssm.specs.initial_states.base import Held, InitialState, Needs, Probability, Sequences, held_for_noise


class FittedNoise(InitialState):
    """Initial states are drawn from N(mean, variance) of final states (lg Section 4.3, eq. 5-6).

    Mean and variance are moving averages for each layer and head.
    """

    needs: ClassVar[Needs] = "a recurrence in every layer"
    order: Literal["shuffled"] = "shuffled"  # windows are read in random order
    policy: Literal["fitted_noise"] = "fitted_noise"
    beta: Probability = 0.1  # weight of the old average: new <- (1 - beta) batch + beta old
    p_zero: Probability = 0.0  # fraction of sequences that start from the zero state

    def remembered(self, batch: int) -> float:
        return 1  # a row of zeros for the shapes; the moments of the heads are much smaller

    def held(self, sequences: Sequences) -> Held:
        held = held_for_noise(sequences)
        drawn = sequences.batch / sequences.layers  # one layer at a time, for the global batch
        return replace(held, before=held.before + drawn)

    def unlike_the_paper(self) -> tuple[str, ...]:
        return ()

"""The spec of random noise (lg Section 4.2)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import NonNegativeFloat

from ssm.specs.initial_states.base import Held, InitialState, Needs, Probability, Sequences, held_for_noise


class RandomNoise(InitialState):
    """Every value of the initial state is drawn from N(0, sigma^2) (lg Section 4.2)."""

    needs: ClassVar[Needs] = "a recurrence in every layer"
    order: Literal["shuffled"] = "shuffled"  # windows are read in random order
    policy: Literal["random_noise"] = "random_noise"
    sigma: NonNegativeFloat  # standard deviation
    p_zero: Probability = 0.0  # fraction of sequences that start from the zero state

    def remembered(self, batch: int) -> float:
        return 1  # a row of zeros for the shapes

    def held(self, sequences: Sequences) -> Held:
        return held_for_noise(sequences)

    def unlike_the_paper(self) -> tuple[str, ...]:
        return ("the paper does not say how much noise it adds",)

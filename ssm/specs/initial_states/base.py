"""What the specs of all initial-state policies share: the order of reading, and what a policy takes and leaves.

Whoever asks (ssm/plan, ssm/extension) knows no policy by name. What a checkpoint holds and what a process holds at its
peak is counted in states of a sequence, all layers together: tests train every policy and compare.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ssm.base.discovery import Registry
from ssm.specs.base import Spec

KEY = "policy"  # by which config files name one
SPECS: Registry[type[InitialState]] = Registry("ssm.specs.initial_states")  # those that stand in this folder

Order = Literal["shuffled", "stream"]  # windows shuffled; row b of a batch begins where row b of the last one ended
Probability = Annotated[float, Field(ge=0, le=1)]
Needs = Literal["nothing", "a state of fixed size", "a recurrence in every layer"]


@dataclass(frozen=True)
class Sequences:
    """How many sequences a policy deals with."""

    batch: int  # of an optimizer step, in all processes
    mine: int  # of these, in one process
    micro: int  # of these, in one forward pass
    layers: int  # of the model


@dataclass(frozen=True)
class Held:
    """Of how many sequences one process holds states at a time, each of all layers."""

    before: float  # while the policy makes what the batch starts from
    within: float  # while a micro-batch is under way: with those that it starts from and ends in
    behind: float  # while the policy learns from the states that the batch ended in


class InitialState(Spec, ABC):
    """What the sequences of a batch start from, and the order in which text is read for that."""

    needs: ClassVar[Needs]  # of the model's layers
    from_zero: ClassVar[bool] = False  # whether a forward pass is given no states at all
    later: ClassVar[frozenset[str]] = frozenset({"order"})
    order: Order = "shuffled"
    policy: str

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        SPECS.add_spec(cls, KEY)

    @property
    def resets(self) -> bool:
        """Whether a state is forgotten where a new document starts, inside a sequence too."""
        return False

    @abstractmethod
    def remembered(self, batch: int) -> float:
        """Of how many sequences a checkpoint holds states, where a step reads `batch` of them in all processes."""

    @abstractmethod
    def held(self, sequences: Sequences) -> Held:
        """What one process holds."""

    @abstractmethod
    def unlike_the_paper(self) -> tuple[str, ...]:
        """What differs from the policies of lg Section 4 and Appendix B.2, in words."""


def held_for_noise(sequences: Sequences) -> Held:
    """What a policy holds that draws states anew for every batch: zeros, noise, and both put together."""
    mine, micro = sequences.mine, sequences.micro
    return Held(before=3 * mine, within=mine + 2 * micro, behind=mine)


def held_for_passing(sequences: Sequences, zeroes: bool) -> Held:
    """What a policy holds that hands on the state of every sequence; where it zeroes some of them, in a copy."""
    mine, micro = sequences.mine, sequences.micro
    gathered = int(micro < mine)  # from micro-batches, one by one, and then all of them
    start = (1 + zeroes) * mine
    return Held(before=start, within=start + gathered * mine + 2 * micro, behind=(1 + 2 * gathered) * mine)

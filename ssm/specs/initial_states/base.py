"""The base class for specs of initial-state policies.

Each spec computes its own memory, so ssm/plan and ssm/extension need no table of policies. Memory of checkpoints and
peak memory of a process are counted in states: one for each sequence, with all layers. Tests train every policy and
compare.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from ssm.base.discovery import Registry, RegistryError, file_of
from ssm.base.errors import nearest
from ssm.specs.base import PluginSpec

KEY = "policy"  # key of the policy's name in config files
SPECS: Registry[type[InitialState]] = Registry("ssm.specs.initial_states")

Order = Literal["shuffled", "stream"]  # stream: row b of a batch continues the text of row b of the batch before
Probability = Annotated[float, Field(ge=0, le=1)]
Needs = Literal["nothing", "a state of fixed size", "a recurrence in every layer"]


@dataclass(frozen=True)
class Sequences:
    """Numbers of sequences in a training step."""

    batch: int  # in an optimizer step, over all processes
    mine: int  # in one process
    micro: int  # in one forward pass
    layers: int  # layers of the model


@dataclass(frozen=True)
class Held:
    """Number of states in the memory of one process, in three phases of a step."""

    before: float  # while the policy makes the initial states of the batch
    within: float  # during a micro-batch, with its initial and final states
    behind: float  # while the policy reads the final states of the batch


class InitialState(PluginSpec):
    """The initial states of the sequences in a batch, and the order in which text is read."""

    registry: ClassVar[Registry[Any]] = SPECS
    registry_key: ClassVar[str] = KEY
    needs: ClassVar[Needs]  # of the layers of the model
    from_zero: ClassVar[bool] = False  # whether forward passes get no initial states
    later: ClassVar[frozenset[str]] = frozenset({"order"})
    # `shuffled`: windows in random order. `stream`: each sequence of a batch continues the text of the batch before.
    order: Order = "shuffled"
    policy: str

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Raises `RegistryError`: `needs` is unknown."""
        needs = getattr(cls, "needs", None)  # None: `discover` says that it is missing
        if needs is not None and needs not in get_args(Needs):
            raise RegistryError(
                f"{file_of(cls.__module__)}: unknown needs '{needs}'; {nearest(needs, get_args(Needs))}"
            )
        super().__pydantic_init_subclass__(**kwargs)

    @property
    def resets(self) -> bool:
        """Whether the state is reset at the start of each document, also inside a sequence."""
        return False

    @abstractmethod
    def remembered(self, batch: int) -> float:
        """Number of states in a checkpoint, if a step reads `batch` sequences over all processes."""

    @abstractmethod
    def held(self, sequences: Sequences) -> Held:
        """Number of states in the memory of one process."""

    @abstractmethod
    def unlike_the_paper(self) -> tuple[str, ...]:
        """Differences from the policies of lg Section 4 and Appendix B.2, in words."""


def held_for_noise(sequences: Sequences) -> Held:
    """States of a policy that draws new states for every batch: zeros, noise, and their combination."""
    mine, micro = sequences.mine, sequences.micro
    return Held(before=3 * mine, within=mine + 2 * micro, behind=mine)


def held_for_passing(sequences: Sequences, zeroes: bool) -> Held:
    """States of a policy that passes final states on; `zeroes`: a copy in which some are set to zero."""
    mine, micro = sequences.mine, sequences.micro
    gathered = int(micro < mine)  # states of micro-batches are concatenated
    start = (1 + zeroes) * mine
    return Held(before=start, within=start + gathered * mine + 2 * micro, behind=(1 + 2 * gathered) * mine)

"""A model that is not built of ssm's own layers: a causal model of transformers, through its own forward pass."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Discriminator, Field, NonNegativeInt, PositiveFloat, PositiveInt, Tag

from ssm.specs.base import Name, Spec
from ssm.specs.mixers import MixerSpec
from ssm.specs.model import ModelSpec


def _object(text: str) -> str:
    if not isinstance(json.loads(text), dict):
        raise ValueError("is no JSON object")
    return text


Layers = Annotated[tuple[NonNegativeInt, ...], Field(strict=False)]  # counted from 0


class ForeignSpec(Spec):
    """Its weights come from a checkpoint: `ssm extend` makes such specs, and no config of a figure names one."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"name"})
    name: Name
    architecture: str  # its class in transformers
    config: Annotated[str, AfterValidator(_object)]  # its config.json, on one line
    n_layers: PositiveInt
    recurrent: Layers  # that have a recurrent state
    caches: Layers  # that keep keys and values of every token
    decays: Layers  # that have an A_log: their state decays by exp(-exp(A_log) dt) a token
    peak_lr: PositiveFloat  # the peak learning rate that belongs to its size (lg Table 2)

    def mixers(self) -> tuple[MixerSpec, ...]:
        """None: its layers are not ssm's."""
        return ()

    @property
    def endless(self) -> tuple[int, ...]:
        """None: the states that it is trained from are those of the recurrent layers alone."""
        return ()


def _whose(value: Any) -> str:
    is_foreign = isinstance(value, ForeignSpec) or (isinstance(value, dict) and "architecture" in value)
    return "foreign" if is_foreign else "own"


AnyModel = Annotated[Annotated[ModelSpec, Tag("own")] | Annotated[ForeignSpec, Tag("foreign")], Discriminator(_whose)]

"""A causal model of transformers that ssm reads and trains through its own forward pass."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Discriminator, Field, NonNegativeInt, PositiveFloat, PositiveInt, Tag

from ssm.specs.base import Name, Spec
from ssm.specs.mixers import MixerSpec
from ssm.specs.model import ModelSpec


def _object(text: str) -> str:
    if not isinstance(json.loads(text), dict):
        raise ValueError("is not a JSON object")
    return text


Layers = Annotated[tuple[NonNegativeInt, ...], Field(strict=False)]  # numbers of layers, from 0


class ForeignSpec(Spec):
    """A model of transformers, with weights from a checkpoint. `ssm extend` makes such specs; figures cannot."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"name"})
    name: Name
    architecture: str  # class in transformers
    config: Annotated[str, AfterValidator(_object)]  # config.json, on one line
    n_layers: PositiveInt
    recurrent: Layers  # layers with a recurrent state
    caches: Layers  # layers that store keys and values of every token
    decays: Layers  # layers with an A_log: their state decays by exp(-exp(A_log) dt) in each token
    peak_lr: PositiveFloat  # peak learning rate for models of this size (lg Table 2)

    def mixers(self) -> tuple[MixerSpec, ...]:
        """Empty, because the layers are not layers of ssm."""
        return ()

    @property
    def endless(self) -> tuple[int, ...]:
        """Empty, because training starts only the recurrent layers from other states than zero."""
        return ()


def _tag(value: Any) -> str:
    is_foreign = isinstance(value, ForeignSpec) or (isinstance(value, dict) and "architecture" in value)
    return "foreign" if is_foreign else "own"


AnyModel = Annotated[Annotated[ModelSpec, Tag("own")] | Annotated[ForeignSpec, Tag("foreign")], Discriminator(_tag)]

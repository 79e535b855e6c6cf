"""The spec of attention maps."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import PositiveInt, model_validator

from ssm.base.errors import ConfigError
from ssm.base.schema import Schema
from ssm.specs.base import PositiveInts, ReadCount
from ssm.specs.measurements.base import Arm, ArmsEntry
from ssm.specs.measurements.of_examples import OfExamples
from ssm.specs.model import ModelSpec
from ssm.specs.tasks.base import Task
from ssm.specs.training import RunSpec

PASSES = 2  # through every layer: for its map and for its output


class AttentionMap(OfExamples):
    """The attention map of each layer on test examples of one length (mi eq. 8), or its mask.

    A map has a weight for each token and each token before it, and is the mean over heads as in mi. For softmax
    attention these are the attention weights. For a recurrence they say how much a value counts in a later output. The
    mask of a recurrence has only the decays between both tokens, as their mean over heads and states: 1 means that the
    layer forgets nothing. The mask of softmax attention is 1 for every token that it sees. The GRU, S5 and RWKV-4 have
    no map. The delta rule has a map but no mask.
    """

    later: ClassVar[frozenset[str]] = frozenset({"mask"})

    table: ClassVar[Schema] = Schema(
        "attention_map",
        "one weight of one layer's map on one example: how much a token counts at a later token, or at itself",
        {
            "example": int,  # 0, 1, ...
            "layer": int,  # 1, 2, ...
            "query": int,  # place of the token that reads
            "key": int,  # place of the token that is read, at most the query's
            # The key's place minus the place from which the next token has to be copied. At 0 the layer attends to this
            # place (mi Section 3). Null: the next token is not scored, or the task has no place.
            "offset": int,
            # Whether the key contains the token to copy. It does at offset 0. A convolution of width K passes tokens
            # on, so it also does up to offset K - 1 (a token shift has K = 2). Null like the offset.
            "behind": bool,
            "weight": float,  # mean over heads; may be negative for a recurrence. Of a mask: 0 to 1
            "share": float,  # absolute weight, divided by the sum over the query's row
        },
        keys=("example", "layer", "query", "key", "offset", "behind"),
        sample="example",
    )
    kind: Literal["attention_map"] = "attention_map"
    length: PositiveInt  # length of the examples, in the unit of the task
    # Layers to measure, counted from 1. Without it, all.
    layers: PositiveInts | None = None
    examples: ReadCount = 4
    seed: int = 14
    mask: bool = False  # true: the mask instead of the map

    @model_validator(mode="after")
    def _examples_exist(self) -> Self:
        try:
            self.task.at(self.length)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self

    def lacking(self, model: ModelSpec) -> str | None:
        return None if model.mapped(self.mask) else f"an attention {'mask' if self.mask else 'map'}"

    @classmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        planned, model = super().planned(entry, arm, where), arm.run.own_model
        mapped = [layer + 1 for layer in model.mapped(planned.mask)]
        for layer in planned.layers or ():
            if layer > model.n_layers:
                raise ConfigError(f"{where}.layers: '{model.name}' has layers 1 to {model.n_layers}, not {layer}")
            if layer not in mapped:
                raise ConfigError(
                    f"{where}.layers: layer {layer} of '{model.name}' has no attention "
                    f"{'mask' if planned.mask else 'map'}; layers with one: {', '.join(map(str, mapped))}"
                )
        return planned

    @property
    def test(self) -> Task:
        """The task with this length."""
        return self.task.at(self.length)

    def read(self, run: RunSpec) -> tuple[float, int]:
        length = self.test.least_context
        return self.examples * length * PASSES, length

    def rows(self, model: ModelSpec) -> float:
        length = self.test.least_context
        return self.examples * len(self.layers or range(model.n_layers)) * length * (length + 1) / 2

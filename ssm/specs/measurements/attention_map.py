"""Attention maps."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from ssm.base.errors import ConfigError
from ssm.base.schema import Schema
from ssm.specs.base import Distinct, ReadCount
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import Arm, ArmsEntry
from ssm.specs.measurements.of_examples import OfExamples
from ssm.specs.model import ModelSpec
from ssm.specs.tasks.base import Task
from ssm.specs.training import RunSpec

PASSES = 2  # through every layer: for its map, and for its output


class AttentionMap(OfExamples):
    """The map of every layer (mi eq. 8) on test examples of one length: of each token the weights of those before it.

    A map is the mean over heads, as in mi: of softmax attention its weights, of a recurrence what the value of a token
    counts in a later output.
    """

    table: ClassVar[Schema] = Schema(
        "attention_map",
        "one weight of one layer's map on one example: how much a token counts at a later one, or at itself",
        {
            "example": int,  # 0, 1, ...
            "layer": int,  # 1, 2, ...
            "query": int,  # place of the token that reads
            "key": int,  # place of the token that is read, up to the query's
            # The key's place less that of the token that has to be said behind the query: at 0 a layer looks behind (mi
            # Section 3). Null: behind the query nothing is scored, or the task does not say where its answers stand.
            "offset": int,
            # Whether what is read there holds that token: at offset 0, and up to K - 1 where the layer has a
            # convolution of K taps, which hands it on, or a token shift (K = 2). Null as the offset.
            "behind": bool,
            "weight": float,  # of the map, mean over heads; of a recurrence it may be negative
            "share": float,  # its size among those of the query's row, which sum to 1
        },
        keys=("example", "layer", "query", "key", "offset", "behind"),
        sample="example",
    )
    kind: Literal["attention_map"] = "attention_map"
    length: PositiveInt  # of the examples, as the task counts it
    # 1, 2, ...; None: all
    layers: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1), Distinct] | None = None
    examples: ReadCount = 4
    seed: int = 14

    @model_validator(mode="after")
    def _examples_exist(self) -> Self:
        try:
            self.task.at(self.length)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self

    @classmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        planned, model = super().planned(entry, arm, where), arm.run.model
        for layer in planned.layers or ():
            if layer > model.n_layers:
                raise ConfigError(f"{where}.layers: '{model.name}' has layers 1 to {model.n_layers}, not {layer}")
        return planned

    @property
    def test(self) -> Task:
        """The task at this length alone."""
        return self.task.at(self.length)

    def read(self, run: RunSpec) -> tuple[float, int]:
        length = self.test.least_context
        return self.examples * length * PASSES, length

    def rows(self, model: ModelSpec) -> float:
        length = self.test.least_context
        return self.examples * len(self.layers or range(model.n_layers)) * length * (length + 1) / 2

    def capped(self, caps: DryRun, context: int) -> Self:
        return self.model_copy(update={"examples": min(self.examples, caps.max_sequences)})

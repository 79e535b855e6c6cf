"""Attention maps."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from ssm.base.errors import ConfigError
from ssm.specs.base import Distinct
from ssm.specs.config import Rehearsal
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

    kind: Literal["attention_map"] = "attention_map"
    length: PositiveInt  # of the examples, as the task counts it
    # 1, 2, ...; None: all
    layers: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1), Distinct] | None = None
    examples: PositiveInt = 4
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

    def capped(self, caps: Rehearsal, context: int) -> Self:
        return self.model_copy(update={"examples": min(self.examples, caps.max_sequences)})

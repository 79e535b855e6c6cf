"""The base class for measurements on altered images."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from ssm.base.errors import ConfigError
from ssm.specs.base import Distinct, ReadCount
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import Arm, ArmsEntry, OfRun
from ssm.specs.tasks.pixels import PixelsTask
from ssm.specs.training import RunSpec

HELPER = True

Region = Annotated[tuple[NonNegativeInt, PositiveInt], Field(strict=False)]


class OfImages(OfRun):
    """A measurement on test images in which pixels are replaced, for classifiers of pixel sequences (bn App. E.3)."""

    # Regions to replace, as [start, stop) of the pixels in their order of reading. The paper's [992:1024] is the end of
    # an image with 1,024 pixels.
    regions: Annotated[tuple[Region, ...], Field(strict=False, min_length=1), Distinct]
    examples: ReadCount = 256  # number of test images, the first of the data set
    seed: int

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        for start, stop in self.regions:
            if start >= stop:
                raise ValueError(f"regions: [{start}, {stop}] has no pixels")
        return self

    @classmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        task = arm.run.data
        if not isinstance(task, PixelsTask):
            raise ConfigError(f"{where}: replaces pixels, and '{task.name}' has none; use it with the task 'pixels'")
        planned, pixels = super().planned(entry, arm, where), task.images.pixels
        task.require_tests(planned.examples, where)
        for start, stop in planned.regions:
            if stop > pixels or stop - start == pixels:
                raise ConfigError(f"{where}.regions: [{start}, {stop}] is not a part of an image of {pixels} pixels")
        return planned

    def read(self, run: RunSpec) -> tuple[float, int]:
        length = run.data.least_context
        return self.examples * (1 + len(self.regions) * self.variants(run)) * length, length

    @abstractmethod
    def variants(self, run: RunSpec) -> int:
        """Number of replacements for each region of an image."""

    def capped(self, caps: DryRun, context: int) -> Self:
        return self.model_copy(update={"examples": min(self.examples, caps.max_sequences)})

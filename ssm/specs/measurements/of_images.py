"""What the specs of measurements on altered images share: which pixels are replaced, and of how many images."""

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
    """Made on test images of which a region of pixels is replaced, for classifiers of pixel sequences (bn App. E.3)."""

    # Pixels [start, stop), counted as they are read: the paper's [992:1024] is the end of an image of 1,024.
    regions: Annotated[tuple[Region, ...], Field(strict=False, min_length=1), Distinct]
    examples: ReadCount = 256  # test images, the first so many
    seed: int

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        for start, stop in self.regions:
            if start >= stop:
                raise ValueError(f"regions: [{start}, {stop}] holds no pixel")
        return self

    @classmethod
    def planned(cls, entry: ArmsEntry, arm: Arm, where: str) -> Self:
        task = arm.run.data
        if not isinstance(task, PixelsTask):
            raise ConfigError(f"{where}: replaces pixels, and '{task.name}' has none; it is for the task 'pixels'")
        planned, pixels = super().planned(entry, arm, where), task.images.pixels
        for start, stop in planned.regions:
            if stop > pixels or stop - start == pixels:
                raise ConfigError(f"{where}.regions: [{start}, {stop}] is no part of an image of {pixels} pixels")
        return planned

    def read(self, run: RunSpec) -> tuple[float, int]:
        length = run.data.least_context
        return self.examples * (1 + len(self.regions) * self.variants(run)) * length, length

    @abstractmethod
    def variants(self, run: RunSpec) -> int:
        """How often each region of an image is replaced."""

    def capped(self, caps: DryRun, context: int) -> Self:
        return self.model_copy(update={"examples": min(self.examples, caps.max_sequences)})

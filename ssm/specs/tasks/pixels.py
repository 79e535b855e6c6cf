"""The spec of pixels: an image is read as a sequence and has to be classified."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import PositiveInt, model_validator

from ssm.base.errors import ConfigError
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import Sources
from ssm.specs.images import ImagesSpec
from ssm.specs.tasks.base import Mix, Part, Task


class PixelsPart(Part):
    """Images: all are of one size."""

    def at(self, length: int) -> Self:
        return self


class PixelsTask(Task):
    """Sequential image classification (Tay et al. 2020), with a class token behind the last pixel (bn App. E.3).

    A pixel enters through a linear map of its numbers, which are standardized by the training images' mean and standard
    deviation; no table of intensities is looked up. Behind the last pixel stands a learned class token, whose output
    goes through one linear head: the only target that counts. Lengths are in pixels of an image.
    """

    task: Literal["pixels"] = "pixels"
    mix: Mix[PixelsPart] = (PixelsPart(),)
    images: ImagesSpec
    examples: PositiveInt  # the first so many of the training images, in epochs
    order: Literal["forwards", "backwards"] = "forwards"  # backwards: the last pixel is read first

    @model_validator(mode="after")
    def _so_many(self) -> Self:
        if self.examples > self.images.training:
            there = f"{self.images.kind} has {self.images.training} training images"
            raise ValueError(f"examples {self.examples}: {there}")
        return self

    @property
    def vocab_size(self) -> int:
        return len(self.images.classes)

    @property
    def channels(self) -> int:
        return self.images.channels

    @property
    def least_context(self) -> int:
        return self.images.pixels + 1

    @property
    def groups(self) -> tuple[str, ...]:
        return self.images.classes

    @property
    def longest_answer(self) -> int:
        return 1

    @property
    def words(self) -> str:
        return f"task pixels, {self.images.kind} {self.order}, {self.examples:,} training images"

    @property
    def sources(self) -> Sources:
        files = self.images.files
        return Sources(corpora=(FilesCorpus(paths=files),) if files else ())

    def at(self, length: int) -> Self:
        if length != self.images.pixels:
            raise ConfigError(
                f"{self.name}: an image of {self.images.kind} has {self.images.pixels} pixels, not {length}"
            )
        return self

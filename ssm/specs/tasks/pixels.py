"""The spec of pixels: classify an image that is read as a sequence."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import PositiveInt, model_validator

from ssm.base.errors import ConfigError
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import Sources
from ssm.specs.images import ImagesSpec
from ssm.specs.tasks.base import Mix, Part, Task


class PixelsPart(Part):
    """Images. All have the same size."""

    def at(self, length: int) -> Self:
        return self


class PixelsTask(Task):
    """Sequential image classification (Tay et al. 2020), with a class token after the last pixel (bn App. E.3).

    The numbers of a pixel enter through a linear map, without an embedding table. They are standardized by mean and
    standard deviation of the training images. After the last pixel comes a learned class token. A linear head on its
    output predicts the class, which is the only target. Lengths are in pixels.
    """

    longest_answer: ClassVar[int] = 1
    task: Literal["pixels"] = "pixels"
    mix: Mix[PixelsPart] = (PixelsPart(),)
    images: ImagesSpec  # data set of images
    examples: PositiveInt  # number of training images, the first of the data set, read in epochs
    order: Literal["forwards", "backwards"] = "forwards"  # `backwards`: the last pixel is read first

    @model_validator(mode="after")
    def _enough_images(self) -> Self:
        if self.examples > self.images.training:
            raise ValueError(f"examples {self.examples}: {self.images.kind} has {self.images.training} training images")
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
    def words(self) -> str:
        return f"task pixels, {self.images.kind} {self.order}, {self.examples:,} training images"

    @property
    def sources(self) -> Sources:
        files = self.images.files
        # `text` takes files of any format, such as the archive beside the unpacked files.
        return Sources(corpora=(FilesCorpus(paths=files, format="text"),) if files else ())

    def at(self, length: int) -> Self:
        if length != self.images.pixels:
            raise ConfigError(
                f"{self.name}: an image of {self.images.kind} has {self.images.pixels} pixels, not {length}"
            )
        return self

    def require_tests(self, examples: int, where: str) -> None:
        if examples > self.images.tests:
            raise ConfigError(f"{where}: examples {examples}: {self.images.kind} has {self.images.tests} test images")

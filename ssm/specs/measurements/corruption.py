"""What noise in place of some pixels does to a classifier."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from ssm.base.schema import Schema
from ssm.specs.base import Distinct
from ssm.specs.measurements.of_images import OfImages
from ssm.specs.training import RunSpec

Noise = Literal["normal", "training"]


class Corruption(OfImages):
    """Whether the right class wins when a region of an image is replaced by noise (bn Tables 1 and 3).

    `normal`: N(0, 1), not clipped, as the paper. `training`: every pixel is that of the same place in a training image
    drawn for it, so that each place keeps the distribution that training has shown, and only what pixels say together
    is gone: without it, noise that was never seen could be what fails, and not what was lost.
    """

    table: ClassVar[Schema] = Schema(
        "corruption",
        "one test image, one region of its pixels, one draw of the noise that stands there",
        {
            "pixels": int,  # that are replaced; 0: none, which is one row an image
            "position": float,  # of the region: 0 it is what is read first, 1 what is read last; null: there is none
            "start": int,  # its first pixel, as pixels are read
            "noise": str,  # normal: N(0, 1); training: pixels of training images at the same place; none
            "example": int,  # 0, 1, ...
            "draw": int,  # 0, 1, ...
            "correct": bool,  # the right class wins
        },
        keys=("pixels", "position", "start", "noise", "example", "draw"),
        sample="example",
    )
    kind: Literal["corruption"] = "corruption"
    noises: Annotated[tuple[Noise, ...], Field(strict=False, min_length=1), Distinct] = ("normal", "training")
    draws: PositiveInt = 3  # of the noise, for every image; a draw is the same in all regions
    seed: int = 13  # which noise, together with the run's own seed

    def variants(self, run: RunSpec) -> int:
        return len(self.noises) * self.draws

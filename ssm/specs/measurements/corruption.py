"""The spec of the accuracy on images with noise in a region."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from ssm.base.schema import Schema
from ssm.specs.base import Distinct
from ssm.specs.measurements.of_images import OfImages
from ssm.specs.training import RunSpec

Noise = Literal["normal", "training"]


class Corruption(OfImages):
    """Whether the right class is predicted when noise replaces a region of an image (bn Tables 1 and 3).

    - `normal`: N(0, 1) without clipping, as in the paper.
    - `training`: each pixel is copied from the same place of a randomly drawn training image. So each place keeps its
      distribution, and only the dependence between pixels is lost. This is a control: with `normal`, a model may fail
      because it has never seen such values.
    """

    table: ClassVar[Schema] = Schema(
        "corruption",
        "one test image, one region of its pixels, one draw of the noise in this region",
        {
            "pixels": int,  # that are replaced; 0: none, with one row for each image
            "position": float,  # of the region: 0 is read first, 1 is read last; null: no region
            "start": int,  # first pixel of the region, in the order of reading
            "noise": str,  # normal: N(0, 1); training: pixels of training images at the same place; none
            "example": int,  # 0, 1, ...
            "draw": int,  # 0, 1, ...
            "correct": bool,  # whether the right class is predicted
        },
        keys=("pixels", "position", "start", "noise", "example", "draw"),
        sample="example",
    )
    kind: Literal["corruption"] = "corruption"
    # kinds of noise
    noises: Annotated[tuple[Noise, ...], Field(strict=False, min_length=1), Distinct] = ("normal", "training")
    draws: PositiveInt = 3  # number of draws of each noise for every image; all regions share a draw
    seed: int = 13  # chooses the noise, together with the seed of the run

    def variants(self, run: RunSpec) -> int:
        return len(self.noises) * self.draws

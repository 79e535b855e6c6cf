"""What noise in place of some pixels does to a classifier."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

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

    kind: Literal["corruption"] = "corruption"
    noises: Annotated[tuple[Noise, ...], Field(strict=False, min_length=1), Distinct] = ("normal", "training")
    draws: PositiveInt = 3  # of the noise, for every image; a draw is the same in all regions
    seed: int = 13  # which noise, together with the run's own seed

    def variants(self, run: RunSpec) -> int:
        return len(self.noises) * self.draws

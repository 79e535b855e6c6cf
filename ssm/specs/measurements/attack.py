"""The spec of the target attack on images."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.base.schema import Schema
from ssm.specs.measurements.of_images import OfImages
from ssm.specs.training import RunSpec


class Attack(OfImages):
    """The target attack: a region of an image is replaced by that of another class (bn Section 3.3, Figures 3 and 10).

    Each other class is the target once, with an image drawn at random from the test images. An attack succeeds if the
    model predicts the target class. The rows without replaced pixels show how often it predicts this class anyway.
    """

    table: ClassVar[Schema] = Schema(
        "attack",
        "one test image, one region of its pixels, one target class, whose image has these pixels",
        {
            "pixels": int,  # that are replaced; 0: none
            "position": float,  # of the region: 0 is read first, 1 is read last; null: no region
            "start": int,  # first pixel of the region, in the order of reading
            "target": int,  # number of the target class
            "example": int,  # 0, 1, ...
            "success": bool,  # whether the target class is predicted
        },
        keys=("pixels", "position", "start", "target", "example"),
        sample="example",
    )
    kind: Literal["attack"] = "attack"
    seed: int = 14  # chooses the images of the target class, together with the seed of the run

    def variants(self, run: RunSpec) -> int:
        return run.data.vocab_size - 1

"""Whether the pixels of another class in a part of an image make that class win."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.base.schema import Schema
from ssm.specs.measurements.of_images import OfImages
from ssm.specs.training import RunSpec


class Attack(OfImages):
    """The target attack (bn Section 3.3, Figures 3 and 10): a region is that of an image of the target class.

    Every other class is the target once, its image drawn at random among the test images. An attack succeeds when the
    target class wins. Without any pixel replaced, it is how often the target class wins anyway.
    """

    table: ClassVar[Schema] = Schema(
        "attack",
        "one test image, one region of its pixels, one target class, of an image of which these pixels are",
        {
            "pixels": int,  # that are replaced; 0: none
            "position": float,  # of the region: 0 it is what is read first, 1 what is read last; null: there is none
            "start": int,  # its first pixel, as pixels are read
            "target": int,  # the number of the target class
            "example": int,  # 0, 1, ...
            "success": bool,  # the target class wins
        },
        keys=("pixels", "position", "start", "target", "example"),
        sample="example",
    )
    kind: Literal["attack"] = "attack"
    seed: int = 14  # which images of the target class, together with the run's own seed

    def variants(self, run: RunSpec) -> int:
        return run.data.vocab_size - 1

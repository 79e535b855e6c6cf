"""Classification of images in which pixels of another class stand for some of theirs."""

from __future__ import annotations

import polars as pl

from ssm.base.tables.table import F64, I64, Schema

ATTACK = Schema(
    "attack",
    "one test image, one region of its pixels, one target class, of an image of which these pixels are",
    {
        "pixels": I64,  # that are replaced; 0: none
        "position": F64,  # of the region: 0 it is what is read first, 1 what is read last; null: there is none
        "start": I64,  # its first pixel, as pixels are read
        "target": I64,  # the number of the target class
        "example": I64,  # 0, 1, ...
        "success": pl.Boolean(),  # the target class wins
    },
    keys=("pixels", "position", "start", "target", "example"),
    sample="example",
)

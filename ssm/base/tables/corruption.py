"""Classification of images in which noise stands for some pixels."""

from __future__ import annotations

import polars as pl

from ssm.base.tables.table import F64, I64, TEXT, Schema

CORRUPTION = Schema(
    "corruption",
    "one test image, one region of its pixels, one draw of the noise that stands there",
    {
        "pixels": I64,  # that are replaced; 0: none, which is one row an image
        "position": F64,  # of the region: 0 it is what is read first, 1 what is read last; null: there is none
        "start": I64,  # its first pixel, as pixels are read
        "noise": TEXT,  # normal: N(0, 1); training: pixels of training images at the same place; none
        "example": I64,  # 0, 1, ...
        "draw": I64,  # 0, 1, ...
        "correct": pl.Boolean(),  # the right class wins
    },
    keys=("pixels", "position", "start", "noise", "example", "draw"),
    sample="example",
)

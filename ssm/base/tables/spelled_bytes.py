"""The table of UTF-8 bytes per bin, for losses in bits per byte."""

from __future__ import annotations

from ssm.base.schema import binned

SPELLED_BYTES = binned(
    "spelled_bytes",
    "one sequence, one bin of positions: the bytes of the text that the bin's targets spell, in UTF-8",
    "bytes",
)

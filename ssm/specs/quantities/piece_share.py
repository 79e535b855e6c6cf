"""The spec of the share of pieces that stand in a sample."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from ssm.specs.quantities.base import TaskQuantity

# Text that is looked for as it is; `{key}` in it is a number, the same one wherever it bears that name.
Piece = Annotated[str, StringConstraints(min_length=1)]


class PieceShare(TaskQuantity):
    """Of some pieces of text, the share that stands in the figure's sample: verbatim, each behind those before it."""

    kind: Literal["piece_share"] = "piece_share"
    reads: ClassVar[tuple[str, ...]] = ("sample",)
    definition: ClassVar[bool] = True
    pieces: Annotated[tuple[Piece, ...], Field(strict=False, min_length=1)]

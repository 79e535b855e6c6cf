"""The spec of a text."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from ssm.specs.base import Name
from ssm.specs.drawings.base import SeriesDrawing


class Text(SeriesDrawing):
    """Lines of text as they are, in letters of one width: those given, or a column of a measurement's table."""

    kind: Literal["text"] = "text"
    reads: ClassVar[tuple[str, ...]] = ()  # any
    of_figure: ClassVar[bool] = True
    lines: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = None
    column: Name | None = None  # of the table of the first series that has `measurement`, or of the figure's own
    rows: PositiveInt = 40  # of that table, at most

    @model_validator(mode="after")
    def _lines_or_table(self) -> Self:
        if (self.lines is None) == (self.column is None) or (self.column is None) != (self.measurement is None):
            raise ValueError("give either 'lines', or 'measurement' and 'column'")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return () if self.measurement is None else (self.measurement,)

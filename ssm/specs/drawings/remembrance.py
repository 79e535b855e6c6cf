"""The spec of curves of remembrance."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ssm.specs.base import Distinct
from ssm.specs.drawings.base import SeriesDrawing
from ssm.specs.quantities.remembrance import Distance


class RemembranceCurves(SeriesDrawing):
    """Effective Remembrance against t, a panel per distance."""

    kind: Literal["remembrance"] = "remembrance"
    reads: ClassVar[tuple[str, ...]] = ("effective_remembrance",)
    distances: Annotated[tuple[Distance, ...], Field(strict=False, min_length=1), Distinct] = ("total_variation",)

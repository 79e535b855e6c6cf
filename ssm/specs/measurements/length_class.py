"""Classes of length extension."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt, model_validator

from ssm.specs.measurements.base import OfTable
from ssm.specs.measurements.position_loss import PositionLoss


class LengthClass(OfTable):
    """The class of a curve (ls Def. 2.1, lg Def. 3.2), from the run's position_loss table."""

    from_plan: ClassVar[frozenset[str]] = frozenset({"context"})
    kind: Literal["length_class"] = "length_class"
    of: PositionLoss
    context: PositiveInt  # T_train of lg Def. 3.2

    @model_validator(mode="after")
    def _enough(self) -> LengthClass:
        if self.of.sequences < 4:
            raise ValueError(f"a length class needs a curve of at least 4 sequences, got {self.of.sequences}")
        return self

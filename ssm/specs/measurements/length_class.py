"""Classes of length extension."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from ssm.base.schema import Schema
from ssm.specs.base import Distinct
from ssm.specs.measurements.base import OfTable
from ssm.specs.measurements.position_loss import PositionLoss


class LengthClass(OfTable):
    """The class of a curve (ls Def. 2.1, lg Def. 3.2), from the run's position_loss table."""

    table: ClassVar[Schema] = Schema(
        "length_class",
        "one run read so far: its class of length extension (ls Def. 2.1); whether it length-generalizes (lg Def. 3.2)",
        {
            "class": str,  # strong, weak, none or not decided (ls Def. 2.1); null, as all that follows: not read past T
            "extends_from": int,  # T_0 of ls Def. 2.1; null for none and where it is not decided
            "largest_rise": float,  # largest increase of the loss from one length to the next, nats
            "largest_rise_error": float,  # its standard error over sequences
            "generalizes": bool,  # lg Def. 3.2
            "best_position": int,  # t* of lg Def. 3.2, middle of its bin
            "excess": float,  # largest loss past t* minus the loss at t*, nats
            "excess_error": float,
            "excess_sequences": int,  # that the excess was tested on: half of all, the other half chose t*
            "context": int,
            "length": int,
            "sequences": int,
            "loss": float,  # mean over the first `length` tokens, nats; of a table of several lengths
        },
        keys=("context", "length", "sequences"),
        optional=frozenset({"loss"}),
    )
    from_plan: ClassVar[frozenset[str]] = frozenset({"context"})
    later: ClassVar[frozenset[str]] = frozenset({"lengths"})
    kind: Literal["length_class"] = "length_class"
    of: PositionLoss  # in a figure file its name; None: the only one
    context: PositiveInt  # T_train of lg Def. 3.2
    # The class of the curve as far as each of these, and the mean loss up to there (ls figure 9); None: of all of it.
    lengths: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1), Distinct] | None = None

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.of.sequences < 4:
            raise ValueError(f"a length class needs a curve of at least 4 sequences, got {self.of.sequences}")
        for length in self.lengths or ():
            if length < 2 or length & (length - 1):
                raise ValueError(f"lengths: a class is told at powers of two from 2 on, got {length}")
        return self

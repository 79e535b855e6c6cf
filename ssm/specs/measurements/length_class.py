"""The spec of the class of length extension."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import PositiveInt, model_validator

from ssm.base.schema import Schema
from ssm.specs.base import PositiveInts
from ssm.specs.measurements.base import OfTable
from ssm.specs.measurements.position_loss import PositionLoss


class LengthClass(OfTable):
    """The class of a loss curve, from the position_loss of the run.

    It gives the class of length extension (ls Def. 2.1), and whether the model length-generalizes (lg Def. 3.2).
    """

    table: ClassVar[Schema] = Schema(
        "length_class",
        "one run up to one length: class of length extension (ls Def. 2.1), length generalization (lg Def. 3.2)",
        {
            # strong, weak, none or not decided (ls Def. 2.1). Null, like the columns below: not read past T.
            "class": str,
            "extends_from": int,  # T_0 of ls Def. 2.1; null for none and for not decided
            "largest_rise": float,  # largest increase of the loss from one length to the next, nats
            "largest_rise_error": float,  # its standard error over sequences
            "generalizes": bool,  # lg Def. 3.2
            "best_position": int,  # t* of lg Def. 3.2, middle of its bin
            "excess": float,  # largest loss after t* minus the loss at t*, nats
            "excess_error": float,
            "excess_sequences": int,  # sequences of the test: half of all, because the other half chose t*
            "context": int,
            "length": int,
            "sequences": int,
            "loss": float,  # mean over the first `length` tokens, nats; only with `lengths`
        },
        keys=("context", "length", "sequences"),
        optional=frozenset({"loss"}),
    )
    from_plan: ClassVar[frozenset[str]] = frozenset({"context"})
    later: ClassVar[frozenset[str]] = frozenset({"lengths"})
    kind: Literal["length_class"] = "length_class"
    of: PositionLoss  # name of the position_loss; it can be left out if there is only one
    context: PositiveInt  # T_train of lg Def. 3.2
    # Give the class and the mean loss of the curve up to each of these lengths (ls figure 9). Without it, the class of
    # the whole curve.
    lengths: PositiveInts | None = None

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.of.sequences < 4:
            raise ValueError(f"a length class needs a curve of at least 4 sequences, got {self.of.sequences}")
        for length in self.lengths or ():
            if length < 2 or length & (length - 1):
                raise ValueError(f"lengths: expected powers of two, at least 2, got {length}")
        return self

"""The spec of Effective Remembrance."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.base.schema import Schema
from ssm.specs.base import ReadCount
from ssm.specs.measurements.base import OfWindows
from ssm.specs.training import RunSpec

BIN_ENDS = 6.5  # sum of the ends of all position bins (four in each octave), over the length


class EffectiveRemembrance(OfWindows):
    """d(q(.|x_0:T), q(.|x_t:T)) by t with three distances (lg Def. 3.3 and Appendix G). T is the length."""

    table: ClassVar[Schema] = Schema(
        "effective_remembrance",
        "one sequence, one t, one distance: d(q(.|x_0:T), q(.|x_t:T)) (lg Def. 3.3)",
        {"sequence": int, "t": int, "length": int, "distance": str, "value": float},
        keys=("sequence", "t", "length", "distance"),
        sample="sequence",
    )
    from_outside: ClassVar[bool] = True
    kind: Literal["effective_remembrance"] = "effective_remembrance"
    sequences: ReadCount = 32
    seed: int = 6

    @property
    def tokens(self) -> float:
        """Tokens that are read: each window once, and its last tokens once for each bin."""
        return self.sequences * self.length * (1 + BIN_ENDS)

    def read(self, run: RunSpec) -> tuple[float, int]:
        return self.tokens, self.length

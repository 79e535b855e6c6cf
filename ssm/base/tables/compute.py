"""What making a run's weights took."""

from __future__ import annotations

from ssm.base.tables.table import F64, I64, Schema

COMPUTE = Schema(
    "compute",
    "a run, its parents not counted",
    {
        "stage": I64,  # 0: it began with fresh weights, or with weights from elsewhere; 1: with those of such a run ...
        "trained": I64,  # tokens that it was trained on
        "read": I64,  # tokens that went forward to choose the numbers of a repair
        "forward": I64,  # both in tokens of a forward pass: one that is trained on takes three
        "passes": I64,  # forward passes of a token that is read afterwards
        "seconds": F64,  # that the run took
    },
    keys=("stage",),
)

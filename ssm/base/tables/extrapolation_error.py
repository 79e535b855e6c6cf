"""How a memory that was fitted on a window goes on behind it."""

from __future__ import annotations

from ssm.base.tables.table import F64, I64, TEXT, Schema

EXTRAPOLATION_ERROR = Schema(
    "extrapolation_error",
    "one fit of one memory on [0, T] by n exponentials, and its errors up to t = horizon * T; errors as log10",
    {
        "memory": TEXT,  # exponential, power
        # double, longdouble, exact: least squares in this arithmetic, exact with 60 digits, longdouble as wide as the
        # platform has it (80 bits on x86, 128 or 64 elsewhere); noise 0.001: exact, of a memory to which noise of this
        # size was added; descent: gradient descent in doubles
        "fit": TEXT,
        "window": F64,  # T
        "size": I64,  # n
        "horizon": F64,  # t / T
        "draw": I64,  # 1, 2, ... of noise or start; without either 1
        "inside": F64,  # log10 of the integral of |rho - fitted| over [0, T]
        "past": F64,  # over [T, t]: the second term of ls eq. 12
        "polynomial": F64,  # the same, integrated over u = exp(-s) as the error of a polynomial in u (eq. 13)
        "apart": F64,  # by how much these two differ
        "excess": F64,  # log10 of the error over [T, t] less that of a memory that is 0 there
        "growth": F64,  # log10 of the error over [T, t] less that over [0, T]
        "coefficient": F64,  # log10 of the largest absolute coefficient
        "rounding": F64,  # past less that of the exact fit
    },
    keys=("memory", "fit", "window", "size", "horizon", "draw"),
    sample="draw",
)

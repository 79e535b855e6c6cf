"""The spec of the extrapolation error of a fitted memory."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ssm.base.schema import Schema
from ssm.specs.base import Distinct, PositiveFloats, PositiveInts, given_twice
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import OfNothing

NODES, PANELS = 16, 4  # of Gauss-Legendre quadrature, on the window and between neighboring horizons
Noises = Annotated[tuple[PositiveFloat, ...], Field(strict=False), Distinct]


class ExtrapolationError(OfNothing):
    """The error after T of a known memory rho that n exponentials fit on [0, T] (ls eq. 12 and 13).

    There are two fits. Least squares finds the coefficients of exp(-s), ..., exp(-n s), which are a polynomial in
    u = exp(-s). Gradient descent finds coefficients and rates from a random start, as in training a layer.
    """

    table: ClassVar[Schema] = Schema(
        "extrapolation_error",
        "one fit of one memory on [0, T] by n exponentials, and its errors up to t = horizon * T; errors as log10",
        {
            "memory": str,  # exponential, power
            # double, longdouble, exact: least squares in this arithmetic. exact has 60 digits; longdouble has 80 bits
            # on x86, and 128 or 64 on other platforms.
            # noise 0.001: exact, with noise of this size added to the memory.
            # descent: gradient descent in double.
            "fit": str,
            "window": float,  # T
            "size": int,  # n
            "horizon": float,  # t / T
            "draw": int,  # 1, 2, ... of noise or start; otherwise 1
            "inside": float,  # log10 of the integral of |rho - fit| over [0, T]
            "past": float,  # the same over [T, t]: the second term of ls eq. 12
            "polynomial": float,  # the same over u = exp(-s), as the error of a polynomial in u (eq. 13)
            "apart": float,  # absolute difference between `past` and `polynomial`
            "excess": float,  # `past` minus its value for a fit that is 0 there
            "growth": float,  # `past` minus `inside`
            "coefficient": float,  # log10 of the largest absolute coefficient
            "rounding": float,  # `past` minus its value in the exact fit
        },
        keys=("memory", "fit", "window", "size", "horizon", "draw"),
        sample="draw",
    )
    kind: Literal["extrapolation_error"] = "extrapolation_error"
    sizes: PositiveInts  # values of n, the number of exponentials
    windows: PositiveFloats  # values of T, the length of the window
    horizons: PositiveFloats  # values of t / T, above 1
    # standard deviations of noise that is added to rho at the fitted points, relative to the mean of |rho| there
    noises: Noises = ()
    draws: PositiveInt = 8  # number of draws of each noise, and of starts of gradient descent
    descent_steps: PositiveInt = 4000  # steps of gradient descent
    descent_sizes: PositiveInts | None = None  # values of n for gradient descent; default: `sizes`
    seed: int = 41  # of noise and starts

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if min(self.horizons) <= 1:
            raise ValueError(f"horizons must be above 1, after the window, got {min(self.horizons):g}")
        if max(self.sizes) > NODES * PANELS:
            raise ValueError(f"sizes: a fit to {NODES * PANELS} points has at most as many exponentials")
        more = sorted(set(self.descent_sizes or ()) - set(self.sizes))
        if more:
            raise ValueError(f"descent_sizes: {more[0]} is not in sizes, so there is no exact fit to compare with")
        twice = given_twice([f"{noise:g}" for noise in self.noises])  # as in the column `fit`
        if twice is not None:
            raise ValueError(f"noises: two are {twice} to six digits")
        return self

    def capped(self, caps: DryRun) -> Self:
        steps, draws = min(self.descent_steps, caps.max_steps), min(self.draws, caps.max_sequences)
        ends = tuple(dict.fromkeys((self.windows[0], self.windows[-1])))
        fewer = {"windows": ends, "noises": self.noises[-1:], "descent_steps": steps, "draws": draws}
        return self.model_copy(update=fewer)

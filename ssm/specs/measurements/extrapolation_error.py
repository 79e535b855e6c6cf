"""How a memory that was fitted on a window goes on behind it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ssm.base.schema import Schema
from ssm.specs.base import Distinct
from ssm.specs.config import DryRun
from ssm.specs.measurements.base import OfNothing, Work
from ssm.specs.training import RunSpec

NODES, PANELS = 16, 4  # Gauss-Legendre, of the window and of each stretch between horizons
Sizes = Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1), Distinct]
Times = Annotated[tuple[PositiveFloat, ...], Field(strict=False, min_length=1), Distinct]
Noises = Annotated[tuple[PositiveFloat, ...], Field(strict=False), Distinct]


class ExtrapolationError(OfNothing):
    """Known memories rho on [0, T], fitted by a sum of n exponentials, and the error behind T (ls eq. 12 and 13).

    Least squares over the coefficients of exp(-s), ..., exp(-n s), a polynomial in u = exp(-s); and gradient descent on
    the coefficients and rates of exponentials that start at random, as a layer is trained.
    """

    table: ClassVar[Schema] = Schema(
        "extrapolation_error",
        "one fit of one memory on [0, T] by n exponentials, and its errors up to t = horizon * T; errors as log10",
        {
            "memory": str,  # exponential, power
            # double, longdouble, exact: least squares in this arithmetic, exact with 60 digits, longdouble as wide as
            # the platform has it (80 bits on x86, 128 or 64 elsewhere); noise 0.001: exact, of a memory to which noise
            # of this size was added; descent: gradient descent in doubles
            "fit": str,
            "window": float,  # T
            "size": int,  # n
            "horizon": float,  # t / T
            "draw": int,  # 1, 2, ... of noise or start; without either 1
            "inside": float,  # log10 of the integral of |rho - fitted| over [0, T]
            "past": float,  # over [T, t]: the second term of ls eq. 12
            "polynomial": float,  # the same, integrated over u = exp(-s) as the error of a polynomial in u (eq. 13)
            "apart": float,  # by how much these two differ
            "excess": float,  # log10 of the error over [T, t] less that of a memory that is 0 there
            "growth": float,  # log10 of the error over [T, t] less that over [0, T]
            "coefficient": float,  # log10 of the largest absolute coefficient
            "rounding": float,  # past less that of the exact fit
        },
        keys=("memory", "fit", "window", "size", "horizon", "draw"),
        sample="draw",
    )
    kind: Literal["extrapolation_error"] = "extrapolation_error"
    sizes: Sizes  # n
    windows: Times  # T
    horizons: Times  # t / T
    # Standard deviations of what is added to rho at the points that are fitted, over its mean absolute value there.
    noises: Noises = ()
    draws: PositiveInt = 8  # of each noise, and of the starts of gradient descent
    descent_steps: PositiveInt = 4000
    descent_sizes: Sizes | None = None  # None: `sizes`
    seed: int = 41  # of noise and starts

    @model_validator(mode="after")
    def _behind(self) -> Self:
        if min(self.horizons) <= 1:
            raise ValueError(f"horizons lie behind the window: above 1, got {min(self.horizons):g}")
        return self

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if max(self.sizes) > NODES * PANELS:
            raise ValueError(f"sizes: a fit to {NODES * PANELS} points has at most as many exponentials")
        more = sorted(set(self.descent_sizes or ()) - set(self.sizes))
        if more:
            raise ValueError(
                f"descent_sizes: {more[0]} is not among the sizes, and has no exact fit to be compared with"
            )
        texts = [f"{noise:g}" for noise in self.noises]  # what their rows are called by
        twice = next((text for text in texts if texts.count(text) > 1), None)
        if twice is not None:
            raise ValueError(f"noises: two are {twice} to six digits")
        return self

    def work(self, run: RunSpec | None) -> tuple[Work, ...]:
        return ()

    def capped(self, caps: DryRun) -> Self:
        steps, draws = min(self.descent_steps, caps.max_steps), min(self.draws, caps.max_sequences)
        ends = tuple(dict.fromkeys((self.windows[0], self.windows[-1])))
        fewer = {"windows": ends, "noises": self.noises[-1:], "descent_steps": steps, "draws": draws}
        return self.model_copy(update=fewer)

"""Fits of known memories compared with closed forms and mpmath, and gradient descent with torch.optim."""

from __future__ import annotations

from decimal import localcontext
from itertools import pairwise
from math import exp, log, log10
from typing import Any

import mpmath
import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from ssm.evaluation import extrapolation_error as module
from ssm.evaluation.extrapolation_error import PRECISIONS, back_substituted, descended, extrapolation_error, triangular
from ssm.specs.measurements.extrapolation_error import ExtrapolationError

T = 1.5


def spec(**fields: Any) -> ExtrapolationError:
    small = {"sizes": (1, 3), "windows": (T,), "horizons": (2.0, 4.0), "descent_steps": 2}
    given = small | {"draws": 2} | fields
    return ExtrapolationError.model_validate({"descent_sizes": given["sizes"][:1]} | given)


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return extrapolation_error(spec(noises=(0.1,)))


def one(table: pl.DataFrame, **where: Any) -> dict[str, Any]:
    return table.row(by_predicate=pl.all_horizontal(pl.col(name) == value for name, value in where.items()), named=True)


def error_of_one_exponential(start: float, stop: float, c: float) -> float:
    """The integral of |exp(-s/2) / 2 - c exp(-s)|. The sign inside changes at 2 log(2c)."""

    def inner(s: float) -> float:
        return -exp(-s / 2) + c * exp(-s)

    edges = sorted({start, stop, min(max(2 * log(2 * c), start), stop)})
    return sum(abs(inner(b) - inner(a)) for a, b in pairwise(edges))


@pytest.mark.parametrize("fit", ["double", "longdouble", "exact"])
def test_one_exponential_has_the_closed_form(table: pl.DataFrame, fit: str) -> None:
    c = (1 - exp(-1.5 * T)) / 3 / ((1 - exp(-2 * T)) / 2)
    for horizon in (2.0, 4.0):
        row = one(table, memory="exponential", fit=fit, size=1, horizon=horizon)
        inside, past = error_of_one_exponential(0, T, c), error_of_one_exponential(T, horizon * T, c)
        forgotten = exp(-T / 2) - exp(-horizon * T / 2)
        assert row["coefficient"] == pytest.approx(log10(c), abs=1e-12)
        assert row["inside"] == pytest.approx(log10(inside), abs=1e-3)  # |x| is not smooth
        assert row["past"] == pytest.approx(log10(past), abs=1e-3)
        assert row["polynomial"] == pytest.approx(log10(past), abs=1e-3)
        assert row["excess"] == pytest.approx(log10(past / forgotten), abs=1e-3)
        assert row["growth"] == pytest.approx(log10(past / inside), abs=1e-3)


def test_many_exponentials_solve_the_normal_equations() -> None:
    """Their integrals have closed forms, and mpmath solves them."""
    size = 8
    with mpmath.workdps(60):
        gram = mpmath.matrix(size, size)
        right = mpmath.matrix(size, 1)
        for i in range(1, size + 1):
            right[i - 1] = (1 - mpmath.exp(-(i + mpmath.mpf(1) / 2) * T)) / (2 * i + 1)
            for j in range(1, size + 1):
                gram[i - 1, j - 1] = (1 - mpmath.exp(-(i + j) * T)) / (i + j)
        largest = float(mpmath.log10(max(abs(coefficient) for coefficient in mpmath.lu_solve(gram, right))))
    fits = extrapolation_error(spec(sizes=(size,)))
    for fit, error in (("exact", 1e-5), ("double", 1e-2)):
        ours = one(fits, memory="exponential", fit=fit, horizon=2.0)["coefficient"]
        assert ours == pytest.approx(largest, abs=error)


@pytest.mark.parametrize("precision", PRECISIONS, ids=lambda precision: precision.name)
def test_least_squares_agree_with_numpy(precision: module.Precision) -> None:
    generator = np.random.default_rng(1)
    a, b = generator.standard_normal((9, 4)), generator.standard_normal((9, 2))
    with localcontext(prec=60):
        r, right = triangular(precision.of(a), precision.of(b), precision.sqrt)
        for size in (1, 4):
            x = back_substituted(r[:size, :size], right[:size]).astype(float)
            np.testing.assert_allclose(x, np.linalg.lstsq(a[:, :size], b)[0], rtol=1e-11)


def test_exact_arithmetic_is_exact() -> None:
    """A memory that is a sum of the exponentials has an error far below the precision of double."""
    exact = PRECISIONS[-1]
    with localcontext(prec=module.DIGITS):
        s, w = map(exact.of, module.nodes(0.0, T))
        u = exact.exp(-s)
        rho = (u - 3 * u * u)[:, None]
        root = np.array([exact.sqrt(weight) for weight in w])[:, None]
        c = back_substituted(*triangular(root * module._powers(u, 6), root * rho, exact.sqrt))
        assert max(abs(float(error)) for error in (module._polynomial(c, u) - rho).ravel()) < 1e-45


def test_noise_is_relative_to_the_mean_of_the_memory() -> None:
    """The noise here is much larger than the memory, so the coefficient is a weighted sum of the noise."""
    sizes: dict[str, Any] = {"sizes": (1,), "windows": (1.0, 8.0), "noises": (1e3,), "draws": 32}
    fits = extrapolation_error(spec(**sizes)).filter(pl.col("fit") == "noise 1000", pl.col("horizon") == 2.0)
    for window in (1.0, 8.0):
        s, w = module.nodes(0.0, window)
        spread = np.sqrt((w**2 * np.exp(-2 * s)).sum()) / (w * np.exp(-2 * s)).sum()
        for memory, mean in (("power", 1 / (1 + window)), ("exponential", (1 - exp(-window / 2)) / window)):
            rows = fits.filter(pl.col("memory") == memory, pl.col("window") == window)
            drawn = np.sqrt((10 ** (2 * rows["coefficient"].to_numpy())).mean())
            assert drawn == pytest.approx(1e3 * mean * spread, rel=0.4), (memory, window)
            clean, added = (module._targets(memory, s, w, np.full((1, 1), x), PRECISIONS[0]) for x in (0.0, 1.0))
            np.testing.assert_allclose(added - clean, mean, rtol=1e-6)


def test_noise_and_starts_are_drawn_from_the_seed(table: pl.DataFrame) -> None:
    again, other = extrapolation_error(spec(noises=(0.1,))), extrapolation_error(spec(noises=(0.1,), seed=5))
    assert_frame_equal(again, table, rel_tol=1e-9)  # BLAS may differ in the last bits
    assert again.filter(pl.col("fit") == "exact").equals(table.filter(pl.col("fit") == "exact"))
    for fit in ("noise 0.1", "descent"):
        rows = [frame.filter(pl.col("fit") == fit)["past"].to_list() for frame in (table, other)]
        assert len(set(rows[0])) == len(rows[0])  # all draws differ
        assert not set(rows[0]) & set(rows[1])
    assert table.filter(pl.col("fit") == "exact").equals(other.filter(pl.col("fit") == "exact"))
    assert table.filter(pl.col("fit") == "exact")["rounding"].to_list() == [0.0] * 8


def test_gradient_descent_agrees_with_adam_and_a_cosine_of_torch() -> None:
    s, w = module.nodes(0.0, T, 1)
    rho = 1 / (1 + s) ** 2
    start = np.random.default_rng(3).standard_normal((2, 2, 3))
    steps = 40
    ours = descended(rho, s, w, start, steps)
    for run in range(2):
        c = torch.tensor(start[run, 0] / 3, requires_grad=True)
        logs = torch.tensor(start[run, 1], requires_grad=True)
        adam = torch.optim.Adam([c, logs], lr=module.RATE, betas=module.BETAS, eps=module.SMALL)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
        for _ in range(steps):
            adam.zero_grad()
            fitted = torch.exp(-torch.tensor(s)[:, None] * logs.exp()) @ c
            (torch.tensor(w) * (fitted - torch.tensor(rho)) ** 2).sum().backward()
            adam.step()
            cosine.step()
        np.testing.assert_allclose(ours[0][run], c.detach().numpy(), rtol=1e-9)
        np.testing.assert_allclose(ours[1][run], logs.exp().detach().numpy(), rtol=1e-9)


def test_there_can_be_as_many_exponentials_as_points() -> None:
    s, w = module.nodes(0.0, T)
    (size,) = spec(sizes=(len(s),)).sizes
    r, b = triangular(module._powers(np.exp(-s), size), w[:, None], np.sqrt)
    assert (r.shape, b.shape) == ((64, 64), (64, 1))

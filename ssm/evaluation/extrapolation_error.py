"""Fits of known memories on a window, and their errors after it (ls eq. 12 and 13).

A layer without activations computes y_t = sum_k c_k int_0^t exp(-r_k s) x_{t-s} ds. So fitting it to a linear
functional means fitting its memory rho(s). Least squares uses the fixed rates 1, ..., n. The fit is then a polynomial
in u = exp(-s), known on [exp(-T), 1] and extrapolated to 0. The sum of squares over Gauss nodes is solved in three
precisions, by Householder reflections without regularization. The solution with 60 digits counts as exact; differences
of the others from it are rounding errors. Gradient descent (Adam) also fits the rates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import torch

from ssm.base.progress import Progress
from ssm.base.seeds import numpy_generator
from ssm.evaluation.registry import MEASURES
from ssm.specs.measurements.extrapolation_error import NODES, PANELS, ExtrapolationError

DIGITS = 60
RATE, BETAS, SMALL = 1e-2, (0.9, 0.999), 1e-12  # of Adam; the rate falls to zero by a cosine
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Precision:
    """Arithmetic on arrays of a float type, or on object arrays of Decimals."""

    name: str
    of: Callable[[Array], Array]  # converts doubles exactly
    exp: Callable[[Array], Array]
    sqrt: Callable[[Any], Any]


def _decimals(values: Array) -> Array:
    return np.vectorize(Decimal, otypes=[object])(values)


PRECISIONS = (
    Precision("double", lambda x: x.astype(np.float64), np.exp, np.sqrt),
    Precision("longdouble", lambda x: x.astype(np.longdouble), np.exp, np.sqrt),
    Precision("exact", _decimals, np.vectorize(Decimal.exp, otypes=[object]), Decimal.sqrt),
)


def exponential(s: Array, precision: Precision) -> Array:
    """exp(-s/2) / 2, half the square root of u. It decays more slowly than every exponential of the fit."""
    return precision.exp(-s / 2) / 2


def power(s: Array, precision: Precision) -> Array:
    """1 / (1 + s)^2. It decays more slowly than any exponential."""
    return 1 / ((1 + s) * (1 + s))


MEMORIES: dict[str, Callable[[Array, Precision], Array]] = {"exponential": exponential, "power": power}


@MEASURES.function
def extrapolation_error(spec: ExtrapolationError, device: torch.device | None = None) -> pl.DataFrame:
    """Fits and errors in the schema ExtrapolationError.table, on the CPU."""
    rows: list[tuple[Any, ...]] = []
    with Progress("measure extrapolation_error", len(spec.windows) * (len(PRECISIONS) + 1), "fits") as progress:
        for window in spec.windows:
            for precision in PRECISIONS:
                with localcontext(prec=DIGITS):
                    rows += _least_squares(spec, window, precision)
                progress.advance(1)
            rows += _descents(spec, window)
            progress.advance(1)
    measured = {name: kind for name, kind in ExtrapolationError.table.columns.items() if name != "rounding"}
    frame = pl.DataFrame(rows, schema=measured, orient="row")
    keys = ["memory", "window", "size", "horizon"]
    exact = frame.filter(pl.col("fit") == "exact").select(*keys, pl.col("past").alias("rounding"))
    return frame.join(exact, on=keys, how="left", maintain_order="left").with_columns(
        rounding=pl.col("past") - pl.col("rounding")
    )


def nodes(start: float, stop: float, panels: int = PANELS) -> tuple[Array, Array]:
    """Gauss-Legendre nodes (K,) and weights (K,) of [start, stop], in equal panels, in double."""
    x, w = np.polynomial.legendre.leggauss(NODES)
    edges = np.linspace(start, stop, panels + 1)
    half = np.diff(edges)[:, None] / 2
    return ((edges[:-1, None] + half) + half * x).ravel(), (half * w).ravel()


def triangular(matrix: Array, right: Array, sqrt: Callable[[Any], Any]) -> tuple[Array, Array]:
    """R and Q^T right of matrix = Q R, by Householder reflections. (M, n), (M, R) -> (n, n), (n, R).

    The first k rows and columns are the result for the first k columns.
    """
    a, b = matrix.copy(), right.copy()
    n = a.shape[1]
    for k in range(n):
        v = a[k:, k].copy()
        norm = sqrt((v * v).sum())
        v[0] = v[0] + (norm if v[0] > 0 else -norm)
        scale = 2 / (v * v).sum()
        a[k:, k:] = a[k:, k:] - v[:, None] * (scale * (v @ a[k:, k:]))
        b[k:] = b[k:] - v[:, None] * (scale * (v @ b[k:]))
    return a[:n], b[:n]


def back_substituted(r: Array, b: Array) -> Array:
    """The solution x of r x = b. (n, n) upper triangular, (n, R) -> (n, R)."""
    x = b.copy()
    for k in range(len(r) - 1, -1, -1):
        x[k] = (b[k] - r[k, k + 1 :] @ x[k + 1 :]) / r[k, k]
    return x


def _least_squares(spec: ExtrapolationError, window: float, precision: Precision) -> Iterator[tuple[Any, ...]]:
    s, w = nodes(0.0, window)
    labels, added = _added(spec, len(s), precision)
    s, w = precision.of(s), precision.of(w)
    u = precision.exp(-s)
    roots = np.array([precision.sqrt(weight) for weight in w], dtype=u.dtype)[:, None]
    targets = [_targets(memory, s, w, added, precision) * roots for memory in MEMORIES]
    r, b = triangular(roots * _powers(u, max(spec.sizes)), np.concatenate(targets, 1), precision.sqrt)
    for size in spec.sizes:
        c = back_substituted(r[:size, :size], b[:size])  # (n, memories * R)
        for place, memory in enumerate(MEMORIES):
            own = c[:, place * len(labels) : (place + 1) * len(labels)]
            for horizon, errors in _Errors(spec, memory, window, precision).of(partial(_polynomial, own)):
                for column, (fit, draw) in enumerate(labels):
                    key = (memory, fit, window, size, horizon, draw)
                    yield (*key, *errors[:, column].tolist(), float(_log10(np.abs(own[:, column]).max())))


def _added(spec: ExtrapolationError, points: int, precision: Precision) -> tuple[list[tuple[str, int]], Array]:
    """(fit, draw) and additions (points, R) of each column: zero, and in exact arithmetic also noise."""
    labels, columns = [(precision.name, 1)], [np.zeros(points)]
    for noise in spec.noises if precision.name == "exact" else ():
        for draw in range(1, spec.draws + 1):
            labels.append((f"noise {noise:g}", draw))
            columns.append(noise * numpy_generator(spec.seed, "noise", draw).standard_normal(points))
    return labels, precision.of(np.stack(columns, 1))


def _targets(memory: str, s: Array, w: Array, added: Array, precision: Precision) -> Array:
    """A memory at the nodes plus each column of noise: (K, R)."""
    rho = MEMORIES[memory](s, precision)
    return rho[:, None] + (w * rho).sum() / w.sum() * added


def _polynomial(c: Array, u: Array) -> Array:
    """c_1 u + ... + c_n u^n. (n, R), (K,) -> (K, R)"""
    values: Array = _powers(u, len(c)) @ c
    return values


def _powers(u: Array, n: int) -> Array:
    """u, ..., u^n. (K,) -> (K, n)"""
    return np.cumprod(np.repeat(u[:, None], n, 1), axis=1)


class _Errors:
    """Errors of fits of one memory on one window."""

    def __init__(self, spec: ExtrapolationError, memory: str, window: float, precision: Precision):
        self.memory, self.precision, self.window = MEMORIES[memory], precision, window
        self.horizons = sorted(spec.horizons)

    def of(self, fitted: Callable[[Array], Array]) -> Iterator[tuple[float, Array]]:
        """Each horizon, with the errors of R fits as in the table, (6, R).

        Args:
            fitted: R fits as functions of u = exp(-s), (K,) -> (K, R).
        """
        inside, _ = self._over(fitted, 0.0, self.window)
        past = polynomial = forgotten = 0 * inside
        edge = 1.0
        for horizon in self.horizons:
            more, of_rho = self._over(fitted, edge * self.window, horizon * self.window)
            past, forgotten = past + more, forgotten + of_rho
            polynomial = polynomial + self._over_u(fitted, edge * self.window, horizon * self.window)
            edge = horizon
            log_inside, log_past, log_in_u, log_forgotten = map(_log10, (inside, past, polynomial, forgotten))
            apart = np.abs(log_in_u - log_past)
            excess, growth = log_past - log_forgotten, log_past - log_inside
            yield horizon, np.stack([log_inside, log_past, log_in_u, apart, excess, growth])

    def _over(self, fitted: Callable[[Array], Array], start: float, stop: float) -> tuple[Array, Array]:
        """Integrals of |rho - fitted| and of |rho| over s: (R,), (R,)."""
        s, w = map(self.precision.of, nodes(start, stop))
        rho = self.memory(s, self.precision)[:, None]
        error = np.abs(rho - fitted(self.precision.exp(-s)))
        return w @ error, w @ np.broadcast_to(np.abs(rho), error.shape)

    def _over_u(self, fitted: Callable[[Array], Array], start: float, stop: float) -> Array:
        """The integral of |rho(-log u) - polynomial| / u over u, in panels between powers of e: (R,)."""
        total: Any = 0
        edges = np.exp(-np.linspace(start, stop, PANELS + 1))
        for low, high in zip(edges[1:], edges[:-1], strict=True):
            u, w = nodes(float(low), float(high), 1)
            s = self.precision.of(-np.log(u))
            u, w = self.precision.exp(-s), self.precision.of(w)
            total = total + w @ (np.abs(self.memory(s, self.precision)[:, None] - fitted(u)) / u[:, None])
        return np.asarray(total)


def _log10(values: Any) -> Any:
    """log10 in double, also of longdouble and Decimal values outside the range of double."""
    values = np.asarray(values)
    if values.dtype == object:
        return np.vectorize(lambda value: float(value.log10()) if value else -np.inf, otypes=[np.float64])(values)
    with np.errstate(divide="ignore"):
        return np.log10(values).astype(np.float64)


def _descents(spec: ExtrapolationError, window: float) -> Iterator[tuple[Any, ...]]:
    precision = PRECISIONS[0]
    s, w = nodes(0.0, window)
    for memory, rho in MEMORIES.items():
        errors = _Errors(spec, memory, window, precision)
        for size in spec.descent_sizes or spec.sizes:
            generator = numpy_generator(spec.seed, "start", size)
            start = generator.standard_normal((spec.draws, 2, size))
            c, rates = descended(rho(s, precision), s, w, start, spec.descent_steps)  # (R, n)

            for horizon, of_runs in errors.of(partial(_exponentials, c, rates)):
                for draw in range(spec.draws):
                    key = (memory, "descent", window, size, horizon, draw + 1)
                    yield (*key, *of_runs[:, draw].tolist(), float(_log10(np.abs(c[draw]).max())))


def _exponentials(c: Array, rates: Array, u: Array) -> Array:
    """sum_k c_k u^rate_k for R runs. (R, n), (R, n), (K,) -> (K, R)"""
    values: Array = np.einsum("rkn,rn->kr", np.exp(np.log(u)[:, None] * rates[:, None]), c)
    return values


def descended(rho: Array, s: Array, w: Array, start: Array, steps: int) -> tuple[Array, Array]:
    """Final coefficients and rates (R, n) of R runs of Adam.

    Args:
        rho, s, w: memory, nodes and weights, (K,) each.
        start: (R, 2, n) standard normal numbers: n times the coefficients, and logarithms of the rates.
    """
    c, logs = start[:, 0] / start.shape[2], start[:, 1].copy()
    first = [np.zeros_like(c), np.zeros_like(c)]
    second = [np.zeros_like(c), np.zeros_like(c)]
    for step in range(1, steps + 1):
        rates = np.exp(logs)
        basis = np.exp(-s[:, None] * rates[:, None])  # (R, K, n)
        error = 2 * w * ((basis @ c[:, :, None])[:, :, 0] - rho)  # (R, K)
        by_c = (error[:, None] @ basis)[:, 0]  # (R, n)
        by_logs = -((error * s)[:, None] @ basis)[:, 0] * c * rates
        rate = RATE * (1 + np.cos(np.pi * (step - 1) / steps)) / 2
        for values, gradient, m, v in zip((c, logs), (by_c, by_logs), first, second, strict=True):
            m += (1 - BETAS[0]) * (gradient - m)
            v += (1 - BETAS[1]) * (gradient**2 - v)
            values -= rate * (m / (1 - BETAS[0] ** step)) / (np.sqrt(v / (1 - BETAS[1] ** step)) + SMALL)
    return c, np.exp(logs)

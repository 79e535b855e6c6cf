"""Overflows of states, compared with exact arithmetic, with and without rounding to the format."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import polars as pl
import pytest
import torch

from ssm.evaluation.overflow import DTYPES, overflow, predicted
from ssm.specs.measurements.overflow import Overflow

BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
SHARES = (-1.0, 0.0, 0.25, 0.5, 0.75, 1.25, 2.0)


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    formats, arithmetics = tuple(BITS), ("reference", "torch", "cpp", "loop")
    return overflow(Overflow(formats=formats, arithmetics=arithmetics, halvings=(2, 5), shares=SHARES[:5], draws=2))


def rounded(value: Fraction, bits: int) -> Fraction:
    """Round to this number of significant bits, ties to even."""
    if value == 0:
        return value
    scale = Fraction(2) ** (value.numerator.bit_length() - value.denominator.bit_length() - bits)
    while abs(value / scale) >= 2**bits:
        scale *= 2
    while abs(value / scale) < 2 ** (bits - 1):
        scale /= 2
    return round(value / scale) * scale  # round() of a Fraction rounds ties to even


def first_overflow(name: str, weight: float, g: Fraction, steps: int, rounds: bool) -> int | None:
    """The step of the overflow in rational arithmetic, where each operation is rounded, or none."""
    largest = Fraction(torch.finfo(DTYPES[name]).max)
    a, b, h = Fraction(weight), rounded(g * largest, BITS[name]), Fraction(0)
    for t in range(1, steps + 1):
        h = rounded(rounded(a * h, BITS[name]) + b, BITS[name]) if rounds else a * h + b
        if abs(h) > largest:
            return t
    return None


def constant(table: pl.DataFrame, **where: Any) -> list[dict[str, Any]]:
    rows = table.filter(pl.col("inputs") == "constant", *(pl.col(name) == value for name, value in where.items()))
    assert rows.height, f"no rows with {where}"
    return list(rows.iter_rows(named=True))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_the_loop_agrees_with_exact_arithmetic(table: pl.DataFrame, name: str) -> None:
    for row in constant(table, format=name, arithmetic="loop", state="carried"):
        g = Fraction(1, 2 ** row["halvings"])
        assert row["position"] == first_overflow(name, row["weight"], g, 256, rounds=True), row
        assert row["weight"] == rounded(1 - Fraction(row["share"]) * g, BITS[name])


@pytest.mark.parametrize("backend", ["reference", "torch", "cpp"])
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_scans_agree_with_exact_arithmetic(table: pl.DataFrame, name: str, backend: str) -> None:
    """Rounding may delay the overflow by one step."""
    for row in constant(table, format=name, arithmetic=backend, state="carried", halvings=2):
        exact = first_overflow(name, row["weight"], Fraction(1, 4), 24, rounds=False)
        assert exact == row["predicted"]
        assert row["position"] - exact in (0, 1) if exact else row["position"] is None, row


@pytest.mark.parametrize("backend", ["reference", "torch", "cpp"])
def test_scans_compute_in_more_than_half_precision(table: pl.DataFrame, backend: str) -> None:
    """A float16 state overflows at the predicted step when it is stored, but not inside the scan, in float32."""
    rows = constant(table, format="float16", arithmetic=backend, share=0.0)
    assert [row["position"] is None for row in rows] == [row["state"] == "carried" for row in rows]
    assert {row["within"] for row in rows if row["state"] == "stored"} == {True}
    assert {row["within"] for row in rows if row["state"] == "carried"} == {False}


def test_a_loop_in_bfloat16_stalls_when_rounding_removes_the_step() -> None:
    fields: dict[str, Any] = {"formats": ("bfloat16",), "arithmetics": ("loop",), "halvings": (10,), "shares": (0.0,)}
    (row,) = constant(overflow(Overflow(**fields, draws=1, lengths=2)), arithmetic="loop", state="stored")
    assert (row["position"], row["above"], row["within"], row["predicted"]) == (None, True, False, 1025)


@pytest.mark.parametrize("g", [0.5, 1 / 16, 1 / 1000])
@pytest.mark.parametrize("share", [-3.0, -0.1, 0.0, 0.3, 0.99, 1.0, 1.5])
def test_the_predicted_step(g: float, share: float) -> None:
    """Compared with the sum in 50 digits."""
    weight, found = 1 - share * g, predicted(1 - share * g, g)
    with mpmath.workdps(50):
        a, step = mpmath.mpf(weight), mpmath.mpf(g)

        def size(t: int) -> Any:
            return step * t if a == 1 else step * (1 - a**t) / (1 - a)

        if found is None:
            assert size(10**6) <= 1 + 1e-12
        else:
            assert size(found - 1) <= 1 + 1e-9
            assert size(found) > 1


def test_weights_within_the_bound_never_overflow(table: pl.DataFrame) -> None:
    assert not table.filter(~pl.col("above"))["overflows"].any()
    with_the_bound = table.filter(pl.col("arithmetic") == "bound")
    assert with_the_bound["position"].to_list() == with_the_bound["predicted"].to_list()
    assert with_the_bound.filter(pl.col("above"))["within"].all()


def test_within_means_half_to_twice_the_predicted_step(table: pl.DataFrame) -> None:
    found = set()
    for row in table.filter(pl.col("above")).iter_rows(named=True):
        ratio = row["position"] / row["predicted"] if row["overflows"] else 0.0
        assert row["within"] == (0.5 <= ratio <= 2), row
        found.add(0.0 if ratio == 0 else 1.0 if row["within"] else 3.0 if ratio < 4 else 4.0)
    assert found == {0.0, 1.0, 3.0, 4.0}
    assert table.filter(~pl.col("above"))["within"].null_count() == table.filter(~pl.col("above")).height


def test_every_draw_has_other_signs_and_the_seed_chooses_them() -> None:
    fields: dict[str, Any] = {
        "formats": ("float32",),
        "arithmetics": ("loop",),
        "halvings": (2,),
        "shares": (-1.0, 0.0),
    }
    first, again, other = (overflow(Overflow(**fields, draws=6, seed=seed)) for seed in (1, 1, 2))
    assert first.equals(again)
    assert not first.equals(other)
    assert first.filter(pl.col("inputs") == "random")["position"].n_unique() > 2

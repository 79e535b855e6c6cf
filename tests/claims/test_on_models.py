"""Quantities of models: exact if something is counted, with an interval over rounds if something is timed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from claims.synthetic import claim, estimate, figure_task

from ssm.base.tables import write_table
from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.verdict import judge
from ssm.figures.figure import FigureTask
from ssm.specs.measurements.cost import Cost
from ssm.specs.measurements.taxonomy import Taxonomy

Rows = Sequence[Any]
TAXON = {
    "model": "s5", "mixer": "s5", "system": "S5", "paper": "x", "scan": "diagonal_scan", "decay": "by channel",
    "complex": True, "recurrence": "h", "state_shape": "1 x 4 x 2", "state_numbers": 8, "state_numbers_late": 8,
    "length": 64, "selective": False, "linear": True, "identity": False,
}  # fmt: skip


def task(folder: Path, quantity: dict[str, Any], taxa: Rows, costs: Rows, **expected: float) -> FigureTask:
    planned = figure_task([claim(quantity, **expected)])
    write_table(pl.DataFrame(taxa, schema=Taxonomy.table.columns), Taxonomy.table, folder / "taxonomy-1.parquet", {})
    costs = costs or (("other", "s5", 8, "state", 1, 1.0),)
    write_table(pl.DataFrame(costs, schema=Cost.table.columns, orient="row"), Cost.table, folder / "cost-1.parquet", {})
    return planned.model_copy(update={"tables": ("taxonomy-1", "cost-1")})


def measured(folder: Path, quantity: dict[str, Any], taxa: Rows = (TAXON,), costs: Rows = ()) -> Estimate:
    made = task(folder, quantity, taxa, costs, above=0.5)
    return estimate(made, "tiny", made.figure.claims[0].quantity, folder)


@pytest.mark.parametrize(
    ("name", "change", "value"),
    [
        ("selective", {}, 0.0),
        ("selective", {"selective": True}, 1.0),
        ("linear", {}, 1.0),
        ("identity", {}, 0.0),
        ("identity", {"identity": True}, 1.0),
        ("constant", {}, 1.0),
        ("constant", {"state_numbers_late": 9}, 0.0),
    ],
)
def test_a_property_is_one_or_zero(tmp_path: Path, name: str, change: dict[str, Any], value: float) -> None:
    found = measured(tmp_path, {"kind": "system_property", "model": "s5", "property": name}, [TAXON | change])
    assert (found.value, found.low, found.high, found.interval.words()) == (value, value, value, "exact")


def test_a_property_confirms_and_refutes(tmp_path: Path) -> None:
    quantity = {"kind": "system_property", "model": "s5", "property": "selective"}
    for selective, verdict in ((True, "confirmed"), (False, "refuted")):
        made = task(tmp_path, quantity, [TAXON | {"selective": selective}], [], above=0.5)
        assert judge(made, tmp_path)["verdict"].to_list() == [verdict]


def test_missing_properties_and_models_are_undecidable(tmp_path: Path) -> None:
    quantity = {"kind": "system_property", "model": "s5", "property": "selective"}
    with pytest.raises(UndecidableError, match="the state of s5 grows"):
        measured(tmp_path, quantity, [TAXON | {"selective": None}])
    with pytest.raises(UndecidableError, match="gla is not among the measured models"):
        measured(tmp_path, quantity | {"model": "gla"})


def test_an_exponent_is_the_slope_over_all_lengths(tmp_path: Path) -> None:
    """Least squares on logarithmic scales: log2 of 1, 4, 2, 2 rises by (-3 * 0 - 2 + 1 + 3) / 10 per doubling."""
    quantity = {"kind": "cost_exponent", "model": "s5", "cost": "state"}
    for values, exponent in (([1, 4, 2, 2], 0.2), ([3, 12, 48, 192], 2.0), ([7, 7, 7, 7], 0.0)):
        costs = [("s5", "s5", length, "state", 1, float(x)) for length, x in zip((8, 16, 32, 64), values, strict=True)]
        found = measured(tmp_path, quantity, costs=costs[::-1])
        assert (found.value, found.low, found.high) == pytest.approx((exponent,) * 3, abs=1e-12)
        assert found.interval.words() == "exact"


def test_a_timed_exponent_is_paired_by_round(tmp_path: Path) -> None:
    """If a machine is slower in some rounds, the exponents stay the same; their spread is the interval."""
    slowness, exponents = [1.0, 2.0, 1.0, 2.0, 1.0], [0.9, 1.0, 1.1, 1.0, 1.05]
    costs = [
        ("s5", "s5", length, "training_step", repeat, slow * length**power)
        for repeat, (slow, power) in enumerate(zip(slowness, exponents, strict=True), 1)
        for length in (8, 16, 64)
    ]
    quantity = {"kind": "cost_exponent", "model": "s5", "cost": "training_step"}
    found = measured(tmp_path, quantity, costs=costs)
    assert found.value == pytest.approx(1.0)
    assert (found.low, found.high) == (pytest.approx(0.9), pytest.approx(1.1))
    same = measured(tmp_path, quantity, costs=[(*row[:5], row[4] * row[2]) for row in costs])
    assert (same.value, same.low, same.high) == (pytest.approx(1.0), pytest.approx(1.0), pytest.approx(1.0))

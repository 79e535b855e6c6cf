"""Quantities of a figure's own table: exact without random draws, otherwise with an interval over the draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from claims.synthetic import claim, estimate
from plan.mini import figure, write_config

from ssm.base.errors import ConfigError, TableError
from ssm.base.tables import write_table
from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.quantities.own_table import OwnTable
from ssm.claims.verdict import judge
from ssm.figures.figure import ArmEntry, FigureTask
from ssm.plan import load_config, make_plan
from ssm.plan.review import contents
from ssm.specs.measurements.overflow import Overflow

FIELDS: dict[str, Any] = {"formats": ["float32"], "arithmetics": ["loop"], "halvings": [2], "shares": [0, 2]}
CURVE = {"measurement": "overflow", "x": "halvings", "column": "scaled", "where": {"inputs": "constant"}}


def task(
    folder: Path, of: dict[str, Any], random: dict[int, list[float]] | None = None, **expected: float
) -> FigureTask:
    """A table with a constant curve 2, 4, 8 at 1, 2, 3 halvings, and draws of another curve."""
    rows = [("constant", halvings, 1, 2.0**halvings) for halvings in (1, 2, 3)]
    for halvings, values in (random or {1: [1.0, 2.0], 2: [3.0, 5.0]}).items():
        rows += [("random", halvings, draw, value) for draw, value in enumerate(values, 1)]
    fields = {"format": "float32", "arithmetic": "cpp", "state": "carried", "share": 0.0, "weight": 1.0, "above": True}
    more: dict[str, Any] = {"predicted": 1, "steps": 9, "position": 1, "overflows": True, "within": True}
    named = [dict(zip(("inputs", "halvings", "draw", "scaled"), row, strict=True)) | fields | more for row in rows]
    frame = pl.DataFrame(named, schema=Overflow.table.columns)
    write_table(frame, Overflow.table, folder / "overflow-1.parquet", {"written": "2025-01-01T00:00:00+00:00"})
    figure = {
        **{"target": "ls_eq40", "paper": "ls", "title": "Overflow", "caption": "It.", "setting": "None."},
        "measurements": [{"kind": "overflow", **FIELDS}],
        "drawings": [{"kind": "curves", "measurement": "overflow", "x": "share", "column": "scaled"}],
        "claims": [claim({"kind": "own_table", "of": of}, **(expected or {"above": 0.0}))],
    }
    return FigureTask.parse({"figure": figure, "scale": "smoke", "series": [], "tables": ["overflow-1"]}, "tests")


def measured(folder: Path, of: dict[str, Any], **random: Any) -> Estimate:
    made = task(folder, of, **random)
    return estimate(made, "", made.figure.claims[0].quantity, folder)


@pytest.mark.parametrize(
    ("of", "value"),
    [
        ({"kind": "slope", "log_y": True, **CURVE}, np.log(2)),
        ({"kind": "area", **CURVE}, 4.5),
        ({"kind": "order", **CURVE}, 2.0),
        ({"kind": "order", "ratio": True, "direction": "down", **CURVE}, 0.5),
        ({"kind": "crossing", "value": 6.0, **CURVE}, 2.5),
        ({"kind": "value_at", "measurement": "overflow", "column": "scaled", "where": {"halvings": 3}}, 8.0),
    ],
)
def test_without_draws_it_is_exact(tmp_path: Path, of: dict[str, Any], value: float) -> None:
    found = measured(tmp_path, of)
    assert (found.value, found.low, found.high) == pytest.approx((value,) * 3)
    assert found.interval.words() == "exact"
    assert "figure" not in found.words


def test_draws_have_an_interval(tmp_path: Path) -> None:
    values = {1: [1.0, 1.1, 0.9, 1.0], 2: [3.0, 3.3, 2.8, 2.9]}
    found = measured(tmp_path, {"kind": "slope", **CURVE, "where": {"inputs": "random"}}, random=values)
    assert found.value == pytest.approx(2.0)
    assert found.low <= 2.0 <= found.high
    assert found.interval.words() == "95% bootstrap over 4 draws"
    where = {"inputs": "random", "halvings": 1}
    at: dict[str, Any] = {"kind": "value_at", "measurement": "overflow", "column": "scaled", "where": where}
    mean = measured(tmp_path, at, random=values)
    half = 3.182446 * np.std(values[1], ddof=1) / 2  # Student's t of 3 degrees of freedom
    assert (mean.value, mean.low, mean.high) == pytest.approx((1.0, 1.0 - half, 1.0 + half))
    assert mean.interval.words() == "95% Student t over 4 draws"


def test_draws_that_agree_are_exact(tmp_path: Path) -> None:
    """As in ls eq. 40: no state overflows, whatever the inputs are."""
    values, where = {1: [1.0, 1.0, 1.0], 2: [3.0, 3.0, 3.0]}, {"inputs": "random"}
    at = {"kind": "value_at", "measurement": "overflow", "column": "scaled", "where": where | {"halvings": 2}}
    for of, value in ((at, 3.0), ({"kind": "slope", **CURVE, "where": where}, 2.0)):
        found = measured(tmp_path, of, random=values)
        assert (found.value, found.low, found.high) == pytest.approx((value,) * 3)
        assert found.interval.words() == "exact"


def test_it_confirms_and_refutes(tmp_path: Path) -> None:
    of = {"kind": "slope", **CURVE}
    for bound, verdict in ((2.9, "confirmed"), (3.1, "refuted")):
        row = judge(task(tmp_path, of, above=bound), tmp_path).row(0, named=True)
        assert (row["verdict"], row["sort"]) == (verdict, "paper")


def test_tables_older_than_the_registration_are_not_registered(tmp_path: Path) -> None:
    made = task(tmp_path, {"kind": "slope", **CURVE})
    for date, registered in (("2024-12-31T00:00:00+00:00", True), ("2025-01-02T00:00:00+00:00", False)):
        frame = judge(made.model_copy(update={"registered": {"it": date}}), tmp_path)
        assert frame["registered"].to_list() == [registered]


def test_a_missing_table(tmp_path: Path) -> None:
    made = task(tmp_path, {"kind": "slope", **CURVE})
    quantity = made.figure.claims[0].quantity
    with pytest.raises(UndecidableError, match="the figure itself has no overflow at the scale smoke"):
        estimate(made.model_copy(update={"tables": ()}), "", quantity, tmp_path)
    (tmp_path / "overflow-1.parquet").unlink()
    with pytest.raises(
        TableError, match=r"overflow-1\.parquet: no such table .*`snakemake --cores all ls_eq40 --config scale=smoke` m"
    ):
        estimate(made, "", quantity, tmp_path)


def test_tables_of_other_kinds_are_not_opened(tmp_path: Path) -> None:
    made = task(tmp_path, {"kind": "slope", **CURVE}, above=0.0)
    (tmp_path / "model-size-1.parquet").write_text("broken")
    more = made.model_copy(
        update={"tables": ("model-size-1", "cost-1", *made.tables), "registered": {"it": "2025-01-01T00:00:00+00:00"}}
    )
    assert judge(more, tmp_path)["verdict"].to_list() == judge(made, tmp_path)["verdict"].to_list() == ["confirmed"]


def test_an_arm_named_figure_does_not_clash(tmp_path: Path) -> None:
    """The figure's own table belongs to no arm."""
    made = task(tmp_path, {"kind": "slope", **CURVE})
    arms = {"figure": ArmEntry(label="An arm", training="p")}
    named = made.model_copy(update={"figure": made.figure.model_copy(update={"arms": arms})})
    for one in (made, named):
        found = estimate(one, "", one.figure.claims[0].quantity, tmp_path)
        assert "An arm" not in found.words
        assert "  " not in found.words


@pytest.mark.parametrize(
    ("of", "message"),
    [
        ({"kind": "slope", **CURVE, "arm": "base"}, "leave it out here"),
        ({"kind": "slope", **CURVE, "against": "base"}, "must read one column of one table, and name no other arm"),
        ({"kind": "restart_ratio", "times_context": 4}, "must read one column of one table"),
        ({"kind": "system_property"}, "not a quantity of an arm"),
    ],
)
def test_only_quantities_of_one_column_are_allowed(of: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OwnTable.model_validate({"kind": "own_table", "of": of})


def planned(tmp_path: Path, name: str = "overflow", **changes: Any) -> Any:
    folder = write_config(tmp_path / "config")
    of = {"kind": "value_at", "measurement": name, "column": "overflows"}
    figure(
        folder,
        "ls_eq40",
        models=[],
        arms={},
        measurements=[{"kind": "overflow", **FIELDS, **changes}],
        drawings=[{"kind": "curves", "measurement": "overflow", "x": "share", "column": "scaled"}],
        claims=[claim({"kind": "own_table", "of": of}, above=0.1)],
    )
    return make_plan(load_config(folder, figures=["ls_eq40"]))


def test_the_hash_depends_on_what_is_measured(tmp_path: Path) -> None:
    def registered(**changes: Any) -> Any:
        plan = planned(tmp_path, **changes)
        (found,) = contents(plan.figures["ls_eq40"], plan.runs, plan.measurements).values()
        return found

    plain = registered()
    assert registered() == plain
    assert registered(seed=5).measurements != plain.measurements
    assert registered(seed=5).quantity == plain.quantity


def test_models_are_not_needed_and_measurements_must_exist(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert not plan.runs
    assert not plan.data
    with pytest.raises(ConfigError, match=r"claims.it.quantity.of.measurement: no measurement 'overfow'.*'overflow'"):
        planned(tmp_path, name="overfow")

"""A verdict follows from its interval, for every kind of quantity, in all three ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from claims.synthetic import AT, LABELS, MEASURED, claim, figure_task, write_tables
from hypothesis import assume, given
from hypothesis import strategies as st

from ssm.base.errors import ConfigError, TableError
from ssm.base.tables import VERDICTS, read_any, read_table, write_table
from ssm.claims.claim import Expected
from ssm.claims.estimate import Estimate
from ssm.claims.method import EXACT, Method
from ssm.claims.pieces import SampleQuantity
from ssm.claims.quantities.perplexity_at import PerplexityAt
from ssm.claims.quantity import QUANTITIES, ModelQuantity
from ssm.claims.statements import ADDED, CONFIRMED, DEFINITION, OPEN, PAPER, REFUTED, VERDICT_NAMES
from ssm.claims.verdict import DRY_RUN, ONE_SEED, decide, judge
from ssm.claims.words import BOUND
from ssm.figures.figure import FigureTask
from ssm.specs.measurements import SCHEMAS
from ssm.specs.measurements.model_size import ModelSize

finite = st.floats(-1e6, 1e6)
bounds = st.one_of(
    st.builds(lambda a: Expected(above=a), finite),
    st.builds(lambda b: Expected(below=b), finite),
    st.tuples(finite, finite).filter(lambda p: p[0] < p[1]).map(lambda p: Expected(above=p[0], below=p[1])),
)


def inside(x: float, expected: Expected) -> bool:
    return (expected.above is None or x > expected.above) and (expected.below is None or x < expected.below)


@given(bounds)
def test_the_text_of_a_region_loses_no_digit(expected: Expected) -> None:
    """Registrations store the text. A bound that changes in its last digit is another claim."""
    assert Expected.of_words(expected.words()) == expected
    assert tuple(float(bound) for bound in BOUND.findall(expected.words())) == expected.bounds


@given(bounds, st.tuples(finite, finite).map(sorted))
def test_a_verdict_agrees_with_every_point_of_the_interval(expected: Expected, interval: list[float]) -> None:
    low, high = interval
    marks = [x for b in expected.bounds for x in (np.nextafter(b, -9e9), b)]
    marks += [np.nextafter(m, 9e9) for m in marks]
    said = {inside(x, expected) for x in [low, high, *np.linspace(low, high, 7), *marks] if low <= x <= high}
    verdict, reason = decide(low, high, expected)
    assert verdict == {(True,): CONFIRMED, (False,): REFUTED}.get(tuple(said), OPEN)
    assert reason


@given(bounds, st.floats(0.01, 100))
def test_every_region_can_give_all_three_verdicts(expected: Expected, width: float) -> None:
    if expected.above is None:
        assert expected.below is not None
        edge, out, into = expected.below, width, -width
    else:
        room = width if expected.below is None else (expected.below - expected.above) / 4
        edge, out, into = expected.above, -width, room
    assume(abs(into) > 1e-6)  # a region narrower than the spacing of the numbers has no inside
    for near, far, verdict in ((into, 2 * into, CONFIRMED), (out, 2 * out, REFUTED), (out, into, OPEN)):
        assert decide(*sorted((edge + near, edge + far)), expected)[0] == verdict


def test_a_reason_names_the_interval_and_the_bound() -> None:
    assert decide(1.2, 1.9, Expected(above=1.5)) == (OPEN, "interval 1.2 to 1.9 contains the bound 1.5")
    assert decide(1.2, 1.5, Expected(below=1.5)) == (OPEN, "interval 1.2 to 1.5 contains the bound 1.5")
    assert decide(1.6, 1.9, Expected(above=1.5)) == (CONFIRMED, "interval 1.6 to 1.9 lies inside > 1.5")
    assert decide(1.2, 1.5, Expected(above=1.5)) == (REFUTED, "interval 1.2 to 1.5 lies outside > 1.5")
    assert decide(1.0, 1.0, Expected(above=0.9, below=1.1)) == (CONFIRMED, "value 1 lies inside 0.9 to 1.1")


@pytest.mark.parametrize(
    ("numbers", "expected", "shown", "verdict", "reason"),
    [
        ((7e-16,) * 3, {"above": 0.0}, (0.0,) * 3, REFUTED, "value 0 lies outside > 0; only rounding would make it "),
        ((-7e-16,) * 3, {"above": 0.0}, (0.0,) * 3, REFUTED, "value 0 lies outside > 0"),
        ((1 - 4e-16,) * 3, {"below": 1.0}, (1.0,) * 3, REFUTED, "value 1 lies outside < 1; only rounding would "),
        ((7e-16,) * 3, {"below": 0.1}, (0.0,) * 3, CONFIRMED, "value 0 lies inside < 0.1"),
        ((0.2, 4e-16, 0.4), {"above": 0.0}, (0.2, 0.0, 0.4), OPEN, "interval 0 to 0.4 contains the bound 0; only roun"),
        ((1e-9,) * 3, {"above": 0.0}, (1e-9,) * 3, CONFIRMED, "value 1e-09 lies inside > 0"),
    ],
)
def test_no_verdict_depends_on_rounding(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    numbers: tuple[float, float, float],
    expected: dict[str, float],
    shown: tuple[float, float, float],
    verdict: str,
    reason: str,
) -> None:
    monkeypatch.setattr(PerplexityAt, "estimate", lambda *_: Estimate(*numbers, Method(EXACT), "it"))
    task = figure_task([claim(AT, **expected)])
    write_tables(tmp_path, task, {})
    row = judge(task, tmp_path).row(0, named=True)
    assert (row["estimate"], row["low"], row["high"]) == shown
    assert row["verdict"] == verdict
    assert row["reason"].startswith(reason)
    assert ("only rounding" in row["reason"]) == ("only" in reason)


def test_unbounded_and_empty_regions_are_rejected() -> None:
    for bounds in ({}, {"above": 1.0, "below": 1.0}, {"above": 1.1, "below": 1.0}):
        with pytest.raises(ConfigError):
            Expected.parse(bounds, "tests")
    assert Expected(above=1.0, below=1.1).words() == "1 to 1.1"


def thrice(key: str, *values: Any) -> list[dict[str, Any]]:
    return [{key: value} for value in values]


LATE, LESS = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0, 0.1, 1.0]  # curves that rise only at the end
NORM = {"measurement": "state_statistics", "x": "position", "column": "norm", "where": {"layer": -1}}
COSINE = {
    "measurement": "effective_remembrance",
    "x": "t",
    "column": "value",
    "where": {"distance": "one_minus_cosine"},
}
# kind -> the quantity, a number for the region "> number", tables of three seeds above it, and tables below it
FLIPS: dict[str, tuple[dict[str, Any], float, list[dict[str, Any]], list[dict[str, Any]]]] = {
    "restart_ratio": ({"times_context": 4.0}, 1.5, thrice("late", 3.0, 3.1, 3.2), thrice("late", 2.0, 2.1, 2.2)),
    "perplexity_growth": ({"times_context": 4.0}, 1.5, thrice("late", 3.0, 3.1, 3.2), thrice("late", 2.0, 2.1, 2.2)),
    "perplexity_at": ({"times_context": 4.0}, 12.0, thrice("late", 3.0, 3.1, 3.2), thrice("late", 2.0, 2.1, 2.2)),
    "state_norm_growth": ({"times_context": 4.0}, 1.5, thrice("norm", 3.0, 3.1, 3.2), thrice("norm", 1.0, 1.1, 1.2)),
    "head_drift": ({"times_context": 4.0}, 1.5, thrice("heads", 3.0, 3.1, 3.2), thrice("heads", 1.0, 1.1, 1.2)),
    "remembrance": ({}, 0.4, thrice("remembrance", 0.6, 0.61, 0.62), thrice("remembrance", 0.1, 0.11, 0.12)),
    "shape_difference": (
        {"distance": "one_minus_cosine"},
        0.2,
        thrice("cosine", LATE, LESS, LATE),
        thrice("cosine", [1.0] * 6, [0.6] * 6, [1.0, 1.0, 1.0, 0.95, 1.0, 1.0]),
    ),
    "value_at": (
        {"measurement": "position_loss", "column": "loss", "times_context": 4.0},
        2.5,
        thrice("late", 3.0, 3.1, 3.2),
        thrice("late", 2.0, 2.1, 2.2),
    ),
    "slope": (NORM, 0.1, thrice("norm", 3.0, 3.1, 3.2), thrice("norm", 1.0, 1.1, 1.2)),
    "crossing": (NORM | {"value": 4.0}, 16.0, thrice("norm", 1.6, 1.62, 1.64), thrice("norm", 3.0, 3.1, 3.2)),
    "reach": (
        COSINE | {"value": 0.0},
        14.0,
        thrice("cosine", *([1.0, 1.0, end, -1.0, -1.0, -1.0] for end in (1.0, 1.01, 1.02))),
        thrice("cosine", *([1.0, end, -1.0, -1.0, -1.0, -1.0] for end in (1.0, 1.01, 1.02))),
    ),
    "area": (NORM, 4.0, thrice("norm", 3.0, 3.1, 3.2), thrice("norm", 1.0, 1.1, 1.2)),
    "order": (
        COSINE | {"where": {"distance": "jensen_shannon"}},
        0.05,
        thrice("remembrance", 0.6, 0.61, 0.62),
        thrice("remembrance", 0.1, 0.11, 0.12),
    ),
    "r_squared": (
        COSINE,
        0.9,
        thrice("cosine", *([1.0] * 5 + [end] for end in (1.01, 1.02, 1.03))),
        thrice("cosine", LATE, LESS, [1.0, 0.0, 0.0, 0.0, 0.2, 1.0]),
    ),
    "extreme": (NORM | {"which": "largest"}, 6.0, thrice("norm", 3.0, 3.1, 3.2), thrice("norm", 1.0, 1.1, 1.2)),
    "optimum": (
        COSINE | {"which": "largest"},
        20.0,
        thrice("cosine", *([1.0, 0.0, 0.0, 1.0, middle, 0.0] for middle in (1.0, 1.01, 1.02))),
        thrice("cosine", *([1.0, 0.0, middle, 0.1, 0.0, 0.0] for middle in (1.0, 1.1, 1.2))),
    ),
}


def test_every_quantity_has_a_test_that_flips_its_verdict() -> None:
    """Other files have those of models, samples, own tables, effects, instability, rates, ranks and two kinds."""
    on_models, on_samples = {"parameter_ratio", "system_property", "cost_exponent"}, {"piece_share", "piece_depth"}
    elsewhere = {
        "instability",
        "critical_rate",
        "solved_share",
        "steps_to_solve",
        "effect",
        "own_table",
        "rank_correlation",
        "repaired_share",
    }
    assert set(QUANTITIES) == set(FLIPS) | on_models | on_samples | elsewhere
    for kinds, base in ((on_models, ModelQuantity), (on_samples, SampleQuantity)):
        assert kinds == {kind for kind, quantity in QUANTITIES.items() if issubclass(quantity, base)}


@pytest.mark.parametrize("kind", FLIPS)
def test_a_verdict_flips_when_the_data_flip(tmp_path: Path, kind: str) -> None:
    fields, bound, above, below = FLIPS[kind]
    task = figure_task([claim({"kind": kind, "arm": "base"} | fields, above=bound)])
    mixed = [above[0], below[0], above[2]]
    for said, verdict in ((above, CONFIRMED), (below, REFUTED), (mixed, OPEN)):
        write_tables(tmp_path, task, {("base", seed): values for seed, values in enumerate(said, 1)})
        row = judge(task, tmp_path).row(0, named=True)
        assert row["verdict"] == verdict, row
        assert LABELS["base"] in row["quantity"]
        assert None not in row.values()


def test_parameter_ratio_flips_with_its_bounds(tmp_path: Path) -> None:
    quantity = {"kind": "parameter_ratio", "model": "tiny"}
    claims = [
        claim(quantity, "yes", above=0.9, below=1.3),
        claim(quantity, "no", above=0.9, below=1.1),
        claim({"kind": "parameter_ratio", "model": "unpublished"}, "unknown", above=0.9),
    ]
    task = figure_task(claims, panels=("tiny", "small"))
    write_tables(tmp_path, task, {})
    frame = judge(task, tmp_path)
    assert frame["claim"].to_list() == ["yes", "no", "unknown"]  # once, and not once per panel
    assert frame["verdict"].to_list() == [CONFIRMED, REFUTED, OPEN]
    assert frame["estimate"].to_list() == [1.25, 1.25, None]
    assert frame["interval"].to_list() == ["exact", "exact", "none"]
    assert frame["reason"][2] == "the paper states no number of parameters for unpublished"


def test_several_panels_have_separate_verdicts(tmp_path: Path) -> None:
    task = figure_task([claim(AT, above=1.0)], panels=("tiny", "small"))
    write_tables(tmp_path, task, {})
    frame = judge(task, tmp_path)
    assert frame["claim"].to_list() == ["it/tiny", "it/small"]
    assert frame["target"].to_list() == [task.target] * 2


def test_a_claim_about_some_models_is_judged_only_on_them(tmp_path: Path) -> None:
    """If the scale has none of them, the claim is not decided."""
    claims = [
        claim(AT, "small_ones", above=1.0) | {"models": ["small", "middle"]},
        claim(AT, "large_ones", above=1.0) | {"models": []},
    ]
    task = figure_task(claims, panels=("tiny", "small", "middle"), seeds=(1,))
    write_tables(tmp_path, task, {("base", 1): {"late": [2.0, 2.1, 2.2, 2.3]}})
    frame = judge(task, tmp_path)
    assert frame["claim"].to_list() == ["small_ones/small", "small_ones/middle", "large_ones"]
    assert frame["verdict"].to_list() == [CONFIRMED, CONFIRMED, OPEN]
    assert frame["reason"][2] == "this claim is about models that the scale smoke does not have"
    assert [sort == "elsewhere" for sort in frame["sort"]] == [False, False, True]


def test_an_undecidable_claim_has_a_reason(tmp_path: Path) -> None:
    task = figure_task([claim(AT | {"arm": "control"}, above=1.0)])
    write_tables(tmp_path, task, {})
    frame = judge(task, tmp_path)
    row = frame.row(0, named=True)
    assert (row["verdict"], row["estimate"]) == (OPEN, None)
    assert row["reason"] == "the arm 'control' does not exist at the scale smoke"
    assert row["verdict"] in VERDICT_NAMES
    write_table(frame, VERDICTS, tmp_path / "verdicts.parquet", {})


def test_a_dry_run_computes_but_reports_nothing(tmp_path: Path) -> None:
    claims = [
        claim(AT, "number", above=1.0),
        claim(AT | {"arm": "control"}, "no_such_arm", above=1.0),
        claim({"kind": "parameter_ratio", "model": "tiny"}, "exact", above=1.0),
    ]
    task = figure_task(claims).model_copy(update={"dry_run": True})
    readings = {("base", seed): {"late": 3.0 + seed / 10} for seed in (1, 2, 3)}
    write_tables(tmp_path, task, readings)
    for row in judge(task, tmp_path).iter_rows(named=True):
        assert (row["verdict"], row["reason"]) == (OPEN, DRY_RUN)
        assert (row["estimate"], row["low"], row["high"], row["interval"]) == (None, None, None, "none")
    assert judge(task.model_copy(update={"dry_run": False}), tmp_path)["verdict"].to_list() == [
        CONFIRMED,
        OPEN,
        CONFIRMED,
    ]
    (tmp_path / f"{task.series[0].tables['position_loss']}.parquet").unlink()
    with pytest.raises(TableError, match="no such table"):
        judge(task, tmp_path)


def registration(task: Any, tables: Path) -> tuple[bool | None, str]:
    row = judge(task, tables).row(0, named=True)
    return row["registered"], row["registration"]


def test_registration_must_be_before_the_measurement(tmp_path: Path) -> None:
    task = figure_task([claim(AT, above=1.0)])
    write_tables(tmp_path, task, {})
    assert registration(task, tmp_path) == (True, "registered 2024-12-31 00:00 UTC, before it was measured")
    unknown = task.model_copy(update={"registered": {}})
    assert registration(unknown, tmp_path)[0] is False
    assert registration(unknown, tmp_path)[1].startswith("not registered")
    for late in ("2025-01-01T00:00:01+00:00", "2024-12-31T23:30:00-01:00"):
        found = registration(task.model_copy(update={"registered": {"it": late}}), tmp_path)
        assert found[0] is False
        assert found[1].endswith("but measured earlier, 2025-01-01 00:00 UTC")
    in_time = task.model_copy(update={"registered": {"it": MEASURED}})
    assert registration(in_time, tmp_path)[0] is True
    dry = task.model_copy(update={"dry_run": True})
    assert registration(dry, tmp_path) == (None, "")


@pytest.mark.parametrize("date", ["2024-12-31T00:00:00+00:00x", "2024-12-31", "2024-12-31T00:00:00+01:00"])
def test_a_registration_date_must_be_a_time_in_utc(date: str) -> None:
    task = figure_task([claim(AT, above=1.0)])
    with pytest.raises(ConfigError, match=r"task: registered\.it: must be a time in UTC"):
        FigureTask.parse(task.content() | {"registered": {"it": date}}, "task")


def test_only_tables_that_the_claim_reads_decide_its_registration(tmp_path: Path) -> None:
    task = figure_task(
        [claim(AT, "it", above=1.0), claim({"kind": "parameter_ratio", "model": "tiny"}, "size", above=0)]
    )
    write_tables(tmp_path, task, {})

    def make_earlier(name: str) -> None:
        path = tmp_path / f"{name}.parquet"
        frame, schema, _ = read_any(path, SCHEMAS)
        write_table(frame, schema, path, {"written": "2020-01-01T00:00:00+00:00"})

    def registered() -> list[bool]:
        return judge(task, tmp_path)["registered"].to_list()

    for other in ("restart_loss_tiny_base_s1", "position_loss_tiny_passed_s1"):
        make_earlier(other)
    assert registered() == [True, True]
    make_earlier("position_loss_tiny_base_s2")
    assert registered() == [False, True]
    make_earlier("model-size-1")
    assert registered() == [False, False]
    path = tmp_path / "model-size-1.parquet"
    write_table(read_table(path), ModelSize.table, path, {})
    assert judge(task, tmp_path)["registration"][1].endswith("but its tables do not say when they were measured")


@pytest.mark.parametrize("kind", [*FLIPS, "parameter_ratio"])
def test_a_quantity_reads_only_the_tables_that_it_declares(tmp_path: Path, kind: str) -> None:
    """The declared tables are registered. Any other table could change after the registration."""
    fields = FLIPS[kind][0] if kind in FLIPS else {}
    named = {"model": "tiny"} if kind == "parameter_ratio" else {"arm": "base"}
    task = figure_task([claim({"kind": kind} | named | fields, above=0.001)], seeds=(1, 2))
    write_tables(tmp_path, task, {("base", 1): {"cosine": [-1.0] * 6}})
    quantity = task.figure.claims[0].quantity
    reads = quantity.reads or quantity.measurement_names
    for path in tmp_path.glob("*.parquet"):
        if read_any(path, SCHEMAS)[1].name not in reads:
            path.unlink()
    judge(task, tmp_path)  # an undeclared table would now be missing
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    with pytest.raises(TableError):
        judge(task, tmp_path)


def test_kinds_of_statements(tmp_path: Path) -> None:
    size = {"kind": "parameter_ratio", "model": "tiny"}
    claims = [claim(AT, "a", above=1.0), claim(size, "b", above=0), claim(AT, "c", ours=True, above=1.0)]
    task = figure_task(claims)
    write_tables(tmp_path, task, {})
    frame = judge(task, tmp_path)
    assert frame["sort"].to_list() == [PAPER, DEFINITION, ADDED]
    assert frame["number"].to_list() == ["a", "b", "c"]


def apart(task: Any) -> Any:
    """The same task with arms that were trained separately."""
    return task.model_copy(update={"series": tuple(one.model_copy(update={"origin": None}) for one in task.series)})


def test_one_seed_of_separately_trained_arms_is_not_decided(tmp_path: Path) -> None:
    """Two trainings with different seeds differ by much more than the sequences of one of them."""
    compared = claim(AT | {"arm": "passed", "against": "base"}, "compared", below=1.0)
    restarted = claim(AT | {"kind": "restart_ratio", "arm": "passed", "restarted": "base"}, "restarted", below=1.0)
    task = figure_task([compared, restarted, claim(AT, "alone", above=1.0)], seeds=(1,))
    late = {"late": [1.0, 1.01, 1.02, 1.03], "restart": [2.0, 2.01, 2.0, 2.02]}
    write_tables(tmp_path, task, {("passed", 1): late, ("base", 1): {"late": [2.0, 2.1, 2.1, 2.3]}})
    assert judge(task, tmp_path)["verdict"].to_list() == [CONFIRMED] * 3  # from the same weights, paired by sequence
    frame = judge(apart(task), tmp_path)
    assert frame["verdict"].to_list() == [OPEN, OPEN, CONFIRMED]
    assert frame["reason"].to_list()[:2] == [ONE_SEED] * 2
    assert frame["estimate"].is_not_null().all()  # the number is reported without a verdict


def test_several_seeds_of_separately_trained_arms_decide(tmp_path: Path) -> None:
    task = apart(figure_task([claim(AT | {"arm": "passed", "against": "base"}, below=1.0)]))
    late = np.array([1.0, 1.1, 1.1, 1.3])
    write_tables(tmp_path, task, {("passed", seed): {"late": (late + seed / 100).tolist()} for seed in (1, 2, 3)})
    assert judge(task, tmp_path)["verdict"].to_list() == [CONFIRMED]
    single = tuple(one for one in task.series if one.arm == "base" or one.seed == 1)  # only one shared seed
    assert judge(task.model_copy(update={"series": single}), tmp_path)["reason"].to_list() == [ONE_SEED]


def test_published_weights_count_as_one_training(tmp_path: Path) -> None:
    """Several seeds that continue from other weights than the compared arm decide nothing."""
    task = figure_task([claim(AT | {"arm": "passed", "against": "base"}, below=1.0)])
    write_tables(tmp_path, task, {("passed", seed): {"late": 1.0 + seed / 100} for seed in (1, 2, 3)})

    def judged(**published: str | None) -> list[str]:
        series = (one.model_copy(update={"published": published.get(one.arm)}) for one in task.series)
        return judge(task.model_copy(update={"series": tuple(series)}), tmp_path)["verdict"].to_list()

    assert judged(base="o/m", passed="o/m") == judged() == [CONFIRMED]
    assert judged(base="o/m", passed="o/n") == judged(base="o/m") == [OPEN]

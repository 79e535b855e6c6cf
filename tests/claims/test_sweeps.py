"""Quantities of curves compared with values computed by hand: sweeps over arms, and columns of one arm's table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from claims.synthetic import estimate, same, student
from figures import synthetic
from pydantic import TypeAdapter
from scipy import stats

from ssm.base.errors import ConfigError, TableError
from ssm.claims.claim import ClaimSpec
from ssm.claims.curve import Points
from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.quantities import QuantitySpec
from ssm.claims.quantities.order import Order
from ssm.claims.statements import CONFIRMED, OPEN, REFUTED
from ssm.claims.tails import smallest_tails
from ssm.claims.verdict import judge
from ssm.figures.figure import FigureTask

X = (16.0, 32.0, 64.0, 128.0)
EXCESS = {"kind": "value_at", "measurement": "length_class", "column": "excess"}
ARMS = {"of": EXCESS, "arms": [f"d{x:g}" for x in X], "at": list(X)}
Height = Callable[[int, float], float]  # of (seed, number)


def quantity(content: Mapping[str, Any]) -> Any:
    return TypeAdapter(QuantitySpec).validate_python(content)


def family(folder: Path, height: Height, name: str = "d", **axes: Any) -> list[dict[str, Any]]:
    """Series of arms whose excess is `height(seed, number)`; the name of an arm is `name` and its number."""
    found = []
    for x in X:
        for seed in range(3):
            table = f"{name}{x:g}_{seed}"
            synthetic.length_class(folder / f"{table}.parquet", "none", height(seed, x))
            one = synthetic.series(f"{name}{x:g}", seed, length_class=table)
            found.append(one | ({"axes": {"d_state": x} | axes} if axes else {}))
    return found


def figure(series: list[dict[str, Any]]) -> FigureTask:
    return synthetic.task([{"kind": "state_norm"}], series)


def read(folder: Path, content: Mapping[str, Any], series: list[dict[str, Any]]) -> Estimate:
    return estimate(figure(series), "tiny", quantity(content), folder)


def test_slope_of_a_sweep(tmp_path: Path) -> None:
    series = family(tmp_path, lambda seed, x: 5 - seed + (0.1 + 0.02 * seed) * x)
    found = read(tmp_path, {"kind": "slope", "sweep": ARMS}, series)
    same(found, student([0.1, 0.12, 0.14]))
    assert (
        found.words == "slope: mean excess of each arm in length_class, over d16 (16), d32 (32), d64 (64), d128 (128)"
    )
    powers = family(tmp_path, lambda seed, x: (2 + seed) * x ** (0.5 + 0.1 * seed))
    found = read(tmp_path, {"kind": "slope", "sweep": ARMS, "log_x": True, "log_y": True}, powers)
    same(found, student([0.5, 0.6, 0.7]))
    bent = family(tmp_path, lambda seed, x: {16.0: 1.0, 32.0: 4.0, 64.0: 2.0, 128.0: 2.0 + seed}[x])
    expected = [np.polyfit(X, [1, 4, 2, 2 + seed], 1)[0] for seed in range(3)]
    same(read(tmp_path, {"kind": "slope", "sweep": ARMS}, bent), student(expected))


def test_two_families_are_compared_by_seed(tmp_path: Path) -> None:
    own = family(tmp_path, lambda seed, x: (seed + 0.5) * x)
    others = family(tmp_path, lambda seed, x: (seed + 0.2 + 0.1 * seed) * x, "e")
    content = {"kind": "slope", "sweep": ARMS | {"against": [f"e{x:g}" for x in X]}}
    found = read(tmp_path, content, own + others)
    same(found, student([0.3, 0.2, 0.1]))
    assert "minus the same for e16 (16)" in found.words


def test_a_sweep_by_axis_equals_a_sweep_by_names(tmp_path: Path) -> None:
    """Both have the same number and the same hash."""
    series = family(tmp_path, lambda seed, x: (1 + seed) * x, mimetic="off")
    series += family(tmp_path, lambda seed, x: (3 + 2 * seed) * x, "e", mimetic="on")
    task = figure(series)
    grid = {"of": EXCESS, "over": "d_state", "where": {"mimetic": "on"}, "against_where": {"mimetic": "off"}}
    named = {"of": EXCESS, "arms": [f"e{x:g}" for x in X], "at": list(X), "against": [f"d{x:g}" for x in X]}
    by_axis, by_arm = (quantity({"kind": "slope", "sweep": sweep}) for sweep in (grid, named))
    found = estimate(task, "tiny", by_axis, tmp_path)
    same(found, student([2, 3, 4]))
    same(estimate(task, "tiny", by_arm, tmp_path), student([2, 3, 4]))
    assert ", over d_state 16, 32, 64, 128, mimetic on; minus the same for" in found.words
    assert by_axis.canonical("tiny", task.series) == by_arm.canonical("tiny", task.series)
    assert by_axis.panel_arms("tiny", task.series) == by_arm.panel_arms("tiny", task.series)
    assert [by_axis.about(one) for one in task.series] == [one.arm.startswith("e") for one in task.series]
    claim = {"id": "it", "says": "s", "paper": "p", "expected": {"above": 0}}
    claim["quantity"] = {"kind": "slope", "sweep": grid}
    content = task.content()
    content["figure"]["claims"] = [claim]
    planned = FigureTask.parse(content, "test")
    assert [name for name, *_ in planned.verdicts] == ["it"]
    assert len(planned.series_of(planned.figure.claims[0], "tiny")) == 8
    alike = series + [one | {"arm": f"again {one['arm']}"} for one in series[:3]]
    with pytest.raises(UndecidableError, match=r"arms with different numbers; .*again d16 \(16\), d16 \(16\)"):
        estimate(figure(alike), "tiny", quantity({"kind": "slope", "sweep": grid | {"where": {}}}), tmp_path)


def test_a_crossing_lies_on_the_line_between_two_points(tmp_path: Path) -> None:
    """The excess is 0.02 x - 0.1 seed, so it passes 1 at 50 + 5 seed."""
    series = family(tmp_path, lambda seed, x: 0.02 * x - 0.1 * seed)
    content = {"kind": "crossing", "sweep": ARMS, "value": 1.0}
    same(read(tmp_path, content, series), student([50, 55, 60]))
    falling = family(tmp_path, lambda seed, x: 0.1 * seed - 0.02 * x)
    same(read(tmp_path, content | {"value": -1.0, "direction": "down"}, falling), student([50, 55, 60]))
    linear = family(tmp_path, lambda seed, x: np.log2(x) + 0.1 * seed)  # on a logarithmic axis
    found = read(tmp_path, content | {"value": 5.5, "log_x": True}, linear)
    same(found, np.exp(student(np.log(2) * (5.5 - 0.1 * np.arange(3)))))


def test_a_curve_that_does_not_cross_is_undecidable(tmp_path: Path) -> None:
    series = family(tmp_path, lambda seed, x: x if seed else 0.0)
    for value, says in ((30.0, "seed 0: the curve does not go up through 30 between x = 16 and 128"), (10.0, "seed 0")):
        with pytest.raises(UndecidableError, match=says):
            read(tmp_path, {"kind": "crossing", "sweep": ARMS, "value": value}, series)
    above = family(tmp_path, lambda seed, x: x + seed)
    with pytest.raises(UndecidableError, match="seed 0: the curve does not go up through 3"):
        read(tmp_path, {"kind": "crossing", "sweep": ARMS, "value": 3.0}, above)


def test_a_censored_crossing_has_the_end_of_a_curve_that_does_not_cross(tmp_path: Path) -> None:
    """Numbers are at 16, 32, 64 and 128. Seed 0 never passes, seed 1 starts past the value, seed 2 passes half way."""
    rising = {0: [0, 0, 0, 0.5], 1: [2, 2, 2, 2], 2: [0, 0, 2, 2]}
    series = family(tmp_path, lambda seed, x: float(rising[seed][[16, 32, 64, 128].index(int(x))]))
    content = {"kind": "crossing", "sweep": ARMS, "value": 1.0, "censored": True}
    same(read(tmp_path, content, series), student([128, 16, 48]))
    same(read(tmp_path, content | {"log_x": True}, series), np.exp(student(np.log([128, 16, 32 * np.sqrt(2)]))))
    with pytest.raises(UndecidableError, match="seed 0"):
        read(tmp_path, content | {"censored": False}, series)
    held = content | {"holds": 2, "value": 0.4}  # seed 0 passes at the last point only, which is too late to know
    same(read(tmp_path, held, series), student([128, 16, 32 + 0.2 * 32]))


def test_a_crossing_that_must_hold_is_the_first_that_does(tmp_path: Path) -> None:
    heights = {16.0: 0.0, 32.0: 2.0, 64.0: 0.0, 128.0: 2.0}
    series = family(tmp_path, lambda seed, x: heights[x] + 0.1 * seed)
    once = read(tmp_path, {"kind": "crossing", "sweep": ARMS, "value": 1.0}, series)
    assert once.value == pytest.approx(16 + 16 * (0.5 + 0.45 + 0.4) / 3)
    with pytest.raises(UndecidableError, match="up through 1 and stays there for 2 points"):
        read(tmp_path, {"kind": "crossing", "sweep": ARMS, "value": 1.0, "holds": 2}, series)
    steady = family(tmp_path, lambda seed, x: (2.0 if x > 40 else heights[x] * (x == 16)) + 0.1 * seed)
    held = read(tmp_path, {"kind": "crossing", "sweep": ARMS, "value": 1.0, "holds": 2}, steady)
    assert held.value == pytest.approx(32 + 32 * (0.5 + 0.45 + 0.4) / 3)
    with pytest.raises(UndecidableError, match="stays there for 9 points"):  # the curve has four
        read(tmp_path, {"kind": "crossing", "sweep": ARMS, "value": 1.0, "holds": 9}, steady)


def test_an_area_is_the_mean_height(tmp_path: Path) -> None:
    series = family(tmp_path, lambda seed, x: (1 + seed) * np.sqrt(x))
    for log_x in (False, True):
        x = np.log(X) if log_x else np.array(X)
        expected = [(1 + seed) * np.trapezoid(np.sqrt(X), x) / (x[-1] - x[0]) for seed in range(3)]
        same(read(tmp_path, {"kind": "area", "sweep": ARMS, "log_x": log_x}, series), student(expected))


def test_an_order_is_its_smallest_step(tmp_path: Path) -> None:
    spread = np.array([[0.1, 0.0, 0.3, 0.1], [0.0, 0.2, 0.1, 0.0], [0.2, 0.1, 0.0, 0.4]])  # by seed and number
    heights = np.array([0.0, 3.0, 4.0, 6.0]) + spread
    series = family(tmp_path, lambda seed, x: heights[seed, X.index(x)])
    found = read(tmp_path, {"kind": "order", "sweep": ARMS}, series)
    steps = np.diff(heights, axis=1)
    assert found.value == pytest.approx(steps.mean(axis=0).min())
    assert found.low == pytest.approx(min(student(step)[1] for step in steps.T))
    t = stats.t.ppf(1 - 0.025 / 3, 2)
    assert found.high == pytest.approx(min(step.mean() + t * stats.sem(step) for step in steps.T))
    down = family(tmp_path, lambda seed, x: np.exp(-heights[seed, X.index(x)]))
    ratio = read(tmp_path, {"kind": "order", "sweep": ARMS, "direction": "down", "ratio": True}, down)
    same(ratio, np.exp([found.value, found.low, found.high]))


@pytest.mark.parametrize("steps", [(0.0, 0.0, 0.0), (0.0, 1.0, 3.0), (0.3, 0.35, 0.4)])
def test_coverage_of_the_interval_of_an_order(steps: tuple[float, ...]) -> None:
    generator = np.random.default_rng(0)
    order = Order(sweep=ARMS)
    x, true, covered = np.arange(4.0), np.cumsum([0, *steps]), 0
    for _ in range(400):
        curves = [Points(x, true + generator.normal(0, 0.3, 4)) for _ in range(5)]
        _, low, high, _, each = order._over_seeds(curves)
        decided = smallest_tails(each).two_sided(0.4) < 0.05
        assert decided == (not low <= 0.4 <= high), "the p-value agrees with the interval"
        covered += low <= min(steps) <= high
    assert covered / 400 > 0.94  # 0.95 minus the noise of 400 trials


def passkeys(path: Path, right: Mapping[int, int], apart: bool = False) -> None:
    """A passkey table in which the first `right[length]` of 20 trials are correct; `apart`: each length has its own."""
    rows = [
        {"length": length, "depth": 0.5, "trial": trial + apart * length, "correct": trial < count, "digits_right": 0}
        for length, count in right.items()
        for trial in range(20)
    ]
    synthetic.save(path, "passkey", rows)


KEYS = {"measurement": "passkey", "x": "length", "column": "correct"}


def test_crossing_of_a_column(tmp_path: Path) -> None:
    counts = [{64: 20, 128: 20 - seed, 256: 4, 512: 0} for seed in range(3)]
    series = []
    for seed, right in enumerate(counts):
        passkeys(tmp_path / f"base{seed}.parquet", right)
        passkeys(tmp_path / f"far{seed}.parquet", {2 * length: min(count, 18) for length, count in right.items()})
        series += [synthetic.series(arm, seed, passkey=f"{arm}{seed}") for arm in ("base", "far")]
    content = KEYS | {"kind": "crossing", "arm": "base", "value": 0.5, "direction": "down", "log_x": True}
    logs = [7 + (1 - seed / 20 - 0.5) / (1 - seed / 20 - 0.2) for seed in range(3)]  # between 2^7 and 2^8
    same(read(tmp_path, content, series), np.exp(np.log(2) * np.array(student(logs))))
    found = read(tmp_path, content | {"arm": "far", "against": "base", "where": {"depth": 0.5}}, series)
    far = [8 + (0.9 - 0.5) / (0.9 - 0.2)] * 3
    same(found, np.exp(np.log(2) * np.array(student(np.array(far) - logs))))
    assert "divided by the same for base" in found.words
    with pytest.raises(UndecidableError, match="the curves begin or end at different x"):
        read(tmp_path, content | {"arm": "far", "against": "base", "censored": True}, series)
    with pytest.raises(UndecidableError, match=r"passkey is measured at depth 0.5 at this scale, not at 0.75"):
        read(tmp_path, content | {"where": {"depth": 0.75}}, series)
    with pytest.raises(TableError, match="a passkey table has no column 'corect'; did you mean 'correct'"):
        read(tmp_path, content | {"column": "corect"}, series)


def test_seeds_that_cross_have_a_number_although_some_draws_do_not(tmp_path: Path) -> None:
    """Of nine in 20 keys, a resample has ten or more at times. Only the interval of a single seed needs them."""
    series = []
    for seed in range(3):
        passkeys(tmp_path / f"k{seed}.parquet", {64: 20 - seed, 128: 9})
        series.append(synthetic.series("base", seed, passkey=f"k{seed}"))
    content = KEYS | {"kind": "crossing", "arm": "base", "value": 0.5, "direction": "down"}
    places = [64 + 64 * (right - 10) / (right - 9) for right in (20, 19, 18)]
    same(read(tmp_path, content, series), student(places))
    with pytest.raises(UndecidableError, match=r"seed 0: the curve does not go down through 0\.5"):
        read(tmp_path, content, series[:1])


def test_a_reach_always_has_a_number(tmp_path: Path) -> None:
    """Only the first fall below the value counts."""
    right = {64: 20, 128: 18, 256: 10, 512: 19}
    content = KEYS | {"kind": "reach", "arm": "base"}
    passkeys(tmp_path / "k.parquet", right)
    series = [synthetic.series("base", 1, passkey="k")]
    expected = {1.0: 64, 0.9: 128, 0.7: 192, 0.5: 512, 0.4: 512}
    assert {value: read(tmp_path, content | {"value": value}, series).value for value in expected} == pytest.approx(
        expected
    )
    passkeys(tmp_path / "k.parquet", {64: 10, 128: 20})
    assert read(tmp_path, content | {"value": 0.7}, series).value == 0


def test_one_seed_has_an_interval_over_its_trials(tmp_path: Path) -> None:
    passkeys(tmp_path / "k.parquet", {64: 19, 128: 15, 256: 5, 512: 2})
    content = KEYS | {"kind": "area", "arm": "base"}
    found = read(tmp_path, content, [synthetic.series("base", 1, passkey="k")])
    assert found.value == pytest.approx((17 * 64 + 10 * 128 + 3.5 * 256) / 20 / 448)
    assert found.low < found.value < found.high
    assert found.interval.words().startswith("95% bootstrap over 20 sequences of one seed")
    passkeys(tmp_path / "m.parquet", {64: 20, 128: 15, 256: 5, 512: 2})  # one trial more
    both = [synthetic.series("base", 1, passkey="k"), synthetic.series("more", 1, passkey="m")]
    found = read(tmp_path, content | {"arm": "more", "against": "base"}, both)
    same(found, np.array([1, *stats.binom.ppf([0.025, 0.975], 20, 1 / 20)]) / 20 * 32 / 448)
    order = KEYS | {"kind": "order", "arm": "base", "direction": "down"}
    found = read(tmp_path, order, [synthetic.series("base", 1, passkey="k")])
    assert (found.value, found.low < 0.15) == (pytest.approx(0.15), True)
    # From 256 to 512, 3 of 20 trials are lost. The level of the upper end is divided by the 3 steps.
    assert found.high == pytest.approx(stats.binom.ppf(1 - 0.025 / 3, 20, 0.15) / 20)


def test_trials_of_different_points_are_resampled_independently(tmp_path: Path) -> None:
    right = {64: 19, 128: 15, 256: 5, 512: 2}
    passkeys(tmp_path / "k.parquet", right, apart=True)
    found = read(tmp_path, KEYS | {"kind": "area", "arm": "base"}, [synthetic.series("base", 1, passkey="k")])
    shares, weights = np.array([*right.values()]) / 20, np.array([32, 96, 192, 128]) / 448  # of the trapezoids
    error = np.sqrt((weights**2 * shares * (1 - shares) / 20).sum())
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.05)  # 0.25 if all points shared their draws


DISTANCES = np.arange(1, 30)
CURVE = {"arm": "base", "measurement": "influence", "x": "distance", "column": "log_influence"}


def influences(
    folder: Path, height: Height, seeds: int = 3, arm: str = "base", sequences: int = 1
) -> list[dict[str, Any]]:
    found = []
    for seed in range(seeds):
        rows = [
            {"sequence": n, "distance": d, "log_influence": float(height(seed, d)) + n * np.sin(d)}
            for n in range(sequences)
            for d in range(30)
        ]
        synthetic.save(folder / f"{arm}{seed}.parquet", "influence", rows)
        found.append(synthetic.series(arm, seed, influence=f"{arm}{seed}"))
    return found


def test_r_squared_separates_an_exponential_from_a_power_law(tmp_path: Path) -> None:
    """The expected numbers are squared correlations by scipy."""

    def bent(seed: int, d: float) -> float:
        return -0.1 * d + 0.3 * np.sin(d * (1 + seed))

    series = influences(tmp_path, bent)
    whole = np.arange(30)
    expected = [stats.linregress(whole, [bent(seed, d) for d in whole]).rvalue ** 2 for seed in range(3)]
    found = read(tmp_path, CURVE | {"kind": "r_squared"}, series)
    same(found, student(expected))
    assert found.words == "R^2 of a straight line: log_influence by distance for base in influence"
    within = CURVE | {"kind": "r_squared", "between": [1, 1e9]}
    for height, above in (
        (lambda d: -0.1 * d, True),
        (lambda d: -np.log(d), False),
    ):
        series = influences(tmp_path, lambda seed, d, height=height: height(max(d, 1)) + 0.01 * seed * np.cos(d))
        y = [[height(d) + 0.01 * seed * np.cos(d) for d in DISTANCES] for seed in range(3)]
        line = [stats.linregress(DISTANCES, one).rvalue ** 2 for one in y]
        power = [stats.linregress(np.log(DISTANCES), one).rvalue ** 2 for one in y]
        same(read(tmp_path, within | {"log_x": True}, series), np.minimum(student(power), 1))
        found = read(tmp_path, within | {"less_log_x": True}, series)
        same(found, student(np.subtract(line, power)))
        assert (found.low > 0) == above
        assert (found.high < 0) != above


def test_a_curve_of_exponentials_is_compared_with_that_of_another_model(tmp_path: Path) -> None:
    own = influences(tmp_path, lambda seed, d: np.log((2 + 0.1 * seed) * (d + 1)))
    other = influences(tmp_path, lambda seed, d: np.log(d + 1), arm="other")
    series = own + [one | {"arm": "base", "panel": "large"} for one in other]
    content = CURVE | {"kind": "slope", "exponential": True, "against": "base", "against_model": "large"}
    found = read(tmp_path, content, series)
    same(found, student([1.0, 1.1, 1.2]))
    assert "exponential of log_influence by distance for base" in found.words


def test_a_curve_between_two_points(tmp_path: Path) -> None:
    """`between` includes both ends. It works for a comparison of arms, and for one seed."""
    series = influences(tmp_path, lambda seed, d: -0.1 * d if d < 10 else (0.2 + 0.1 * seed) * d)
    others = influences(tmp_path, lambda seed, d: -0.5 * d, arm="other")
    content = CURVE | {"kind": "slope", "between": [10, 29], "against": "other"}
    found = read(tmp_path, content, series + others)
    same(found, student([0.7, 0.8, 0.9]))
    assert "by distance for base in influence, distance 10 to 29; minus" in found.words
    alone = influences(tmp_path, lambda seed, d: float(d == 9), seeds=1, sequences=3)
    assert read(tmp_path, CURVE | {"kind": "area", "between": [8, 10]}, alone).low > 0.1
    rising = influences(tmp_path, lambda seed, d: d + seed)
    for which, end in (("largest", 7), ("smallest", 3)):
        found = read(tmp_path, CURVE | {"kind": "extreme", "which": which, "between": [3, 7]}, rising)
        same(found, student([end, end + 1, end + 2]))
    with pytest.raises(UndecidableError, match="'base' has too few values of distance at this scale: 0"):
        read(tmp_path, content | {"between": [40, 50]}, series + others)
    content = {"kind": "slope", "arm": "a", "measurement": "m", "x": "x", "column": "y"}
    assert "between" not in quantity(content).content(), "registrations are older than this key"
    assert quantity(content | {"between": [1, 2]}).canonical("tiny")["between"] == [1, 2]


def test_the_extreme_of_a_curve(tmp_path: Path) -> None:
    series = influences(tmp_path, lambda seed, d: np.cos(d) * (2 + seed))
    y = np.cos(np.arange(30))
    for which, most in (("largest", y.max()), ("smallest", y.min())):
        same(read(tmp_path, CURVE | {"kind": "extreme", "which": which}, series), student(most * np.array([2, 3, 4])))


@pytest.mark.parametrize(("which", "sign"), [("smallest", 1), ("largest", -1)])
def test_optimum_of_a_curve(tmp_path: Path, which: str, sign: int) -> None:
    """The optimum of a parabola is its vertex, on both scales of x. Other curves have a parabola through 3 points."""
    places = [45.0, 40.0, 50.0]
    content = {"kind": "optimum", "which": which, "sweep": ARMS}
    found = read(tmp_path, content, family(tmp_path, lambda seed, x: sign * (x - places[seed]) ** 2))
    same(found, student(places))
    logs = [lambda seed, x: sign * np.log(x / places[seed]) ** 2, lambda seed, x: sign * np.log(x / 60) ** 2 + seed]
    own, others = family(tmp_path, logs[0]), family(tmp_path, logs[1], "e")
    found = read(tmp_path, content | {"log_x": True}, own)
    same(found, np.exp(student(np.log(places))))
    apart = {"sweep": ARMS | {"against": [f"e{x:g}" for x in X]}, "log_x": True}
    found = read(tmp_path, content | apart, own + others)
    same(found, np.exp(student(np.log(np.divide(places, 60)))))
    steep = {16.0: 3.0, 32.0: 1.0, 64.0: 2.0, 128.0: 100.0}
    found = read(
        tmp_path, content, family(tmp_path, lambda seed, x: sign * steep[x] * (1 + 0 * seed) + 1e-9 * seed * x)
    )
    a, b, _ = np.polyfit(X[:3], [3, 1, 2], 2)
    assert found.value == pytest.approx(-b / 2 / a, rel=1e-6)
    ends = [lambda x: -x, lambda x: x, lambda x: (x - 45) ** 2]  # at the last point, at the first, inside
    found = read(tmp_path, content, family(tmp_path, lambda seed, x: sign * ends[seed](x)))
    same(found, np.clip(student([128.0, 16.0, 45.0]), 16.0, 128.0))  # no optimum is beyond the ends


def test_a_sweep_of_a_crossing(tmp_path: Path) -> None:
    """Here the length up to which keys are found doubles with the number."""
    series = []
    for x in X:
        for seed in range(3):
            length = int(x)
            right = {length: 20, 2 * length: 16 - seed * X.index(x), 4 * length: 0}
            passkeys(tmp_path / f"d{x:g}_{seed}.parquet", right)
            series.append(synthetic.series(f"d{x:g}", seed, passkey=f"d{x:g}_{seed}"))
    of = KEYS | {"kind": "crossing", "value": 0.5, "direction": "down", "log_x": True}
    found = read(tmp_path, {"kind": "order", "sweep": ARMS | {"of": of}, "ratio": True}, series)
    places = [[1 + (0.8 - seed * i / 20 - 0.5) / (0.8 - seed * i / 20) for i in range(4)] for seed in range(3)]
    assert found.value == pytest.approx(np.exp(np.log(2) * (1 + np.diff(places, axis=1)).mean(axis=0).min()))
    assert "over d16 (16), d32 (32)" in found.words


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"kind": "slope"}, "give either 'sweep', or all of 'arm', 'measurement', 'x' and 'column'"),
        ({"kind": "slope", "sweep": ARMS, "arm": "d16"}, "a 'sweep' already says"),
        ({"kind": "slope", "sweep": ARMS | {"at": [1.0, 2.0]}}, "arms: 4 arms at 2 numbers"),
        (
            {"kind": "slope", "sweep": ARMS | {"over": "d_state"}},
            "give either 'arms' with their numbers 'at', or 'over'",
        ),
        ({"kind": "slope", "sweep": ARMS | {"of": EXCESS | {"kind": "value_a"}}}, "did you mean 'value_at'"),
        ({"kind": "slope", "sweep": ARMS | {"of": EXCESS | {"arm": "d16"}}}, "the arms are given elsewhere"),
        (
            {"kind": "slope", "sweep": ARMS | {"of": EXCESS | {"colum": "x"}}},
            "unknown key 'colum'; did you mean 'column'",
        ),
        ({"kind": "slope", "sweep": ARMS, "between": [1, 2]}, "a 'sweep' already says"),
        ({"kind": "r_squared", "sweep": ARMS, "log_x": True, "less_log_x": True}, "already makes x logarithmic"),
        ({"kind": "order", "sweep": ARMS | {"against": ARMS["arms"]}}, "leave 'against' out"),
        ({"kind": "slope", "sweep": {"of": {"kind": "parameter_ratio"}}}, "is not a quantity of an arm"),
        ({"kind": "slope", "sweep": {"of": {"kind": {}}}}, "kind: {} is not a quantity of an arm"),
    ],
)
def test_malformed_curves_are_rejected_in_one_line(content: dict[str, Any], says: str) -> None:
    claim = {"id": "it", "says": "s", "paper": "p", "quantity": content, "expected": {"above": 0}}
    with pytest.raises(ConfigError) as error:
        ClaimSpec.parse(claim, "figure.yaml")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_sweep_needs_seeds_arms_and_finite_runs(tmp_path: Path) -> None:
    content = {"kind": "slope", "sweep": ARMS}
    series = family(tmp_path, lambda seed, x: x + seed)
    with pytest.raises(UndecidableError, match="share too few seeds: 1"):
        read(tmp_path, content, [one for one in series if one["seed"] == 0 or one["arm"] == "d16"])
    with pytest.raises(UndecidableError, match="the arm 'd32' does not exist"):
        read(tmp_path, content, [one for one in series if one["arm"] != "d32"])
    synthetic.diverge(tmp_path / "d64_1.parquet", "length_class")
    with pytest.raises(UndecidableError, match="the run of 'd64', seed 1, diverged"):
        read(tmp_path, content, series)


def test_equal_seeds_have_an_interval_if_there_are_limits(tmp_path: Path) -> None:
    series = []
    for seed in range(5):
        passkeys(tmp_path / f"k{seed}.parquet", {64: 20, 128: 20 - seed})
        series.append(synthetic.series("base", seed, passkey=f"k{seed}"))
    of = {"kind": "value_at", "arm": "base", "measurement": "passkey", "column": "correct"}
    found = read(tmp_path, of | {"where": {"length": 64}, "limits": [0, 1]}, series)
    same(found, (1.0, 0.025 ** (1 / 5), 1.0))
    same(read(tmp_path, of | {"where": {"length": 64}, "limits": [0, 1]}, series[:1]), (1.0, 0.025 ** (1 / 20), 1.0))
    with pytest.raises(UndecidableError, match="all 5 seeds gave exactly 1"):
        read(tmp_path, of | {"where": {"length": 64}}, series)
    shares = [1 - seed / 20 for seed in range(5)]
    mean, low, high = student(shares)
    limited = of | {"along": "length", "times_context": 4.0, "limits": [0, 1]}
    same(read(tmp_path, limited, series), (mean, low, min(high, 1.0)))
    with pytest.raises(UndecidableError, match="measured at length 64, 128 at this scale; 256 is needed"):
        read(tmp_path, limited | {"times_context": 8.0}, series)


def test_an_extreme_among_several_curves(tmp_path: Path) -> None:
    """The largest value over all curves and all x, for each seed."""
    found = []
    for seed in range(3):
        heights = {(x, other): 0.1 * x + 0.01 * other for x in (1, 2, 3) for other in (0, 5)}
        heights[1 + seed, 5 * (seed % 2)] = 2.0 + seed
        rows = [
            {"sequence": n, "layer": x, "depth": float(other), "signal": "b", "pairwise_distance": y + (n - 0.5) / 8}
            for (x, other), y in heights.items()
            for n in range(2)
        ]
        synthetic.save(tmp_path / f"s{seed}.parquet", "smoothness", rows)
        found.append(synthetic.series("d", seed, smoothness=f"s{seed}"))
    curve = {"arm": "d", "measurement": "smoothness", "column": "pairwise_distance", "x": "layer", "among": "depth"}
    largest = read(tmp_path, {"kind": "extreme", "which": "largest"} | curve, found)
    same(largest, student([2, 3, 4]))
    assert largest.words.startswith("largest value among all depths: pairwise_distance by layer")
    smallest = read(tmp_path, {"kind": "extreme", "which": "smallest"} | curve, found[:1])
    assert smallest.value == pytest.approx(0.15)
    assert smallest.low < 0.15 < smallest.high
    alone = quantity({"kind": "extreme", "which": "largest"} | curve | {"among": None})
    assert "among" not in alone.content()
    for wrong in ({"among": "layer"}, {"where": {"depth": 0.0}}):
        with pytest.raises(ValueError, match="'among' must be another key of the table"):
            quantity({"kind": "extreme", "which": "largest"} | curve | wrong)


def test_an_extreme_compared_with_other_rows_of_another_arm(tmp_path: Path) -> None:
    """The other arm has one point, which is its own extreme. A slope needs two points."""
    found = []
    for seed in range(3):
        for arm, least in (("d", 0.0), ("e", 1.0)):
            heights = {(x, depth): least + 0.1 * x + seed * depth for x in (1, 2) for depth in (0, 1)}
            rows = [
                {"sequence": n, "layer": x, "depth": float(depth), "signal": "b", "pairwise_distance": y}
                for (x, depth), y in heights.items()
                for n in range(2)
            ]
            synthetic.save(tmp_path / f"{arm}{seed}.parquet", "smoothness", rows)
            found.append(synthetic.series(arm, seed, smoothness=f"{arm}{seed}"))
    curve = {
        "arm": "d",
        "measurement": "smoothness",
        "column": "pairwise_distance",
        "x": "layer",
        "where": {"depth": 1.0},
    }
    curve |= {"against": "e", "against_where": {"depth": 0.0, "layer": 1}}
    read_off = read(tmp_path, {"kind": "extreme", "which": "largest", "among": "signal"} | curve, found)
    same(read_off, student(np.array([0.2, 1.2, 2.2]) - 1.1))
    assert read_off.words.endswith("minus the same for e, depth 0.0, layer 1")
    with pytest.raises(UndecidableError, match=r"smoothness of 'e' has too few values of layer .*: 1; 2 are needed"):
        read(tmp_path, {"kind": "slope"} | curve, found)
    assert quantity({"kind": "slope"} | curve).canonical("tiny")["against_where"] == {"depth": 0.0, "layer": 1}
    for kind in ({"kind": "slope"}, {"kind": "extreme", "which": "largest"}):
        older = curve | {"against_where": None}
        assert "against_where" not in quantity(kind | older).content(), "registrations are older than this key"
        with pytest.raises(ValueError, match="'against_where' needs 'against'"):
            quantity(kind | curve | {"against": None})


def unstable(*rates: float | None) -> Height:
    """Runs that are unstable from a rate on, one rate for each seed; None: stable at all rates."""
    return lambda seed, x: float(rates[seed] is not None and x >= (rates[seed] or 0))


def critical(folder: Path, own: Height, other: Height | None = None) -> Estimate:
    """The critical rate of a family; with `other`, compared with that of another family."""
    series = family(folder, own)
    sweep = ARMS | ({"against": [f"e{x:g}" for x in X]} if other else {})
    series += family(folder, other, "e") if other else []
    return read(folder, {"kind": "critical_rate", "sweep": sweep}, series)


def test_critical_rate_is_the_smallest_number_with_an_unstable_run(tmp_path: Path) -> None:
    found = critical(tmp_path, unstable(64, 64, 128))
    same(found, np.exp(student(np.log([64, 64, 128]))))
    assert found.by_seed == pytest.approx({0: 64, 1: 64, 2: 128})
    assert found.words.startswith("smallest number with an unstable run")
    again_stable = critical(tmp_path, lambda seed, x: float(x == 32 or (seed and x == 128)))  # the first one counts
    assert again_stable.by_seed == pytest.approx(dict.fromkeys(range(3), 32))


def test_a_run_that_is_always_stable_counts_as_the_number_after_the_largest(tmp_path: Path) -> None:
    found = critical(tmp_path, unstable(None, 64, 128))
    assert found.by_seed == pytest.approx({0: 256, 1: 64, 2: 128})
    none = critical(tmp_path, unstable(None, None, None))
    assert (none.value, none.high) == pytest.approx((256, 256))
    low = 16 * 16 ** (0.025 ** (1 / 3))  # Gaffke of three equal values between log 16 and log 256
    assert none.low == pytest.approx(low)
    assert "possible values 16 to 256" in none.interval.words()
    ratio = critical(tmp_path, unstable(64, 64, 128), unstable(64, 128, None))
    same(ratio, np.exp(student(np.log([1, 1 / 2, 1 / 2]))))
    assert critical(tmp_path, unstable(16, 64, 128)).low == pytest.approx(16)  # Student t gives less, and 16 is least
    assert "; divided by the same for e16 (16)" in ratio.words
    agreeing = critical(tmp_path, unstable(16, 16, 16), unstable(64, 64, 64))
    assert agreeing.value == pytest.approx(1 / 4)
    assert agreeing.low < 1 / 4 < agreeing.high
    assert "possible values 0.0625 to 16" in agreeing.interval.words()


def test_critical_rate_needs_a_sweep() -> None:
    column = {"arm": "d16", "measurement": "length_class", "x": "length", "column": "loss"}
    with pytest.raises(ValueError, match="give 'sweep', the instability"):
        quantity({"kind": "critical_rate"} | column)


def test_verdict_on_a_critical_rate_flips_with_the_runs(tmp_path: Path) -> None:
    sweep = ARMS | {"against": [f"e{x:g}" for x in X]}
    content = {"id": "it", "says": "s", "paper": "p", "expected": {"below": 1.0}}
    content["quantity"] = {"kind": "critical_rate", "sweep": sweep}
    early, late, either = unstable(16, 16, 32), unstable(128, None, 128), unstable(16, 64, None)
    for own, other, verdict in ((early, late, CONFIRMED), (late, early, REFUTED), (either, unstable(64, 64, 64), OPEN)):
        task = figure(family(tmp_path, own) + family(tmp_path, other, "e")).content()
        task["figure"]["claims"] = [content]
        row = judge(FigureTask.parse(task, "test"), tmp_path).row(0, named=True)
        assert row["verdict"] == verdict, row

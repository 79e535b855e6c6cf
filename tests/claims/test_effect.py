"""Effects of an axis of a grid, compared with values computed by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from claims.synthetic import same, student
from claims.test_sweeps import quantity, read
from figures import synthetic

from ssm.base.errors import ConfigError
from ssm.claims.estimate import UndecidableError
from ssm.claims.verdict import judge
from ssm.figures.figure import FigureSpec

EXCESS = {"kind": "value_at", "measurement": "length_class", "column": "excess"}
Height = Callable[[int, int, int, int], float]  # of seed, a, conv, size


def grid(folder: Path, height: Height, panel: str = "tiny", missing: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """Series of the arms of a grid with two switches and two sizes, on three seeds."""
    found = []
    for number, places in enumerate(itertools.product((0, 1), (0, 1), (8, 16))):
        for seed in range(3):
            if number not in missing:
                table = f"{panel}{number}_{seed}"
                synthetic.length_class(folder / f"{table}.parquet", "none", height(seed, *places))
                a, conv, size = places
                one = synthetic.series(f"g{number}", seed, panel=panel, length_class=table)
                found.append(one | {"family": "g", "axes": {"a": ("off", "on")[a], "conv": bool(conv), "size": size}})
    return found


def effect(axis: str, **more: Any) -> dict[str, Any]:
    return {"kind": "effect", "of": EXCESS, "axis": axis} | more


def height(seed: int, a: int, conv: int, size: int) -> float:
    return 10 * seed + (2 + seed) * a + 0.5 * conv + 3 * a * conv + 0.25 * size * conv


def test_an_effect_is_the_mean_over_the_other_axes(tmp_path: Path) -> None:
    series = grid(tmp_path, height) + grid(tmp_path, lambda *_: 99.0, panel="other")
    without = [one for one in series if one["axes"]["a"] == "off"]  # arms of another grid, and with another axis
    others = [one | {"arm": f"h{one['arm']}", "family": "h"} for one in without]
    others += [one | {"arm": f"w{one['arm']}", "axes": one["axes"] | {"width": 2}} for one in without]
    found = read(tmp_path, effect("a"), series + others)
    same(found, student([2 + seed + 1.5 for seed in range(3)]))
    assert "mean over 4 pairs of arms" in found.words
    same(read(tmp_path, effect("a", where={"conv": True}), series), student([2 + seed + 3 for seed in range(3)]))
    by_size = effect("a", where={"conv": False, "size": 16})
    same(read(tmp_path, by_size, series), student([2.0, 3.0, 4.0]))
    with pytest.raises(UndecidableError, match="all 3 seeds gave exactly 5"):
        read(tmp_path, effect("conv"), series)  # 0.5 + 1.5 + 0.25 * 12
    numbers = grid(tmp_path, lambda seed, a, conv, size: (1 + seed) * size + a)
    same(read(tmp_path, effect("size", on=16, off=8), numbers), student([8.0, 16.0, 24.0]))


def test_two_effects_are_compared(tmp_path: Path) -> None:
    series = grid(tmp_path, height)
    found = read(tmp_path, effect("a", against="conv"), series)
    same(found, student([3.5 + seed - 5 for seed in range(3)]))
    assert found.words.endswith("; minus the effect of conv")


def test_a_verdict_flips_when_the_data_flip(tmp_path: Path) -> None:
    claim = {"id": "it", "says": "s", "paper": "p", "quantity": effect("conv", against="a"), "expected": {"above": 0.5}}
    gains = {"confirmed": (1.0, 1.1, 1.2), "refuted": (0.0, 0.1, 0.2), "not decided": (0.0, 1.1, 1.2)}
    for verdict, gain in gains.items():
        series = grid(tmp_path, lambda seed, a, conv, size, gain=gain: gain[seed] * conv + 0.01 * a)  # type: ignore[misc]
        row = judge(synthetic.task([{"kind": "state_norm"}], series, claims=[claim]), tmp_path).row(0, named=True)
        assert row["verdict"] == verdict, row


def test_only_complete_pairs_count(tmp_path: Path) -> None:
    """Arms whose partner is missing at this scale are left out, and so are seeds that one arm lacks."""
    series = grid(tmp_path, height, missing=(0,))  # a off, conv off, size 8
    rest = [2 + seed + np.mean([3, 3, 0]) for seed in range(3)]
    same(read(tmp_path, effect("a"), series), student(rest))
    fewer = [one for one in series if (one["arm"], one["seed"]) != ("g7", 1)]
    same(read(tmp_path, effect("a"), fewer), student([rest[0], rest[2]]))
    with pytest.raises(UndecidableError, match="no two arms differ only in size 32 and 8 at the scale smoke"):
        read(tmp_path, effect("size", on=32, off=8), series)


def test_the_hash_depends_on_the_pairs_and_not_on_names(tmp_path: Path) -> None:
    series = grid(tmp_path, height)
    renamed = [
        one | {"axes": {f"x_{name}": value for name, value in one["axes"].items()}, "arm": f"x{one['arm']}"}
        for one in series
    ]
    planned, other = (synthetic.task([{"kind": "state_norm"}], some).series for some in (series, renamed))
    own, alike = quantity(effect("a", against="conv")), quantity(effect("x_a", against="x_conv"))
    assert own.canonical("tiny", planned) == alike.canonical("tiny", other)
    turned = quantity(effect("conv", against="a"))
    assert own.panel_arms("tiny", planned) != turned.panel_arms("tiny", planned), "arms are numbered in reading order"
    for changed in ({"against": None}, {"where": {"size": 8}}, {"of": EXCESS | {"where": {"class": "none"}}}):
        assert own.canonical("tiny", planned) != own.model_copy(update=changed).canonical("tiny", planned)
    assert len(own.panel_arms("tiny", planned)) == 8
    some = quantity(effect("a", where={"conv": True}))
    assert sorted(arm for _, arm in some.panel_arms("tiny", planned)) == ["g2", "g3", "g6", "g7"]
    assert {one.arm for one in planned if some.about(one)} == {"g2", "g3", "g6", "g7"}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"axis": "b"}, "axis: no axis 'b' in any grid"),
        ({"against": "konv"}, "against: no axis 'konv' in any grid; did you mean 'conv'"),
        ({"where": {"siez": 8}}, "where: no axis 'siez' in any grid; did you mean 'size'"),
        ({"on": 32, "off": 8, "axis": "size"}, "on: 'size' has no value 32"),
        ({"where": {"a": True}}, "where: 'a' is an axis whose effect is measured"),
        ({"against": "a"}, "against: 'a' cannot be compared with itself"),
        ({"on": False}, "'on' and 'off' are both off"),
        ({"of": EXCESS | {"arm": "base"}}, "arm: leave it out here"),
    ],
)
def test_unknown_axes_and_values_are_rejected(changes: dict[str, Any], error: str) -> None:
    claim = {"id": "it", "says": "s", "paper": "p", "quantity": effect("a") | changes, "expected": {"above": 0}}
    content = {"target": "mi_fig3", "paper": "mi", "title": "t", "caption": "c", "setting": "s", "data": "d"}
    content |= {"models": ["tiny"], "seeds": [1], "drawings": [{"kind": "bars", "of": EXCESS}], "claims": [claim]}
    content |= {"measurements": [{"kind": "length_class"}]}
    axes = {"a": {"off": None, "on": 8}, "conv": [False, True], "size": [8, 16]}
    content["arms"] = {"g": {"label": "G", "training": "pretrain", "grid": axes}}
    with pytest.raises(ConfigError, match=error):
        FigureSpec.parse(content, "fig.yaml")

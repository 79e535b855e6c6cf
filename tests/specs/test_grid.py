"""Grids: each combination of values is an arm, which starts from the parent with the same values."""

from __future__ import annotations

import itertools
import json
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssm.base.errors import ConfigError
from ssm.figures.figure import MOST_ARMS, FigureSpec

BASE = {"label": "Base", "training": "pretrain"}
AFTER = {"label": "After", "from": "base", "training": "posttrain"}
GROWTH = {"kind": "perplexity_growth", "times_context": 2}
FIGURE = {
    "target": "lg_fig5",
    "paper": "lg",
    "title": "Title",
    "caption": "Caption.",
    "setting": "The paper's.",
    "models": ["tiny"],
    "data": "text",
    "seeds": [1],
    "drawings": [{"kind": "state_norm"}],
}


def figure(**changed: Any) -> FigureSpec:
    return FigureSpec.parse(FIGURE | changed, "fig.yaml")


def claim(**quantity: str) -> dict[str, Any]:
    return {"id": "it", "says": "It.", "paper": "It.", "quantity": GROWTH | quantity, "expected": {"below": 1}}


def axes_of(spec: FigureSpec) -> dict[str, dict[str, Any]]:
    """Arm -> value on each axis; empty for arms without a grid."""
    return {name: arm.member.axes if arm and arm.member else {} for name, arm in spec.arms.items()}


axis = st.sampled_from(["d_state", "model.d_model", "conv", "context", "lr_scale"])
scalars = st.one_of(
    st.integers(-5, 10**6), st.floats(1e-6, 1e6), st.booleans(), st.none(), st.text("abc_- 1", max_size=6)
)
word = scalars.filter(lambda value: not isinstance(value, str) or (value.strip() == value and bool(value)))
values = st.lists(word, min_size=1, max_size=4, unique_by=lambda value: (str(value), type(value) is bool))
grids = st.dictionaries(axis, values, max_size=3)


@settings(max_examples=75)
@given(grids, grids, st.sampled_from(["figure", "base", "after", "both"]), st.data())
def test_members_are_the_product_and_start_from_the_parent_with_their_values(
    first: dict[str, list[Any]], second: dict[str, list[Any]], place: str, data: st.DataObject
) -> None:
    """Compared with an independent implementation of the product."""
    for name in second.keys() & first.keys():  # on a shared axis, the child can only have values of the parent
        second[name] = data.draw(st.lists(st.sampled_from(first[name]), min_size=1, unique_by=repr))
    given = {"figure": {"grid": first}}.get(place, {})
    base = BASE | ({"grid": first} if place in ("base", "both") else {})
    after = AFTER | ({"grid": second} if place in ("after", "both") else {})
    own = {"base": first if place != "after" else {}, "after": {"figure": first, "base": {}}.get(place, second)}
    merged = own["base"] | own["after"]
    counts = [math.prod(map(len, axes.values())) for axes in (own["base"], merged)]
    if sum(counts) > MOST_ARMS or _clash(first) or _clash(second):
        with pytest.raises(ConfigError):
            figure(arms={"base": base, "after": after}, **given)
        return
    spec = figure(arms={"base": base, "after": after}, **given)
    found = axes_of(spec)
    assert len(found) == sum(counts)
    for family, axes in (("base", own["base"]), ("after", merged)):
        mine = [places for name, places in found.items() if name.partition("[")[0] == family]
        expected = [
            {axis: "none" if value is None else value for axis, value in zip(axes, combo, strict=True)}
            for combo in itertools.product(*axes.values())
        ]
        assert sorted(map(repr, map(sorted, map(dict.items, mine)))) == sorted(
            map(repr, map(sorted, map(dict.items, expected)))
        )
    for name, arm in spec.arms.items():
        assert arm is not None
        if name.startswith("after"):
            assert found[str(arm.parent)] == {key: found[name][key] for key in own["base"]}
    labels = [arm.label for arm in spec.arms.values() if arm]
    assert len(set(labels)) == len(labels)
    assert FigureSpec.parse(json.loads(json.dumps(spec.content(), sort_keys=True)), "again") == spec


def _clash(grid: dict[str, list[Any]]) -> bool:
    """Whether two values of an axis have the same text, such as 16 and "16", or 1 and 1.0."""
    from ssm.claims.families import value_text

    by_axis = ([value_text("none" if value is None else value) for value in values] for values in grid.values())
    return any(len(set(texts)) < len(texts) for texts in by_axis)


def test_members_have_readable_names_and_labels() -> None:
    grid = {"d_state": [16, 64], "lr_scale": [1e-3], "conv": [False, True], "initial_state": ["state_passing"]}
    spec = figure(arms={"base": BASE | {"grid": grid}})
    name = "base[d_state=64,lr_scale=0.001,conv=on,initial_state=state_passing]"
    arm = spec.arms[name]
    assert len(spec.arms) == 4
    assert arm is not None
    assert arm.member is not None
    assert arm.label == "Base, N = 64, lr scale = 0.001, conv on, initial state state passing"
    assert arm.member.label_without("d_state", "initial_state") == "Base, lr scale = 0.001, conv on"
    assert arm.member.label_without("d_state", "initial_state", family=False) == "lr scale = 0.001, conv on"
    assert arm.member.label_without(*arm.member.axes, family=False) == "Base"
    assert arm.initial_state == "state_passing"  # a key of arms sets the arm
    assert arm.member.sets == {"d_state": 64, "lr_scale": 0.001, "conv": True}


def test_values_may_have_names_and_set_several_keys() -> None:
    grid = {"size": {2: {"n_layers": 2, "d_model": 64}, 4: {"n_layers": 4, "model": "wide"}}, "mimetic": {"off": {}}}
    spec = figure(arms={"base": BASE | {"grid": grid}})
    small, large = spec.arms.values()
    assert list(spec.arms) == ["base[size=2,mimetic=off]", "base[size=4,mimetic=off]"]
    assert small is not None
    assert large is not None
    assert small.member is not None
    assert large.member is not None
    assert small.member.axes == {"size": 2, "mimetic": "off"}
    assert (small.model, large.model) == (None, "wide")
    assert large.member.sets == {"size": {"n_layers": 4}, "mimetic": {}}


def test_a_grid_of_snapshots_sets_their_time() -> None:
    early = {"label": "Early", "snapshot_of": "base", "grid": {"at": [0.25, 0.5]}}
    spec = figure(grid={"d_state": [16, 32]}, arms={"base": BASE, "early": early})
    taken = {name: (arm.snapshot_of, arm.at) for name, arm in spec.arms.items() if arm and arm.snapshot_of}
    assert taken == {f"early[d_state={n},at={at}]": (f"base[d_state={n}]", at) for n in (16, 32) for at in (0.25, 0.5)}


def test_the_grid_of_an_arm_replaces_that_of_the_figure() -> None:
    arms = {"base": BASE, "reference": BASE | {"grid": {}}, "other": BASE | {"grid": {"conv": [True]}}, "gone": None}
    spec = figure(grid={"d_state": [16, 32]}, arms=arms)
    assert list(spec.arms) == ["base[d_state=16]", "base[d_state=32]", "reference", "other[conv=on]", "gone"]


def test_measurements_and_claims_can_name_a_family_or_a_member() -> None:
    both = {"base": BASE, "after": AFTER, "alone": BASE | {"grid": {}}}
    measured = [{"kind": "position_loss", "length": 8, "arms": ["after", "alone"]}]
    claims = [claim(arm="after", against="base"), claim(arm="after[d_state=32]", against="alone") | {"id": "one"}]
    spec = figure(grid={"d_state": [16, 32]}, arms=both, measurements=measured, claims=claims)
    assert spec.measurements[0].arms == ("after[d_state=16]", "after[d_state=32]", "alone")
    assert set(spec.families) == {"base", "after"}


def test_without_a_grid_the_content_is_unchanged() -> None:
    content = figure(arms={"base": BASE}).content()
    assert "grid" not in content
    assert set(content["arms"]["base"]) == {
        *("label", "training", "from", "initial_state", "override", "override_at", "seeds", "model"),
        *("snapshot_of", "at"),
    }


SPACES = "expected a number, true, false, null or a short word; or name it, {name: value}, got "
VALUES = "expected a list of values, or a mapping of their names to values, got "


@pytest.mark.parametrize(
    ("arms", "says"),
    [
        ({"base": BASE | {"grid": {"d_state": 3}}}, f"arms.base.grid.d_state: {VALUES}3"),
        ({"base": BASE | {"grid": {"d_state": []}}}, f"arms.base.grid.d_state: {VALUES}[]"),
        ({"base": BASE | {"grid": {"d_state": [[1]]}}}, f"arms.base.grid.d_state: {SPACES}[1]"),
        ({"base": BASE | {"grid": {"init": ["a,b"]}}}, f"arms.base.grid.init: {SPACES}'a,b'"),
        ({"base": BASE | {"grid": {"d_state": [16, 16.0]}}}, "arms.base.grid.d_state: 16 is given twice"),
        ({"base": BASE | {"grid": [1]}}, "arms.base.grid: expected a mapping of keys to their values, got [1]"),
        (
            {"base": BASE | {"grid": {"d state": [1]}}},
            "arms.base.grid: expected a key such as d_state or model.mix",
        ),
        (
            {"base": BASE | {"grid": {"n": [1, 2]}}, "after": AFTER | {"grid": {"n": [2, 3]}}},
            "arms.after.grid.n: 'base' has no member with 3; valid names: 1, 2",
        ),
        (
            {"base": BASE, "early": {"label": "E", "snapshot_of": "base", "at": 0.5, "grid": {"d_state": [1]}}},
            "arms.early.grid.d_state: a snapshot has the axes of its arm; it can only add 'at'",
        ),
        ({"base": BASE | {"grid": {"d_state": [1]}, "colour": 1}}, "arms.base[d_state=1]: unknown key 'colour'; "),
        ({"base[d_state=1]": BASE}, "arms.base[d_state=1]: only members of a grid have a '[' in their"),
        ({"base": BASE | {"grid": {"d_state": list(range(10_000))}}}, "arms: the grids make 10,000 arms; a figure has"),
        (
            {"base": BASE | {"grid": {f"a{i}": [1, 2] for i in range(40)}}},
            "arms: the grids make more than 1,000,000,000 arms; a figure has at most 100",
        ),
        (
            {"base": BASE | {"grid": {f"a_long_name_{i}": [1] for i in range(12)}}},
            "arms.base[a_long_name_0=1,a_long_n",
        ),
    ],
)
def test_errors_of_grids_are_one_line(arms: dict[str, Any], says: str) -> None:
    started = time.process_time()
    with pytest.raises(ConfigError) as error:
        figure(arms=arms)
    assert str(error.value).startswith(f"fig.yaml: {says}")
    assert "\n" not in str(error.value)
    assert time.process_time() - started < 10, "more arms would take minutes"


def test_a_grid_needs_arms_and_claims_need_existing_members() -> None:
    with pytest.raises(ConfigError, match="grid: this figure has no arms to which"):
        figure(grid={"d_state": [1]})
    with pytest.raises(ConfigError, match=r"claims.it: unknown arm 'base\[n=3\]'; did you mean 'base\[n=[12]\]'"):
        figure(arms={"base": BASE | {"grid": {"n": [1, 2]}}}, claims=[claim(arm="base[n=3]")])
    with pytest.raises(ConfigError, match=r"claims.it: unknown arm 'bse'; did you mean 'base'"):
        figure(arms={"base": BASE | {"grid": {"n": [1, 2]}}}, claims=[claim(arm="bse")])
    wider = {"base": BASE | {"grid": {"n": [1], "m": [1, 2]}}, "other": BASE | {"grid": {"n": [1], "k": [1, 2]}}}
    with pytest.raises(ConfigError, match=r"quantity.against: 2 members match \[n=1,m=1\]; name one of them"):
        figure(arms=wider, claims=[claim(arm="base", against="other")])

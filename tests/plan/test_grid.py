"""Plans of grids: keys, runs, registrations and dry runs. One grid is made from plan to picture."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any

import pytest
import small
import torch
from plan.mini import edit, figure
from pydantic import Field

from ssm.base.errors import ConfigError
from ssm.claims.series import Series
from ssm.claims.verdict import judge
from ssm.cli.main import main
from ssm.data.build import build_store
from ssm.data.store import TokenStore
from ssm.evaluation.measure import measure
from ssm.figures.draw import draw
from ssm.figures.figure import FigureTask
from ssm.plan import Plan, load_config, make_plan, write_specs
from ssm.plan.overrides import with_overrides
from ssm.plan.review import contents
from ssm.specs.base import Spec
from ssm.specs.initial_states.random_noise import RandomNoise
from ssm.specs.initial_states.state_passing import StatePassing
from ssm.specs.initial_states.zero import ZeroState
from ssm.specs.mixers.mamba2 import Mamba2Mixer
from ssm.specs.mixers.mimetic import Mimetic
from ssm.specs.tasks.copy import CopyTask
from ssm.training.loop import train

BASE = {"label": "Base", "training": "pretrain"}
AFTER = {"label": "After", "from": "base", "training": "posttrain", "initial_state": "state_passing"}
CLAIM: dict[str, Any] = {
    "id": "less",
    "says": "Less.",
    "paper": "Less.",
    "quantity": {"kind": "perplexity_at", "arm": "after", "against": "base", "times_context": 2},
    "expected": {"below": 1.0},
}


class Wheel(Spec):
    size: int = 1


class Wagon(Spec):
    name: str
    wheels: Annotated[tuple[Wheel, ...], Field(strict=False)] = (Wheel(),)
    spare: Wheel | None = Wheel()
    horses: Annotated[tuple[int, ...], Field(strict=False)] = ()


@pytest.mark.parametrize(
    ("sets", "called"),
    [
        ({"wheels.0.size": 2}, "cart[size=2]"),
        ({"horses": [4, 2]}, "cart[horses=4:2]"),
        ({"spare": None}, "cart[spare=none]"),
        ({"wheels": [{"size": 1}, {"size": 3}]}, "cart[wheels=????????]"),
        ({"wheels.0.size": 2, "horses": [1]}, "cart[horses=1,size=2]"),
        ({"size": 1}, "cart"),  # unchanged
    ],
)
def test_the_name_of_a_spec_shows_its_changes(sets: dict[str, Any], called: str) -> None:
    wagon = Wagon(name="cart", spare=None if "size" in sets else Wheel())
    assert fnmatch(with_overrides({"wagon": wagon}, sets, "here")["wagon"].name, called.replace("[", "[[]"))


def test_a_long_name_is_cut() -> None:
    cart = {"wagon": Wagon(name="cart" * 20)}
    one, other = (with_overrides(cart, {"horses": [n] * 9}, "here")["wagon"].name for n in (1, 2))
    assert len(one) == len(other) == 80
    assert one != other


def planned(folder: Path, scale: str | None = None, dry_run: dict[str, int] | None = None, **changed: Any) -> Plan:
    """The plan of a figure with these arms."""
    figure(folder, "lg_fig2", **changed)
    return make_plan(load_config(folder, scale, ["lg_fig2"], {"dry_run": dry_run} if dry_run else {}))


def series(plan: Plan) -> dict[str, Series]:
    """Arm -> its only series."""
    found = {one.arm: one for one in plan.figures["lg_fig2"].series}
    assert len(found) == len(plan.figures["lg_fig2"].series)
    return found


def one(**grid: Any) -> dict[str, Any]:
    """Arms: a single one, with this grid."""
    return {"base": BASE | {"grid": grid}}


def test_keys_set_models_data_training_and_initial_states(folder: Path) -> None:
    grid = {
        "model.mixer.d_state": [8, 32],
        "mimetic.a": [None, 8],
        "lr_scale": [0.5],
        "data.held_out": [0.2],
        "initial_state": ["random_noise"],
        "sigma": [0.25],
    }
    plan = planned(folder, arms=one(**grid))
    for arm in series(plan).values():
        run = plan.runs[arm.run]
        mixer = run.model.mixer
        assert isinstance(mixer, Mamba2Mixer)
        assert {"model.mixer.d_state": mixer.d_state, "mimetic.a": mixer.mimetic.a or "none"} | {
            "lr_scale": run.training.lr_scale,
            "data.held_out": run.data.held_out,
            "initial_state": "random_noise",
            "sigma": run.training.initial_state.model_dump()["sigma"],
        } == arm.axes
        assert isinstance(run.training.initial_state, RandomNoise)
        assert arm.family == "base"
    assert len(plan.runs) == len(series(plan)) == 4
    assert len(plan.data) == 1


def test_a_member_shares_its_run_with_the_same_arm_written_by_hand(folder: Path) -> None:
    plain = planned(folder, arms={"base": BASE, "wide": BASE | {"label": "Wide", "override": {"context": 64}}})
    for grid in ({"context": [32, 64]}, {"T": {"short": {"context": 32}, "long": {"training.context": 64}}}):
        spanned = planned(folder, arms=one(**grid))
        assert list(spanned.runs) == list(plain.runs)
        assert list(spanned.measurements) == list(plain.measurements)
    assert set(planned(folder, arms=one(d_state=[8])).runs) < set(plain.runs)  # the model's own
    assert "tiny-d-state-16_T32_s1-" in next(iter(planned(folder, arms=one(d_state=[16])).runs))


def test_the_same_change_has_the_same_name(folder: Path) -> None:
    ways = ({"d_state": [16]}, {"width": {"double": {"model.mixer.d_state": 16}}})
    runs = [next(iter(planned(folder, arms=one(**grid)).runs.values())) for grid in ways]
    assert runs[0] == runs[1]
    assert runs[0].model.name == "tiny[d_state=16]"
    everything = {"mimetic": {"on": {"a": 8, "dt": True, "bc": True, "conv": True}}, "norm_eps": [1e-3], "expand": [4]}
    (run,) = planned(folder, arms=one(**everything)).runs.values()
    assert run.model.name == "tiny[a=8,bc=on,conv=on,dt=on,expand=4,norm_eps=0.001]"


def test_values_have_labels_and_panels_have_titles(folder: Path) -> None:
    """Readers see these. The ids of runs do not change."""
    arms = {"base": BASE | {"grid": {"d_state": [8, 16], "taps": {"off": {"d_conv": 1}, "on": {}}}}}
    plain = planned(folder, arms=arms)
    labels = {"d_state": "{} states", "taps": {"on": "", "off": "without the convolution"}}
    labeled = planned(folder, arms=arms, value_labels=labels)
    assert labeled.runs.keys() == plain.runs.keys()
    task = labeled.figures["lg_fig2"]
    assert list(task.labels.values()) == [
        "Base, 8 states, without the convolution",
        "Base, 8 states",
        "Base, 16 states, without the convolution",
        "Base, 16 states",
    ]
    assert task.title_of("tiny") == "Mamba-2", "the arms have different numbers of parameters"
    assert planned(folder, arms={"base": BASE}).figures["lg_fig2"].title_of("tiny") == "Mamba-2, 6.23k parameters"
    edit(folder, "models.yaml", "d_model: 16", "title: A small model, d_model: 16")
    titled = planned(folder, arms={"base": BASE | {"grid": {"d_state": [8, 16]}}})
    assert titled.figures["lg_fig2"].title_of("tiny") == "A small model"
    own = planned(folder, arms={}, measurements=[{"kind": "model_size"}], drawings=[{"kind": "configuration_table"}])
    assert own.figures["lg_fig2"].title_of("tiny") == "A small model, 6.23k parameters", "measured without arms"
    assert titled.runs.keys() < plain.runs.keys() | planned(folder, arms=one(d_state=[8, 16])).runs.keys()
    text = (folder / "models.yaml").read_text()
    (folder / "models.yaml").write_text(text + text[text.index("tiny:") : text.index("large:")].replace("tiny", "twin"))
    for arms, size in ({"base": BASE}, ", 6.23k parameters"), ({"base": BASE | {"grid": {"d_state": [8, 16]}}}, ""):
        both = planned(folder, arms=arms, models=["tiny", "twin"]).figures["lg_fig2"]
        assert [both.title_of(m) for m in both.models] == [f"A small model ({m}){size}" for m in ("tiny", "twin")]


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ({"d_stat": {8: "few"}}, "value_labels: no grid has the axis 'd_stat'; did you mean 'd_state'?"),
        ({"d_state": {9: "few"}}, "value_labels.d_state: no grid has the value 9; "),
        ({"d_state": "states"}, "value_labels.d_state: expected a label for each value, or one text with {} for"),
        ({"d_state": {8: 8}}, "value_labels.d_state.8: expected a text, got 8"),
        ([8], "value_labels: expected a mapping of axes to labels, got "),
    ],
)
def test_a_label_without_a_value_is_one_line(folder: Path, labels: Any, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        planned(folder, arms=one(d_state=[8, 16]), value_labels=labels)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_switches_are_on_or_off(folder: Path) -> None:
    """As YAML has them: `mimetic: [off, on]`, and as the name of a value."""
    figure(folder, "lg_fig2", arms=one(mimetic=["HERE"]))
    edit(folder, "figures/lg_fig2.yaml", "mimetic:\n      - HERE", "mimetic: [off, on]")
    plan = make_plan(load_config(folder, figures=["lg_fig2"]))
    mimetic = {arm: plan.runs[own.run].model.mixer.model_dump()["mimetic"] for arm, own in series(plan).items()}
    assert mimetic["base[mimetic=off]"] == Mimetic().model_dump()
    assert mimetic["base[mimetic=on]"] == Mimetic(a=8, dt=True, bc=True, conv=True).model_dump()
    edit(folder, "figures/lg_fig2.yaml", "[off, on]", "{off: {}, on: {a: 2, conv: on}}")
    plan = make_plan(load_config(folder, figures=["lg_fig2"]))
    assert list(series(plan)) == ["base[mimetic=off]", "base[mimetic=on]"]
    assert plan.runs[series(plan)["base[mimetic=on]"].run].model.name == "tiny[a=2,conv=on]"


def test_a_child_has_its_parents_model_and_its_own_recipe(folder: Path) -> None:
    grid = {"d_state": [8, 16], "lr_scale": [0.5, 1.0], "data.held_out": [0.2]}
    arms = one(**grid) | {"after": AFTER | {"grid": {"p_zero": [0.1, 0.2]}}}
    plan = planned(folder, arms=arms)
    after = {arm: own for arm, own in series(plan).items() if own.family == "after"}
    assert len(after) == 8
    for own in after.values():
        run = plan.runs[own.run]
        assert run.parent is not None
        assert run.parent.id == series(plan)[f"base{own.arm.removeprefix('after').rpartition(',')[0]}]"].run
        assert run.parent.training.lr_scale == own.axes["lr_scale"]
        assert run.training.lr_scale == 0.1  # the recipe's
        assert run.training.initial_state == StatePassing(p_zero=float(own.axes["p_zero"] or 0))
        assert run.model.mixer.state_shape(16)[1] == own.axes["d_state"]
        assert run.data.held_out == 0.2
    shared = planned(folder, grid={"context": [16, 32]}, arms={"base": BASE, "after": AFTER})
    contexts = {arm: shared.runs[own.run].training.context for arm, own in series(shared).items()}
    assert contexts == {
        "base[context=16]": 16,
        "base[context=32]": 32,
        "after[context=16]": 16,
        "after[context=32]": 32,
    }
    alone = planned(folder, arms=one(context=[16]) | {"after": AFTER})
    assert [run.training.context for run in alone.runs.values()] == [16, 32]


def test_named_recipes_models_and_states_are_axes_too(folder: Path) -> None:
    edit(folder, "models.yaml", "d_model: {paper: 512}", "d_model: 64")
    plan = planned(folder, arms=one(model=["tiny", "large"], training=["pretrain", "posttrain"]) | {"after": AFTER})
    runs = {arm: plan.runs[own.run] for arm, own in series(plan).items()}
    assert len(runs) == 8
    for arm, run in runs.items():
        assert f"model={run.model.name}" in arm
        start = run if run.parent is None else run.parent
        assert (start.training.lr_scale == 0.1) == ("training=posttrain" in arm)
    states = planned(folder, arms=one(initial_state=["zero", "state_passing"]))
    found = [states.runs[own.run].training.initial_state for own in series(states).values()]
    assert found == [ZeroState(), StatePassing()]


def test_a_tasks_fields_are_keys(folder: Path) -> None:
    """`size` sets two keys at a time, one of them in a list."""
    copying = "\ncopy: {task: copy, alphabet: 26, mix: [{shortest: 2, longest: 4}, {shortest: 5, longest: 10}]}\n"
    (folder / "data.yaml").write_text((folder / "data.yaml").read_text() + copying)
    long = {"mix.1.longest": 14, "mix.1.shortest": 8}
    arms = one(alphabet=[8, 26], size={"short": {}, "long": long}) | {"after": AFTER}
    plan = planned(folder, data="copy", arms=arms, measurements=[])
    for arm, own in series(plan).items():
        data = plan.runs[own.run].data
        assert isinstance(data, CopyTask)
        assert data.alphabet == own.axes["alphabet"]
        assert data.mix[1].longest == (14 if own.axes["size"] == "long" else 10), arm
    names = {plan.runs[own.run].data.name for own in series(plan).values()}
    changes = ("alphabet=8", "longest=14,shortest=8", "alphabet=8,longest=14,shortest=8")
    assert names == {"copy", *(f"copy[{change}]" for change in changes)}
    with pytest.raises(ConfigError, match=r"grid.alphabt: unknown key; did you mean 'alphabet'"):
        planned(folder, data="copy", arms=one(alphabt=[8]), measurements=[])
    with pytest.raises(ConfigError, match=r"grid.longest: ambiguous; write task.mix.0.longest or task.mix.1.longest"):
        planned(folder, data="copy", arms=one(longest=[8]), measurements=[])
    of_text = planned(folder, arms=one(data=["text", "copy"]), measurements=[])
    assert [of_text.runs[own.run].data.name for own in series(of_text).values()] == ["text", "copy"]


def test_checkpoints_are_an_axis_and_take_no_recipe(folder: Path) -> None:
    base = {"label": "Base", "context": 32, "grid": {"checkpoint": {"small": "their/small", "large": "their/large"}}}
    plan = planned(folder, arms={"base": base, "after": AFTER})
    names = {arm: plan.runs[own.run].origin.checkpoint for arm, own in series(plan).items()}
    assert [found and found.name for found in names.values()] == ["their/small", "their/large"] * 2
    assert list(names) == [f"{arm}[checkpoint={size}]" for arm in ("base", "after") for size in ("small", "large")]
    with pytest.raises(ConfigError, match=r"grid.lr_scale: unknown key; "):
        planned(folder, arms={"base": base | {"checkpoint": "their/small", "grid": {"lr_scale": [0.5]}}})


def test_a_grid_has_values_for_each_scale(folder: Path) -> None:
    plan = {
        scale: planned(folder, scale, arms=one(d_state={"smoke": [8, 16], "paper": [64]}))
        for scale in ("smoke", "paper")
    }
    assert [list(series(one)) for one in plan.values()] == [
        ["base[d_state=8]", "base[d_state=16]"],
        ["base[d_state=64]"],
    ]
    entry = {"smoke": BASE | {"grid": {"d_state": [8, 16]}}, "paper": None}
    assert list(series(planned(folder, "paper", arms={"base": BASE | {"grid": {}}, "other": entry}))) == ["base"]


def test_a_dry_run_takes_the_ends_of_every_axis_and_their_parents(folder: Path) -> None:
    caps = {"max_steps": 2}
    arms = one(d_state=[8, 16, 32, 64], context=[16, 32, 64]) | {"after": AFTER}
    plan = planned(folder, dry_run=caps, arms=arms, claims=[CLAIM | {"quantity": CLAIM["quantity"] | {"arm": "after"}}])
    corners = [f"[d_state={n},context={T}]" for n in (8, 64) for T in (16, 64)]
    assert list(series(plan)) == [*(f"base{c}" for c in corners), *(f"after{c}" for c in corners)]
    assert [name for name, _, _ in plan.figures["lg_fig2"].verdicts] == [f"less{corner}" for corner in corners]
    fewer = one(d_state=[8, 16, 32]) | {"after": AFTER | {"grid": {"d_state": [16, 32]}}}
    kept = list(series(planned(folder, dry_run=caps, arms=fewer)))
    assert kept == ["base[d_state=8]", "base[d_state=16]", "base[d_state=32]", "after[d_state=16]", "after[d_state=32]"]
    task = plan.figures["lg_fig2"]
    assert FigureTask.parse(json.loads(json.dumps(task.content(), sort_keys=True)), "again") == task


def test_a_claim_about_a_family_is_judged_and_registered_for_each_member(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = one(d_state=[8, 16]) | {"after": AFTER, "alone": BASE | {"grid": {}}}
    against = CLAIM | {"id": "alone", "quantity": CLAIM["quantity"] | {"arm": "alone", "against": "base"}}
    plan = planned(folder, arms=arms, claims=[CLAIM, against])
    task = plan.figures["lg_fig2"]
    assert [(name, claim.quantity.arms()) for name, claim, _ in task.verdicts] == [
        ("less[d_state=8]", ("after[d_state=8]", "base[d_state=8]")),
        ("less[d_state=16]", ("after[d_state=16]", "base[d_state=16]")),
        ("alone[d_state=8]", ("alone", "base[d_state=8]")),
        ("alone[d_state=16]", ("alone", "base[d_state=16]")),
    ]
    # The same arms written by hand have the same content, because a registration has no names of arms.
    by_hand = {"b": BASE, "a": AFTER | {"from": "b"}}
    claim = CLAIM | {"quantity": CLAIM["quantity"] | {"arm": "a", "against": "b"}}
    plain = planned(folder, arms=by_hand, claims=[claim])
    spanned = contents(task, plan.runs, plan.measurements)
    assert contents(plain.figures["lg_fig2"], plain.runs, plain.measurements)["less"] == spanned["less[d_state=8]"]
    assert len({content.arms for content in spanned.values()}) == 4
    figure(folder, "lg_fig2", seeds=[7], arms=arms, claims=[CLAIM])
    words = ["register", "--config", str(folder), "--scale", "smoke", "lg_fig2"]
    assert main(words) == 0
    figure(folder, "lg_fig2", seeds=[7], arms=arms | one(d_state=[8, 32]), claims=[CLAIM])
    capsys.readouterr()
    assert main(words) == 2
    assert "less[d_state=16]: it was removed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arms", "says"),
    [
        (one(d_stat=[8]), "base[d_stat=8].grid.d_stat: unknown key; did you mean 'd_state'?"),
        (one(**{"model.mixer.d_stat": [8]}), "unknown key; did you mean 'model.mixer.d_state'?"),
        (one(size={"s": {"d_modle": 8}}), "base[size=s].grid.size.d_modle: unknown key; did you mean 'd_model'?"),
        (one(p_zero=[0.1]), ".grid.p_zero: unknown key; "),  # the zero state has no p_zero
        (one(d_state=[8.5]), "base[d_state=8.5].grid: mixer.d_state: expected a whole number, got 8.5"),
        (one(head_dim=[7]), "base[head_dim=7].grid: mixer: head_dim 7 must divide expand * d_model = 32"),
        (one(context=[31]), "base[context=31].grid: batch_tokens 128 must be a multiple of context 31"),
        (one(tokens=[640]), "base[tokens=640].grid: budget: give exactly one of steps, tokens, chinchilla"),
        (
            one(training=["pretran"]),
            "base[training=pretran].training: unknown recipe 'pretran'; did you mean 'pretrain'",
        ),
        (one(model=["tinny"]), "base[model=tinny].model: unknown model 'tinny'; did you mean 'tiny'?"),
        (
            {"base": BASE, "after": AFTER | {"grid": {"d_state": [4]}}},
            "'tiny[d_state=4]' differs from its parent's 'tiny'",
        ),
        (
            {"a": AFTER | {"from": "b", "grid": {"d_state": [1]}}, "b": AFTER | {"label": "B", "from": "a"}},
            "the arms a[d_state=1] -> b[d_state=1] -> a[d_state=1] form a cycle",
        ),
    ],
)
def test_an_impossible_key_or_value_is_one_line(folder: Path, arms: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        planned(folder, arms=arms)
    assert f"{folder / 'figures' / 'lg_fig2.yaml'}: arms." in str(error.value)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_an_ambiguous_key_must_be_written_in_full(folder: Path) -> None:
    edit(folder, "models.yaml", "head_dim: 16}", "head_dim: 16, slow_heads: {share: 0.5}}")
    with pytest.raises(
        ConfigError, match=r"a_range: ambiguous; write model.mixer.a_range or model.mixer.slow_heads.a_range"
    ):
        planned(folder, arms=one(a_range={"slow": [1, 1]}))
    plan = planned(folder, arms=one(**{"slow_heads.a_range": {"slow": [2, 2]}, "model.mixer.a_range": {"all": [1, 1]}}))
    (run,) = plan.runs.values()
    mixer = run.model.mixer.model_dump()
    assert (mixer["a_range"], mixer["slow_heads"]["a_range"]) == ((1.0, 1.0), (2.0, 2.0))
    assert run.model.name == "tiny[a_range=1:1,a_range=2:2]"


def test_a_small_grid_from_the_plan_to_the_picture(folder: Path, tmp_path: Path) -> None:
    """A dry run in which the corners of a grid are trained, measured, judged and drawn."""
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(12):
        (texts / f"{number:02}.txt").write_text(small.text(number))
    edit(folder, "data.yaml", "{kind: stdlib}", f"{{kind: files, paths: ['{texts}']}}, held_out: 0.3")
    arms = one(d_state=[4, 8, 16], conv=[True]) | {"after": AFTER}
    plan = planned(folder, dry_run={"max_steps": 1, "max_sequences": 2, "max_contexts": 2}, arms=arms, claims=[CLAIM])
    write_specs(plan, tmp_path / "specs")
    cpu, runs, tables = torch.device("cpu"), tmp_path / "runs", tmp_path / "tables"
    for data in plan.data.values():
        build_store(data, tmp_path / data.id, workers=1)
    for name, run in plan.runs.items():
        parent = plan.inputs[name].run
        store = TokenStore.open(tmp_path / run.data.id)
        train(run, store, runs / name, cpu, runs / parent if parent else None)
    for name, measured in plan.measurements.items():
        needs = plan.inputs[name]
        measure(measured, tables / f"{name}.parquet", cpu, runs / str(needs.run), tmp_path / str(needs.data))
    task = FigureTask.load(tmp_path / "specs" / "figures" / "lg_fig2.json")
    corners = [f"[d_state={n},conv=on]" for n in (4, 16)]
    assert [one.arm for one in task.series] == [f"{arm}{corner}" for arm in ("base", "after") for corner in corners]
    assert judge(task, tables)["claim"].to_list() == [f"less{corner}" for corner in corners]
    svg = draw(task, tables, tmp_path)[0].read_text()
    assert "Base, N = 4, conv on" in svg
    assert "After, N = 16, conv on" in svg

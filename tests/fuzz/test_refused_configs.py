"""Mistakes in the config files: one line with the file, the key, and the nearest valid name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plan.mini import edit, figure, write_config

from ssm.base.errors import ConfigError
from ssm.plan import load_config, make_plan

FIGURE = "figures/lg_fig5"
BASE = {"label": "Base", "training": "pretrain"}
PASSING = {"label": "SP", "from": "base", "training": "posttrain", "initial_state": "state_passing"}
SNAPSHOT = {"label": "Early", "snapshot_of": "base", "at": 0.5}
UNTRAINED = {"label": "U", "training": "pretrain", "override": {"budget": {"steps": 0}}}
CHECKPOINT = {"label": "C", "checkpoint": "a/b", "context": 32}
CURVE = {"kind": "position_loss", "length": 64}
KEYS = {"kind": "passkey", "lengths": [300]}
FITS: dict[str, object] = {"kind": "extrapolation_error", "sizes": [8], "windows": [1], "horizons": [2]}
COLLECTING = {"arms": {}, "measurements": [{"kind": "position_loss"}, {"kind": "length_class"}], "collect": ["lg_fig5"]}
CHAIN = "arms:\n  a0: {label: A, training: pretrain}\n" + "".join(
    f"  a{n}: {{label: A, training: posttrain, from: a{n - 1}}}\n" for n in range(1, 3000)
)
NO_SUCH = "unknown key '{}'; did you mean '{}'?"
INT = "expected a whole number, got "
MODELS = """\
other: {d_model: 8, n_layers: 1, peak_lr: 1e-3, mixer: {kind: mamba2, head_dim: 8}, \
published: {checkpoint: o/m, context: 8}}
open: {checkpoint: models/open, text: [a]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_config(Path("config"))


def problem(folder: Path, scale: str | None = None, **overrides: object) -> str:
    with pytest.raises(ConfigError) as error:
        make_plan(load_config(folder, scale, overrides=overrides))
    text = str(error.value)
    assert "\n" not in text
    return text


VALUES = [
    ("config", "scale: smoke", "scale: smok", "scale", "unknown name 'smok'; did you mean 'smoke'?"),
    ("config", "scale:", "scael:", "", NO_SUCH.format("scael", "scale")),
    ("config", "all", "lg_fig5", "figures", "expected 'all' or a list of figures such as [lg_fig5], got 'lg_fig5'"),
    ("config", "all", "[lg_fig6]", "figures", "unknown figure 'lg_fig6'; did you mean 'lg_fig"),
    ("models", "tiny: {d_model", "tiny: {d_modl", "tiny", NO_SUCH.format("d_modl", "d_model")),
    ("training", "lr_scale: 0.1", "lr_scale: heavy", "recipes.posttrain.lr_scale", "expected a number, got 'heavy'"),
    ("models", "head_dim: 16", "head_dim: 5", "tiny: mixer: head_dim", "head_dim 5 must divide"),
    ("models", "d_state: 8", "d_stat: 8", "tiny: mixer: ", NO_SUCH.format("d_stat", "d_state")),
    ("models", "d_state: 8", "d_state: x", "tiny: mixer.d_state: ", INT + "'x'"),
    ("models", "{kind: mamba2, d_state: 8", "{d_state: 8", "tiny: mixer: ", "the key 'kind' is missing; it selects"),
    ("models", "{kind: mamba2, d_state", "{kind: mamba, d_state", "tiny: mixer: ", "unknown name 'mamba'; did you"),
    ("models", "tiny: {", "tiny: {ffn: {kind: mlp}, ", "tiny: ffn.d_hidden: ", "is required and is missing"),
    ("models", "tiny: {", "tiny: {parallel_residual: true, ", "tiny: parallel_residual: ", "needs an ffn"),
    ("models", "tiny: {", "tiny: {mixer_at: {3: {kind: mamba2, head_dim: 16}}, ", "tiny: mixer_at.3: ",
     "layers are numbered 0 to 0"),
    ("models", "d_model: 16", "d_model: 16.5", "tiny: d_model", INT + "16.5"),
    ("models", "tiny: {", "tiny: {name: x, ", "tiny", "expected a mapping without 'name'"),
    ("models", "tiny: {", "mine: {checkpoint: x, text: [a], step: 5}\ntiny: {", "mine",
     NO_SUCH.format("step", "steps")),
    ("models", "tiny: {", "mine: {chekpoint: x, text: [a]}\ntiny: {", "mine",
     NO_SUCH.format("chekpoint", "checkpoint")),
    ("models", "tiny: {", "mine: {checkpoint: x}\ntiny: {", "mine: text: ", "is required and is missing"),
    ("models", "tiny: {", "a/b: {checkpoint: x, text: [a]}\ntiny: {", "a/b: name: ", "becomes a folder and a target"),
    ("data", "stdlib", "stdlb", "text: corpus", "unknown name 'stdlb'; did you mean 'stdlib'?"),
    ("training", "recipes:", "recipe:", "", NO_SUCH.format("recipe", "recipes")),
    ("training", "smoke: 128", "smoke: 100", "recipes.pretrain", "batch_tokens 100 must be a multiple of context 32"),
    ("training", "{steps: 20}", "{steps: 2, tokens: 3}", "recipes.posttrain.budget", "give exactly one of steps"),
    ("training", "lr_scale: 0.1", "initial_state: zero", "recipes.posttrain.initial_state", "not a key of a recipe"),
    ("training", "policy: random_noise", "policy: noise", "initial_states.random_noise", "unknown name 'noise'; "),
    ("training", "sigma: 0.03", "sgma: 0.03", "initial_states.random_noise", NO_SUCH.format("sgma", "sigma")),
    (FIGURE, "models: [tiny]", "models: [tinny]", "models", "unknown model 'tinny'; did you mean 'tiny'?"),
    (FIGURE, "data: text", "data: test", "data", "unknown data set 'test'; did you mean 'text'?"),
    (FIGURE, "posttrain", "postrain", "arms.state_passing.training",
     "unknown recipe 'postrain'; did you mean 'posttrain'?"),
    (FIGURE, "state: state_passing", "state: state_pass", "arms.state_passing.initial_state",
     "did you mean 'state_passing'?"),
    (FIGURE, "from: base", "from: bas", "arms.state_passing.from", "unknown arm 'bas'; did you mean 'base'?"),
    (FIGURE, "arm: state_passing", "arm: state_pass", "claims.repaired", "did you mean 'state_passing'?"),
    (FIGURE, "kind: position_loss", "kind: position_los", "measurements.0: ", "did you mean 'position_loss'?"),
    (FIGURE, "kind: position_curves", "kind: curbes", "drawings.0", "unknown name 'curbes'; "),
    (FIGURE, "position_loss, times_context: 16", "position_loss", "measurements.position_loss",
     "give either 'length' (tokens)"),
    (FIGURE, "paper: lg", "paper: lg\ntarget: lg_fig6", "target",
     "expected 'lg_fig5', the name of the file, got 'lg_fig6'"),
    (FIGURE, "seeds: [1]", "seeds: {paper: [1]}", "seeds", "no value for the scale 'smoke'; it has: paper"),
    (FIGURE, "seeds: [1]", "seeds: [-1]", "seeds", "expected a number from 0 on, got -1"),
    (FIGURE, "label: Base", 'label: ""', "arms.base.label", "expected at least 1 character, got ''"),
    (FIGURE, "seeds: [1]", "sedes: [1]", "", NO_SUCH.format("sedes", "seeds")),
    ("models", "tiny: {", "tiny: {published: {chekpoint: a/b}, ", "tiny: published",
     ": unknown key 'chekpoint'; did you mean 'checkpoint'?"),
    ("models", "tiny: {", "tiny: {published: {checkpoint: a/b}, ", "tiny: published",
     ".context: this key is required and is missing"),
    ("models", "tiny: {", "tiny: {published: owner/model, ", "tiny: published",
     ": expected a mapping, got 'owner/model'"),
    ("training", "sigma: 0.03", "sigma: -1", "initial_states.random_noise", "got -1"),
    (FIGURE, "below: 1.1", "", "claims.0.expected", "without a bound nothing can refute the claim"),
    (FIGURE, "arms:", "arms: [}", "", "expected the node content, but found '}'"),
    (FIGURE, "headline: true", "headline: true\nheadline: false", "", "the key 'headline' is given twice"),
    (FIGURE, "seeds: [1]", "seeds: [1, 1]", "seeds", "1 is given twice"),
    (FIGURE, "models: [tiny]", "models: [tiny, tiny]", "models", "'tiny' is given twice"),
    (FIGURE, "below: 1.1", "below: .nan", "", "below: not a number is not a valid value"),
    (FIGURE, "caption: The curves.", "caption: &a [*a]", "", "nested more than 48 deep"),
    ("models", "n_layers: 1,", "n_layers: 1000000,", "tiny: n_layers", "expected a number up to 1000, got 1000000"),
    (FIGURE, "arms:", CHAIN, "arms", "expected at most 100 entries"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "key", "says"), VALUES)
def test_a_wrong_value(folder: Path, file: str, old: str, new: str, key: str, says: str) -> None:
    edit(folder, f"{file}.yaml", old, new)
    text = problem(folder)
    assert text.startswith(f"config/{file}.yaml: {key}" if key else f"config/{file}.yaml:")
    assert says in text


def overriding(changed: dict[str, object]) -> dict[str, Any]:
    return {"arms": {"base": BASE | {"override": changed}}}


def arms(arms: dict[str, Any]) -> dict[str, Any]:
    return {"arms": {"base": BASE} | arms}


def claiming(changed: dict[str, object], **quantity: object) -> dict[str, Any]:
    about = {"kind": "perplexity_growth", "arm": "state_passing", "times_context": 16} | quantity
    one = {"id": "repaired", "says": "It is.", "paper": "Flat.", "quantity": about, "expected": {"below": 1.1}}
    return {"claims": [one | changed]}


FIGURES = [
    (overriding({"contxt": 1}), "arms.base.override", "override: " + NO_SUCH.format("contxt", "context")),
    (overriding({"context": "64"}), "arms.base.override", f"override: context: {INT}'64'"),
    (overriding({"context": 48}), "arms.base.override", "override: batch_tokens 128 must be a multiple of context 48"),
    (overriding({"budget": {"steps": 1, "tokens": 1}}), "arms.base.override",
     "override: budget: give exactly one of steps, tokens, chinchilla"),
    (overriding({"betas": [0.9, 1.0]}), "arms.base.override", "override: betas.1: expected a number below 1, got 1.0"),
    (overriding({"betas": [-0.1, 0.9]}), "arms.base.override",
     "override: betas.0: expected a number from 0 on, got -0.1"),
    (overriding({"initial_state": {"sigma": 1}}), "arms.base.override", "override: initial_state: unknown key 'sigma'"),
    (overriding({"initial_state": "tbtt"}), "arms.base.override",
     "override.initial_state: expected keys of the initial state"),
    ({"claims": [*claiming({})["claims"], *claiming({})["claims"]]}, "claims", "the id 'repaired' is given twice"),
    ({"arms": {"base": BASE, "taught": BASE | {"from": "base", "layer": 0}}}, "arms.taught.layer",
     "expected a layer's number (1, 2, ...) or 'own', got 0"),
    (claiming({"models": ["tin"]}, **{}), "claims.repaired",
     "claims.repaired.models: 'tin' is not in 'models' of this figure, which has tiny"),
    (claiming({}, **{"against_model": "tin", "against": "base"}), "claims.repaired",
     "quantity.against_model: 'tin' is not in 'models' of this figure"),
    (claiming({}, **{"against_model": "tiny"}), "claims.0.quantity",
     "'against_model' needs 'against', the arm of that model"),
    (claiming({"models": ["tiny"], "quantity": {"kind": "parameter_ratio", "model": "tiny"}}), "claims.0",
     "'models' selects panels, but this quantity belongs to no panel"),
    (arms({"sp": PASSING | {"from": "b"}, "b": PASSING | {"label": "B", "from": "sp"}}), "arms",
     "the arms sp -> b -> sp form a cycle"),
    (arms({"early": SNAPSHOT | {"at": 1.5}}), "arms.early.at", "expected a number below 1, got 1.5"),
    (arms({"early": SNAPSHOT, "sp": PASSING | {"from": "early"}}), "arms", "arms.sp.from: 'early' is a snapshot"),
    (arms({"early": SNAPSHOT, "f": SNAPSHOT | {"label": "F", "snapshot_of": "early"}}), "arms",
     "arms.f.snapshot_of: 'early' is a snapshot itself"),
    (arms({"sp": PASSING | {"model": "other"}}), "arms", "arms.sp: the model 'other' differs from its parent's 'tiny'"),
    (arms({"sp": PASSING | {"override_at": {"tin": {}}}}), "arms",
     "arms.sp.override_at: 'tin' is not in 'models' of this figure"),
    ({"arms": {"c": {"label": "C"}}}, "arms",
     "give exactly one of 'training' (a recipe), 'checkpoint' (existing weights), 'repair'"),
    ({"arms": {"c": CHECKPOINT | {"training": "pretrain"}}}, "arms", "give exactly one of 'training' (a recipe)"),
    ({"arms": {"c": BASE | {"context": 8}}}, "arms",
     "'context' needs 'checkpoint'; to change the context of a recipe, use 'override'"),
    ({"arms": {"c": CHECKPOINT | {"initial_state": "state_passing"}}}, "arms",
     "not trained here: leave 'initial_state' out"),
    ({"arms": {"c": CHECKPOINT | {"override": {"warmup": 3}}}}, "arms",
     "a checkpoint is not trained here: leave 'override' out"),
    ({"arms": {"base": BASE, "c": CHECKPOINT | {"from": "base"}}}, "arms",
     "a checkpoint is not trained here: leave 'from' out"),
    ({"arms": {"c": CHECKPOINT | {"context": 0}}}, "arms", "arms.c.context: expected a number above 0, got 0"),
    ({"arms": {"c": {"label": "C", "checkpoint": "a/b"}}}, "arms",
     "arms.c: give 'context', the tokens of a sequence that a/b was"),
    ({"arms": {"c": {"label": "C", "checkpoint": "open"}}}, "arms",
     "arms.c: give 'context', the tokens of a sequence that open was"),
    ({"arms": {"c": CHECKPOINT | {"checkpoint": "publishd"}}}, "arms",
     "arms.c.checkpoint: unknown checkpoint 'publishd'; did you mean 'published'?; the path of a folder needs a /"),
    ({"arms": {"c": CHECKPOINT | {"checkpoint": "published"}}}, "arms",
     "arms.c.checkpoint: config/models.yaml: 'tiny' has no key 'published'; models with this key: oth"),
    ({"arms": {"c": CHECKPOINT, "e": SNAPSHOT | {"snapshot_of": "c"}}}, "arms",
     "arms.e.snapshot_of: 'c' is not trained here; name a"),
    ({"arms": {"c": UNTRAINED, "e": SNAPSHOT | {"snapshot_of": "c"}}}, "arms",
     "arms.e.snapshot_of: 'c' has no steps; name a trained arm"),
    ({"arms": {"c": UNTRAINED, "e": UNTRAINED | {"label": "E", "from": "c"}}}, "arms",
     "arms.e: a run of zero steps takes no parent"),
    ({"measurements": [CURVE | {"times_context": 2}]}, "measurements", "position_loss (arm 'base'): give either"),
    ({"measurements": [CURVE, CURVE]}, "measurements", "position_loss: given twice for the arm 'base'"),
    ({"measurements": [CURVE | {"kind": "restart_loss", "length": -1}]}, "measurements",
     "0.length: expected a number above 0, got -1"),
    ({"measurements": [{"kind": "length_class"}]}, "measurements",
     "length_class (arm 'base'): needs a position_loss"),
    ({"measurements": [CURVE, {"kind": "length_class", "size": 8}]}, "measurements",
     "1: unknown key 'size'; valid names: arms, kind"),
    ({"measurements": [CURVE, {"kind": "length_class", "of": "far"}]}, "measurements",
     "length_class (arm 'base'): of: no position_loss of this arm"),
    ({"measurements": [CURVE, CURVE | {"name": "far"}, CURVE | {"name": "far"}]}, "measurements",
     "far: given twice for the arm 'base'; give one"),
    ({"measurements": [CURVE | {"name": "passkey"}]}, "measurements",
     "passkey: this is the name of another kind; give the position_loss another"),
    ({"measurements": [KEYS | {"name": "x"}, CURVE | {"name": "x"}]}, "measurements",
     "x: a passkey and a position_loss have the same name"),
    ({"measurements": [KEYS | {"depth": [0]}]}, "measurements", "0: unknown key 'depth'; did you mean 'depths'?"),
    ({"measurements": [KEYS | {"times_context": [2]}]}, "measurements",
     "passkey (arm 'base'): give either 'lengths' (tokens) or 'times_context'"),
    ({"measurements": [{"kind": "passkey", "times_context": 2}]}, "measurements",
     "0.times_context: expected a list, got 2"),
    ({"measurements": [{"kind": "passkey", "lengths": [9, 8]}]}, "measurements",
     "0.lengths: must ascend, got [9, 8]"),
    ({"measurements": [{"kind": "cost"}]}, "measurements", "0.lengths: this key is required and is missing"),
    ({"measurements": [FITS, FITS | {"windows": [2]}]}, "measurements",
     "extrapolation_error: is given twice; a measurement of this kind"),
    ({"measurements": [FITS | {"sizes": [8, 65]}]}, "measurements",
     "extrapolation_error: sizes: a fit to 64 points has at most as many exponentials"),
    ({"measurements": [CURVE | {"arms": ["bas"]}]}, "measurements",
     "position_loss.arms: unknown arm 'bas'; did you mean 'base'?"),
    (COLLECTING | {"collect": ["lg_fig6"]}, "", "collect: unknown figure 'lg_fig6'; did you mean 'lg_fig"),
    (COLLECTING | {"collect": ["ls_fig1"]}, "", "collect: 'ls_fig1' has 'collect' itself"),
    (COLLECTING | {"collect": ["lg_fig4"]}, "", "collect: no arm of these figures has the measurements position_loss"),
    (COLLECTING | {"measurements": []}, "", "measurements: name the measurements that are collected"),
    (COLLECTING | {"measurements": [CURVE]}, "",
     "measurements.position_loss: a figure with 'collect' can only name"),
    (COLLECTING | {"measurements": [{"kind": "taxonomy"}]}, "",
     "measurements.taxonomy: a figure with 'collect' can"),
    (COLLECTING | {"arms": {"base": BASE}}, "", "arms: a figure with 'collect' cannot have its own arms"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "key", "says"), FIGURES)
def test_a_wrong_figure(folder: Path, changed: dict[str, Any], key: str, says: str) -> None:
    (folder / "models.yaml").write_text((folder / "models.yaml").read_text() + MODELS)
    figure(folder, "ls_fig1", **COLLECTING)
    figure(folder, "lg_fig3", **changed)
    text = problem(folder, figures=["lg_fig3"])
    assert text.startswith(f"config/figures/lg_fig3.yaml: {key}")
    assert says in text


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"scale": "papr"}, "scale: unknown name 'papr'; did you mean 'paper'?"),
        ({"scale": "\x1b[2J\n" + "x" * 1_000_000}, "scale: unknown name '\\x1b[2J\\nxxx"),
        ({"threads": 0}, "threads: "),
        ({"figures": ["lg_fig55"]}, "figures: unknown figure 'lg_fig55'; did you mean 'lg_fig5'"),
        ({"figures": ["lg_fig5", "lg_fig5"]}, "figures: 'lg_fig5' is given twice"),
        ({"figures": []}, "figures: expected 'all' or a list"),
        ({"results": "a{run}b"}, "results: expected the name of a folder, without { and }, got 'a{run}b'"),
        ({"results": ""}, "results: expected"),
    ],
)
def test_a_wrong_value_in_config_yaml(folder: Path, overrides: dict[str, Any], says: str) -> None:
    scale = overrides.pop("scale", "smoke")
    text = problem(folder, scale, **overrides)
    assert text.startswith("config/config.yaml")
    assert says in text
    assert len(text) < 500


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("large", "config/models.yaml: large.d_model: no value for the scale 'smoke'; it has: paper"),
        (
            "open",
            "config/models.yaml: 'open' is a checkpoint (models/open), not a model. Name it as 'checkpoint' of an "
            "arm, or make its targets diagnose_open and extend_open",
        ),
    ],
)
def test_an_unknown_model_is_reported_with_the_figure_that_uses_it(folder: Path, model: str, says: str) -> None:
    (folder / "models.yaml").write_text((folder / "models.yaml").read_text() + MODELS)
    figure(folder, "lg_fig3", models=[model])
    assert problem(folder) == f"{says} (used by config/figures/lg_fig3.yaml: models)"

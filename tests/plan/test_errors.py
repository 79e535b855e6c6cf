"""Every kind of wrong config file: one line with the file, the key, and the nearest valid name."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan.mini import edit, figure, write_config

from ssm.base.errors import ConfigError
from ssm.plan import load_config, make_plan

BASE = {"label": "Base", "training": "pretrain"}
PASSING = {"label": "SP", "from": "base", "training": "posttrain", "initial_state": "state_passing"}
SNAPSHOT = {"label": "Early", "snapshot_of": "base", "at": 0.5}
UNTRAINED = {"label": "U", "training": "pretrain", "override": {"budget": {"steps": 0}}}
CURVE = {"kind": "position_loss", "length": 64}
KEYS = {"kind": "passkey", "lengths": [300]}
FITS: dict[str, object] = {"kind": "extrapolation_error", "sizes": [8], "windows": [1], "horizons": [2]}


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


NO_SUCH = "unknown key '{}'; did you mean '{}'?"
INT = "expected a whole number, got "


@pytest.mark.parametrize(
    ("file", "old", "new", "key", "says"),
    [
        ("config", "scale: smoke", "scale: smok", "scale", "unknown name 'smok'; did you mean 'smoke'?"),
        ("config", "scale:", "scael:", "", NO_SUCH.format("scael", "scale")),
        ("config", "all", "lg_fig5", "figures", "expected 'all' or a list of targets such as [lg_fig5], got 'lg_fig5'"),
        ("config", "all", "[lg_fig6]", "figures", "unknown figure 'lg_fig6'; did you mean 'lg_fig"),
        ("models", "tiny: {d_model", "tiny: {d_modl", "tiny", NO_SUCH.format("d_modl", "d_model")),
        ("models", "head_dim: 16", "head_dim: 5", "tiny: mixer: head_dim", "head_dim 5 must divide"),
        ("models", "d_state: 8", "d_stat: 8", "tiny: mixer: ", NO_SUCH.format("d_stat", "d_state")),
        ("models", "d_state: 8", "d_state: x", "tiny: mixer.d_state: ", INT + "'x'"),
        ("models", "{kind: mamba2, d_state: 8", "{d_state: 8", "tiny: mixer: ", "the key 'kind', which says what kind"),
        ("models", "{kind: mamba2, d_state", "{kind: mamba, d_state", "tiny: mixer: ", "unknown name 'mamba'; did you"),
        ("models", "tiny: {", "tiny: {ffn: {kind: mlp}, ", "tiny: ffn.d_hidden: ", "is required and is missing"),
        ("models", "tiny: {", "tiny: {parallel_residual: true, ", "tiny: parallel_residual: ", "needs an ffn"),
        (
            "models",
            "tiny: {",
            "tiny: {mixer_at: {3: {kind: mamba2, head_dim: 16}}, ",
            "tiny: mixer_at.3: ",
            "layers are numbered 0 to 0",
        ),
        ("models", "d_model: 16", "d_model: 16.5", "tiny: d_model", INT + "16.5"),
        ("models", "tiny: {", "tiny: {name: x, ", "tiny", "expected a mapping without 'name'"),
        (
            "models",
            "tiny: {",
            "mine: {checkpoint: x, text: [a], step: 5}\ntiny: {",
            "mine",
            NO_SUCH.format("step", "steps"),
        ),
        (
            "models",
            "tiny: {",
            "mine: {chekpoint: x, text: [a]}\ntiny: {",
            "mine",
            NO_SUCH.format("chekpoint", "checkpoint"),
        ),
        ("models", "tiny: {", "mine: {checkpoint: x}\ntiny: {", "mine: text: ", "is required and is missing"),
        ("models", "tiny: {", "a/b: {checkpoint: x, text: [a]}\ntiny: {", "a/b: name: ", "of a folder and of targets"),
        ("data", "stdlib", "stdlb", "text: corpus", "unknown name 'stdlb'; did you mean 'stdlib'?"),
        ("training", "recipes:", "recipe:", "", NO_SUCH.format("recipe", "recipes")),
        (
            "training",
            "smoke: 128",
            "smoke: 100",
            "recipes.pretrain",
            "batch_tokens 100 must be a multiple of context 32",
        ),
        ("training", "{steps: 20}", "{steps: 2, tokens: 3}", "recipes.posttrain.budget", "give exactly one of steps"),
        ("training", "lr_scale: 0.1", "initial_state: zero", "recipes.posttrain.initial_state", "a recipe has none"),
        ("training", "policy: random_noise", "policy: noise", "initial_states.random_noise", "unknown name 'noise'; "),
        ("training", "sigma: 0.03", "sgma: 0.03", "initial_states.random_noise", NO_SUCH.format("sgma", "sigma")),
    ],
)
def test_a_wrong_value(folder: Path, file: str, old: str, new: str, key: str, says: str) -> None:
    edit(folder, f"{file}.yaml", old, new)
    text = problem(folder)
    assert text.startswith(f"config/{file}.yaml: {key}")
    assert says in text


@pytest.mark.parametrize(
    ("old", "new", "key", "says"),
    [
        ("models: [tiny]", "models: [tinny]", "models", "unknown model 'tinny'; did you mean 'tiny'?"),
        ("data: text", "data: test", "data", "unknown data set 'test'; did you mean 'text'?"),
        (
            "posttrain",
            "postrain",
            "arms.state_passing.training",
            "unknown recipe 'postrain'; did you mean 'posttrain'?",
        ),
        (
            "state: state_passing",
            "state: state_pass",
            "arms.state_passing.initial_state",
            "did you mean 'state_passing'?",
        ),
        ("from: base", "from: bas", "arms.state_passing.from", "unknown arm 'bas'; did you mean 'base'?"),
        ("arm: state_passing", "arm: state_pass", "claims.repaired", "did you mean 'state_passing'?"),
        ("kind: position_loss", "kind: position_los", "measurements.0: ", "did you mean 'position_loss'?"),
        ("kind: position_curves", "kind: curbes", "drawings.0", "unknown name 'curbes'; "),
        (
            "position_loss, times_context: 16",
            "position_loss",
            "measurements.position_loss",
            "give either 'length' (tokens)",
        ),
        ("paper: lg", "paper: lg\ntarget: lg_fig6", "target", "expected 'lg_fig5' as the file is named, got 'lg_fig6'"),
        ("seeds: [1]", "seeds: {paper: [1]}", "seeds", "no value for the scale 'smoke'; it has: paper"),
        ("seeds: [1]", "sedes: [1]", "", NO_SUCH.format("sedes", "seeds")),
    ],
)
def test_a_wrong_value_in_a_figure(folder: Path, old: str, new: str, key: str, says: str) -> None:
    edit(folder, "figures/lg_fig5.yaml", old, new)
    text = problem(folder)
    assert text.startswith(f"config/figures/lg_fig5.yaml: {key}")
    assert says in text


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ({"contxt": 1}, "override: " + NO_SUCH.format("contxt", "context")),
        ({"context": "64"}, f"override: context: {INT}'64'"),
        ({"context": 48}, "override: batch_tokens 128 must be a multiple of context 48"),
        ({"budget": {"steps": 1, "tokens": 1}}, "override: budget: give exactly one of steps, tokens, chinchilla"),
        ({"betas": [0.9, 1.0]}, "override: betas.1: expected a number below 1, got 1.0"),
        ({"betas": [-0.1, 0.9]}, "override: betas.0: expected a number from 0 on, got -0.1"),
        ({"initial_state": {"sigma": 1}}, "override: initial_state: unknown key 'sigma'"),
        ({"initial_state": "tbtt"}, "override.initial_state: expected values of the initial state"),
    ],
)
def test_wrong_overrides(folder: Path, override: dict[str, object], says: str) -> None:
    figure(folder, "lg_fig3", arms={"base": BASE | {"override": override}})
    assert problem(folder).startswith(f"config/figures/lg_fig3.yaml: arms.base.{says}")


@pytest.mark.parametrize(
    ("changed", "quantity", "says"),
    [
        ({"models": ["tin"]}, {}, "claims.repaired.models: 'tin' is no panel of this figure; did you mean 'tiny'?"),
        ({}, {"against_model": "tin", "against": "base"}, "quantity.against_model: 'tin' is no panel"),
        ({}, {"against_model": "tiny"}, "'against_model' needs 'against', the arm of that model"),
    ],
)
def test_claims_about_models_that_are_no_panels(
    folder: Path, changed: dict[str, object], quantity: dict[str, object], says: str
) -> None:
    about = {"kind": "perplexity_growth", "arm": "state_passing", "times_context": 16} | quantity
    one = {"id": "repaired", "says": "It is.", "paper": "Flat.", "quantity": about, "expected": {"below": 1.1}}
    figure(folder, "lg_fig3", claims=[one | changed])
    text = problem(folder)
    assert text.startswith("config/figures/lg_fig3.yaml: ")
    assert says in text


def test_a_claim_without_arms_chooses_no_panels(folder: Path) -> None:
    size = {"id": "size", "says": "It is.", "paper": "1m", "expected": {"below": 1.1}, "models": ["tiny"]}
    figure(folder, "lg_fig3", claims=[size | {"quantity": {"kind": "parameter_ratio", "model": "tiny"}}])
    assert "'models' chooses panels of an arm, and this quantity reads none" in problem(folder)


@pytest.mark.parametrize(
    ("arms", "says"),
    [
        ({"sp": PASSING | {"from": "b"}, "b": PASSING | {"from": "sp"}}, "the arms sp -> b -> sp stand in a circle"),
        ({"early": SNAPSHOT | {"at": 1.5}}, "arms.base: snapshots are fractions between 0 and 1"),
        ({"early": SNAPSHOT, "sp": PASSING | {"from": "early"}}, "arms.sp.from: 'early' is a snapshot"),
        (
            {"early": SNAPSHOT, "f": SNAPSHOT | {"snapshot_of": "early"}},
            "arms.f.snapshot_of: 'early' is a snapshot itself",
        ),
        ({"sp": PASSING | {"model": "other"}}, "arms.sp: the model 'other' differs from its parent's 'tiny'"),
        ({"sp": PASSING | {"override_at": {"tin": {}}}}, "arms.sp.override_at: 'tin' is no panel of this figure; did"),
    ],
)
def test_wrong_arms(folder: Path, arms: dict[str, object], says: str) -> None:
    models = (folder / "models.yaml").read_text()
    other = "other: {d_model: 8, n_layers: 1, peak_lr: 1e-3, mixer: {kind: mamba2, head_dim: 8}}\n"
    (folder / "models.yaml").write_text(models + other)
    figure(folder, "lg_fig3", arms={"base": BASE} | arms)
    text = problem(folder)
    assert text.startswith("config/figures/lg_fig3.yaml: arms.")
    assert says in text


def test_a_thing_without_a_value_for_the_scale_says_who_asks(folder: Path) -> None:
    figure(folder, "lg_fig3", models=["large"])
    assert problem(folder) == (
        "config/models.yaml: large.d_model: no value for the scale 'smoke'; it has: paper "
        "(asked for by config/figures/lg_fig3.yaml: models)"
    )


def test_a_checkpoint_is_no_model(folder: Path) -> None:
    edit(folder, "models.yaml", "tiny: {", "mine: {checkpoint: models/mine, text: [a]}\ntiny: {")
    figure(folder, "lg_fig3", models=["mine"])
    assert problem(folder) == (
        "config/models.yaml: 'mine' is a checkpoint (models/mine) and no model: an arm may have it as its "
        "'checkpoint'; its targets are diagnose_mine and extend_mine (asked for by config/figures/lg_fig3.yaml: models)"
    )


CHECKPOINT = {"label": "C", "checkpoint": "a/b", "context": 32}


@pytest.mark.parametrize(
    ("arms", "says"),
    [
        ({"c": {"label": "C"}}, "give one of 'training' (a recipe), 'checkpoint' (weights from elsewhere), 'repair'"),
        ({"c": CHECKPOINT | {"training": "pretrain"}}, "give one of 'training' (a recipe), 'checkpoint'"),
        ({"c": BASE | {"context": 8}}, "'context' is that of a checkpoint; a recipe's is changed by 'override'"),
        ({"c": CHECKPOINT | {"initial_state": "state_passing"}}, "not trained here: it takes no 'initial_state'"),
        ({"c": CHECKPOINT | {"override": {"warmup": 3}}}, "a checkpoint is not trained here: it takes no 'override'"),
        ({"base": BASE, "c": CHECKPOINT | {"from": "base"}}, "a checkpoint is not trained here: it takes no 'from'"),
        ({"c": CHECKPOINT | {"context": 0}}, "arms.c.context: expected a number above 0, got 0"),
        ({"c": {"label": "C", "checkpoint": "a/b"}}, "arms.c: needs 'context', the tokens a sequence that a/b was"),
        ({"c": {"label": "C", "checkpoint": "open"}}, "arms.c: needs 'context', the tokens a sequence that open was"),
        (
            {"c": CHECKPOINT | {"checkpoint": "publishd"}},
            "arms.c.checkpoint: unknown checkpoint 'publishd'; did you mean 'published'?; a folder is named with a /",
        ),
        (
            {"c": CHECKPOINT | {"checkpoint": "published"}},
            "arms.c.checkpoint: config/models.yaml: 'tiny' has no key 'published'; of the models there these have: oth",
        ),
        (
            {"c": CHECKPOINT, "e": SNAPSHOT | {"snapshot_of": "c"}},
            "arms.e.snapshot_of: 'c' is not trained here; name a",
        ),
        (
            {"c": UNTRAINED, "e": SNAPSHOT | {"snapshot_of": "c"}},
            "arms.e.snapshot_of: 'c' makes no steps; name a trained arm",
        ),
        (
            {"c": UNTRAINED, "e": UNTRAINED | {"from": "c"}},
            "arms.e: a run of zero steps has no parent",
        ),
    ],
)
def test_wrong_arms_of_checkpoints(folder: Path, arms: dict[str, object], says: str) -> None:
    models = (folder / "models.yaml").read_text()
    other = "other: {d_model: 8, n_layers: 1, peak_lr: 1e-3, mixer: {kind: mamba2, head_dim: 8}, "
    other += "published: {checkpoint: o/m, context: 8}}\nopen: {checkpoint: models/open, text: [a]}\n"
    (folder / "models.yaml").write_text(models + other)
    figure(folder, "lg_fig3", arms=arms)
    text = problem(folder)
    assert text.startswith("config/figures/lg_fig3.yaml: arms.")
    assert says in text


@pytest.mark.parametrize(
    ("published", "says"),
    [
        ("{chekpoint: a/b}", ": unknown key 'chekpoint'; did you mean 'checkpoint'?"),
        ("{checkpoint: a/b}", ".context: this key is required and is missing"),
        ("owner/model", ": expected a mapping, got 'owner/model'"),
    ],
)
def test_wrong_published_weights(folder: Path, published: str, says: str) -> None:
    edit(folder, "models.yaml", "tiny: {", f"tiny: {{published: {published}, ")
    assert problem(folder).startswith(f"config/models.yaml: tiny: published{says}")


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([CURVE | {"times_context": 2}], "position_loss (arm 'base'): give either"),
        ([CURVE, CURVE], "position_loss: stands twice for the arm 'base'"),
        ([CURVE | {"kind": "restart_loss", "length": -1}], "0.length: expected a number above 0, got -1"),
        ([{"kind": "length_class"}], "length_class (arm 'base'): is made from a position_loss"),
        ([CURVE, {"kind": "length_class", "size": 8}], "1: unknown key 'size'; valid names: arms, kind"),
        ([CURVE, {"kind": "length_class", "of": "far"}], "length_class (arm 'base'): of: no position_loss of this arm"),
        ([CURVE, CURVE | {"name": "far"}, CURVE | {"name": "far"}], "far: stands twice for the arm 'base'; give one"),
        ([CURVE | {"name": "passkey"}], "passkey: a position_loss cannot bear the name of another kind"),
        ([KEYS | {"name": "x"}, CURVE | {"name": "x"}], "x: is the name of a passkey and of a position_loss"),
        ([KEYS | {"depth": [0]}], "0: unknown key 'depth'; did you mean 'depths'?"),
        ([KEYS | {"times_context": [2]}], "passkey (arm 'base'): give either 'lengths' (tokens) or 'times_context'"),
        ([{"kind": "passkey", "times_context": 2}], "0.times_context: expected a list, got 2"),
        ([{"kind": "passkey", "lengths": [9, 8]}], "passkey (arm 'base'): lengths must ascend"),
        ([{"kind": "cost"}], "0.lengths: this key is required and is missing"),
        ([FITS, FITS | {"windows": [2]}], "extrapolation_error: stands twice, and has no name by which to tell its"),
        (
            [FITS | {"sizes": [8, 65]}],
            "extrapolation_error: sizes: a fit to 64 points has at most as many exponentials",
        ),
        ([CURVE | {"arms": ["bas"]}], "position_loss.arms: unknown arm 'bas'; did you mean 'base'?"),
    ],
)
def test_wrong_measurements(folder: Path, entries: list[object], says: str) -> None:
    figure(folder, "lg_fig3", measurements=entries)
    assert problem(folder).startswith(f"config/figures/lg_fig3.yaml: measurements.{says}")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"collect": ["lg_fig6"]}, "collect: unknown figure 'lg_fig6'; did you mean 'lg_fig"),
        ({"collect": ["ls_fig1"]}, "collect: 'ls_fig1' is a figure that collects"),
        ({"collect": ["lg_fig4"]}, "collect: no arm of these figures has position_loss"),
        ({"measurements": []}, "measurements: a figure that collects names what it collects"),
        ({"measurements": [CURVE]}, "measurements.position_loss: a figure that collects names what arms have"),
        (
            {"measurements": [{"kind": "taxonomy"}]},
            "measurements.taxonomy: a figure that collects names what",
        ),
        ({"arms": {"base": BASE}}, "arms: a figure that collects has none of its own"),
    ],
)
def test_wrong_collections(folder: Path, changed: dict[str, object], says: str) -> None:
    kinds = [{"kind": "position_loss"}, {"kind": "length_class"}]
    chart = {"arms": {}, "measurements": kinds, "drawings": [{"kind": "length_classes"}], "collect": ["lg_fig5"]}
    figure(folder, "ls_fig1", **chart | changed)
    assert problem(folder, figures=["ls_fig1"]).startswith(f"config/figures/ls_fig1.yaml: {says}")


def test_overrides_are_named_in_the_error(folder: Path) -> None:
    assert problem(folder, scale="papr").startswith("config/config.yaml with scale given: scale: unknown name 'papr'")
    assert problem(folder, threads=0, scale="smoke").startswith("config/config.yaml with threads given: threads: ")


def test_unused_entries_are_checked_too(folder: Path) -> None:
    edit(folder, "training.yaml", "sigma: 0.03", "sigma: -1")
    assert "initial_states.random_noise" in problem(folder)

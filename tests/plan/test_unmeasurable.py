"""The plan refuses a measurement that would fail after training: no layer or no prompt of the model has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plan.mini import edit, figure

from ssm.base.errors import ConfigError
from ssm.plan import load_config, make_plan
from ssm.specs.mixers import SPECS

# Kinds that lack what a measurement reads. The tests of mixers compare these fields of the specs with the modules.
NO_DECAY = {kind for kind, spec in SPECS.items() if not spec.taxonomy.diagonal or spec.averages}
NO_STATE = {kind for kind, spec in SPECS.items() if spec.taxonomy.decay == "cache"}
NO_MAP = {kind for kind, spec in SPECS.items() if not spec.has_map}
NO_BC = {kind for kind, spec in SPECS.items() if not spec.has_bc}
DELTA = {kind for kind, spec in SPECS.items() if spec.taxonomy.scan == "delta_scan"}
CURVES = {
    "text": {"kind": "position_curves"},
    "letters": {"kind": "curves", "measurement": "accuracy", "x": "length", "column": "forced_share"},
}
COPY = {"kind": "attention_map", "length": 4}
READS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "decays": ({"kind": "decay_range", "times_context": 4}, NO_DECAY),
    "memory": ({"kind": "memory_length", "times_context": 4}, NO_DECAY),
    "states": ({"kind": "state_statistics", "times_context": 4}, NO_STATE),
    "retention": ({"kind": "state_retention", "times_context": 2}, NO_STATE),
    "maps": (COPY, NO_MAP),
    "masks": (COPY | {"mask": True}, NO_MAP | DELTA),
    "weights": ({"kind": "bc_correlation"}, NO_BC),
}


def plan(folder: Path, measurement: dict[str, Any]) -> None:
    data, read = "text", {"kind": "position_loss", "times_context": 4}
    if measurement["kind"] == "attention_map":
        edit(
            folder, "data.yaml", "keys:", "letters: {task: copy, alphabet: 4, mix: [{shortest: 2, longest: 4}]}\nkeys:"
        )
        data, read = "letters", {"kind": "accuracy", "lengths": [4]}
    arms = {"base": {"label": "Base", "training": "pretrain"}}
    drawings = [CURVES[data]]
    figure(folder, "x_mine", paper="x", data=data, arms=arms, measurements=[read, measurement], drawings=drawings)
    make_plan(load_config(folder, figures=["x_mine"]))


@pytest.mark.parametrize("kind", list(SPECS))
@pytest.mark.parametrize("name", READS)
def test_a_measurement_needs_a_layer_that_has_what_it_reads(folder: Path, kind: str, name: str) -> None:
    measurement, without = READS[name]
    edit(
        folder,
        "models.yaml",
        "d_model: 16, n_layers: 1, mixer: {kind: mamba2, d_state: 8, head_dim: 16}",
        f"d_model: 128, n_layers: 1, mixer: {{kind: {kind}}}",
    )
    if kind in without:
        says = rf"{measurement['kind']} \(arm 'base'\): needs a layer with .*'tiny' has none"
        with pytest.raises(ConfigError, match=says):
            plan(folder, measurement)
    else:
        plan(folder, measurement)


@pytest.mark.parametrize("name", READS)
def test_one_layer_is_enough(folder: Path, name: str) -> None:
    one = "n_layers: 2, mixer: {kind: gru}, mixer_at: {1: {kind: mamba2, head_dim: 16}}"
    edit(folder, "models.yaml", "n_layers: 1, mixer: {kind: mamba2, d_state: 8, head_dim: 16}", one)
    plan(folder, READS[name][0])


def test_a_map_of_a_layer_without_one(folder: Path) -> None:
    one = "n_layers: 2, mixer: {kind: gru}, mixer_at: {1: {kind: retnet, n_heads: 1}}"
    edit(folder, "models.yaml", "n_layers: 1, mixer: {kind: mamba2, d_state: 8, head_dim: 16}", one)
    with pytest.raises(ConfigError, match=r"layers: layer 1 of 'tiny' has no attention map; layers with one: 2"):
        plan(folder, COPY | {"layers": [1, 2]})


def test_a_length_that_has_no_room_for_a_passkey_in_bytes(folder: Path) -> None:
    plan(folder, {"kind": "passkey", "lengths": [251, 320]})
    plan(folder, {"kind": "passkey", "lengths": [103], "instruction": False})
    with pytest.raises(ConfigError, match="lengths: a passkey of 5 digits needs at least 251 bytes, got 250"):
        plan(folder, {"kind": "passkey", "lengths": [250, 320]})
    plan(folder, {"kind": "accuracy", "task": "keys", "lengths": [252, 320]})
    with pytest.raises(
        ConfigError, match="length 251: a passkey of 5 digits and its full stop need at least 252 bytes"
    ):
        plan(folder, {"kind": "accuracy", "task": "keys", "lengths": [251, 320]})


def test_more_examples_than_test_images(folder: Path) -> None:
    arms = {"base": {"label": "Base", "training": "pretrain", "override": {"context": 65, "batch_tokens": 130}}}
    changes = {"paper": "x", "data": "digits", "arms": arms, "drawings": [CURVES["letters"]]}
    for tested, attacked in ((500, 500), (501, 500), (500, 501)):
        accuracy = {"kind": "accuracy", "examples": tested}
        attack = {"kind": "attack", "regions": [[0, 2]], "examples": attacked}
        figure(folder, "x_mine", **changes, measurements=[accuracy, attack])
        if tested == attacked:
            make_plan(load_config(folder, figures=["x_mine"]))
            continue
        kind = "accuracy" if tested > attacked else "attack"
        with pytest.raises(ConfigError, match=rf"{kind} \(arm 'base'\): examples 501: digits has 500 test images"):
            make_plan(load_config(folder, figures=["x_mine"]))

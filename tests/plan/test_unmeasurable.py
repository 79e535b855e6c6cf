"""The plan refuses a measurement that would fail after training: no layer or no prompt of the model has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plan.mini import edit, figure

from ssm.base.errors import ConfigError
from ssm.plan import load_config, make_plan
from ssm.specs.mixers import SPECS

NO_DECAY = {"attention", "gru", "deltanet", "gated_deltanet", "kda", "rwkv4", "rwkv7"}
READS = [("decay_range", NO_DECAY), ("memory_length", NO_DECAY), ("state_statistics", {"attention"})]


def plan(folder: Path, measurement: dict[str, Any]) -> None:
    read = {"kind": "position_loss", "times_context": 4}
    arms = {"base": {"label": "Base", "training": "pretrain"}}
    drawings = [{"kind": "position_curves"}]
    figure(folder, "x_mine", paper="x", arms=arms, measurements=[read, measurement], drawings=drawings)
    make_plan(load_config(folder, figures=["x_mine"]))


@pytest.mark.parametrize("kind", list(SPECS))
@pytest.mark.parametrize(("measurement", "without"), READS, ids=[name for name, _ in READS])
def test_a_measurement_needs_a_layer_that_has_what_it_reads(
    folder: Path, kind: str, measurement: str, without: set[str]
) -> None:
    edit(
        folder,
        "models.yaml",
        "d_model: 16, n_layers: 1, mixer: {kind: mamba2, d_state: 8, head_dim: 16}",
        f"d_model: 128, n_layers: 1, mixer: {{kind: {kind}}}",
    )
    if kind in without:
        with pytest.raises(ConfigError, match=rf"{measurement} \(arm 'base'\): needs a layer with a .*'tiny' has none"):
            plan(folder, {"kind": measurement, "times_context": 4})
    else:
        plan(folder, {"kind": measurement, "times_context": 4})


def test_one_layer_is_enough(folder: Path) -> None:
    one = "n_layers: 2, mixer: {kind: attention, n_heads: 1}, mixer_at: {1: {kind: retnet, n_heads: 1}}"
    edit(folder, "models.yaml", "n_layers: 1, mixer: {kind: mamba2, d_state: 8, head_dim: 16}", one)
    for kind, _ in READS:
        plan(folder, {"kind": kind, "times_context": 4})


def test_a_length_that_has_no_room_for_a_passkey_in_bytes(folder: Path) -> None:
    plan(folder, {"kind": "passkey", "lengths": [251, 320]})
    plan(folder, {"kind": "passkey", "lengths": [103], "instruction": False})
    with pytest.raises(ConfigError, match="lengths: a passkey of 5 digits needs at least 251 bytes, got 250"):
        plan(folder, {"kind": "passkey", "lengths": [250, 320]})

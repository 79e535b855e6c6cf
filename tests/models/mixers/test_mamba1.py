"""Mamba-1: autocast, initialization and polarized decays. (test_against_transformers.py compares logits.)"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from models.mixers.systems import inputs, move, parsed
from ssm_kernels.testing.numerics import error
from torch import nn

from ssm.models.mixers import build_mixer
from ssm.models.mixers.mamba1 import Mamba1

pytestmark = pytest.mark.usefixtures("plain_backend")


def test_a_step_size_is_not_rounded_under_autocast() -> None:
    """The map to dt uses bfloat16, but its bias is added in float32, in both forms."""
    mixer = layer(dt_range=[1e-3, 1e-3])
    u = torch.randn(1, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = mixer(u)[1]["memory"]
        with torch.autocast("cpu", torch.bfloat16):
            ended, state = mixer(u)[1]["memory"], None
            for u_t in u.unbind(1):
                _, state = mixer.step(u_t, state)
    assert state is not None
    assert error(ended, expected) < 0.005
    assert error(state["memory"], expected) < 1.1 * error(ended, expected)


def test_a_default_norm_does_not_change_ids() -> None:
    assert "selection_norm_eps" not in parsed({"kind": "mamba1"}).content()
    assert parsed({"kind": "mamba1", "selection_norm_eps": 0.5}).content()["selection_norm_eps"] == 0.5


# --- Initialization ---------------------------------------------------------------------------------------------------


def layer(d_model: int = 64, **fields: Any) -> Mamba1:
    torch.manual_seed(0)
    mixer = build_mixer(parsed({"kind": "mamba1"} | fields), d_model, 4).requires_grad_(False)
    assert isinstance(mixer, Mamba1)
    return mixer


def test_the_authors_initialization() -> None:
    """A = -(1..N) in every channel, log-uniform dt for zero inputs, its weight within R^-1/2, out_proj over sqrt L."""
    mixer = layer(512)
    assert torch.allclose(mixer.continuous_decay(), -torch.arange(1.0, 17).expand(1024, 16))
    dt = nn.functional.softplus(mixer.dt_proj.bias)
    assert float(dt.min()) == pytest.approx(1e-3, rel=0.05)
    assert float(dt.max()) == pytest.approx(1e-1, rel=0.05)
    assert float(dt.log10().mean()) == pytest.approx(-2, abs=0.06)
    assert mixer.dt_proj.weight.shape == (1024, 32)
    assert float(mixer.dt_proj.weight.abs().max()) == pytest.approx(32**-0.5, rel=0.01)
    assert float(mixer.out_proj.weight.abs().max()) == pytest.approx(1024**-0.5 / 2, rel=0.01)
    assert torch.equal(mixer.D, torch.ones(1024))
    for convolution in (mixer.conv_weight, mixer.conv_bias):  # torch.nn.Conv1d's
        assert 0.49 < float(convolution.max()) <= 0.5
        assert -0.5 <= float(convolution.min()) < -0.49
        assert abs(float(convolution.mean())) < 0.03


def test_a_slow_decay() -> None:
    mixer = layer(a_range=[1.0, 1.0], dt_range=[1e-4, 1e-4])
    assert mixer.continuous_decay().unique().tolist() == [-1.0]
    assert nn.functional.softplus(mixer.dt_proj.bias).tolist() == pytest.approx([1e-4] * 128, rel=1e-4)


# --- Polarized decays -------------------------------------------------------------------------------------------------

POLARIZED: list[tuple[dict[str, str], int, list[float]]] = [
    ({"polarize": "both"}, 6, [0.0, -1.0, -2.0, -3.0, -4.0, -math.inf]),
    ({"polarize": "both", "polarized_size": "matched"}, 4, [0.0, -2.0, -3.0, -math.inf]),
    ({"polarize": "one"}, 5, [0.0, -1.0, -2.0, -3.0, -4.0]),
    ({"polarize": "one", "polarized_size": "matched"}, 4, [0.0, -2.0, -3.0, -4.0]),
    ({"polarize": "zero"}, 5, [-1.0, -2.0, -3.0, -4.0, -math.inf]),
    ({"polarize": "zero", "polarized_size": "matched"}, 4, [-1.0, -2.0, -3.0, -math.inf]),
]


@pytest.mark.parametrize(("fields", "states", "expected"), POLARIZED)
def test_polarized_states_next_to_learned_states(fields: dict[str, str], states: int, expected: list[float]) -> None:
    mixer = layer(d_state=4, **fields)
    assert mixer.spec.state_shape(64) == (128, states)
    assert mixer.continuous_decay().shape == (128, states)
    assert mixer.continuous_decay()[7].tolist() == pytest.approx(expected)
    assert mixer.A_log.shape[1] == sum(math.isfinite(a) and a < 0 for a in expected)
    assert mixer(torch.randn(1, 3, 64))[1]["memory"].shape == (1, 128, states)


@pytest.mark.parametrize("shift", [-1000.0, -6.0, 0.0, 300.0])
def test_a_polarized_decay_is_exactly_one_or_zero(shift: float) -> None:
    """For every dt, the first state keeps everything, to the last bit, and the last state nothing."""
    mixer = move(layer(8, d_state=3, polarize="both")).double()
    mixer.dt_proj.bias += shift
    u = inputs(0, 2, 9)
    one, other = (
        {"conv": torch.zeros(2, 3, 16).double(), "memory": scale * torch.ones(2, 16, 5).double()}
        for scale in (0.0, 1.0)
    )
    for run in (mixer, lambda u, state: mixer.step(u[:, 0], state)):
        difference = run(u, other)[1]["memory"] - run(u, one)[1]["memory"]
        assert (difference[..., 0] - 1).abs().max() < 1e-12 * run(u, one)[1]["memory"][..., 0].abs().max().clamp_min(1)
        assert difference[..., -1].abs().max() == 0
    if shift == 300:
        assert difference[..., 1:-1].abs().max() < 1e-80  # learned states forget with these step sizes


def test_polarized_decays_are_not_parameters() -> None:
    names = {name for name, _ in layer(polarize="both").named_parameters()}
    assert names == {name for name, _ in layer().named_parameters()}
    assert all(tensor.isfinite().all() for tensor in layer(polarize="both").state_dict().values())


@pytest.mark.parametrize("fields", [fields for fields, *_ in POLARIZED], ids=lambda fields: "-".join(fields.values()))
def test_a_polarized_layer_against_numpy(fields: dict[str, str]) -> None:
    """In numpy, from the weights: state by state, with decays of exactly 1 and 0."""
    mixer = move(layer(8, d_state=4, **fields), 5).double()
    u = inputs(2, 2, 11)
    w = {name: parameter.numpy() for name, parameter in mixer.named_parameters()}
    silu = lambda x: x / (1 + np.exp(-x))  # noqa: E731
    x, z = np.split(u.numpy() @ w["in_proj.weight"].T, 2, -1)  # (B, T, E)
    before = np.pad(x, ((0, 0), (3, 0), (0, 0)))
    x = silu(sum(before[:, k : k + 11] * w["conv_weight"][:, k] for k in range(4)) + w["conv_bias"])
    R, learned = w["dt_proj.weight"].shape[1], w["A_log"].shape[1]
    dt, BC = np.split(x @ w["x_proj.weight"].T, [R], -1)
    B, C = np.split(BC, 2, -1)  # (B, T, N)
    dt = np.log1p(np.exp(dt @ w["dt_proj.weight"].T + w["dt_proj.bias"]))  # (B, T, E)
    one, zero = fields["polarize"] in ("one", "both"), fields["polarize"] in ("zero", "both")
    assert B.shape[-1] == one + learned + zero
    y = x * w["D"]
    for n in range(B.shape[-1]):
        h = np.zeros_like(x[:, 0])  # (B, E)
        for t in range(11):
            decay = np.exp(-dt[:, t] * np.exp(w["A_log"][:, n - one])) if one <= n < one + learned else float(n < one)
            h = decay * h + dt[:, t] * B[:, t, None, n] * x[:, t]
            y[:, t] += C[:, t, None, n] * h
    expected = (y * silu(z)) @ w["out_proj.weight"].T
    got = mixer(u)[0].numpy()
    assert np.abs(got - expected).max() < 1e-12 * np.abs(expected).max()

"""Each part of mimetic initialization has its effect, and no other."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models.mixers.systems import parsed
from pydantic import ValidationError
from torch import Tensor

from ssm.models.backbone import build_model
from ssm.models.inspect import attention_map
from ssm.models.mixers import build_mixer
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.mamba1 import Mamba1
from ssm.specs.model import ModelSpec

D = 128
KINDS: dict[str, dict[str, Any]] = {
    "mamba1": {"kind": "mamba1", "d_state": 32},
    "mamba2": {"kind": "mamba2", "d_state": 32, "head_dim": 32, "a_range": [2.0, 16.0]},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def layer(kind: str, **mimetic: Any) -> Mixer:
    torch.manual_seed(0)
    return build_mixer(parsed(KINDS[kind] | {"mimetic": mimetic}), D, 4).requires_grad_(False)


def b_and_c(mixer: Mixer) -> tuple[Tensor, Tensor]:
    """W_B and W_C, each (N, width)."""
    if isinstance(mixer, Mamba1):
        return mixer.x_proj.weight[-64:-32], mixer.x_proj.weight[-32:]
    return mixer.in_proj.weight[512:544], mixer.in_proj.weight[544:576]


def dt(mixer: Mixer, u: Tensor) -> Tensor:
    """The step sizes at inputs (n, D) of the map to dt."""
    if isinstance(mixer, Mamba1):
        return F.softplus(mixer.dt_proj(u @ mixer.x_proj.weight[:8, :D].T))
    return F.softplus(u @ mixer.in_proj.weight[576:].T + mixer.dt_bias)


def continuous_decay(mixer: Mixer) -> Tensor:
    """-A, measured from the decay of a state in one step with dt 1 and no input."""
    if isinstance(mixer, Mamba1):
        return -mixer.continuous_decay()
    mixer.in_proj.weight[256:576] = 0  # x, B and C: nothing comes in
    mixer.conv_bias.zero_()
    mixer.in_proj.weight[576:] = 0
    mixer.dt_bias.fill_(0.5413248546)  # dt = 1
    memory = torch.ones(1, 8, 32, 32)
    return -mixer.step(torch.zeros(1, D), {"memory": memory, "conv": torch.zeros(1, 3, 320)})[1]["memory"][
        0, :, 0, 0
    ].log()


@every_kind
@pytest.mark.parametrize("c", [2, 4, 8])
def test_a_makes_decays_slow(kind: str, c: int) -> None:
    """-A = exp(-c A_log): a large default of 16 becomes 16^-c, and states keep nearly everything.

    If A_log is 0, as in Mamba-1's first state, -A is 1 for every c, and the state keeps exp(-1) = 0.37.
    """
    mixer = layer(kind, a=c)
    default = mixer.A_log.exp()
    got = continuous_decay(mixer).view_as(default)
    slow = got[default > 1.5]
    assert torch.allclose(slow, default[default > 1.5] ** -float(c), rtol=1e-2, atol=1e-6)
    assert float(torch.exp(-slow).mean()) > {2: 0.9, 4: 0.98, 8: 0.999}[c]
    assert float(torch.exp(-default[default > 1.5]).mean()) < 0.05
    if kind == "mamba1":
        assert torch.equal(got[:, 0], torch.ones_like(got[:, 0]))


@every_kind
def test_dt_is_one_for_every_input(kind: str) -> None:
    u = torch.randn(50, D, generator=torch.Generator().manual_seed(1))
    assert (dt(layer(kind, dt=True), u) - 1).abs().max() < 1e-6
    default = dt(layer(kind), u)
    assert default.max() < 0.5
    assert default.std(0).min() > 1e-5


@every_kind
def test_the_halved_sum_is_the_papers(kind: str) -> None:
    (B, C), (same, mixed) = b_and_c(layer(kind)), b_and_c(layer(kind, bc=True))
    assert torch.equal(B, same)
    assert torch.allclose(mixed, (C + B) / 2)
    assert all(torch.equal(a, b) for a, b in zip(b_and_c(layer(kind, dt=True)), (B, C), strict=True))


@every_kind
def test_the_convolution_is_the_identity(kind: str) -> None:
    mixer = layer(kind, conv=True)
    assert torch.equal(mixer.conv_weight, F.one_hot(torch.tensor(3), 4).float().expand_as(mixer.conv_weight))
    assert mixer.conv_bias.abs().max() == 0


OWN: dict[str, dict[str, set[str]]] = {
    "mamba1": {"dt": {"dt_proj.weight", "dt_proj.bias"}, "bc": {"x_proj.weight"}, "conv": {"conv_weight", "conv_bias"}},
    "mamba2": {"dt": {"in_proj.weight", "dt_bias"}, "bc": {"in_proj.weight"}, "conv": {"conv_weight", "conv_bias"}},
}


@every_kind
def test_a_part_changes_only_its_own_weights(kind: str) -> None:
    """In all 16 combinations. Random numbers do not depend on the selected parts."""
    plain = layer(kind).state_dict()
    for a, *switches in itertools.product((None, 8), (False, True), (False, True), (False, True)):
        parts = dict(zip(OWN[kind], switches, strict=True))
        changed = {
            name
            for name, tensor in layer(kind, a=a, **parts).state_dict().items()
            if not torch.equal(tensor, plain[name])
        }
        assert changed == set().union(*(OWN[kind][part] for part, on in parts.items() if on))


def test_mimetic_initialization_of_chosen_layers() -> None:
    mixer = {"kind": "mamba1", "d_state": 4}
    spec = {"name": "tiny", "d_model": 8, "n_layers": 3, "mixer": mixer, "peak_lr": 1e-3}
    spec["mixer_at"] = {1: mixer | {"mimetic": {"a": 8, "conv": True}}}
    model = build_model(ModelSpec.model_validate(spec), 10, 0)
    identity = [bool((block.mixer.conv_weight[:, -1] == 1).all()) for block in model.layers]
    assert identity == [False, True, False]


@pytest.mark.parametrize("mimetic", [{"a": 3}, {"a": 0}, {"b": True}])
def test_values_that_the_paper_does_not_have_are_refused(mimetic: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        parsed({"kind": "mamba1", "mimetic": mimetic})


@every_kind
@pytest.mark.parametrize("on", [True, False])
def test_a_fresh_layer_is_plain_linear_attention(kind: str, on: bool) -> None:
    """mi eq. 12: its map is CausalMask(X^T W_C^T W_B X) in every head, and its output is that of linear attention.

    X is the output of the convolution, and the default -A is at least 4. Without the initialization this is false.
    """
    torch.manual_seed(1)
    fields = KINDS[kind] | {"a_range": [4.0, 16.0], "mimetic": on}
    mixer = build_mixer(parsed(fields), D, 4).double().requires_grad_(False)
    u = torch.randn(1, 20, D, dtype=torch.float64)
    if kind == "mamba1":
        x = F.silu(u @ mixer.in_proj.weight[: 2 * D].T)
        W_B, W_C = b_and_c(mixer)
        queries, keys = x @ W_C.T, x @ W_B.T
    else:
        x, keys, queries = (F.silu(u @ mixer.in_proj.weight[a:b].T) for a, b in ((256, 512), (512, 544), (544, 576)))
    expected = (queries @ keys.mT).tril()  # (1, T, T)
    got = attention_map(mixer, u)  # (1, H, T, T)
    error = (got - expected.unsqueeze(1)).abs().amax((0, 2, 3)) / expected.abs().max()
    assert (error.max() < 2e-3) == on
    if not on:
        assert error.min() > 0.1
        return
    outputs: list[Tensor] = []
    mixer.out_proj.register_forward_pre_hook(lambda _, given: outputs.append(given[0]))
    mixer(u)
    y = expected @ x + x  # D is 1 for every channel
    z = F.silu(u @ mixer.in_proj.weight[(2 * D if kind == "mamba1" else 0) :][: 2 * D].T)
    y = y * z if kind == "mamba1" else F.rms_norm(y * z, (2 * D,), eps=1e-5)
    torch.testing.assert_close(outputs[0], y, rtol=1e-2, atol=float(2e-3 * y.abs().max()))

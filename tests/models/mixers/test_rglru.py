"""Griffin's recurrent block against transformers' RecurrentGemma; precision and initialization."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from models.mixers.systems import D, inputs, move, parsed
from ssm_kernels.testing.numerics import normal, worst
from torch import nn

from ssm.models.mixers import build_mixer
from ssm.models.mixers.rglru import Rglru

NAMES = {
    "gate_proj": "linear_y",
    "in_proj": "linear_x",
    "out_proj": "linear_out",
    "conv_weight": "conv_1d.weight",
    "conv_bias": "conv_1d.bias",
    "recurrence_": "rg_lru.recurrent_gate_",
    "input_": "rg_lru.input_gate_",
    "Lambda": "rg_lru.recurrent_param",
}


pytestmark = pytest.mark.usefixtures("plain_backend")


def layer(**changes: object) -> Rglru:
    torch.manual_seed(0)
    mixer = move(build_mixer(parsed({"kind": "rglru", "width": 12, "blocks": 3} | changes), D, 4)).double()
    assert isinstance(mixer, Rglru)
    return mixer


def their_name(name: str) -> str:
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name


def peer_of(mixer: Rglru) -> nn.Module:
    from transformers import RecurrentGemmaConfig
    from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRecurrentBlock

    config = RecurrentGemmaConfig(
        hidden_size=D, lru_width=mixer.width, num_attention_heads=mixer.spec.blocks, conv1d_width=mixer.spec.d_conv
    )
    peer: nn.Module = RecurrentGemmaRecurrentBlock(config, layer_idx=0).double()
    with torch.no_grad():
        for name, parameter in mixer.named_parameters():
            theirs = peer.get_parameter(their_name(name))
            theirs.copy_(parameter.view_as(theirs))
    return peer


def test_outputs_and_gradients() -> None:
    """transformers does not scale the input at position 0, unlike the paper. So positions start at 1 here."""
    mixer = layer()
    peer, u = peer_of(mixer), inputs(0, 2, 17)
    y, _ = mixer(u)
    positions = torch.arange(1, 18).expand(2, -1)
    expected, _ = peer(u, positions, attention_mask=None, use_cache=False)
    weight = normal(1, tuple(y.shape))[0]
    names, parameters = zip(*mixer.named_parameters(), strict=True)
    got = torch.autograd.grad((y * weight).sum(), parameters)
    wanted = torch.autograd.grad((expected * weight).sum(), [peer.get_parameter(their_name(name)) for name in names])
    # transformers accumulates in float32
    assert worst([y, *got], [expected, *(w.view_as(g) for w, g in zip(wanted, got, strict=True))]) < 1e-5


def test_an_unscaled_start_needs_a_state_of_zero() -> None:
    """In the released code, a is 0 where an input is not scaled. A state that is kept comes before its first input."""
    mixer = layer(unscaled_start=True).requires_grad_(False)
    u, noise = inputs(0, 4, 3), normal(1, (4, 12))[0]
    zero, passed, random, reset = range(4)
    start = {
        "memory": noise.index_fill(0, torch.tensor([zero]), 0.0).view(4, 3, 4),
        "conv": torch.zeros(4, 3, 12, dtype=torch.float64),
        "begun": torch.tensor([False, True, False, True]),
    }
    resets = torch.zeros(4, 3, dtype=torch.bool)
    resets[reset, 0] = True
    x = F.conv1d(F.pad(mixer.in_proj(u).mT, (3, 0)), mixer.conv_weight[:, None], mixer.conv_bias, groups=12).mT
    (log_a, scaled), h, outputs = mixer._gated(x), start["memory"].flatten(1), []
    for t in range(3):
        a, scale = log_a[:, t].exp(), (1 - torch.exp(2 * log_a[:, t])).sqrt()
        begins = torch.isin(torch.arange(4), torch.tensor([zero, reset])).unsqueeze(1) & (t == 0)
        h = torch.where(begins, 0.0, a * h) + torch.where(begins, scaled[:, t] / scale, scaled[:, t])
        outputs.append(mixer._finish(h, u[:, t]))
    y, ended = mixer(u, start, resets)
    assert worst([y, ended["memory"].flatten(1)], [torch.stack(outputs, 1), h]) < 1e-12
    kept = [zero, passed, random]
    y, _ = mixer.step(u[kept, 0], {name: tensor[kept] for name, tensor in start.items()})
    assert worst([y], [outputs[0][kept]]) < 1e-12


@pytest.mark.parametrize("shut", [0.0, -10.0, -20.0, -40.0])
def test_the_scale_of_inputs_is_accurate_for_slow_decays(shut: float) -> None:
    """With an almost closed recurrence gate, 1 - a^2 is smaller than the rounding error of a in float32."""
    mixer = layer().requires_grad_(False)
    mixer.recurrence_bias += shut
    x = torch.randn(5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    log_a, scaled = mixer._gated(x)
    single_log_a, single = mixer.float()._gated(x.float())
    assert worst([single_log_a, single], [log_a, scaled]) < 1e-5
    r = torch.sigmoid(shut + torch.einsum("bhi,hij->bhj", x.view(5, 3, 4), mixer.recurrence_weight.double()).flatten(1))
    assert log_a.max() < 0
    assert r.max() < 2 * torch.sigmoid(torch.tensor(shut + 4.0))


def test_a_closed_gate_has_finite_gradients() -> None:
    mixer = layer().float()
    with torch.no_grad():
        mixer.recurrence_bias -= 300.0  # r is 0, a is 1, and inputs are 0
    u = inputs(2, 2, 6).float().requires_grad_()
    y, ended = mixer(u, {"memory": torch.ones(2, 3, 4), "conv": torch.zeros(2, 3, 12)})
    assert worst([ended["memory"]], [torch.ones(2, 3, 4)]) < 1e-12
    y.square().sum().backward()
    assert u.grad is not None
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in mixer.parameters())
    assert u.grad.isfinite().all()


def test_the_papers_initialization() -> None:
    """a^c uniform in [0.9, 0.999], where a = exp(-softplus(Lambda)); LeCun's normal; biases 0."""
    torch.manual_seed(0)
    mixer = build_mixer(parsed({"kind": "rglru", "width": 2048}), 256, 8).requires_grad_(False)
    decay = torch.exp(-8 * F.softplus(mixer.Lambda))
    assert 0.9 <= decay.min() < 0.901
    assert 0.998 < decay.max() <= 0.999
    assert float(decay.mean()) == pytest.approx(0.9495, abs=2e-3)
    stds = {
        "in_proj.weight": 256**-0.5,
        "gate_proj.weight": 256**-0.5,
        "out_proj.weight": (2 / 8 / 2048) ** 0.5,
        "conv_weight": 0.5,
        "recurrence_weight": 128**-0.5,
        "input_weight": 128**-0.5,
    }
    for name, parameter in mixer.named_parameters():
        if name in stds:
            assert float(parameter.std()) == pytest.approx(stds[name], rel=0.03)
        elif name != "Lambda":
            assert parameter.abs().max() == 0
    assert mixer.spec.state_shape(256) == (16, 128)

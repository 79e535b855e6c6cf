"""Linear attentions against the quadratic form of their papers, computed from the weights."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from kernels.test_against_others import fla
from models.mixers import systems
from ssm_kernels import use_backend
from ssm_kernels.testing.numerics import error
from torch import Tensor

from ssm.models.mixers.base import Mixer

T = 19


def output(mixer: Mixer, u: Tensor) -> Tensor:
    with use_backend("reference"), torch.no_grad():
        y: Tensor = mixer(u)[0]
        return y


def by_head(x: Tensor, heads: int) -> Tensor:
    """(B, T, H d) -> (B, H, T, d)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def test_retention_in_parallel_form() -> None:
    """Sun et al. 2023, eq. 5: (Q K^T * D) V with D_nm = gamma^(n-m), and positions as complex numbers."""
    mixer, u = systems.system("retnet"), systems.inputs(0, 2, T)
    q, k, v, gate = (x.detach() for x in mixer.in_proj(u).split(mixer.sizes, -1))
    q, k, v = (by_head(x, 2) for x in (q, k, v))
    half = q.shape[-1] // 2
    theta = 10_000.0 ** -(torch.arange(half, dtype=torch.float64) / half)
    turn = torch.polar(torch.ones(T, half, dtype=torch.float64), torch.arange(T)[:, None] * theta)
    q, k = (torch.complex(x[..., :half], x[..., half:]) * turn for x in (q, k))
    scores = (q @ k.mH).real / (2 * half) ** 0.5
    n = torch.arange(T, dtype=torch.float64)
    for h, gamma in enumerate((1 - 2**-5, 1 - 2**-6)):
        scores[:, h] *= (gamma ** (n[:, None] - n)).tril()
    y = scores @ v  # (B, H, T, V)
    y = (y - y.mean(-1, keepdim=True)) / (y.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
    expected = (y.transpose(1, 2).flatten(2) * F.silu(gate)) @ mixer.out_proj.weight.T
    assert error(output(mixer, u), expected) < 1e-10


def test_linear_attention_in_quadratic_form() -> None:
    """Katharopoulos et al. 2020, eq. 3 and 7: weights phi(q) . phi(k) over their sum."""
    mixer, u = systems.system("linear_attention"), systems.inputs(1, 2, T)
    q, k, v = (by_head(x.detach(), 2) for x in mixer.in_proj(u).chunk(3, -1))
    q, k = ((x > 0) * (x + 1) + (x <= 0) * x.exp() for x in (q, k))  # elu(x) + 1
    weights = (q @ k.mT).tril()
    y = (weights / weights.sum(-1, keepdim=True)) @ v
    expected = y.transpose(1, 2).flatten(2) @ mixer.out_proj.weight.T
    assert error(output(mixer, u), expected) < 1e-5  # without the epsilon of the denominator


def test_performers_features_estimate_softmax_attention() -> None:
    """Choromanski et al. 2020: with many features the weights are those of softmax attention."""
    fields = systems.SYSTEMS["linear_attention, favor"] | {"n_features": 4096}
    torch.manual_seed(0)
    mixer = systems.build_mixer(systems.parsed(fields), systems.D, 1).double()
    u = systems.inputs(2, 1, T)
    q, k, v = (by_head(x.detach(), 2) for x in mixer.in_proj(u).chunk(3, -1))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    expected = y.transpose(1, 2).flatten(2) @ mixer.out_proj.weight.T
    assert error(output(mixer, u), expected) < 0.02


@pytest.mark.parametrize(("spread", "tolerance"), [(1.0, 1e-5), (3.5, 1e-3)])
def test_performers_features_neither_overflow_nor_vanish(spread: float, tolerance: float) -> None:
    """Queries and keys as large as in trained models, in float32, against weights computed from logarithms."""
    torch.manual_seed(0)
    fields = {"kind": "linear_attention", "feature_map": "favor"}
    mixer = systems.build_mixer(systems.parsed(fields), 64, 1)
    u = torch.randn(2, 100, 64)
    mixer.in_proj.weight.data[:128] *= spread / mixer.in_proj(u)[..., :128].std().detach()
    q, k, v = (x.double().detach() for x in mixer.in_proj(u).chunk(3, -1))

    def logits(x: Tensor) -> Tensor:
        x = x * 64**-0.25
        projected = x @ mixer.directions.double()
        return torch.cat([projected, -projected], -1) - x.square().sum(-1, keepdim=True) / 2  # (B, T, K)

    weights = torch.logsumexp(logits(q).unsqueeze(2) + logits(k).unsqueeze(1), -1)  # (B, T, T)
    weights = weights.masked_fill(~torch.ones(100, 100, dtype=torch.bool).tril(), -torch.inf).softmax(-1)
    expected = weights @ v @ mixer.out_proj.weight.double().T
    assert error(output(mixer, u), expected) < tolerance
    with use_backend("reference"):
        mixer(u)[0].square().sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in mixer.parameters())


def test_gla_against_fla() -> None:
    """fla's recurrence; projections, norm and gate as in Yang et al. 2023, Section 4.4."""
    mixer, u = systems.system("gla"), systems.inputs(3, 2, T)
    q, k, v, gate, low = (x.detach() for x in mixer.in_proj(u).split([8 // 2, 8 // 2, 8, 8, 3], -1))
    alpha = torch.sigmoid(low @ mixer.decay_proj.weight.T + mixer.decay_proj.bias) ** (1 / 16)
    q, k, v, alpha = (x.detach().unflatten(-1, (2, -1)).float() for x in (q, k, v, alpha))
    y, _ = fla("gla/naive.py", "naive_recurrent_gla")(q, k, v, alpha.log())  # it divides q by the root of its size
    y = y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * mixer.norm_weight
    expected = (y.flatten(2) * gate * torch.sigmoid(gate)) @ mixer.out_proj.weight.T
    assert error(output(mixer, u), expected) < 1e-5  # fla's loop is in float32


def test_rwkv_6_against_fla() -> None:
    """fla's recurrence; everything else as in Peng et al. 2024, eq. 14-20."""
    mixer, u = systems.system("rwkv6"), systems.inputs(4, 2, T)
    before = F.pad(u, (0, 0, 1, -1))
    R = mixer.spec.shift_rank
    mixed = {}
    for i, name in enumerate(("w", "k", "v", "r", "g")):
        low = torch.tanh(torch.lerp(u, before, mixer.shift_mix.expand_as(u)) @ mixer.shift_down[:, i * R : (i + 1) * R])
        mixed[name] = torch.lerp(u, before, mixer.shift_base[i] + low @ mixer.shift_up[i])
    d = mixer.decay_base + torch.tanh(mixed["w"] @ mixer.decay_down) @ mixer.decay_up
    r, k, v = (
        mixed[name] @ linear.weight.T
        for name, linear in zip("rkv", (mixer.receptance, mixer.key, mixer.value), strict=True)
    )
    r, k, v, w = (by_head(x.detach(), 2).float() for x in (r, k, v, -d.exp()))
    y, _ = fla("rwkv6/recurrent_naive.py", "naive_recurrent_rwkv6")(r, k, v, w, mixer.bonus.detach().float(), scale=1.0)
    y = y.transpose(1, 2).double()  # (B, T, H, K)
    y = F.group_norm(y.flatten(0, 1).flatten(1), 2, mixer.norm_weight, mixer.norm_bias, 64e-5).view(2, T, -1)
    g = mixed["g"] @ mixer.gate.weight.T
    expected = (y * g * torch.sigmoid(g)) @ mixer.out_proj.weight.T
    assert error(output(mixer, u), expected) < 1e-5  # fla's loop is in float32

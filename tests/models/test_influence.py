"""The influence of tokens on the last output, against finite differences and a model computed by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models import tiny
from ssm_kernels import use_backend
from torch import Tensor

from ssm.models.backbone import LanguageModel, build_model
from ssm.models.inspect import influence
from ssm.specs.model import ModelSpec

T, B, D = 6, 2, 8
SPECS: dict[str, dict[str, Any]] = {
    "mamba1": {"mixer": {"kind": "mamba1", "d_state": 3}},
    "attention": {
        "mixer": {"kind": "attention", "n_heads": 2},
        "ffn": {"kind": "mlp", "d_hidden": 12},
        "parallel_residual": True,
        "norm": "layer",
    },
    "rwkv4": {"mixer": {"kind": "rwkv4"}, "ffn": {"kind": "rwkv_channel_mix", "d_hidden": 12}, "embedding_norm": True},
}


def model(n_layers: int = 2, **fields: Any) -> LanguageModel:
    """A model in float64 with noise on every weight."""
    spec = ModelSpec.parse({"name": "tiny", "d_model": D, "n_layers": n_layers, "peak_lr": 1e-3} | fields, "tests")
    return tiny.eventful(build_model(spec, tiny.VOCABULARY, 0)).double()


@pytest.mark.parametrize("name", SPECS)
def test_influence_against_finite_differences(name: str) -> None:
    """Central differences for all coordinates of all tokens, in float64."""
    tested, tokens, step = model(**SPECS[name]), tiny.tokens(1, B, T), 1e-5
    with torch.no_grad():
        entering = tested.embedded(tokens)  # (B, T, D)

        def last(x: Tensor) -> Tensor:
            for layer in tested.layers:
                x, *_ = layer(x, None, None, None)
            return tested.norm(x)[:, -1]

        for sequence in range(B):
            moved = step * torch.eye(T * D, dtype=torch.float64).view(T * D, T, D)
            columns = (last(entering[sequence] + moved) - last(entering[sequence] - moved)) / (2 * step)  # (T D, D)
            expected = columns.view(T, D, D).flatten(1).norm(dim=1)
            torch.testing.assert_close(influence(tested, tokens)[sequence], expected, rtol=1e-7, atol=1e-9)


def test_three_tokens_by_hand() -> None:
    """One layer of Mamba-1 (eq. 1 and 3), token by token, and torch's Jacobian of it."""
    tested = model(1, mixer={"kind": "mamba1", "d_state": 2, "d_conv": 2})
    layer: Any = tested.layers[0]
    mixer, tokens = layer.mixer, tiny.tokens(2, 1, 3)
    rank, N, width = mixer.widths[0], 2, mixer.d_inner

    def rms(x: Tensor, norm: Any) -> Tensor:
        return x / (x.square().mean() + norm.eps).sqrt() * norm.weight

    def by_hand(entering: Tensor) -> Tensor:
        h, before = torch.zeros(width, N, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)
        for x in entering:
            inner, z = (mixer.in_proj.weight @ rms(x, layer.norm)).split(width)
            taps = mixer.conv_weight
            u = F.silu(taps[:, 0] * before + taps[:, 1] * inner + mixer.conv_bias)
            before = inner
            projected = mixer.x_proj.weight @ u
            dt = F.softplus(mixer.dt_proj.weight @ projected[:rank] + mixer.dt_proj.bias)
            b, c = projected[rank : rank + N], projected[rank + N :]
            h = torch.exp(-dt[:, None] * mixer.A_log.exp()) * h + dt[:, None] * b * u[:, None]
            y = x + mixer.out_proj.weight @ ((h @ c + mixer.D * u) * F.silu(z))
        return rms(y, tested.norm)

    entering = tested.embedded(tokens)[0].detach()
    jacobian = torch.autograd.functional.jacobian(by_hand, entering)  # (D, T, D)
    expected = jacobian.square().sum((0, 2)).sqrt().detach()
    torch.testing.assert_close(influence(tested, tokens)[0], expected, rtol=1e-10, atol=1e-12)
    assert expected.min() > 1e-3, "all three tokens matter"


def test_directions_estimate_the_norm() -> None:
    """The mean of the squares over the parts of an orthonormal basis is exact."""
    tested, tokens = model(**SPECS["mamba1"]), tiny.tokens(3, B, T)
    basis = torch.linalg.qr(torch.randn(D, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0]
    exact = influence(tested, tokens)
    torch.testing.assert_close(influence(tested, tokens, basis), exact)
    parts = torch.stack([influence(tested, tokens, part) for part in basis.split(2)])
    assert (parts - exact).abs().max() > 1e-3
    torch.testing.assert_close(parts.square().mean(0).sqrt(), exact)


def test_influence_changes_nothing() -> None:
    """It leaves no gradients and no hooks, and works inside torch.no_grad."""
    tested, tokens = model(**SPECS["mamba1"]), tiny.tokens(4, B, T)
    with torch.no_grad(), use_backend("reference"):
        found = influence(tested, tokens)
    torch.testing.assert_close(found, influence(tested, tokens))
    assert all(parameter.grad is None for parameter in tested.parameters())
    assert not tested.layers[0]._forward_pre_hooks

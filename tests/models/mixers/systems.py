"""Small specs of every mixer with noise on all weights, for the tests of all mixers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from models import tiny
from pydantic import TypeAdapter
from ssm_kernels.testing.numerics import normal
from torch import Tensor, nn

from ssm.models.backbone import LanguageModel, build_model
from ssm.models.mixers import build_mixer
from ssm.models.mixers.base import Mixer
from ssm.models.state import LayerState, State
from ssm.specs.mixers import MixerSpec
from ssm.specs.model import ModelSpec

D = 8  # d_model
Forward = Callable[[Tensor, LayerState | None], tuple[Tensor, LayerState]]

# Name -> fields of the spec. Every registered kind is here; the first of each kind has the name of the kind.
SYSTEMS: dict[str, dict[str, Any]] = {
    "mamba2": {"kind": "mamba2", "d_state": 5, "head_dim": 4, "n_groups": 2, "chunk": 5},
    "mamba2, limited dt": {"kind": "mamba2", "d_state": 3, "head_dim": 8, "d_conv": 2, "dt_limit": [0.1, 0.9]},
    "mamba2, constant decay": {"kind": "mamba2", "d_state": 3, "head_dim": 4, "decay": "constant"},
    "linear_attention": {"kind": "linear_attention", "n_heads": 2, "chunk": 4},
    "linear_attention, simple": {
        "kind": "linear_attention", "key_dim": 5, "value_dim": 3, "feature_map": "identity", "normalizer": False,
    },
    "linear_attention, relu": {"kind": "linear_attention", "n_heads": 2, "feature_map": "relu", "normalizer": False},
    "linear_attention, favor": {"kind": "linear_attention", "n_heads": 2, "feature_map": "favor", "n_features": 6},
    "linear_attention, hedgehog": {"kind": "linear_attention", "n_heads": 2, "feature_map": "hedgehog"},
    "retnet": {"kind": "retnet", "n_heads": 2, "chunk": 3},
    "retnet, odd sizes": {"kind": "retnet", "n_heads": 3, "key_dim": 6, "value_dim": 5},
    "retnet, rms norm": {"kind": "retnet", "n_heads": 2, "norm": "rms"},
    "retnet, fast decay": {"kind": "retnet", "n_heads": 2, "decay_exponent": 1},
    "gla": {"kind": "gla", "n_heads": 2, "gate_rank": 3, "chunk": 6},
    "gla, fast decay": {"kind": "gla", "n_heads": 1, "key_dim": 5, "value_dim": 7, "gate_divisor": 1.0},
    "gla, constant decay": {"kind": "gla", "n_heads": 2, "decay": "constant"},
    "rwkv6": {"kind": "rwkv6", "head_dim": 4, "shift_rank": 3, "decay_rank": 2, "chunk": 5},
    "attention": {"kind": "attention", "n_heads": 2},
    "attention, grouped": {"kind": "attention", "n_heads": 4, "n_kv_heads": 2, "head_dim": 3, "rotary_pct": 0.7},
    "attention, window": {"kind": "attention", "n_heads": 2, "n_kv_heads": 1, "window": 5, "bias": True},
    "attention, output bias": {"kind": "attention", "n_heads": 2, "out_bias": True},
    "attention, convolution": {"kind": "attention", "n_heads": 2, "n_kv_heads": 1, "d_conv": 3},
    "attention, no positions": {"kind": "attention", "n_heads": 1, "rotary_pct": 0, "window": 2},
    "attention, gated": {"kind": "attention", "n_heads": 4, "n_kv_heads": 2, "head_dim": 4, "rotary_pct": 0.5,
                         "qk_norm": True, "gate": True},
    "attention, latent": {"kind": "attention", "n_heads": 2, "head_dim": 5, "latent_dim": 3, "shared_dim": 2,
                          "value_dim": 4, "rotary_pct": 0},
    "s4d": {"kind": "s4d", "d_state": 6, "segment": 5},
    "s4d, inv, bilinear": {"kind": "s4d", "d_state": 4, "init": "inv", "discretization": "bilinear"},
    "s4d, gated decay": {"kind": "s4d", "d_state": 4, "decay": "input_dependent"},
    "dss": {"kind": "dss", "d_state": 3, "segment": 4},
    "s5": {"kind": "s5", "d_state": 8, "blocks": 2},
    "s5, bilinear": {"kind": "s5", "d_state": 6, "blocks": 1, "discretization": "bilinear"},
    "h3": {"kind": "h3", "d_state": 4, "d_shift": 5, "segment": 6},
    "h3, heads": {"kind": "h3", "d_state": 2, "d_shift": 2, "head_dim": 4, "discretization": "bilinear"},
    "mamba1": {"kind": "mamba1", "d_state": 5},
    "mamba1, polarized": {"kind": "mamba1", "d_state": 3, "expand": 1, "d_conv": 2, "dt_rank": 3, "polarize": "both"},
    "mamba1, mimetic": {"kind": "mamba1", "d_state": 3, "polarize": "zero", "polarized_size": "matched",
                        "mimetic": {"a": 2, "dt": True, "bc": True, "conv": True}},
    "mamba1, normed": {"kind": "mamba1", "d_state": 4, "selection_norm_eps": 0.1},
    "mamba2, mimetic": {"kind": "mamba2", "d_state": 3, "head_dim": 4,
                        "mimetic": {"a": 2, "dt": True, "bc": True, "conv": True}},
    "rglru": {"kind": "rglru", "blocks": 2},
    "rglru, wide": {"kind": "rglru", "width": 12, "blocks": 3, "d_conv": 2},
    "rglru, unscaled start": {"kind": "rglru", "blocks": 2, "unscaled_start": True},
    "rglru, constant decay": {"kind": "rglru", "blocks": 2, "decay": "constant"},
    "rwkv4": {"kind": "rwkv4"},
    "gru": {"kind": "gru"},
    "deltanet": {"kind": "deltanet", "n_heads": 2, "chunk": 4},
    "deltanet, gate": {"kind": "deltanet", "n_heads": 1, "key_dim": 5, "value_dim": 3, "d_conv": 2, "gate": True,
                       "negative_eigenvalues": True},
    "gated_deltanet": {"kind": "gated_deltanet", "n_heads": 4, "n_key_heads": 2, "chunk": 5},
    "gated_deltanet, no gate": {"kind": "gated_deltanet", "n_heads": 2, "gate": False, "negative_eigenvalues": True},
    "gated_deltanet, no decay": {"kind": "gated_deltanet", "n_heads": 2, "decay": "none"},
    "gated_deltanet, sigmoid": {"kind": "gated_deltanet", "n_heads": 1, "key_dim": 4, "value_dim": 3,
                                "gate_activation": "sigmoid"},
    "kda": {"kind": "kda", "n_heads": 4, "n_key_heads": 2, "gate_rank": 3, "chunk": 6},
    "kda, odd sizes": {"kind": "kda", "n_heads": 1, "key_dim": 3, "value_dim": 5, "negative_eigenvalues": True},
    "rwkv7": {"kind": "rwkv7", "head_dim": 4, "decay_rank": 3, "rate_rank": 2, "gate_rank": 3, "value_rank": None},
}  # fmt: skip


def parsed(fields: dict[str, Any]) -> MixerSpec:
    """The spec with these fields."""
    return TypeAdapter(MixerSpec).validate_python(fields)


def system(name: str) -> Mixer:
    """The mixer in float64, as the second of three layers, with noise on every weight so that each has an effect."""
    torch.manual_seed(0)
    mixer = build_mixer(parsed(SYSTEMS[name]), D, 3, layer=1)
    return move(mixer).double()


def move(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module with noise on every weight."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            spread = 0.4 if parameter.dim() == 2 else 0.1
            parameter += spread * torch.randn(parameter.shape, generator=generator)
    return module


def model_spec(**fields: Any) -> ModelSpec:
    """The spec of a language model with three layers."""
    return ModelSpec.parse({"name": "tiny", "d_model": D, "n_layers": 3, "peak_lr": 1e-3} | fields, "test")


def model(**fields: Any) -> LanguageModel:
    """The language model of `model_spec` in float64, with noise on every weight."""
    built = build_model(model_spec(**fields), tiny.VOCABULARY, 0)
    move(built)
    return built.double()


def inputs(seed: int, batch: int, length: int) -> Tensor:
    """Standard normal inputs (B, T, D) in float64."""
    return torch.randn(batch, length, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def started(mixer: nn.Module, batch: int, length: int = 4) -> LayerState:
    """A state that is not zero: the state after other inputs."""
    with torch.no_grad():
        return mixer(inputs(99, batch, length))[1]


def leaves(state: LayerState) -> LayerState:
    """A state with gradients, except for an attention's "seen"."""
    return {name: tensor.clone().requires_grad_(tensor.is_floating_point()) for name, tensor in sorted(state.items())}


def numbers(state: LayerState) -> list[Tensor]:
    """The differentiable tensors of a state, in the order of their names."""
    return [tensor for _, tensor in sorted(state.items()) if tensor.is_floating_point()]


def padded(state: LayerState, like: LayerState) -> LayerState:
    """A cache, extended at the front by unseen tokens to the length of another; other states do not change."""
    missing = like["memory"].shape[2] - state["memory"].shape[2] if "seen" in state else 0
    if missing <= 0:
        return state
    return state | {
        "memory": F.pad(state["memory"], (0, 0, 0, 0, missing, 0)),
        "seen": F.pad(state["seen"], (missing, 0)),
    }


def pairs(one: LayerState, other: LayerState) -> tuple[list[Tensor], list[Tensor]]:
    """Two states as lists of tensors to compare. Caches are padded to equal lengths."""
    assert one.keys() == other.keys()
    one, other = padded(one, other), padded(other, one)
    if "seen" in one:
        assert torch.equal(one["seen"], other["seen"])
    return [one[name].double() for name in sorted(one)], [other[name].double() for name in sorted(one)]


def everything(mixer: nn.Module, u: Tensor, start: LayerState, forward: Forward) -> list[Tensor]:
    """Outputs, final state, and the gradients of every weight, of u and of the initial state, under a random loss."""
    u, start = u.clone().requires_grad_(), leaves(start)
    y, ended = forward(u, start)
    results = [y, *numbers(ended)]
    weights = normal(7, *(tuple(result.shape) for result in results))
    loss = sum((result * weight).sum() for result, weight in zip(results, weights, strict=True))
    wanted = [*mixer.parameters(), u, *numbers(start)]
    return [*(result.detach() for result in results), *torch.autograd.grad(loss, wanted)]


def in_pieces(mixer: nn.Module, borders: list[int], resets: Tensor | None = None) -> Forward:
    def forward(u: Tensor, state: LayerState | None) -> tuple[Tensor, LayerState]:
        outputs = []
        for begin, end in itertools.pairwise(borders):
            y, state = mixer(u[:, begin:end], state, None if resets is None else resets[:, begin:end])
            outputs.append(y)
        assert state is not None
        return torch.cat(outputs, 1), state

    return forward


def stepwise(mixer: Any) -> Forward:
    def forward(u: Tensor, state: LayerState | None) -> tuple[Tensor, LayerState]:
        outputs = []
        for u_t in u.unbind(1):
            y, state = mixer.step(u_t, state)
            outputs.append(y)
        assert state is not None
        return torch.stack(outputs, 1), state

    return forward


def whole(layers: list[LayerState]) -> State:
    """Layer states as a model's state."""
    return State(tuple(layers))

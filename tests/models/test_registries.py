"""The spec of every mixer and ffn gives the sizes of its module."""

from __future__ import annotations

import pytest
import torch
from models.mixers import systems
from pydantic import TypeAdapter
from torch import nn

from ssm.models.ffn import FFNS, build_ffn
from ssm.models.linear import Linear
from ssm.models.mixers import build_mixer
from ssm.models.sublayer import Sublayer
from ssm.specs.ffn import SPECS, FfnSpec
from ssm.specs.sublayer import SublayerSpec

D, T = 2 * systems.D, 7
EXPERTS = {"kind": "experts", "n_experts": 5, "top_k": 2, "d_hidden": 7, "d_shared": 9}
FFN_EXAMPLES = {
    "mlp": {"kind": "mlp", "d_hidden": 31},
    "mlp, bias": {"kind": "mlp", "d_hidden": 31, "bias": True},
    "gated_mlp": {"kind": "gated_mlp", "d_hidden": 31},
    "gated_mlp, bias": {"kind": "gated_mlp", "d_hidden": 31, "bias": True},
    "rwkv_channel_mix": {"kind": "rwkv_channel_mix", "d_hidden": 31},
    "rwkv_channel_mix, no receptance": {"kind": "rwkv_channel_mix", "d_hidden": 31, "receptance": False},
    "experts": EXPERTS,
    "experts, by sigmoids": EXPERTS | {"scores": "sigmoid", "shared_gate": False},
}


def check(spec: SublayerSpec, part: Sublayer) -> None:
    """Counts are exact. "seen" (bool) does not count, and a window counts its whole length."""
    assert all(type(module) is Linear for module in part.modules() if isinstance(module, nn.Linear))
    assert spec.parameters(D) == sum(parameter.numel() for parameter in part.parameters())
    _, state = part(torch.zeros(1, T, D))
    numbers = sum(tensor.numel() for tensor in state.values() if tensor.dtype != torch.bool)
    window = getattr(spec, "window", None)
    assert spec.state_numbers(D, T) == (numbers if window is None else numbers // (window - 1) * window)
    kept = spec.activation_memory(D)
    assert kept.of(2, T, from_zero=True) - kept.once == 2 * (kept.of(1, T, from_zero=True) - kept.once) > 0


@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_sizes_of_a_mixer(name: str) -> None:
    spec = systems.parsed(systems.SYSTEMS[name])
    mixer = build_mixer(spec, D, 3)
    check(spec, mixer)
    memory = mixer(torch.zeros(1, 1, D))[1]["memory"]
    assert memory[0].numel() == spec.recurrent_state_numbers(D)
    assert memory.shape[1] == spec.heads(D)


@pytest.mark.parametrize("name", FFN_EXAMPLES)
def test_sizes_of_an_ffn(name: str) -> None:
    spec: FfnSpec = TypeAdapter(FfnSpec).validate_python(FFN_EXAMPLES[name])
    check(spec, build_ffn(spec, D, 3))


def test_every_ffn_is_registered_and_tested() -> None:
    """mixers/test_properties.py tests this for mixers."""
    assert set(SPECS) == set(FFNS) == {example["kind"] for example in FFN_EXAMPLES.values()}

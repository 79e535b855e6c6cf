"""Initial weights of layers whose other tests do not look at them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from models.mixers.systems import parsed
from pydantic import TypeAdapter
from torch import Tensor, nn

from ssm.models.ffn import build_ffn
from ssm.models.mixers import build_mixer
from ssm.specs.ffn import FfnSpec

D, L = 256, 4
HEADS = {"n_heads": 4, "key_dim": 32, "value_dim": 64}  # of keys 128 in all, of values 256
K, V, R = 128, 256, 16
# Xavier's uniform with gain 2^-2.5, as in the authors' code: rows of the parts of the input projection
PROJECTIONS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "retnet": ({"kind": "retnet"}, [K, K, V, V]),
    "gla": ({"kind": "gla", "gate_rank": R}, [K, K, V, V, R]),
    "deltanet": ({"kind": "deltanet", "gate": True}, [K, K, V, 4, V]),
    "gated_deltanet": ({"kind": "gated_deltanet"}, [K, K, V, 4, 4, V]),
    "kda": ({"kind": "kda", "gate_rank": R}, [K, K, V, 4, R, R]),
}


def built(fields: Mapping[str, Any], layer: int = 0, d_model: int = D, n_layers: int = L) -> nn.Module:
    torch.manual_seed(0)
    return build_mixer(parsed(dict(fields)), d_model, n_layers, layer).requires_grad_(False)


def is_uniform(weight: Tensor, bound: float) -> bool:
    """Whether weights are uniform between -bound and bound."""
    spread = float(weight.std()) / (bound / math.sqrt(3))
    return 0.97 < float(weight.abs().max()) / bound <= 1 and abs(spread - 1) < 4 / math.sqrt(weight.numel())


@pytest.mark.parametrize("kind", PROJECTIONS)
def test_projections_of_linear_attentions(kind: str) -> None:
    fields, rows = PROJECTIONS[kind]
    mixer = built(fields | HEADS)
    for part in mixer.in_proj.weight.split(rows):
        assert is_uniform(part, 2**-2.5 * math.sqrt(6 / (D + len(part))))
    gain = 0.5 if kind == "retnet" else 2**-2.5
    assert is_uniform(mixer.out_proj.weight, gain * math.sqrt(6 / (D + V)))
    for name, weight in mixer.named_parameters():
        if name in ("decay_proj.weight", "gate_proj.weight"):
            assert is_uniform(weight, 2**-2.5 * math.sqrt(6 / (R + len(weight))))
        elif name == "conv_weight":
            assert is_uniform(weight, 0.5)  # four taps
        elif name == "norm_weight":
            assert torch.equal(weight, torch.ones(64))


@pytest.mark.parametrize("kind", ["gated_deltanet", "kda"])
def test_decays_of_the_delta_rule_start_in_their_ranges(kind: str) -> None:
    mixer = built({"kind": kind, "a_range": [2.0, 3.0], "dt_range": [2e-3, 3e-3]} | HEADS)
    for values, low in ((mixer.A_log.exp(), 2.0), (F.softplus(mixer.dt_bias), 2e-3)):
        assert 0.999 * low <= values.min() < values.max() <= 1.501 * low


GPT_NEOX = {  # name of a weight -> its standard deviation
    "attention": {"in_proj.weight": math.sqrt(0.4 / D), "out_proj.weight": 2 / L / math.sqrt(D)},
    "mlp": {"up_proj.weight": math.sqrt(0.4 / D), "down_proj.weight": 2 / L / math.sqrt(D)},
    "gated_mlp": {"up_proj.weight": math.sqrt(0.4 / D), "down_proj.weight": 2 / L / math.sqrt(D)},
    "experts": {
        "router.weight": math.sqrt(0.4 / D),
        "up_proj": math.sqrt(0.4 / D),
        "down_proj": 2 / L / math.sqrt(D),
        "shared.up_proj.weight": math.sqrt(0.4 / D),
        "shared.down_proj.weight": 2 / L / math.sqrt(D),
        "shared_gate.weight": math.sqrt(0.4 / D),
    },
}


@pytest.mark.parametrize("kind", GPT_NEOX)
def test_layers_with_the_initialization_of_gpt_neox(kind: str) -> None:
    if kind == "attention":
        layer = built({"kind": kind, "n_heads": 4})
    else:
        sizes = {"n_experts": 16, "top_k": 2, "d_shared": 96} if kind == "experts" else {}
        torch.manual_seed(0)
        layer = build_ffn(TypeAdapter(FfnSpec).validate_python({"kind": kind, "d_hidden": 96} | sizes), D, L)
    layer.requires_grad_(False)
    stds = {name: (float(weight.std()), weight.numel()) for name, weight in layer.named_parameters()}
    assert stds.keys() == GPT_NEOX[kind].keys()
    for name, (std, count) in stds.items():
        assert std == pytest.approx(GPT_NEOX[kind][name], rel=4 / math.sqrt(2 * count)), name


def test_rwkvs_channel_mixing_starts_from_an_orthogonal_map_and_no_output() -> None:
    ffn = build_ffn(TypeAdapter(FfnSpec).validate_python({"kind": "rwkv_channel_mix", "d_hidden": 4 * D}), D, L)
    torch.testing.assert_close(ffn.key.weight.T @ ffn.key.weight, 4 * torch.eye(D), rtol=0, atol=1e-4)
    assert ffn.value.weight.abs().max() == ffn.receptance.weight.abs().max() == 0


def test_the_directions_of_favor_are_orthogonal() -> None:
    mixer = built({"kind": "linear_attention", "n_heads": 4, "feature_map": "favor", "n_features": 128})
    for block in mixer.directions.split(64, 1):  # in 64 dimensions
        unit = block / block.norm(dim=0)
        torch.testing.assert_close(unit.T @ unit, torch.eye(64), rtol=0, atol=1e-5)


@pytest.mark.parametrize("layer", [0, 2])
def test_rwkv7_starts_as_its_authors_wrote(layer: int) -> None:
    """Channel by channel, as in `RWKV_Tmix_x070` of RWKV-LM and in fla, for 4 layers of 2 heads of 8 channels."""
    mixer = built({"kind": "rwkv7", "head_dim": 8, "value_rank": 4}, layer, d_model=16)
    depth, rest = layer / 3, 1 - layer / 4
    wanted: dict[str, list[float]] = {}
    for n in range(16):
        linear, zigzag = n / 15 - 0.5, ((n % 8) - 3.5) / 3.5
        zigzag *= abs(zigzag)
        values = {
            "decay_base": -6 + 6 * (n / 15) ** (1 + depth**0.3) + 0.5 + 2.5 * zigzag,
            "rate_base": -0.19 + 0.3 * zigzag + 0.4 * linear,
            "value_base": 0.73 - 0.4 * linear,
            "removal": 0.71 - 0.1 * linear,
            "boost": 1.02,
            "bonus": -0.04,
            "norm_weight": ((layer + 1) / 4) ** 0.7,
        }
        values |= {f"shift_{i}": 1 - (n / 16) ** (p * rest) for i, p in enumerate((0.2, 0.9, 0.7, 0.7, 0.9, 0.2))}
        for name, value in values.items():
            wanted.setdefault(name, []).append(value)
    found = dict(mixer.named_parameters()) | {f"shift_{i}": row for i, row in enumerate(mixer.shift_mix)}
    for name, numbers in wanted.items():
        np.testing.assert_allclose(found[name].flatten(), numbers, rtol=1e-5, atol=1e-6, err_msg=name)
    for name, gain in (("receptance", 1.0), ("value", 1.0), ("key", 0.1)):
        weight = found[f"{name}.weight"]
        torch.testing.assert_close(weight @ weight.T, gain**2 * torch.eye(16), rtol=0, atol=1e-5)
    assert found["out_proj.weight"].abs().max() == 0

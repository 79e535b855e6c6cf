"""Gated DeltaNet is that of transformers (Qwen3-Next), an independent implementation, with its cache."""

from __future__ import annotations

import inspect

import pytest
import torch
from kernels.numerics import worst
from models.mixers import systems
from ssm_kernels import use_backend
from torch import Tensor
from transformers import DynamicCache, Qwen3NextConfig
from transformers.models.qwen3_next import modeling_qwen3_next as theirs

from ssm.models.mixers import build_mixer
from ssm.models.mixers.gated_deltanet import GatedDeltaNet

D, G, H, K, V, T = 8, 2, 4, 3, 5, 17
CONFIG = Qwen3NextConfig(
    hidden_size=D, num_hidden_layers=2, linear_num_key_heads=G, linear_num_value_heads=H, linear_key_head_dim=K,
    linear_value_head_dim=V, linear_conv_kernel_dim=3, rms_norm_eps=1e-3, num_attention_heads=2, num_key_value_heads=1,
    head_dim=4, num_experts=0, layer_types=["linear_attention", "full_attention"],
)  # fmt: skip


def ours() -> GatedDeltaNet:
    torch.manual_seed(0)
    fields = {"kind": "gated_deltanet", "n_heads": H, "n_key_heads": G, "key_dim": K, "value_dim": V, "d_conv": 3}
    mixer = build_mixer(systems.parsed(fields | {"norm_eps": 1e-3}), D, 2)
    assert isinstance(mixer, GatedDeltaNet)
    systems.move(mixer)
    return mixer.double()


def peer_of(mixer: GatedDeltaNet) -> theirs.Qwen3NextGatedDeltaNet:
    """With our weights: the rows of q, k, v and the gate, and those of beta and dt, lie together by head of keys."""
    peer = theirs.Qwen3NextGatedDeltaNet(CONFIG, 0).double()
    q, k, v, beta, dt, gate = mixer.in_proj.weight.detach().split([G * K, G * K, H * V, H, H, H * V])

    def by_group(*rows: Tensor) -> Tensor:
        return torch.cat([part.unflatten(0, (G, -1)) for part in rows], 1).flatten(0, 1)

    with torch.no_grad():
        peer.in_proj_qkvz.weight.copy_(by_group(q, k, v, gate))
        peer.in_proj_ba.weight.copy_(by_group(beta, dt))
        peer.conv1d.weight.copy_(mixer.conv_weight.unsqueeze(1))
        peer.dt_bias.copy_(mixer.dt_bias)
        peer.A_log.copy_(mixer.A_log)
        peer.norm.weight.copy_(mixer.norm_weight)
        peer.out_proj.weight.copy_(mixer.out_proj.weight)
    return peer.eval()


@torch.no_grad()
def test_outputs_and_states_are_those_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sequence and then a token at a time, from their cache and from our state; their rule runs in float32."""
    for name in ("chunk", "recurrent"):  # theirs, whether or not fla is there, whose kernels need a GPU
        name = f"torch_{name}_gated_delta_rule"
        monkeypatch.setattr(theirs, name, inspect.unwrap(getattr(theirs, name)))
    mixer = ours()
    peer, cache, state = peer_of(mixer), DynamicCache(config=CONFIG), None
    u = systems.inputs(0, 2, T)
    with use_backend("reference"):
        for begin, end in ((0, T - 3), *((t, t + 1) for t in range(T - 3, T))):
            y, state = mixer(u[:, begin:end], state)
            assert y.std() > 0.1
            assert worst([y], [peer(u[:, begin:end], cache_params=cache)]) < 1e-5
            assert worst([state["memory"]], [cache.get_recurrent_state(0, state_idx=0)]) < 1e-5
            assert worst([state["conv"]], [cache.get_conv_state(0, state_idx=0).mT[:, -2:]]) < 1e-12

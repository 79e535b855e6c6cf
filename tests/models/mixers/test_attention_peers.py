"""Transformers against transformers' own, with copied weights: GPT-NeoX (Pythia), Mistral; RWKV's channel mixing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernels.numerics import error, worst
from models import tiny
from models.mixers import systems
from torch import Tensor, nn
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, MistralConfig, MistralForCausalLM, RwkvConfig
from transformers.models.rwkv.modeling_rwkv import RwkvFeedForward

from ssm.models.backbone import LanguageModel, build_model
from ssm.models.ffn import build_ffn
from ssm.models.state import State
from ssm.specs.ffn.rwkv_channel_mix import RwkvChannelMix
from ssm.specs.model import ModelSpec

D, L, V = 16, 3, tiny.VOCABULARY
NEOX = {
    "name": "tiny-pythia", "d_model": D, "n_layers": L, "peak_lr": 1e-3, "tie_embeddings": False,
    "norm": "layer", "parallel_residual": True,
    "mixer": {"kind": "attention", "n_heads": 2, "rotary_pct": 0.25, "bias": True},
    "ffn": {"kind": "mlp", "d_hidden": 40, "bias": True},
}  # fmt: skip
MISTRAL = {
    "name": "tiny-mistral", "d_model": D, "n_layers": L, "peak_lr": 1e-3, "tie_embeddings": False,
    "mixer": {"kind": "attention", "n_heads": 4, "n_kv_heads": 2, "head_dim": 6, "window": 5},
    "ffn": {"kind": "gated_mlp", "d_hidden": 24},
}  # fmt: skip


def ours(fields: dict[str, Any]) -> LanguageModel:
    model = build_model(ModelSpec.parse(fields, "test"), V, 0)
    systems.move(model)
    return model


def gpt_neox(model: LanguageModel) -> nn.Module:
    """transformers' GPT-NeoX with the weights of ours; its queries, keys and values lie interleaved by head."""
    config = GPTNeoXConfig(
        vocab_size=V, hidden_size=D, num_hidden_layers=L, num_attention_heads=2, intermediate_size=40, rotary_pct=0.25,
        use_parallel_residual=True, hidden_act="gelu", layer_norm_eps=1e-5, attention_dropout=0.0, hidden_dropout=0.0,
        max_position_embeddings=64,
    )  # fmt: skip
    state = {"gpt_neox.embed_in.weight": model.embedding.weight}
    state |= _pair("gpt_neox.final_layer_norm", model.norm)
    for i, layer in enumerate(model.layers):
        at = f"gpt_neox.layers.{i}"
        for kind in ("weight", "bias"):
            rows = getattr(layer.mixer.in_proj, kind).unflatten(0, (3, 2, D // 2))  # (q k v, H, K, ...)
            state[f"{at}.attention.query_key_value.{kind}"] = rows.transpose(0, 1).flatten(0, 2)
        state |= _pair(f"{at}.attention.dense", layer.mixer.out_proj)
        state |= _pair(f"{at}.input_layernorm", layer.norm) | _pair(f"{at}.post_attention_layernorm", layer.ffn_norm)
        state |= _pair(f"{at}.mlp.dense_h_to_4h", layer.ffn.up_proj)
        state |= _pair(f"{at}.mlp.dense_4h_to_h", layer.ffn.down_proj)
    return _loaded(GPTNeoXForCausalLM(config), state, model.head.weight)


def mistral(model: LanguageModel) -> nn.Module:
    """transformers' Mistral (eager, with its sliding window) with the weights of ours."""
    config = MistralConfig(
        vocab_size=V, hidden_size=D, num_hidden_layers=L, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
        intermediate_size=24, sliding_window=5, rms_norm_eps=1e-5, attn_implementation="eager",
        tie_word_embeddings=False,
    )  # fmt: skip
    state = {"model.embed_tokens.weight": model.embedding.weight, "model.norm.weight": model.norm.weight}
    for i, layer in enumerate(model.layers):
        at = f"model.layers.{i}"
        for name, part in zip("qkv", layer.mixer.in_proj.weight.split(layer.mixer.sizes), strict=True):
            state[f"{at}.self_attn.{name}_proj.weight"] = part
        state[f"{at}.self_attn.o_proj.weight"] = layer.mixer.out_proj.weight
        gate, up = layer.ffn.up_proj.weight.chunk(2)
        state |= {f"{at}.mlp.gate_proj.weight": gate, f"{at}.mlp.up_proj.weight": up}
        state[f"{at}.mlp.down_proj.weight"] = layer.ffn.down_proj.weight
        state |= {f"{at}.input_layernorm.weight": layer.norm.weight}
        state |= {f"{at}.post_attention_layernorm.weight": layer.ffn_norm.weight}
    return _loaded(MistralForCausalLM(config), state, model.head.weight)


def _pair(name: str, module: nn.Module) -> dict[str, Tensor]:
    return {f"{name}.{kind}": getattr(module, kind) for kind in ("weight", "bias")}


def _loaded(peer: nn.Module, state: dict[str, Tensor], head: Tensor) -> nn.Module:
    with torch.no_grad():
        peer.get_output_embeddings().weight.copy_(head)  # its name differs from version to version
    problems = peer.load_state_dict(state, strict=False)
    assert not problems.unexpected_keys
    assert len(problems.missing_keys) <= 1, problems.missing_keys  # the head
    return peer.eval()


PEERS = pytest.mark.parametrize(("fields", "peer_of"), [(NEOX, gpt_neox), (MISTRAL, mistral)], ids=["neox", "mistral"])


@PEERS
def test_logits_and_gradients(fields: dict[str, Any], peer_of: Any) -> None:
    model = ours(fields)
    peer, tokens = peer_of(model), tiny.tokens(0, 3, 23)
    got, expected = model(tokens)[0], peer(tokens, use_cache=False).logits
    assert got.std() > 0.3
    assert error(got, expected) < 1e-5
    weight = torch.randn(got.shape, generator=torch.Generator().manual_seed(1))
    (got * weight).sum().backward()
    (expected * weight).sum().backward()
    theirs = peer.get_input_embeddings().weight.grad
    assert error(model.embedding.weight.grad, theirs) < 1e-4  # through all layers


@PEERS
def test_decoding(fields: dict[str, Any], peer_of: Any) -> None:
    """Our state is their cache, in pieces and one token at a time."""
    model = ours(fields)
    peer, tokens = peer_of(model), tiny.tokens(1, 2, 17)
    with torch.no_grad():
        expected = peer(tokens, use_cache=False).logits
        state: State | None = None
        pieces = []
        for begin, end in ((0, 3), (3, 4), (4, 11)):
            logits, state = model(tokens[:, begin:end], state)
            pieces.append(logits)
        for t in range(11, 17):
            logits, state = model.step(tokens[:, t], state)
            pieces.append(logits.unsqueeze(1))
    assert error(torch.cat(pieces, 1), expected) < 1e-5


def test_a_wrong_position_would_show() -> None:
    model = ours(NEOX)
    peer, tokens = gpt_neox(model), tiny.tokens(2, 2, 23)
    wrong = ours(NEOX | {"mixer": NEOX["mixer"] | {"rotary_pct": 0.5}})
    wrong.load_state_dict(model.state_dict())
    assert error(wrong(tokens)[0], peer(tokens, use_cache=False).logits) > 1e-3


def test_channel_mixing_is_rwkv_4s() -> None:
    """RWKV-4 weighs the token itself by mu, we weigh the one before it by 1 - mu."""
    mix = systems.move(build_ffn(RwkvChannelMix(d_hidden=28), D, L))
    peer = RwkvFeedForward(RwkvConfig(hidden_size=D, intermediate_size=28, num_hidden_layers=L), layer_id=1)
    with torch.no_grad():
        for name in ("key", "receptance", "value"):
            peer.get_submodule(name).weight.copy_(mix.get_submodule(name).weight)
        peer.time_mix_key.copy_(1 - mix.key_mix)
        peer.time_mix_receptance.copy_(1 - mix.receptance_mix)
    x = torch.randn(2, 9, D, generator=torch.Generator().manual_seed(3))
    y, state = mix(x[:, :5])
    rest, _ = mix(x[:, 5:], state)
    assert worst([torch.cat([y, rest], 1)], [peer(x)[0]]) < 1e-6

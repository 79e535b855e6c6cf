"""Parameters and operations of a model, from its spec alone: what the models count themselves, without building them.

The counts are exact (a test builds every named model and compares). A mixer or ffn that has no line here is reckoned
with 6 D^2 parameters, what most systems of width D have to within a factor of two.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from ssm.specs.ffn import FfnSpec
from ssm.specs.mixers import MixerSpec
from ssm.specs.model import ModelSpec

STATE_OPERATIONS = 6  # a number of the state and token: decay, addition of the product, product with the readout


def _attention(spec: Any, D: int) -> int:
    groups, _, _, K = spec.state_shape(D)
    queries, keys = spec.n_heads * K, groups * K
    return D * (queries + 2 * keys) + queries * D + spec.bias * (queries + 2 * keys) + spec.output_bias * D


def _dss(spec: Any, D: int) -> int:
    return 3 * D + 2 * spec.d_state + 2 * D * spec.d_state + D * D


def _gla(spec: Any, D: int) -> int:
    H, K, V = spec.state_shape(D)
    return D * (2 * H * K + 2 * H * V + spec.gate_rank) + H * K * (spec.gate_rank + 1) + V + H * V * D


def _gru(spec: Any, D: int) -> int:
    return 6 * D * D + 6 * D


def _h3(spec: Any, D: int) -> int:
    return 4 * D * (D + 1) + D * (spec.d_shift + 1) + spec.heads(D) * (3 * spec.d_state + 2)


def _linear_attention(spec: Any, D: int) -> int:
    H, K, V = spec.n_heads, spec.key_dim or D // spec.n_heads, spec.state_shape(D)[-1]
    learned_map = H * K * K if spec.feature_map == "hedgehog" else 0
    return D * (2 * H * K + H * V) + H * V * D + learned_map


def _mamba1(spec: Any, D: int) -> int:
    E, R = spec.expand * D, spec.rank(D)
    return 3 * D * E + E * (spec.d_conv + 1) + E * (R + 2 * spec.states) + E * (R + 1) + E * (spec.learned_states + 1)


def _mamba2(spec: Any, D: int) -> int:
    E, H, groups = spec.expand * D, spec.heads(D), spec.n_groups * spec.d_state
    return D * (2 * E + 2 * groups + H) + (E + 2 * groups) * (spec.d_conv + 1) + 3 * H + E + E * D


def _retnet(spec: Any, D: int) -> int:
    H, K, V = spec.state_shape(D)
    return D * (2 * H * K + 2 * H * V) + H * V * D + V * (spec.norm == "rms")


def _rglru(spec: Any, D: int) -> int:
    W = spec.channels(D)
    return 3 * D * W + D + 2 * W + W * (spec.d_conv + 1) + 2 * W * (W // spec.blocks + 1) + W


def _rwkv4(spec: Any, D: int) -> int:
    return 4 * D * D + 5 * D


def _rwkv6(spec: Any, D: int) -> int:
    return 5 * D * D + 10 * D * (spec.shift_rank + 1) + 2 * D * spec.decay_rank


def _s4d(spec: Any, D: int) -> int:
    return 2 * D * D + 3 * D * spec.d_state + 4 * D


def _s5(spec: Any, D: int) -> int:
    return D * D + 2 * spec.d_state * D + 2 * D + 3 * spec.d_state // 2


def _mlp(spec: Any, D: int) -> int:
    return 2 * D * spec.d_hidden + spec.bias * (spec.d_hidden + D)


def _gated_mlp(spec: Any, D: int) -> int:
    return 3 * D * spec.d_hidden + spec.bias * (2 * spec.d_hidden + D)


def _rwkv_channel_mix(spec: Any, D: int) -> int:
    return D * D + 2 * D * spec.d_hidden + 2 * D


COUNTS: dict[str, Callable[[Any, int], int]] = {
    "attention": _attention,
    "dss": _dss,
    "gla": _gla,
    "gru": _gru,
    "h3": _h3,
    "linear_attention": _linear_attention,
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "retnet": _retnet,
    "rglru": _rglru,
    "rwkv4": _rwkv4,
    "rwkv6": _rwkv6,
    "s4d": _s4d,
    "s5": _s5,
    "mlp": _mlp,
    "gated_mlp": _gated_mlp,
    "rwkv_channel_mix": _rwkv_channel_mix,
}


def part_parameters(spec: MixerSpec | FfnSpec, d_model: int) -> int:
    """Parameters of one layer's mixer or ffn, its norm not counted."""
    count = COUNTS.get(spec.kind)
    return 6 * d_model * d_model if count is None else count(spec, d_model)


def parameter_count(model: ModelSpec, vocab_size: int) -> int:
    """Parameters of a model over `vocab_size` tokens, tied embeddings once."""
    D = model.d_model
    norm = 2 * D if model.norm == "layer" else D
    ffn = 0 if model.ffn is None else part_parameters(model.ffn, D) + norm
    layers = sum(part_parameters(mixer, D) + norm + ffn for mixer in model.mixers())
    embeddings = (1 if model.tie_embeddings else 2) * _embedding(model, vocab_size)
    return layers + embeddings + norm * (1 + model.embedding_norm)


def _embedding(model: ModelSpec, vocab_size: int) -> int:
    return -(-vocab_size // model.vocab_multiple) * model.vocab_multiple * model.d_model


def operations_per_token(model: ModelSpec, vocab_size: int, context: int) -> float:
    """Floating-point operations of a forward pass, a token, in a sequence of `context` tokens.

    Two a parameter (but for an untied embedding, which is looked up), six a number of the state, and for attention four
    a head's dimension and token seen: (context + 1) / 2 of them on average, the window at most.
    """
    looked_up = 0 if model.tie_embeddings else _embedding(model, vocab_size)
    operations = 2.0 * (parameter_count(model, vocab_size) - looked_up)
    for mixer in model.mixers():
        shape = mixer.state_shape(model.d_model)
        if mixer.kind == "attention":
            seen = min((context + 1) / 2, getattr(mixer, "window", None) or context)
            operations += 4 * getattr(mixer, "n_heads", 1) * shape[-1] * seen
        else:
            operations += STATE_OPERATIONS * prod(shape)
    return operations

"""The memory that training takes at its peak, in bytes, from the spec alone: arithmetic, nothing is built or measured.

P parameters take 4 P bytes of weights, 8 P of AdamW's moments and 4 P of gradients. Gradients come into being in the
backward pass and go behind the step; with gradient accumulation they are there from the second micro-batch on, with
several processes all the time. All else grows with the tokens of one process's micro-batch:

- every layer keeps numbers for the backward pass: its input, what its norm makes of it, and what its mixer and its ffn
  need (KEPT). With activation checkpointing it keeps its input, and one layer at a time computes the rest again;
- a layer that goes backward holds gradients besides, a share of what it keeps (WORKSPACE);
- the logits are there three times when the loss goes backward: log-probabilities and two gradients; a tied embedding
  has two gradients until they are added up;
- the initial-state policy holds states of the whole batch: those that it starts from, those that it ended in.

The peak is the largest of three moments: the backward pass begins (all activations, logits), it ends (gradients, one
layer's activations), the optimizer steps (gradients). Within 20% of what torch's allocator counts on a CPU
(tests/plan/test_memory.py). Not in it: Python and torch themselves (0.4 GB; on a GPU its libraries, 1 GB and more), and
what an allocator keeps back unused. `KEPT` holds for the scans' backends that keep states at the borders of chunks, all
but `reference`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from ssm.plan.parameters import parameter_count, part_parameters
from ssm.specs.ffn import FfnSpec
from ssm.specs.mixers import MixerSpec
from ssm.specs.training import RunSpec

NUMBER = 4  # bytes: float32
CHUNK = 32  # tokens from one kept state to the next, where the spec does not say
SELECTIVE_CHUNK = 16  # the same of the selective scan
SEGMENT_TABLES = 5  # tables of a convolution-like scan (S4D, DSS, H3): numbers of the state times tokens of a segment
UNKNOWN = 20  # times D: numbers a token that a mixer or ffn without a line below keeps
WORKSPACE = {"attention": 0.5, "dss": 0.2, "h3": 0.2, "mamba1": 0.4, "mamba2": 0.4}
OTHERS_WORKSPACE = 0.05
BFLOAT16 = 0.75  # of float32's bytes: scans and norms keep float32 (0.6 to 0.9 by system)
BATCH_STATES = {"zero": 0, "random_noise": 1, "fitted_noise": 2, "state_passing": 3, "tbtt": 3}  # of the whole batch
MICRO_STATES = {"zero": 1, "random_noise": 2, "fitted_noise": 1, "state_passing": 1, "tbtt": 1}  # of a micro-batch


@dataclass(frozen=True)
class Kept:
    """Numbers that one layer keeps for the backward pass: of every token, and once whatever their number."""

    a_token: float
    once: float = 0.0

    def __add__(self, other: Kept) -> Kept:
        return Kept(self.a_token + other.a_token, self.once + other.once)

    def of(self, tokens: int) -> float:
        """The numbers kept of so many tokens."""
        return self.a_token * tokens + self.once


def _chunked(spec: Any, D: int) -> float:
    """A state at every chunk's border, a token."""
    return prod(spec.state_shape(D)) / getattr(spec, "chunk", CHUNK)


def _attention(spec: Any, D: int) -> Kept:
    groups, _, _, K = spec.state_shape(D)
    return Kept(3 * spec.n_heads * K + 3 * groups * K)


def _segments(spec: Any, D: int, widths: float) -> Kept:
    states, segment = prod(spec.state_shape(D)), getattr(spec, "segment", CHUNK)
    return Kept(widths * D + 3 * states / segment, SEGMENT_TABLES * states * segment)


def _gla(spec: Any, D: int) -> Kept:
    H, K, V = spec.state_shape(D)
    return Kept(4 * H * K + 7 * H * V + spec.gate_rank + _chunked(spec, D))


def _linear_attention(spec: Any, D: int) -> Kept:
    H, K, V = spec.state_shape(D)
    return Kept(4 * H * K + 3 * H * V + _chunked(spec, D))


def _mamba1(spec: Any, D: int) -> Kept:
    E = spec.expand * D
    return Kept(5 * E + spec.rank(D) + 2 * spec.states + prod(spec.state_shape(D)) / SELECTIVE_CHUNK)


def _mamba2(spec: Any, D: int) -> Kept:
    E, groups = spec.expand * D, spec.n_groups * spec.d_state
    return Kept(6 * E + 4 * groups + 4 * spec.heads(D) + _chunked(spec, D))


def _retnet(spec: Any, D: int) -> Kept:
    H, K, V = spec.state_shape(D)
    return Kept(4 * H * K + 6 * H * V + _chunked(spec, D))


def _rwkv6(spec: Any, D: int) -> Kept:
    return Kept(22 * D + 5 * spec.shift_rank + spec.decay_rank + _chunked(spec, D))


KEPT: dict[str, Callable[[Any, int], Kept]] = {
    "attention": _attention,
    "dss": lambda spec, D: _segments(spec, D, 4),
    "gla": _gla,
    "gru": lambda spec, D: Kept(7 * D),
    "h3": lambda spec, D: _segments(spec, D, 9),
    "linear_attention": _linear_attention,
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "retnet": _retnet,
    "rglru": lambda spec, D: Kept(15 * spec.channels(D)),
    "rwkv4": lambda spec, D: Kept(19 * D),
    "rwkv6": _rwkv6,
    "s4d": lambda spec, D: _segments(spec, D, 6),
    "s5": lambda spec, D: Kept(3 * D + 4 * spec.d_state),
    "mlp": lambda spec, D: Kept(2 * spec.d_hidden),
    "gated_mlp": lambda spec, D: Kept(4 * spec.d_hidden),
    "rwkv_channel_mix": lambda spec, D: Kept(4 * D + 2 * spec.d_hidden),
}


@dataclass(frozen=True)
class Memory:
    """Bytes of one process at the peak of a training step."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int  # kept for the backward pass, with what the layer that goes backward holds besides
    logits: int
    states: int

    @property
    def total(self) -> int:
        """The peak."""
        return sum(vars(self).values())


def peak_memory(run: RunSpec, processes: int = 1, shard: bool = False, micro_batch_tokens: int | None = None) -> Memory:
    """What one process of a training run holds at its peak.

    Args:
        run: the run; its activation checkpointing and precision are heeded.
        processes: how many share every batch.
        shard: parameters, gradients and moments are spread over them (FSDP2); blocks are gathered one by one.
        micro_batch_tokens: tokens a forward pass of one process; None: as the run's spec says.
    """
    model, training, vocabulary = run.model, run.training, run.data.vocab_size
    D, mixers, recompute = model.d_model, model.mixers(), training.activation_checkpointing
    sequences = ceil(training.batch_size / processes)
    micro = min(sequences, micro_batch_tokens // training.context if micro_batch_tokens else training.micro_batch_size)
    tokens = micro * training.context
    bfloat16 = training.precision == "bfloat16"
    width = NUMBER * (BFLOAT16 if bfloat16 else 1.0)

    parameters = parameter_count(model, vocabulary)
    weights = NUMBER * parameters
    if shard:
        block = max(part_parameters(part, D) for part in (*mixers, model.ffn) if part is not None)
        embeddings = parameters - sum(part_parameters(part, D) for part in (*mixers, model.ffn) if part is not None)
        weights = weights // processes + NUMBER * (embeddings + 2 * block)

    ffn = Kept(0) if model.ffn is None else Kept(2 * D) + part_kept(model.ffn, D)
    layers = [(Kept(2 * D) + part_kept(mixer, D) + ffn).of(tokens) for mixer in mixers]
    shares = [WORKSPACE.get(mixer.kind, OTHERS_WORKSPACE) for mixer in mixers]
    backward = max(kept * share for kept, share in zip(layers, shares, strict=True))
    one, inputs = max(layers) + backward, D * tokens * len(layers)
    kept = inputs if recompute else sum(layers)
    hidden = 2 * D * tokens  # the last layer's output and what the last norm makes of it

    policy = training.initial_state.policy
    state = sum(prod(mixer.state_shape(D)) + _inputs_needed(mixer, D) for mixer in mixers)
    states = NUMBER * state * (BATCH_STATES[policy] * sequences + MICRO_STATES[policy] * micro)

    moments = 2 * NUMBER * parameters // (processes if shard else 1)
    gradients = NUMBER * parameters // (processes if shard else 1)
    cast = weights // 2 if bfloat16 else 0  # autocast keeps the weights in bfloat16 as well
    early = gradients if processes > 1 or micro < sequences else 0
    twice = NUMBER * D * vocabulary if model.tie_embeddings else 0
    logits = NUMBER * 3 * vocabulary * tokens
    turning = width * (kept + (one if recompute else backward) + hidden)  # the last layer goes backward
    phases = [
        Memory(weights, early, moments, round(width * (kept + hidden) + cast), logits, states),
        Memory(weights, early, moments, round(turning + cast), 0, states),
        Memory(weights, gradients + twice, moments, round(width * one), 0, states),
        Memory(weights, gradients, moments, 0, 0, states),
    ]
    return max(phases, key=lambda memory: memory.total)


def part_kept(spec: MixerSpec | FfnSpec, d_model: int) -> Kept:
    """What a layer's mixer or ffn keeps, its norm not counted."""
    kept = KEPT.get(spec.kind)
    return Kept(UNKNOWN * d_model) if kept is None else kept(spec, d_model)


def _inputs_needed(mixer: Any, D: int) -> int:
    """Numbers of a state beside the memory: the last inputs of a short convolution."""
    channels = getattr(mixer, "expand", 1) * D + 2 * getattr(mixer, "n_groups", 0) * getattr(mixer, "d_state", 0)
    return (getattr(mixer, "d_conv", 1) - 1) * channels

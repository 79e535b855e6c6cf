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

The peak is the largest of these moments: the backward pass begins (all activations, logits), it ends (gradients, one
layer's activations), no micro-batch is under way (gradients, and what the policy does with states of the whole batch).
Within 20% of what torch's allocator counts on a CPU (tests/plan/test_memory.py). Not in it: Python and torch themselves
(0.4 GB; on a GPU its libraries, 1 GB and more), what an allocator keeps back unused, and the states of all processes
that the first one brings together on the host for a checkpoint. `KEPT` holds for the scans' backends that keep states
at the borders of chunks, all but `reference`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from ssm.plan.parameters import parameter_count, part_parameters
from ssm.specs.ffn import FfnSpec
from ssm.specs.mixers import MixerSpec
from ssm.specs.model import ModelSpec
from ssm.specs.training import RunSpec

NUMBER = 4  # bytes: float32
CHUNK = 32  # tokens from one kept state to the next, where the spec does not say
SELECTIVE_CHUNK = 16  # the same of the selective scan
SEGMENT_TABLES = 5  # tables of a convolution-like scan (S4D, DSS, H3): numbers of the state times tokens of a segment
UNKNOWN = 20  # times D: numbers a token that a mixer or ffn without a line below keeps
WORKSPACE = {"attention": 0.5, "dss": 0.2, "h3": 0.2, "mamba1": 0.7, "mamba2": 0.4}
OTHERS_WORKSPACE = 0.05
# Of float32's bytes, where bfloat16 is asked for: scans, and the norms beside them, keep float32.
BFLOAT16 = {
    "attention": 0.5,
    "gated_mlp": 0.6,
    "dss": 1.0,
    "h3": 1.0,
    "s4d": 1.0,
    "s5": 1.0,
    "rglru": 0.9,
    "retnet": 0.9,
}
OTHERS_BFLOAT16 = 0.75
MICRO_STATES = {"zero": 1, "random_noise": 2, "fitted_noise": 2, "state_passing": 2, "tbtt": 2}  # of a micro-batch


@dataclass(frozen=True)
class Kept:
    """Numbers that one layer keeps for the backward pass: of every token, and once whatever their number.

    Attributes:
        border: of every chunk of a sequence, of so many tokens or fewer: the state at its border.
    """

    a_token: float
    once: float = 0.0
    border: float = 0.0
    chunk: int = 1

    def __add__(self, other: Kept) -> Kept:
        border, chunk = (other if other.border else self).border, max(self.chunk, other.chunk)
        return Kept(self.a_token + other.a_token, self.once + other.once, border, chunk)

    def of(self, sequences: int, context: int) -> float:
        """The numbers kept of so many sequences of `context` tokens."""
        return sequences * (self.a_token * context + self.border * ceil(context / self.chunk)) + self.once


def _chunked(spec: Any, D: int, a_token: float) -> Kept:
    return Kept(a_token, 0.0, prod(spec.state_shape(D)), getattr(spec, "chunk", CHUNK))


def _attention(spec: Any, D: int) -> Kept:
    groups, _, _, K = spec.state_shape(D)
    return Kept(3 * spec.n_heads * K + 3 * groups * K)


def _segments(spec: Any, D: int, widths: float) -> Kept:
    states, segment = prod(spec.state_shape(D)), getattr(spec, "segment", CHUNK)
    return Kept(widths * D, SEGMENT_TABLES * states * segment, 3 * states, segment)


def _gla(spec: Any, D: int) -> Kept:
    H, K, V = spec.state_shape(D)
    return _chunked(spec, D, 4 * H * K + 7 * H * V + spec.gate_rank)


def _linear_attention(spec: Any, D: int) -> Kept:
    H, K, V = spec.state_shape(D)
    return _chunked(spec, D, 4 * H * K + 3 * H * V)


def _mamba1(spec: Any, D: int) -> Kept:
    E = spec.expand * D
    return Kept(5 * E + spec.rank(D) + 2 * spec.states, 0.0, prod(spec.state_shape(D)), SELECTIVE_CHUNK)


def _mamba2(spec: Any, D: int) -> Kept:
    E, groups = spec.expand * D, spec.n_groups * spec.d_state
    return _chunked(spec, D, 6 * E + 4 * groups + 4 * spec.heads(D))


def _retnet(spec: Any, D: int) -> Kept:
    H, K, V = spec.state_shape(D)
    return _chunked(spec, D, 4 * H * K + 6 * H * V)


def _rwkv6(spec: Any, D: int) -> Kept:
    return _chunked(spec, D, 22 * D + 5 * spec.shift_rank + spec.decay_rank)


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

    parameters = parameter_count(model, vocabulary)
    weights = NUMBER * parameters
    if shard:
        block = max(part_parameters(part, D) for part in (*mixers, model.ffn) if part is not None)
        embeddings = parameters - sum(part_parameters(part, D) for part in (*mixers, model.ffn) if part is not None)
        weights = weights // processes + NUMBER * (embeddings + 2 * block)

    def kept_by(part: MixerSpec | FfnSpec | None) -> float:
        """Bytes, with the norm before it and its input."""
        if part is None:
            return 0.0
        share = BFLOAT16.get(part.kind, OTHERS_BFLOAT16) if bfloat16 else 1.0
        return NUMBER * share * (Kept(2 * D) + part_kept(part, D)).of(micro, training.context)

    layers = [kept_by(mixer) + kept_by(model.ffn) for mixer in mixers]
    shares = [WORKSPACE.get(mixer.kind, OTHERS_WORKSPACE) for mixer in mixers]
    backward = max(kept * share for kept, share in zip(layers, shares, strict=True))
    width = NUMBER * (OTHERS_BFLOAT16 if bfloat16 else 1.0)
    one, inputs = max(layers) + backward, width * D * tokens * len(layers)
    kept = inputs if recompute else sum(layers)
    hidden = width * 2 * D * tokens  # the last layer's output and what the last norm makes of it

    state = state_bytes(model, training.context)
    before, within, behind = (round(rows * state) for rows in _rows_of_states(run, sequences, micro))

    moments = 2 * NUMBER * parameters // (processes if shard else 1)
    gradients = NUMBER * parameters // (processes if shard else 1)
    cast = weights // 2 if bfloat16 else 0  # autocast keeps the weights in bfloat16 as well
    early = gradients if processes > 1 or micro < sequences else 0
    twice = NUMBER * D * vocabulary if model.tie_embeddings else 0
    logits = NUMBER * 3 * vocabulary * tokens
    turning = kept + (one if recompute else backward) + hidden  # the last layer goes backward
    phases = [
        Memory(weights, early, moments, round(kept + hidden) + cast, logits, within),
        Memory(weights, early, moments, round(turning) + cast, 0, within),
        Memory(weights, gradients + twice, moments, round(one), 0, within),
        Memory(weights, gradients, moments, 0, 0, max(before, behind)),
    ]
    return max(phases, key=lambda memory: memory.total)


def _rows_of_states(run: RunSpec, sequences: int, micro: int) -> tuple[float, float, float]:
    """Of how many sequences there are states: before the micro-batches, within one of them, and behind them."""
    spec = run.training.initial_state
    own = MICRO_STATES[spec.policy] * micro
    if spec.policy == "zero":
        return 0, own, 0
    if spec.policy in ("random_noise", "fitted_noise"):
        # Zeros, noise, and both put together; fitted noise still has what was drawn for a layer of the global batch.
        drawn = run.training.batch_size / run.model.n_layers if spec.policy == "fitted_noise" else 0.0
        return 3 * sequences + drawn, sequences + own, sequences
    zeroed = int(spec.p_zero > 0)  # of some rows: a copy
    gathered = int(micro < sequences)  # from micro-batches, one by one, and then all of them
    return (1 + zeroed) * sequences, (1 + zeroed + gathered) * sequences + own, (1 + 2 * gathered) * sequences


def state_bytes(model: ModelSpec, context: int) -> int:
    """The state of one sequence behind `context` tokens: of attention the keys and values of all, or of its window."""
    D, numbers, ffn = model.d_model, 0, model.ffn
    for mixer in model.mixers():
        tokens = (getattr(mixer, "window", None) or context) if mixer.kind == "attention" else 1
        numbers += prod(mixer.state_shape(D)) * tokens + _beside(mixer, D)
        numbers += D if ffn is not None and ffn.kind == "rwkv_channel_mix" else 0  # its last input
    return NUMBER * numbers


def _beside(mixer: Any, D: int) -> int:
    """Numbers of a state beside the memory: the last inputs of a short convolution or shift, sums of keys."""
    if mixer.kind == "h3":
        return (mixer.d_shift - 1) * D
    if mixer.kind == "linear_attention":
        H, K, _ = mixer.state_shape(D)
        return H * K
    if mixer.kind in ("rwkv4", "rwkv6"):
        return D
    channels = mixer.channels(D) if mixer.kind == "rglru" else getattr(mixer, "expand", 1) * D
    channels += 2 * getattr(mixer, "n_groups", 0) * getattr(mixer, "d_state", 0)
    return (getattr(mixer, "d_conv", 1) - 1) * channels


def policy_bytes(run: RunSpec) -> int:
    """What a checkpoint holds for the initial-state policy: States Passed are those of the whole batch, whatever the
    number of processes; noise has one row of zeros for the shapes."""
    held = {"zero": 0, "state_passing": run.training.batch_size, "tbtt": run.training.batch_size}
    rows = held.get(run.training.initial_state.policy, 1)
    return state_bytes(run.model, run.training.context) * rows if rows else 0


def part_kept(spec: MixerSpec | FfnSpec, d_model: int) -> Kept:
    """What a layer's mixer or ffn keeps, its norm not counted."""
    kept = KEPT.get(spec.kind)
    return Kept(UNKNOWN * d_model) if kept is None else kept(spec, d_model)

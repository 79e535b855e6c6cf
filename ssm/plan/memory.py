"""The memory that training takes at its peak, in bytes, from the spec alone: arithmetic, nothing is built or measured.

P parameters take 4 P bytes of weights, 8 P of AdamW's moments and 4 P of gradients. Gradients come into being in the
backward pass and go behind the step; with gradient accumulation they are there from the second micro-batch on, with
several processes all the time. All else grows with the tokens of one process's micro-batch:

- every layer keeps numbers for the backward pass: its input, what its norm makes of it, and what its mixer and its ffn
  need (`kept` of their specs). With activation checkpointing it keeps its input, and one layer at a time computes the
  rest again;
- a layer that goes backward holds gradients besides, a share of what it keeps;
- the logits are there three times when the loss goes backward: log-probabilities and two gradients; a tied embedding
  has two gradients until they are added up;
- the initial-state policy may hold states of the whole batch: those that it starts from, those that it ended in (`held`
  of its spec).

The peak is the largest of these moments: the backward pass begins (all activations, logits), it ends (gradients, one
layer's activations), no micro-batch is under way (gradients, and what the policy does with states of the whole batch).
Within 20% of what torch's allocator counts on a CPU (tests/plan/test_memory.py). Not in it: Python and torch themselves
(0.4 GB; on a GPU its libraries, 1 GB and more), what an allocator keeps back unused, and the states of all processes
that the first one brings together on the host for a checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from ssm.plan.parameters import parameter_count
from ssm.specs.initial_states.base import Sequences
from ssm.specs.model import ModelSpec
from ssm.specs.sublayer import SublayerSpec
from ssm.specs.training import RunSpec

NUMBER = 4  # bytes: float32
BFLOAT16 = 0.75  # of float32's bytes, of what lies between layers, where bfloat16 is asked for


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
    model, training, vocabulary = run.own_model, run.training, run.data.vocab_size
    D, recompute = model.d_model, training.activation_checkpointing
    sequences = ceil(training.batch_size / processes)
    micro = min(sequences, micro_batch_tokens // training.context if micro_batch_tokens else training.micro_batch_size)
    tokens = micro * training.context
    bfloat16 = training.precision == "bfloat16"

    parameters = parameter_count(model, vocabulary, run.data.channels)
    weights = NUMBER * parameters
    if shard:
        halves = [part.parameters(D) for part in model.sublayers()]
        block, embeddings = max(halves), parameters - sum(halves)
        weights = weights // processes + NUMBER * (embeddings + 2 * block)

    layers, backward = _activations(model, micro, training.context, training.initial_state.from_zero, bfloat16)
    width = NUMBER * (BFLOAT16 if bfloat16 else 1.0)
    one, inputs = max(layers) + backward, width * D * tokens * len(layers)
    kept = inputs if recompute else sum(layers)
    hidden = width * 2 * D * tokens  # the last layer's output and what the last norm makes of it

    passed = passed_bytes(model, training.context)
    caches = state_bytes(model, training.context) - passed  # of the micro-batch that is under way
    held = training.initial_state.held(Sequences(training.batch_size, sequences, micro, model.n_layers))
    before, within, behind = (round(rows * passed) for rows in (held.before, held.within, held.behind))
    within += micro * caches

    moments = 2 * NUMBER * parameters // (processes if shard else 1)
    gradients = NUMBER * parameters // (processes if shard else 1)
    cast = weights // 2 if bfloat16 else 0  # autocast keeps the weights in bfloat16 as well
    early = gradients if processes > 1 or micro < sequences else 0
    twice = NUMBER * D * vocabulary if model.tie_embeddings and run.data.channels is None else 0
    logits = NUMBER * 3 * vocabulary * tokens
    turning = kept + (one if recompute else backward) + hidden  # the last layer goes backward
    phases = [
        Memory(weights, early, moments, round(kept + hidden) + cast, logits, within),
        Memory(weights, early, moments, round(turning) + cast, 0, within),
        Memory(weights, gradients + twice, moments, round(one), 0, within),
        Memory(weights, gradients, moments, 0, 0, max(before, behind)),
    ]
    return max(phases, key=lambda memory: memory.total)


def _activations(
    model: ModelSpec, sequences: int, length: int, from_zero: bool, bfloat16: bool
) -> tuple[list[float], float]:
    """Bytes each layer keeps for the backward pass, and what the worst one holds besides when it goes backward."""
    D = model.d_model

    def kept_by(part: SublayerSpec | None) -> float:
        """With the norm before it and its input."""
        if part is None:
            return 0.0
        kept = part.activation_memory(D)
        share = kept.bfloat16 if bfloat16 else 1.0
        return NUMBER * share * replace(kept, a_token=2 * D + kept.a_token).of(sequences, length, from_zero)

    mixers = model.mixers()
    layers = [kept_by(mixer) + kept_by(ffn) for mixer, ffn in zip(mixers, model.ffns(), strict=True)]
    shares = [mixer.activation_memory(D).workspace for mixer in mixers]
    return layers, max(kept * share for kept, share in zip(layers, shares, strict=True))


def graph_bytes(model: ModelSpec, sequences: int, length: int) -> int:
    """What a model in float32 holds at the peak of a backward pass that leaves its weights alone."""
    layers, backward = _activations(model, sequences, length, from_zero=True, bfloat16=False)
    hidden = NUMBER * 4 * model.d_model * sequences * length  # the last layer's output, its norm, and their gradients
    return round(sum(layers) + backward + hidden)


def state_bytes(model: ModelSpec, context: int) -> int:
    """The state of one sequence behind `context` tokens: of attention the keys and values of all, or of its window."""
    return NUMBER * sum(part.state_numbers(model.d_model, context) for part in model.sublayers())


def passed_bytes(model: ModelSpec, context: int) -> int:
    """What of it one sequence hands on to another: not the caches of attention without a window."""
    mixers = model.mixers()
    caches = sum(mixers[layer].state_numbers(model.d_model, context) for layer in model.endless)
    return state_bytes(model, context) - NUMBER * caches


def policy_bytes(run: RunSpec) -> int:
    """What a checkpoint holds for the initial-state policy, whatever the number of processes."""
    training = run.training
    return round(training.initial_state.remembered(training.batch_size) * passed_bytes(run.own_model, training.context))

"""The peak memory of training in bytes, computed from the spec. Nothing is built or measured.

P parameters take 4 P bytes of weights, 8 P of AdamW's moments and 4 P of gradients. Gradients exist from the backward
pass to the end of the step. With gradient accumulation they also exist in later forward passes, and with several
processes always. The rest grows with the tokens in a micro-batch of one process:

- Each layer keeps numbers for the backward pass: its input, the output of its norm, and what its mixer and its
  feed-forward layer need (`activation_memory` of their specs). With activation checkpointing it keeps only its input,
  and one layer at a time computes the rest again.
- In its own backward pass, a layer also holds gradients. Their size is a share of what it keeps.
- The backward pass of the loss needs three times the logits: log-probabilities and two gradients. A tied embedding has
  two gradients until they are added.
- The initial-state policy can hold states of the whole batch: initial states and final states (`held` of its spec).

The peak is the largest of four moments. At the beginning of the backward pass there are all activations and the logits.
Then the last layer goes backward. At its end there are the gradients and the activations of one layer. Between
micro-batches there are the gradients and the policy's states.

The result is within 20% of what torch's allocator counts on a CPU (tests/plan/test_memory.py). It does not include
Python and torch (0.4 GB, or more than 1 GB with the libraries of a GPU) and the memory that an allocator holds unused.
It does not include the states that the first process collects on the host for a checkpoint either.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from ssm.plan.parameters import parameter_count
from ssm.specs.initial_states.base import Sequences
from ssm.specs.model import ModelSpec
from ssm.specs.sublayer import SublayerSpec
from ssm.specs.training import RunSpec

FLOAT32_BYTES = 4  # of a number
BFLOAT16_SHARE = 0.75  # bytes between layers with precision bfloat16, as a share of those with float32


@dataclass(frozen=True)
class Memory:
    """Bytes of one process at one moment of a training step."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int  # kept for the backward pass, and the gradients inside the layer that goes backward
    logits: int
    states: int

    @property
    def total(self) -> int:
        return sum(vars(self).values())


def peak_memory(run: RunSpec, processes: int = 1) -> Memory:
    """The memory of one process of a training run at its peak.

    Args:
        processes: the number of processes that share every batch.
    """
    model, training, vocabulary = run.own_model, run.training, run.data.vocab_size
    D, recompute = model.d_model, training.activation_checkpointing
    sequences = ceil(training.batch_size / processes)
    micro = min(sequences, training.micro_batch_size)
    tokens = micro * training.context
    bfloat16 = training.precision == "bfloat16"

    weights = gradients = FLOAT32_BYTES * parameter_count(model, vocabulary, run.data.channels)
    moments = 2 * weights
    layers, backward = _activations(model, micro, training.context, training.initial_state.from_zero, bfloat16)
    width = FLOAT32_BYTES * (BFLOAT16_SHARE if bfloat16 else 1.0)
    largest, inputs = max(layers) + backward, width * D * tokens * len(layers)
    kept = inputs if recompute else sum(layers)
    hidden = width * 2 * D * tokens  # the last layer's output and what the last norm makes of it

    passed = passed_bytes(model, training.context)
    caches = state_bytes(model, training.context) - passed  # of each sequence of the micro-batch
    held = training.initial_state.held(Sequences(training.batch_size, sequences, micro, model.n_layers))
    before, within, behind = (round(rows * passed) for rows in (held.before, held.within, held.behind))
    within += micro * caches

    cast = weights // 2 if bfloat16 else 0  # autocast keeps the weights in bfloat16 as well
    early = gradients if processes > 1 or micro < sequences else 0
    tied = FLOAT32_BYTES * D * vocabulary if model.tie_embeddings and run.data.channels is None else 0
    logits = FLOAT32_BYTES * 3 * vocabulary * tokens
    last_layer = kept + (largest if recompute else backward) + hidden
    phases = [
        Memory(weights, early, moments, round(kept + hidden) + cast, logits, within),
        Memory(weights, early, moments, round(last_layer) + cast, 0, within),
        Memory(weights, gradients + tied, moments, round(largest), 0, within),
        Memory(weights, gradients, moments, 0, 0, max(before, behind)),
    ]
    return max(phases, key=lambda memory: memory.total)


def _activations(
    model: ModelSpec, sequences: int, length: int, from_zero: bool, bfloat16: bool
) -> tuple[list[float], float]:
    """Bytes that each layer keeps for the backward pass, and the most that a layer adds in its backward pass."""
    D = model.d_model

    def kept_by(part: SublayerSpec | None) -> float:
        """Includes its input and the norm before it."""
        if part is None:
            return 0.0
        kept = part.activation_memory(D)
        share = kept.bfloat16 if bfloat16 else 1.0
        return FLOAT32_BYTES * share * replace(kept, a_token=2 * D + kept.a_token).of(sequences, length, from_zero)

    mixers = model.mixers()
    layers = [kept_by(mixer) + kept_by(ffn) for mixer, ffn in zip(mixers, model.ffns(), strict=True)]
    shares = [mixer.activation_memory(D).workspace for mixer in mixers]
    return layers, max(kept * share for kept, share in zip(layers, shares, strict=True))


def graph_bytes(model: ModelSpec, sequences: int, length: int) -> int:
    """Bytes of a float32 model at the peak of a backward pass without gradients of its weights."""
    layers, backward = _activations(model, sequences, length, from_zero=True, bfloat16=False)
    # The last layer's output, its norm, and their gradients.
    hidden = FLOAT32_BYTES * 4 * model.d_model * sequences * length
    return round(sum(layers) + backward + hidden)


def state_bytes(model: ModelSpec, context: int) -> int:
    """Bytes of one sequence's state after `context` tokens. Attention keeps the keys and values of its window."""
    return FLOAT32_BYTES * sum(part.state_numbers(model.d_model, context) for part in model.sublayers())


def passed_bytes(model: ModelSpec, context: int) -> int:
    """Bytes of the state that is passed to another sequence: without the caches of attention that has no window."""
    mixers = model.mixers()
    caches = sum(mixers[layer].state_numbers(model.d_model, context) for layer in model.endless)
    return state_bytes(model, context) - FLOAT32_BYTES * caches


def policy_bytes(run: RunSpec) -> int:
    """Bytes of a checkpoint for the initial-state policy. They do not depend on the number of processes."""
    training = run.training
    return round(training.initial_state.remembered(training.batch_size) * passed_bytes(run.own_model, training.context))

"""Parameters and operations of a model, computed from its spec without building it.

The number of parameters is exact: a test builds every named model and compares. The spec of each mixer and feed-forward
layer counts its own part.
"""

from __future__ import annotations

from ssm.specs.model import ModelSpec
from ssm.specs.sublayer import linear


def parameter_count(model: ModelSpec, vocab_size: int, channels: int | None = None) -> int:
    """Parameters of a model. Tied embeddings count once.

    Args:
        vocab_size: tokens; with `channels` the classes of the head.
        channels: numbers of each input value; None: the inputs are tokens.
    """
    D = model.d_model
    norm = 2 * D if model.norm == "layer" else D
    layers = sum(part.parameters(D) + norm for part in model.sublayers())
    rows = _embedding(model, vocab_size)  # the head has as many
    if channels is None:
        embeddings = (1 if model.tie_embeddings else 2) * rows
    else:
        embeddings = linear(channels, D, bias=True) + D + rows  # D: the class token
    return layers + embeddings + norm * (1 + model.embedding_norm)


def _embedding(model: ModelSpec, vocab_size: int) -> int:
    return model.embedding_rows(vocab_size) * model.d_model


def operations_per_token(model: ModelSpec, vocab_size: int, context: int, channels: int | None = None) -> float:
    """Floating-point operations for each token of a forward pass over `context` tokens.

    Two operations for each parameter that is used, and the operations on the mixers' states. An untied embedding is
    only looked up, and experts that are not chosen are not used.
    """
    looked_up = 0 if model.tie_embeddings or channels is not None else _embedding(model, vocab_size)
    idle = sum(part.idle(model.d_model) for part in model.sublayers())
    operations = 2.0 * (parameter_count(model, vocab_size, channels) - looked_up - idle)
    for mixer in model.mixers():
        operations += mixer.state_operations(model.d_model, context)
    return operations


def operations_per_pass(model: ModelSpec, context: int) -> float:
    """Operations of a forward pass after `context` tokens of a sequence, besides those for each token."""
    return sum(mixer.pass_operations(model.d_model, context) for mixer in model.mixers())

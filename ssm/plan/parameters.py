"""Parameters and operations of a model, from its spec alone: what the models count themselves, without building them.

The counts are exact: a test builds every named model and compares. Mixers and ffns count their own.
"""

from __future__ import annotations

from ssm.specs.model import ModelSpec
from ssm.specs.sublayer import linear


def parameter_count(model: ModelSpec, vocab_size: int, channels: int | None = None) -> int:
    """Parameters of a model over `vocab_size` tokens, tied embeddings once.

    With `channels` its inputs are values of so many numbers, and `vocab_size` is the classes of its head.
    """
    D = model.d_model
    norm = 2 * D if model.norm == "layer" else D
    layers = sum(part.parameters(D) + norm for part in model.sublayers())
    rows = _embedding(model, vocab_size)  # of the head too
    if channels is None:
        embeddings = (1 if model.tie_embeddings else 2) * rows
    else:
        embeddings = linear(channels, D, bias=True) + D + rows  # D: the class token
    return layers + embeddings + norm * (1 + model.embedding_norm)


def _embedding(model: ModelSpec, vocab_size: int) -> int:
    return model.embedding_rows(vocab_size) * model.d_model


def operations_per_token(model: ModelSpec, vocab_size: int, context: int, channels: int | None = None) -> float:
    """Floating-point operations of a forward pass, a token, in a sequence of `context` tokens.

    Two a parameter (but for an untied embedding, which is looked up, and for experts that are not chosen), and those of
    every mixer's state.
    """
    looked_up = 0 if model.tie_embeddings or channels is not None else _embedding(model, vocab_size)
    idle = sum(part.idle(model.d_model) for part in model.sublayers())
    operations = 2.0 * (parameter_count(model, vocab_size, channels) - looked_up - idle)
    for mixer in model.mixers():
        operations += mixer.state_operations(model.d_model, context)
    return operations

"""Numbers from the logits of tokens, and writing. To save memory, logits are computed for a few tokens at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ssm.base.errors import CheckpointError
from ssm.models.foreign import ForeignModel
from ssm.models.readable import ModelState, Readable

LOGITS = 2**27  # maximum number of logits in memory: 0.5 GiB in float32

Value = Callable[[Tensor, Tensor], Tensor]  # logits (tokens, V), targets (tokens,) -> values (tokens, ...)


@torch.inference_mode()
def token_values(model: Readable, hidden: Tensor, targets: Tensor, value: Value) -> Tensor:
    """The value of every target: hidden (..., *), targets (...) -> (..., the further axes of a value)."""
    at_once = max(1, LOGITS // model.vocab_size)
    pairs = zip(hidden.flatten(0, -2).split(at_once), targets.flatten().split(at_once), strict=True)
    return torch.cat([value(model.logits(part), wanted) for part, wanted in pairs]).unflatten(0, targets.shape)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in nats, at least in float32: (tokens, V), (tokens,) -> (tokens,)."""
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))  # (tokens, V)
    return F.cross_entropy(precise, targets, reduction="none")


@torch.inference_mode()
def likeliest(model: Readable, hidden: Tensor) -> Tensor:
    """The most probable next token, (B, S) int64."""
    parts = hidden.flatten(0, 1).split(max(1, LOGITS // model.vocab_size))
    return torch.cat([model.logits(part).argmax(-1) for part in parts]).view(hidden.shape[:2])


def read_written(model: Readable, tokens: Tensor, state: Any) -> tuple[Tensor, ModelState]:
    """Like `Readable.hidden`, for tokens (B, S) after a text: what the model writes, or candidates for it.

    Raises:
        CheckpointError: a model of transformers computes something else for a single token than for several.
    """
    if tokens.shape[1] == 1 and isinstance(model, ForeignModel) and model.unwritable is not None:
        raise CheckpointError(model.unwritable)
    return model.hidden(tokens, state)

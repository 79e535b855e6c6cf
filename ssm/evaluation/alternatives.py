"""The log-likelihood of answers behind a prompt: which of several a model prefers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ssm.data.batches import NOT_ASKED
from ssm.evaluation.stream import cross_entropy, token_values
from ssm.models.readable import Carried, Readable


@torch.inference_mode()
def log_likelihoods(model: Readable, hidden: Tensor, state: Carried, candidates: np.ndarray) -> Tensor:
    """log p(candidate | prompt) in nats, the sum over its tokens: (a, C) float64 on the CPU.

    Args:
        hidden: (a, 1, *) of the prompts' last tokens.
        state: behind these; it is left as it is.
        candidates: (a, C, M) tokens, NOT_ASKED behind a shorter one's end.
    """
    found = []
    for one in torch.from_numpy(candidates).to(hidden.device).unbind(1):  # (a, M)
        asked = one != NOT_ASKED
        tokens = one.masked_fill(~asked, 0)  # what is behind an end is read, and changes nothing before it
        behind = hidden
        if tokens.shape[1] > 1:
            further, _ = model.hidden(tokens[:, :-1], state.copy())  # (a, M - 1, *)
            behind = torch.cat([hidden, further], 1)  # (a, M, *)
        losses = token_values(model, behind, tokens, cross_entropy)  # (a, M)
        found.append(-losses.double().masked_fill(~asked, 0.0).sum(1))
    return torch.stack(found, 1).cpu()

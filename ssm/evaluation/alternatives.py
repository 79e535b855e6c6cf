"""The log-likelihoods of several answers after a prompt."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ssm.data.batches import IGNORE_INDEX
from ssm.models.logits import cross_entropy, read_written, token_values
from ssm.models.readable import ModelState, Readable


@torch.inference_mode()
def log_likelihoods(model: Readable, hidden: Tensor, state: ModelState, candidates: np.ndarray) -> Tensor:
    """log p(candidate | prompt) in nats, summed over the tokens: (a, C) float64 on the CPU.

    Args:
        hidden: (a, 1, *) of the last token of each prompt.
        state: the state after the prompts, which is not changed.
        candidates: (a, C, M) tokens, IGNORE_INDEX after the end of a shorter candidate.
    """
    likelihoods = []
    for candidate in torch.from_numpy(candidates).to(hidden.device).unbind(1):  # (a, M)
        inside = candidate != IGNORE_INDEX
        tokens = candidate.masked_fill(~inside, 0)  # tokens after the end do not change the losses before it
        outputs = hidden
        if tokens.shape[1] > 1:
            further, _ = read_written(model, tokens[:, :-1], state.copy())  # (a, M - 1, *)
            outputs = torch.cat([hidden, further], 1)  # (a, M, *)
        losses = token_values(model, outputs, tokens, cross_entropy)  # (a, M)
        likelihoods.append(-losses.double().masked_fill(~inside, 0.0).sum(1))
    return torch.stack(likelihoods, 1).cpu()

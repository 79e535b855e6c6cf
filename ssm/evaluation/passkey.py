"""Passkey retrieval (lg Section 5.2): a key hidden in a long text, asked for at its end, decoded greedily.

Greedy decoding of a key and reading the key itself make the same activations up to the first token that differs, so
that one pass over prompt and key tells whether it would have been decoded.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import torch

from ssm.base.tables import PASSKEY
from ssm.evaluation.prompts import PasskeyPrompts, digits_of, passkey_pieces
from ssm.evaluation.stream import segments
from ssm.evaluation.subject import Subject
from ssm.specs.measurements import Passkey


def passkey(spec: Passkey, subject: Subject) -> pl.DataFrame:
    """Whether each key is found, by length, depth and trial, in the schema PASSKEY.

    Raises:
        DataError: a length is too short for a prompt, or the tokenizer has no tokens for digits.
    """
    tokenizer = subject.store.tokenizer()
    pieces = passkey_pieces(spec, tokenizer, subject.seed)
    rows, longest = len(pieces.keys), pieces.longest_key
    tokens = torch.tensor([len(key) for key in pieces.keys])  # (rows,)
    prompts = [PasskeyPrompts(pieces, length) for length in spec.lengths]
    frames = []
    with subject.progress(rows, sum(spec.lengths) - len(spec.lengths)) as progress:
        for prompt in prompts:
            found = torch.zeros(rows, longest, dtype=torch.int64)  # whether a token of the key is the most probable
            for segment in segments(subject, prompt, prompt.length - 1):
                progress.advance(segment.targets.numel())
                first = max(segment.start, prompt.prompt - 1)  # the last token of the prompt predicts the key's first
                if first >= segment.stop:
                    continue
                with torch.inference_mode():
                    likeliest = subject.model.logits(segment.hidden[:, first - segment.start :]).argmax(-1)
                place = first - prompt.prompt + 1
                found[segment.rows, place : place + likeliest.shape[1]] = (
                    (likeliest == segment.targets[:, first - segment.start :]).long().cpu()
                )
            found = subject.team.total(found)  # zero but where a process read
            found *= torch.arange(longest) < tokens[:, None]
            right = found.cumprod(1).sum(1)  # (rows,) tokens before the first that is wrong
            frames.append(
                pl.DataFrame(
                    {
                        "length": np.full(rows, prompt.length),
                        "depth": pieces.depths,
                        "trial": np.arange(rows) % spec.trials,
                        "correct": (right == tokens).numpy(),
                        "digits_right": [
                            len(digits_of(tokenizer, key[:count]))
                            for key, count in zip(pieces.keys, right.tolist(), strict=True)
                        ],
                    },
                    schema=PASSKEY.columns,
                )
            )
    return pl.concat(frames)

"""Passkey retrieval (lg Section 5.2): greedy decoding of a key that is hidden in a long text.

Greedy decoding and reading the right key have the same activations up to the first wrong token. So one pass over prompt
and key shows whether greedy decoding would write the key.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import torch

from ssm.base.seeds import derived_seed, numpy_generator
from ssm.data.tasks.passkey import TEXT, PasskeyPieces, PasskeyPrompts, Wording, digits_of
from ssm.data.tokenizers import Tokenizer
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.registry import MEASURES
from ssm.evaluation.stream import segments
from ssm.models.logits import likeliest
from ssm.specs.measurements.passkey import Passkey


def passkey_pieces(spec: Passkey, tokenizer: Tokenizer, seed: int) -> PasskeyPieces:
    """The pieces of the prompts, depth by depth, chosen by the seeds of the measurement and of the run.

    Each depth and trial has a key and a place where its text ends, which are the same at every length.

    Raises:
        DataError: the tokenizer has no tokens for digits.
    """
    shape = (spec.trials, len(spec.depths))  # more trials begin with the same trials
    generators = (numpy_generator(derived_seed(spec.seed, "passkey", seed), name) for name in ("keys", "texts"))
    numbers, last = (
        generator.integers(low, high, size=shape).T.flatten()
        for generator, low, high in zip(
            generators, (10 ** (spec.digits - 1), 0), (10**spec.digits, len(TEXT)), strict=True
        )
    )
    wording = Wording(tokenizer, spec.instruction)
    keys = [wording.key(number) for number in numbers.tolist()]
    return PasskeyPieces(
        wording=wording,
        needles=[wording.needle(number) for number in numbers.tolist()],
        keys=keys,
        room=max(map(len, keys)),
        last=last,
        depths=np.repeat(spec.depths, spec.trials),
    )


@MEASURES.function
def passkey(spec: Passkey, ctx: EvaluationContext) -> pl.DataFrame:
    """Whether the model repeats each key, by length, depth and trial, in the schema Passkey.table.

    Raises:
        DataError: a length is too short for a prompt, or the tokenizer has no tokens for digits.
    """
    tokenizer = ctx.store.tokenizer()
    pieces = passkey_pieces(spec, tokenizer, ctx.seed)
    rows, longest = len(pieces.keys), pieces.room
    tokens = torch.tensor([len(key) for key in pieces.keys])  # (rows,)
    by_length = [PasskeyPrompts(pieces, length) for length in spec.lengths]
    frames = []
    with ctx.progress(rows, sum(spec.lengths) - len(spec.lengths)) as progress:
        for prompts in by_length:
            hits = torch.zeros(rows, longest, dtype=torch.int64)  # 1 if a token of the key is the most probable
            for segment in segments(ctx, prompts, prompts.length - 1):
                progress.advance(segment.targets.numel())
                # The last token of the prompt predicts the first token of the key.
                first = max(segment.start, prompts.prompt_tokens - 1)
                if first >= segment.stop:
                    continue
                predicted = likeliest(ctx.model, segment.hidden[:, first - segment.start :])
                place = first - prompts.prompt_tokens + 1
                hits[segment.rows, place : place + predicted.shape[1]] = (
                    (predicted == segment.targets[:, first - segment.start :]).long().cpu()
                )
            hits = ctx.total(hits)
            hits *= torch.arange(longest) < tokens[:, None]
            right = hits.cumprod(1).sum(1)  # (rows,) tokens before the first wrong token
            frames.append(
                pl.DataFrame(
                    {
                        "length": np.full(rows, prompts.length),
                        "depth": pieces.depths,
                        "trial": np.arange(rows) % spec.trials,
                        "correct": (right == tokens).numpy(),
                        "digits_right": [
                            len(digits_of(tokenizer, key[:count]))
                            for key, count in zip(pieces.keys, right.tolist(), strict=True)
                        ],
                    },
                    schema=Passkey.table.columns,
                )
            )
    return pl.concat(frames)

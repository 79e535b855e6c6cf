"""Passkey retrieval (lg Section 5.2): a key hidden in a long text, asked for at its end, decoded greedily.

Greedy decoding of a key and reading the key itself make the same activations up to the first token that differs, so
that one pass over prompt and key tells whether it would have been decoded.
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
from ssm.evaluation.stream import likeliest, segments
from ssm.specs.measurements.passkey import Passkey


def passkey_pieces(spec: Passkey, tokenizer: Tokenizer, seed: int) -> PasskeyPieces:
    """The pieces of a measurement's prompts, depth by depth: a function of its seed and the run's.

    A key, and where its text ends, belong to a depth and a trial: they are the same at every length.

    Raises:
        DataError: the tokenizer has no tokens for digits.
    """
    shape = (spec.trials, len(spec.depths))  # the first trials of more are those of fewer
    generators = (numpy_generator(derived_seed(spec.seed, "passkey", seed), name) for name in ("keys", "texts"))
    numbers, last = (
        generator.integers(low, high, size=shape).T.flatten()
        for generator, low, high in zip(
            generators, (10 ** (spec.digits - 1), 0), (10**spec.digits, len(TEXT)), strict=True
        )
    )
    wording = Wording(tokenizer)
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
    """Whether each key is found, by length, depth and trial, in the schema Passkey.table.

    Raises:
        DataError: a length is too short for a prompt, or the tokenizer has no tokens for digits.
    """
    tokenizer = ctx.store.tokenizer()
    pieces = passkey_pieces(spec, tokenizer, ctx.seed)
    rows, longest = len(pieces.keys), pieces.room
    tokens = torch.tensor([len(key) for key in pieces.keys])  # (rows,)
    prompts = [PasskeyPrompts(pieces, length) for length in spec.lengths]
    frames = []
    with ctx.progress(rows, sum(spec.lengths) - len(spec.lengths)) as progress:
        for prompt in prompts:
            found = torch.zeros(rows, longest, dtype=torch.int64)  # whether a token of the key is the most probable
            for segment in segments(ctx, prompt, prompt.length - 1):
                progress.advance(segment.targets.numel())
                first = max(segment.start, prompt.prompt - 1)  # the last token of the prompt predicts the key's first
                if first >= segment.stop:
                    continue
                said = likeliest(ctx.model, segment.hidden[:, first - segment.start :])
                place = first - prompt.prompt + 1
                found[segment.rows, place : place + said.shape[1]] = (
                    (said == segment.targets[:, first - segment.start :]).long().cpu()
                )
            found = ctx.group.total(found)  # zero but where a process read
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
                    schema=Passkey.table.columns,
                )
            )
    return pl.concat(frames)

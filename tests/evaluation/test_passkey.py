"""Passkey retrieval with models that always or never find a key, and compared with greedy decoding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from data.tasks.test_prompts import TOKENIZERS
from evaluation.rigged import Rigged, copying
from torch import Tensor

from ssm.base.errors import DataError
from ssm.data.store import TokenStore
from ssm.data.tasks.passkey import PasskeyPrompts
from ssm.data.tokenizers import ByteTokenizer
from ssm.evaluation import passkey as module
from ssm.evaluation import stream
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.passkey import passkey, passkey_pieces
from ssm.specs.measurements.passkey import Passkey

SPEC = Passkey(lengths=(300, 520), depths=(0.0, 0.5, 1.0), trials=2)
SUFFIX = 12  # bytes before the key, which occur only in the needle and in the question


def rigged(ctx: EvaluationContext, model: Rigged) -> pl.DataFrame:
    return passkey(SPEC, replace(ctx, model=model))


def test_a_model_that_copies_finds_the_key(ctx: EvaluationContext) -> None:
    table = rigged(ctx, Rigged(copying(SUFFIX)))
    assert table["correct"].all()
    assert (table["digits_right"] == 5).all()
    assert dict(table.schema) == Passkey.table.columns
    rows = [(length, depth, trial) for length in SPEC.lengths for depth in SPEC.depths for trial in range(2)]
    assert table.select("length", "depth", "trial").rows() == rows


def test_a_prompt_without_the_instruction_can_be_short(ctx: EvaluationContext) -> None:
    """The instruction takes 148 bytes."""
    spec = SPEC.model_copy(update={"lengths": (170,), "instruction": False})
    table = passkey(spec, replace(ctx, model=Rigged(copying(SUFFIX))))
    assert table["correct"].all()
    with pytest.raises(DataError, match="length 170: too short for a passkey"):
        passkey(spec.model_copy(update={"instruction": True}), ctx)


@pytest.mark.parametrize("token", b" 1x")
def test_a_constant_prediction_finds_no_key(token: int, ctx: EvaluationContext) -> None:
    table = rigged(ctx, Rigged(lambda read: torch.full_like(read, token)))
    assert not table["correct"].any()
    assert (table["digits_right"] == 0).all()


def test_a_model_with_a_short_memory_finds_near_keys(ctx: EvaluationContext) -> None:
    """Its window contains a needle in the middle of 300 tokens, but not of 520."""
    table = rigged(ctx, Rigged(copying(SUFFIX, window=180)))
    found = table.group_by("length", "depth", maintain_order=True).agg(pl.col("correct").all())
    assert found["correct"].to_list() == [True, True, True, False, False, True]
    assert table["correct"].to_list() == (table["digits_right"] == 5).to_list()


@pytest.mark.parametrize("wrong", range(5))
def test_digits_count_up_to_the_first_wrong_digit(wrong: int, ctx: EvaluationContext) -> None:
    def once_wrong(read: Tensor) -> Tensor:
        predicted = copying(SUFFIX)(read)
        if read.shape[1] >= 300 - 5 + wrong:  # the digits of a prompt of 300 tokens are its last five
            predicted[:, 300 - 6 + wrong] = ord("x")
        return predicted

    table = rigged(ctx, Rigged(once_wrong)).filter(pl.col("length") == 300)
    assert (table["digits_right"] == wrong).all()
    assert not table["correct"].any()


def test_keys_with_different_numbers_of_tokens(ctx: EvaluationContext, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = TOKENIZERS["bpe"]
    monkeypatch.setattr(TokenStore, "tokenizer", lambda store: tokenizer)
    spec = Passkey(lengths=(200,), depths=(0.5,), trials=12)
    pieces = passkey_pieces(spec, tokenizer, ctx.seed)
    first = PasskeyPrompts(pieces, 200).prompt_tokens - 1
    assert len({len(key) for key in pieces.keys}) > 1

    def and_then_zero(read: Tensor) -> Tensor:
        predicted = copying(4)(read)
        for row, key in zip(predicted, pieces.keys, strict=False):
            row[first + len(key) :] = 0  # tokens after a shorter key
        return predicted

    def wrong_from_the_third(read: Tensor) -> Tensor:
        predicted = copying(4)(read)
        predicted[:, first + 2 :] = 0
        return predicted

    whole, half = (
        passkey(spec, replace(ctx, model=Rigged(rule, 800))) for rule in (and_then_zero, wrong_from_the_third)
    )
    assert whole["correct"].all()
    assert not half["correct"].any()
    assert half["digits_right"].to_list() == [len(tokenizer.decode(key[:2]).strip()) for key in pieces.keys]
    assert half["digits_right"].n_unique() > 1


def test_the_table_agrees_with_greedy_decoding(ctx: EvaluationContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys are what the model decodes, with one wrong token at another place in each row."""
    pieces = passkey_pieces(SPEC, ByteTokenizer(), ctx.seed)
    rows, longest = len(pieces.keys), pieces.room
    prompts = PasskeyPrompts(pieces, 300)
    inputs, _ = prompts.read(np.arange(rows), 0, prompts.prompt_tokens)
    state = None
    with torch.no_grad():
        for t in range(prompts.prompt_tokens):
            logits, state = ctx.model.step(inputs[:, t], state)
        decoded = [logits.argmax(-1)]
        for _ in range(longest - 1):
            logits, state = ctx.model.step(decoded[-1], state)
            decoded.append(logits.argmax(-1))
    keys = torch.stack(decoded, 1).numpy()  # (rows, longest)
    assert all(len(set(key)) > 2 for key in keys)
    right = np.arange(rows) % (longest + 1)
    for row, count in enumerate(right):
        keys[row, count : count + 1] += 1
    monkeypatch.setattr(module, "passkey_pieces", lambda *_: replace(pieces, keys=list(keys)))
    monkeypatch.setattr(module, "digits_of", lambda tokenizer, tokens: "1" * len(tokens))
    table = passkey(SPEC.model_copy(update={"lengths": (300,)}), ctx)
    assert table["digits_right"].to_list() == right.tolist()
    assert table["correct"].to_list() == (right == longest).tolist()


@pytest.mark.parametrize("forward_tokens", [1, 11, 300])
def test_the_size_of_segments_does_not_change_results(
    forward_tokens: int, ctx: EvaluationContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(stream.FORWARD_TOKENS, "cpu", forward_tokens)
    monkeypatch.setitem(stream.ROWS, "cpu", 4)
    spec = Passkey(lengths=(260,), depths=(0.0, 1.0), trials=3)
    assert passkey(spec, replace(ctx, model=Rigged(copying(SUFFIX))))["correct"].all()


def test_a_length_that_is_too_short_is_refused_before_reading(ctx: EvaluationContext) -> None:
    def never(read: Tensor) -> Tensor:
        raise AssertionError

    with pytest.raises(DataError, match=r"^length 128: too short for a passkey; .* need 251 tokens$"):
        passkey(Passkey(lengths=(128, 256)), replace(ctx, model=Rigged(never)))

"""What is left of a state after more tokens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from evaluation.test_inside import ATTENTION, measured
from torch import Tensor

from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.state_retention import SMALLEST, state_retention
from ssm.models.backbone import LanguageModel
from ssm.models.inspect import layer_coefficients, retained_shares
from ssm.models.mixers.coefficients import scans_of
from ssm.specs.measurements.state_retention import StateRetention

HALF, SEQUENCES = 8, 3


def halves(ctx: EvaluationContext, length: int = 2 * HALF) -> tuple[Tensor, Tensor]:
    tokens, _ = ctx.windows(SEQUENCES, length, 12).read(np.arange(SEQUENCES), 0, 2 * HALF)
    return tokens[:, :HALF], tokens[:, HALF:]


def first_layer(ctx: EvaluationContext, kind: str) -> tuple[LanguageModel, Tensor, Tensor]:
    """A model, and the memory and the retained shares of its first layer."""
    model = measured(ctx, d_model=64, mixer={"kind": kind}).model
    assert isinstance(model, LanguageModel)
    before, after = halves(ctx)
    (_, shares), *_ = retained_shares(model, before, after)
    return model, model(before)[1].layers[0]["memory"].detach(), shares


@pytest.mark.parametrize("kind", ["mamba1", "mamba2", "gla", "retnet", "linear_attention", "rwkv6"])
def test_a_diagonal_recurrence_keeps_the_product_of_its_decays(ctx: EvaluationContext, kind: str) -> None:
    model, memory, shares = first_layer(ctx, kind)
    (_, coefficients), *_ = layer_coefficients(model, torch.cat(halves(ctx), 1))
    A = coefficients.A.expand(-1, 2 * HALF, -1, -1)[:, HALF:].prod(1)  # (B, H, N)
    kept = A.reshape(*A.shape, *[1] * (memory.dim() - 3)) * memory  # each number of a state by its decay
    expected = kept.flatten(2).norm(dim=-1) / memory.flatten(2).norm(dim=-1)
    torch.testing.assert_close(shares, expected.expand_as(shares))
    assert 0 < shares.max() < 1 or kind == "linear_attention"


@pytest.mark.parametrize("kind", ["deltanet", "gated_deltanet", "kda"])
def test_the_delta_rule_keeps_what_its_matrices_leave(ctx: EvaluationContext, kind: str) -> None:
    model, memory, shares = first_layer(ctx, kind)
    before, after = halves(ctx)
    layer: Any = model.layers[0]
    u = layer.norm(model.embedded(torch.cat([before, after], 1)))
    ((_, inputs, _),) = scans_of(layer.mixer, u)
    kept = memory.double()
    for t in range(HALF, 2 * HALF):
        k, beta = inputs.k[:, t].double(), inputs.beta[:, t].double()  # (B, H, K), (B, H)
        if inputs.log_decay is not None:
            decay = inputs.log_decay[:, t].double().exp()
            kept = decay.reshape(*decay.shape[:2], -1, 1) * kept
        kept = kept - (beta.unsqueeze(-1) * k).unsqueeze(-1) * (k.unsqueeze(-1) * kept).sum(-2, keepdim=True)
    expected = kept.flatten(2).norm(dim=-1) / memory.double().flatten(2).norm(dim=-1)
    torch.testing.assert_close(shares, expected)
    assert 0 < shares.min() < shares.max() < 1


@pytest.mark.parametrize("kind", ["gru", "s5", "s4d", "h3", "rwkv4", "rwkv7"])
def test_other_systems_forget_a_part(ctx: EvaluationContext, kind: str) -> None:
    _, _, shares = first_layer(ctx, kind)
    assert shares.isfinite().all()
    assert 0 < shares.median() < 1


def test_the_table_has_the_mean_logarithm_and_the_share_of_heads_that_forget(ctx: EvaluationContext) -> None:
    ctx = measured(ctx)
    assert isinstance(ctx.model, LanguageModel)
    table = state_retention(StateRetention(length=2 * HALF + 1, sequences=SEQUENCES), ctx)
    layers = [shares for _, shares in retained_shares(ctx.model, *halves(ctx, 2 * HALF + 1))]
    for number, shares in enumerate([torch.cat(layers, 1), *layers]):
        rows = table.filter(layer=number)
        np.testing.assert_allclose(rows["log_share"], shares.clamp_min(SMALLEST).log().mean(1))
        np.testing.assert_allclose(rows["forgetting"], (shares <= math.exp(-1)).double().mean(1))
    assert 0 < table["forgetting"].min() < table["forgetting"].max() < 1


def test_attention_is_left_out_and_an_empty_memory_has_nothing_left(ctx: EvaluationContext) -> None:
    hybrid = measured(ctx, mixer_at={1: ATTENTION}).model
    assert isinstance(hybrid, LanguageModel)
    assert [number for number, _ in retained_shares(hybrid, *halves(ctx))] == [0]
    with torch.no_grad():
        hybrid.layers[0].mixer.x_proj.weight.zero_()  # B_t is zero, so nothing is ever written
    assert [shares.count_nonzero().item() for _, shares in retained_shares(hybrid, *halves(ctx))] == [0]

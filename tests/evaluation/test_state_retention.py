"""What is left of a state after more tokens."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from evaluation.test_inside import ATTENTION, measured
from torch import Tensor

from ssm.base.errors import CheckpointError
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.state_retention import SMALLEST, state_retention
from ssm.models.backbone import LanguageModel
from ssm.models.inspect import layer_coefficients, retained_shares
from ssm.models.mixers.coefficients import scans_of
from ssm.models.state import State
from ssm.specs.measurements.state_retention import StateRetention
from ssm.specs.mixers import SPECS as MIXERS

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


@pytest.mark.parametrize(
    "kind",
    ["mamba1", "mamba2", "gla", "retnet", "linear_attention", "rwkv6", "rglru", "s4d", "dss", "h3", "s5"],
)
def test_a_diagonal_recurrence_keeps_the_product_of_its_decays(ctx: EvaluationContext, kind: str) -> None:
    model, memory, shares = first_layer(ctx, kind)
    (_, coefficients), *_ = layer_coefficients(model, torch.cat(halves(ctx), 1))
    A = coefficients.A.expand(SEQUENCES, 2 * HALF, -1, -1)[:, HALF:].prod(1).abs().double()  # (B, H, N)
    if coefficients.A.is_complex():
        memory = torch.view_as_complex(memory.contiguous()).abs()
    states = memory.reshape(*A.shape, -1).double()  # each number of a state has a decay
    kept = (A.unsqueeze(-1) * states).reshape(*shares.shape, -1)
    expected = kept.norm(dim=-1) / states.reshape(*shares.shape, -1).norm(dim=-1)
    torch.testing.assert_close(shares, expected, rtol=1e-4, atol=1e-6)
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


@pytest.mark.parametrize("kind", sorted({*MIXERS} - {"attention"}))
def test_only_the_memory_of_the_layer_is_emptied(ctx: EvaluationContext, kind: str) -> None:
    model = measured(ctx, d_model=64, mixer={"kind": kind}).model
    assert isinstance(model, LanguageModel)
    before, after = halves(ctx)
    *_, (number, shares) = retained_shares(model, before, after)
    *others, last = model(before)[1].layers
    memories = []
    for memory in (last["memory"], torch.zeros_like(last["memory"])):
        _, ended = model(after, State((*others, last | {"memory": memory})))
        memories.append(ended.layers[number]["memory"])
    heads = 64 if kind == "rwkv4" else None  # its averages, and not their weights
    left = (memories[0] - memories[1])[:, :heads].flatten(2).norm(dim=-1)
    expected = left / last["memory"][:, :heads].flatten(2).norm(dim=-1)
    torch.testing.assert_close(shares, expected.double(), rtol=1e-4, atol=1e-6)


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
    table = state_retention(StateRetention(length=2 * HALF, sequences=SEQUENCES), replace(ctx, model=hybrid))
    np.testing.assert_allclose(table["log_share"], math.log(1e-6))
    assert table["forgetting"].to_list() == [1.0] * table.height


def test_a_model_of_attention_alone_is_refused(ctx: EvaluationContext) -> None:
    with pytest.raises(CheckpointError, match="no layer of the model has a recurrent state"):
        state_retention(StateRetention(length=2 * HALF, sequences=SEQUENCES), measured(ctx, mixer=ATTENTION))


def test_a_state_that_is_not_a_number_has_no_share(ctx: EvaluationContext) -> None:
    ctx = measured(ctx)
    assert isinstance(ctx.model, LanguageModel)
    with torch.no_grad():
        ctx.model.layers[1].mixer.x_proj.weight.fill_(math.nan)
    table = state_retention(StateRetention(length=2 * HALF, sequences=SEQUENCES), ctx)
    by_layer = {layer: table.filter(layer=layer) for layer in range(3)}
    assert [by_layer[layer]["log_share"].is_nan().all() for layer in by_layer] == [True, False, True]
    assert [by_layer[layer]["forgetting"].is_nan().all() for layer in by_layer] == [True, False, True]

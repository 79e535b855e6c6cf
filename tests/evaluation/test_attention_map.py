"""Attention maps, compared with weights from a direct computation, and with the places of a task's answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from data.tasks.examples import TASKS
from evaluation.rigged import Rigged
from plan.mini import figure, write_config
from small import make_task, model_spec
from torch import Tensor

from ssm.base.errors import CheckpointError, ConfigError
from ssm.base.seeds import derived_seed
from ssm.data.tasks import build_generator
from ssm.data.tasks.base import Examples
from ssm.evaluation.attention_map import attention_map
from ssm.evaluation.bc_correlation import bc_correlation
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.models.backbone import build_model
from ssm.plan import load_config, make_plan
from ssm.specs.measurements.attention_map import AttentionMap
from ssm.specs.measurements.bc_correlation import BcCorrelation

COPY = {"task": "copy", "alphabet": 3, "mix": [{"shortest": 4, "longest": 7}]}
ATTENTION = {"kind": "attention", "n_heads": 2, "rotary_pct": 0.0}


def subject_of(folder: Path, task: dict[str, Any], **changes: Any) -> EvaluationContext:
    """An untrained model in float64: Mamba-1, or another one by `changes`."""
    store = make_task(folder / "tokens", **task)
    spec = model_spec().model_dump() | {"mixer": {"kind": "mamba1", "d_state": 4}} | changes
    model = build_model(type(model_spec()).parse(spec, "tests"), store.spec.vocab_size, seed=2).double().eval()
    return EvaluationContext(model, 3, store, torch.device("cpu"), "test")


def examples(ctx: EvaluationContext, spec: AttentionMap) -> Examples:
    seed = derived_seed(spec.seed, "attention map", ctx.seed)
    return build_generator(spec.test, "test", seed, ctx.store).make(np.arange(spec.examples))


def matrix(rows: pl.DataFrame, column: str) -> np.ndarray:
    """(T, T), zero above the diagonal."""
    size = rows["query"].max() + 1  # type: ignore[operator]
    values = np.zeros((size, size))
    values[rows["query"], rows["key"]] = rows[column]
    return values


def test_weights_of_softmax_attention_come_from_queries_and_keys(tmp_path: Path) -> None:
    ctx = subject_of(tmp_path, COPY, mixer=ATTENTION, n_layers=1)
    spec = AttentionMap(task=ctx.store.spec, length=6, examples=3)
    table = attention_map(spec, ctx)
    assert dict(table.schema) == AttentionMap.table.columns
    model: Any = ctx.model
    layer = model.layers[0]
    for example, tokens in enumerate(torch.from_numpy(examples(ctx, spec).inputs[:, :13])):
        u = layer.norm(model.embedded(tokens[None]))[0].detach()  # (T, D)
        weights = []
        for head in range(2):
            part = slice(8 * head, 8 * head + 8)
            q, k = (u @ layer.mixer.in_proj.weight[16 * which : 16 * which + 16][part].T for which in (0, 1))
            scores = (q @ k.T / 8**0.5).masked_fill(torch.ones(13, 13).triu(1).bool(), -torch.inf)
            weights.append(scores.softmax(-1).detach())
        rows = table.filter(example=example, layer=1)
        np.testing.assert_allclose(matrix(rows, "weight"), torch.stack(weights).mean(0), atol=1e-12)
        np.testing.assert_allclose(matrix(rows, "share"), matrix(rows, "weight"), atol=1e-12)


def test_a_map_times_values_is_the_output_of_the_layer(tmp_path: Path) -> None:
    """In Mamba-1, with the same value in all channels: the mean of the maps times this value is the mean output."""
    ctx = subject_of(tmp_path, COPY)
    spec = AttentionMap(task=ctx.store.spec, length=5, examples=1)
    table = attention_map(spec, ctx)
    model: Any = ctx.model
    given: list[Tensor] = []
    for layer in model.layers:
        layer.mixer.register_forward_pre_hook(lambda _, args: given.append(args[0]))
    tokens = torch.from_numpy(examples(ctx, spec).inputs[:, :11])
    with torch.no_grad():
        model(tokens)
        for number, layer in enumerate(model.layers):
            mixer, u = layer.mixer, given[number][0]  # (T, D)
            x = u @ mixer.in_proj.weight[:32].T
            padded = torch.cat([torch.zeros(3, 32, dtype=x.dtype), x])
            x = sum(padded[k : k + 11] * mixer.conv_weight[:, k] for k in range(4)) + mixer.conv_bias
            x = x * torch.sigmoid(x)
            low, B, C = (x @ mixer.x_proj.weight.T).split(mixer.widths, -1)
            dt = torch.nn.functional.softplus(low @ mixer.dt_proj.weight.T + mixer.dt_proj.bias)  # (T, E D)
            value = torch.randn(11, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
            h, outputs = torch.zeros(32, 4, dtype=x.dtype), []
            for t in range(11):
                h = torch.exp(-dt[t, :, None] * mixer.A_log.exp()) * h + dt[t, :, None] * B[t] * value[t]
                outputs.append((h @ C[t]).mean())
            rows = table.filter(layer=number + 1)
            got = matrix(rows, "weight") @ value.numpy()
            np.testing.assert_allclose(got, torch.stack(outputs).numpy(), rtol=1e-9, atol=1e-12)
            sizes = np.abs(matrix(rows, "weight"))
            np.testing.assert_allclose(matrix(rows, "share"), sizes / sizes.sum(1, keepdims=True), rtol=1e-9)


def test_a_mask_has_the_decays_alone(tmp_path: Path) -> None:
    """In Mamba-2: the product of exp(dt A) between both tokens, as a mean over heads. The delta rule has none."""
    mixers = {"mixer": {"kind": "mamba2", "d_state": 4, "head_dim": 8}, "mixer_at": {1: ATTENTION}, "n_layers": 2}
    ctx = subject_of(tmp_path, COPY, **mixers)
    spec = AttentionMap(task=ctx.store.spec, length=5, examples=1, mask=True)
    table = attention_map(spec, ctx)
    model: Any = ctx.model
    tokens = torch.from_numpy(examples(ctx, spec).inputs[:, :11])
    layer = model.layers[0]
    with torch.no_grad():
        dt = layer.mixer.project(layer.norm(model.embedded(tokens)), None, None)[4][0]  # (T, H)
    logs = (dt * layer.mixer.continuous_decay()).cumsum(0)
    expected = (logs[:, None] - logs[None]).exp().mean(-1).tril()
    np.testing.assert_allclose(matrix(table.filter(layer=1), "weight"), expected.detach(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(matrix(table.filter(layer=2), "weight"), np.tri(11), atol=1e-12)
    delta = subject_of(tmp_path / "delta", COPY, mixer={"kind": "deltanet", "n_heads": 2})
    with pytest.raises(CheckpointError, match="no layer of the model has an attention mask"):
        attention_map(spec, delta)
    assert "mask" not in AttentionMap(task=ctx.store.spec, length=5).content(), "ids of maps stay what they were"


def test_the_correlation_of_b_and_c_is_that_of_their_weights(tmp_path: Path) -> None:
    """Mimetic initialization makes W_C the mean of W_B and independent weights."""
    mimetic = {"kind": "mamba2", "d_state": 4, "head_dim": 8, "mimetic": {"bc": True}}
    mixers = {"mixer": {"kind": "mamba1", "d_state": 4}, "mixer_at": {1: mimetic, 2: ATTENTION}, "n_layers": 3}
    ctx = subject_of(tmp_path, COPY, **mixers)
    table = bc_correlation(BcCorrelation(), ctx)
    assert table["layer"].to_list() == [1, 2], "attention has no B and C"
    model: Any = ctx.model
    B, C = model.layers[0].mixer.x_proj.weight.detach()[1:].split(4)
    plain, alike = table["correlation"]
    assert plain == pytest.approx(np.corrcoef(B.flatten(), C.flatten())[0, 1])
    assert abs(plain) < 0.3
    assert 0.5 < alike < 0.9
    with pytest.raises(CheckpointError, match="no layer of the model has linear maps to B and C"):
        bc_correlation(BcCorrelation(), subject_of(tmp_path / "no", COPY, mixer=ATTENTION))


STRINGS = {"mix": [{"shortest": 4, "longest": 7}]}
LENGTHS = {"copy": 6, "stack_copy": 6, "sort": 6, "recall": 36}


@pytest.mark.parametrize("task", LENGTHS)
def test_the_key_at_offset_0_is_the_token_to_copy(task: str, tmp_path: Path) -> None:
    """This holds for each scored token, and the neighbors follow at further offsets."""
    content = TASKS["recall"] if task == "recall" else {"task": task, "alphabet": 7} | STRINGS
    ctx = subject_of(tmp_path, content, n_layers=1)
    spec = AttentionMap(task=ctx.store.spec, length=LENGTHS[task], examples=5)
    table, made = attention_map(spec, ctx), examples(ctx, spec)
    behind = table.filter(pl.col("offset") == 0)
    assert behind.height == (made.answers.stop - made.answers.start).sum()
    for example, query, key in behind.select("example", "query", "key").iter_rows():
        assert made.inputs[example, key] == made.following[example, query]
        assert made.target_mask[example, query]
    assert set(table.filter("behind")["offset"]) == {0, 1, 2, 3}, "a convolution has width 4"
    assert not table.filter(~pl.col("behind"))["offset"].is_between(0, 3).any()
    assert (table["behind"].is_null() == table["offset"].is_null()).all()
    near = table.filter(pl.col("offset") == 2).select("example", "query", "key").rows()
    there = set(behind.select("example", "query", pl.col("key") + 2).rows())
    assert near
    assert set(near) <= there
    shares = table.group_by("example", "layer", "query").agg(pl.col("share").sum())["share"]
    np.testing.assert_allclose(shares, 1.0)


def test_only_the_place_of_the_source_counts(tmp_path: Path) -> None:
    """The same letter at another place is not the source."""
    ctx = subject_of(tmp_path, COPY | {"alphabet": 1}, n_layers=1)
    table = attention_map(AttentionMap(task=ctx.store.spec, length=6, examples=2), ctx)
    behind = table.filter(pl.col("offset") == 0, pl.col("example") == 1)
    assert behind["query"].to_list() == [7, 8, 9, 10, 11, 12], "the bar, and the letters before another letter"
    assert behind["key"].to_list() == [1, 2, 3, 4, 5, 6]


def test_layers_can_be_chosen_and_layers_without_a_map_are_left_out(tmp_path: Path) -> None:
    mixers = {"mixer": {"kind": "gru"}, "mixer_at": {1: {"kind": "mamba1", "d_state": 4}, 2: ATTENTION}, "n_layers": 3}
    ctx = subject_of(tmp_path, COPY, **mixers)
    spec = AttentionMap(task=ctx.store.spec, length=4, examples=1)
    table = attention_map(spec, ctx)
    assert table["layer"].unique().to_list() == [2, 3]
    assert set(table.filter("behind", layer=3)["offset"]) == {0}, "attention has no convolution"
    shifts = {"mixer": {"kind": "rwkv6", "head_dim": 8}, "mixer_at": {1: {"kind": "h3", "d_state": 4, "d_shift": 3}}}
    passed = attention_map(spec, subject_of(tmp_path / "shifts", COPY, n_layers=2, **shifts)).filter("behind")
    offsets = {row["layer"]: set(row["offset"]) for row in passed.group_by("layer").agg("offset").iter_rows(named=True)}
    assert offsets == {1: {0, 1}, 2: {0, 1, 2}}, "a shift by one token, and by up to two tokens"
    assert attention_map(spec.model_copy(update={"layers": (3,)}), ctx)["layer"].unique().to_list() == [3]
    for layers in ((1,), (1, 2)):
        with pytest.raises(CheckpointError, match="one of the requested layers has no attention map"):
            attention_map(spec.model_copy(update={"layers": layers}), ctx)
    with pytest.raises(CheckpointError, match="the model has layers of another library"):
        attention_map(spec, replace(ctx, model=Rigged(torch.zeros_like)))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"layers": [1, 2]}, r"\.layers: 'tiny' has layers 1 to 1, not 2"),
        ({"task": "text"}, "'text' is a text; name a task"),
        ({"length": 0}, r"\.length: "),
    ],
)
def test_impossible_entries_are_refused(changes: dict[str, Any], error: str, tmp_path: Path) -> None:
    folder = write_config(tmp_path / "config")
    entry = {"kind": "attention_map", "task": "keys", "length": 260} | changes
    figure(folder, "lg_fig5", arms={"base": {"label": "B", "training": "pretrain"}}, measurements=[entry])
    with pytest.raises(ConfigError, match=error):
        make_plan(load_config(folder, figures=["lg_fig5"]))

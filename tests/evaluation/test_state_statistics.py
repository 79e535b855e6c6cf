"""State statistics, compared with states that are computed token by token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from evaluation.rigged import Carries, Rigged
from torch.utils._python_dispatch import TorchDispatchMode

from ssm.base.errors import CheckpointError
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.state_statistics import state_statistics
from ssm.models.backbone import LanguageModel, build_model
from ssm.specs.measurements.state_statistics import StateStatistics
from ssm.specs.model import ModelSpec


def test_statistics_are_those_of_the_states_at_their_positions(ctx: EvaluationContext) -> None:
    table = state_statistics(StateStatistics(length=20, sequences=2), ctx)
    assert table["position"].unique().sort().to_list() == [1, 2, 4, 8, 16, 20]
    inputs, _ = ctx.windows(2, 20, 7).read(np.arange(2), 0, 20)
    for sequence in range(2):
        state = None
        for t in range(20):
            with torch.no_grad():
                _, state = ctx.model(inputs[sequence, t].view(1, 1), state)
            rows = table.filter((pl.col("sequence") == sequence) & (pl.col("position") == t + 1))
            if rows.height == 0:
                continue
            whole = torch.cat([memory.flatten() for memory in state.recurrent_states()])
            row = rows.row(by_predicate=pl.col("layer") == -1, named=True)
            assert row["norm"] == pytest.approx(float(whole.norm()), rel=1e-9)
            assert row["std"] == pytest.approx(float(whole.std(correction=0)), rel=1e-9)
            head = rows.row(by_predicate=(pl.col("layer") == 1) & (pl.col("head") == 2), named=True)
            memory = state.recurrent_states()[1][0, 2]
            assert head["norm"] == pytest.approx(float(memory.norm()), rel=1e-9)
            assert head["mean"] == pytest.approx(float(memory.mean()), rel=1e-6)
            assert head["std"] == pytest.approx(float(memory.std(correction=0)), rel=1e-9)
    heads = 16 * 2 // 8
    assert table.height == 2 * 6 * (2 * heads + 1)


class Remembering(Rigged):
    """A model whose states are functions of the tokens, with different numbers of axes in its layers."""

    def __init__(self) -> None:
        super().__init__(torch.zeros_like)

    def hidden(self, tokens: torch.Tensor, state: Carries | None = None) -> tuple[torch.Tensor, Carries]:
        hidden, carried = super().hidden(tokens, state)
        total = carried.tokens.float().cumsum(1)[:, -1:]  # (B, 1)
        shapes = [(3,), (2, 4), (5, 2, 3)]
        numbers = [torch.arange(float(np.prod(shape))).view(shape) for shape in shapes]
        return hidden, Carries(carried.tokens, [x + total.view(-1, *[1] * x.dim()) for x in numbers])


def test_states_can_have_any_shape(ctx: EvaluationContext) -> None:
    model = Remembering()
    table = state_statistics(StateStatistics(length=6, sequences=3), replace(ctx, model=model))
    inputs, _ = ctx.windows(3, 6, 7).read(np.arange(3), 0, 6)
    expected = []
    for sequence in range(3):
        for position in (1, 2, 4, 6):
            _, carried = model.hidden(inputs[[sequence], :position])
            recurrent_states = [memory[0].double().numpy() for memory in carried.recurrent_states()]
            parts = [((-1, -1), np.concatenate([memory.ravel() for memory in recurrent_states]))]
            parts += [((i, j), head) for i, memory in enumerate(recurrent_states) for j, head in enumerate(memory)]
            expected += [(sequence, position, *place, np.sqrt((x**2).sum()), x.mean(), x.std()) for place, x in parts]
    assert table.height == len(expected) == 3 * 4 * (1 + 3 + 2 + 5)
    np.testing.assert_allclose(table.to_numpy(), np.array(expected, dtype=float), rtol=1e-9, atol=1e-9)


def attention_model(**changes: Any) -> LanguageModel:
    """Two layers of attention, with `changes` of the model."""
    mixer = {"kind": "attention", "n_heads": 2}
    spec = {"name": "tiny", "d_model": 16, "n_layers": 2, "mixer": mixer, "peak_lr": 1e-2} | changes
    return build_model(ModelSpec.parse(spec, "tests"), 256, seed=1).double().eval()


def test_models_with_only_caches_are_refused(ctx: EvaluationContext) -> None:
    window = attention_model(mixer={"kind": "attention", "n_heads": 2, "window": 4})
    for stateless in (attention_model(), window, Rigged(torch.zeros_like)):
        with pytest.raises(CheckpointError, match=r"^the model has no recurrent state: the state of each layer is"):
            state_statistics(StateStatistics(length=8, sequences=2), replace(ctx, model=stateless))


@pytest.mark.parametrize(
    ("changes", "measured"),
    [
        ({"mixer_at": {1: {"kind": "gla", "n_heads": 2}}}, [1]),
        (
            {
                "mixer": {"kind": "gla", "n_heads": 2},
                "mixer_at": {1: {"kind": "attention", "n_heads": 2, "window": 4}},
                "n_layers": 3,
            },
            [0, 2],
        ),
    ],
    ids=["hybrid", "window"],
)
def test_recurrent_layers_are_measured(changes: dict[str, Any], measured: list[int], ctx: EvaluationContext) -> None:
    """The layers keep their numbers, also if other layers are left out."""
    model = attention_model(**changes)
    spec = StateStatistics(length=8, sequences=2)
    table = state_statistics(spec, replace(ctx, model=model))
    assert table["layer"].unique().sort().to_list() == [-1, *measured]
    assert table.height == 2 * 4 * (1 + 2 * len(measured))
    inputs, _ = ctx.windows(2, 8, 7).read(np.arange(2), 0, 8)
    for row in table.iter_rows(named=True):
        with torch.no_grad():
            _, state = model(inputs[row["sequence"], : row["position"]][None])
        recurrent_states = [state.recurrent_states()[layer] for layer in measured]
        memory = torch.cat([one.flatten() for one in recurrent_states])
        if row["layer"] >= 0:
            memory = state.recurrent_states()[row["layer"]][0, row["head"]]
        assert row["norm"] == pytest.approx(float(memory.norm()), rel=1e-9)
        assert row["std"] == pytest.approx(float(memory.std(correction=0)), rel=1e-9)


class Largest(TorchDispatchMode):
    """The most numbers of a tensor in float64 that an operation made."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.dtype == torch.float64:
            self.numbers = max(self.numbers, made.numel())
        return made


def test_one_layer_at_a_time_is_copied(ctx: EvaluationContext) -> None:
    with Largest() as largest:
        state_statistics(StateStatistics(length=6, sequences=3), replace(ctx, model=Remembering()))
    assert largest.numbers == 3 * 5 * 2 * 3, "three sequences of the largest layer"

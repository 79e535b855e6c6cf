"""Measurements inside the layers, compared with computations from weights and states, token by token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import torch.nn.functional as F
from evaluation.rigged import Rigged
from small import model_spec
from torch import Tensor

from ssm.base.errors import CheckpointError
from ssm.evaluation import decay_range, influence, memory_length, smoothness
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.influence import random_directions
from ssm.evaluation.smoothness import pairwise_distance
from ssm.models import inspect
from ssm.models.backbone import LanguageModel, build_model
from ssm.specs.measurements.decay_range import DecayRange
from ssm.specs.measurements.influence import Influence
from ssm.specs.measurements.memory_length import MemoryLength
from ssm.specs.measurements.smoothness import Smoothness

LENGTH, SEQUENCES = 12, 3
ATTENTION = {"kind": "attention", "n_heads": 2}


def measured(ctx: EvaluationContext, **changes: Any) -> EvaluationContext:
    """The context with another model: a Mamba-1 whose decays depend strongly on the text."""
    fields = {"mixer": {"kind": "mamba1", "d_state": 4}} | changes
    spec = model_spec().model_dump() | fields
    model = build_model(type(model_spec()).parse(spec, "tests"), 256, seed=2).double().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("dt_proj.bias"):
                weight += 3.0
            elif name.endswith("x_proj.weight"):
                weight *= 20
    return replace(ctx, model=model)


def windows(ctx: EvaluationContext, seed: int) -> Tensor:
    return ctx.windows(SEQUENCES, LENGTH, seed).read(np.arange(SEQUENCES), 0, LENGTH)[0]


def decays(model: LanguageModel, tokens: Tensor) -> list[Tensor]:
    """exp(-dt_t exp(A_log)) of every layer, (B, T, E D, N), from the output of x_proj."""
    seen: list[Tensor] = []
    handles = [
        layer.mixer.x_proj.register_forward_hook(lambda _, given, out: seen.append(out))  # type: ignore[union-attr]
        for layer in model.layers
    ]
    with torch.no_grad():
        model(tokens)
    for handle in handles:
        handle.remove()
    by_layer = []
    for layer, projected in zip(model.layers, seen, strict=True):
        mixer: Any = layer.mixer
        dt = F.softplus(projected[..., : mixer.widths[0]] @ mixer.dt_proj.weight.T + mixer.dt_proj.bias)
        by_layer.append(torch.exp(-dt.unsqueeze(-1) * mixer.A_log.exp()).detach())
    return by_layer


def test_the_histogram_of_decay_ranges(ctx: EvaluationContext) -> None:
    ctx = measured(ctx)
    table = decay_range.decay_range(DecayRange(length=LENGTH, sequences=SEQUENCES), ctx)
    ranges = [(A.amax(1) - A.amin(1)).flatten(1).numpy() for A in decays(ctx.model, windows(ctx, 12))]  # type: ignore[arg-type]
    decayed = [A.movedim(1, -1).flatten(2).numpy() for A in decays(ctx.model, windows(ctx, 12))]  # type: ignore[arg-type]
    by_layer = [A.max(-1) - A.min(-1) for A in decayed]  # (B, channels), over tokens and states
    of_channels = [np.concatenate(by_layer, 1), *by_layer]
    assert table.height == SEQUENCES * 3 * 51
    for layer, of_layer in enumerate([np.concatenate(ranges, 1), *ranges]):
        for sequence in range(SEQUENCES):
            rows = table.filter((pl.col("layer") == layer) & (pl.col("sequence") == sequence))
            expected = [np.mean(of_layer[sequence] <= threshold) for threshold in rows["threshold"]]
            np.testing.assert_allclose(rows["share"], expected)
            wide = [np.mean(of_channels[layer][sequence] <= threshold) for threshold in rows["threshold"]]
            np.testing.assert_allclose(rows["channel_share"], wide)
            assert 0.05 < rows.filter(pl.col("threshold") == 0.3)["share"].item() < 0.95


def test_after_the_memory_length_1_over_e_of_the_state_is_left(ctx: EvaluationContext) -> None:
    ctx = measured(ctx)
    table = memory_length.memory_length(MemoryLength(length=LENGTH, sequences=SEQUENCES), ctx)
    left = [A.prod(1).flatten(1) ** (1 / LENGTH) for A in decays(ctx.model, windows(ctx, 12))]  # type: ignore[arg-type]
    for layer, mean in enumerate([torch.cat(left, 1), *left]):
        for sequence in range(SEQUENCES):
            rows = table.filter(layer=layer, sequence=sequence)
            assert rows["tokens"].to_list() == [2**octave for octave in range(21)]
            expected = [float((mean[sequence] ** tokens <= np.exp(-1)).double().mean()) for tokens in rows["tokens"]]
            np.testing.assert_allclose(rows["share"], expected)
    assert table["share"].min() < 0.5 < table["share"].max()
    polarized = measured(ctx, mixer={"kind": "mamba1", "d_state": 2, "polarize": "both"})  # four states
    shares = memory_length.memory_length(MemoryLength(length=LENGTH, sequences=1), polarized).filter(layer=0)["share"]
    assert shares[0] >= 0.25, "a decay of 0 has no memory"
    assert shares[-1] == 0.75, "a decay of 1 has an infinite memory"


def test_a_constant_decay_has_no_range(ctx: EvaluationContext) -> None:
    s4d = measured(ctx, mixer={"kind": "s4d", "d_state": 4})
    table = decay_range.decay_range(DecayRange(length=LENGTH, sequences=2), s4d)
    assert table["share"].to_list() == [1.0] * table.height


@pytest.mark.parametrize("mixer", [ATTENTION, {"kind": "rwkv4"}], ids=["attention", "rwkv4"])
def test_layers_without_a_decay_are_refused(ctx: EvaluationContext, mixer: dict[str, object]) -> None:
    """The state of RWKV-4 is an average, and its weight decides how much of it stays."""
    with pytest.raises(CheckpointError, match="no layer of the model has a decay for each state"):
        decay_range.decay_range(DecayRange(length=LENGTH, sequences=2), measured(ctx, mixer=mixer))
    with pytest.raises(CheckpointError, match="no layer of the model has a decay for each state"):
        memory_length.memory_length(MemoryLength(length=LENGTH, sequences=2), measured(ctx, mixer=mixer))


def pairs(x: Tensor) -> float:
    """E(x) of (T, C) over all pairs, as in bn."""
    x, T = x.detach(), len(x)
    total = sum(float((x[i] - x[j]).abs().square().sum()) for i in range(T) for j in range(T) if i != j)
    return total / (2 * (T - 1)) / float(x.abs().square().sum())


def test_the_distance_is_the_sum_over_all_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    x = 0.3 + torch.randn(2, 7, 3, 5, generator=generator, dtype=torch.float64)
    x = torch.stack([x[0], 1e4 + x[1]])  # the second has nearly equal tokens
    torch.testing.assert_close(pairwise_distance(x), torch.tensor([pairs(tokens.flatten(1)) for tokens in x]).double())
    turning = torch.complex(x[:1], x[:1].roll(1, 2))
    assert float(pairwise_distance(turning)) == pytest.approx(pairs(turning[0].flatten(1)))
    noise = torch.randn(1, 100, 400, generator=generator)
    assert float(pairwise_distance(noise)) == pytest.approx(1, abs=0.03)
    assert float(pairwise_distance(torch.ones(1, 9, 4))) == 0


def test_signals_agree_with_decoding(ctx: EvaluationContext) -> None:
    """The states are those of decoding. b_t comes from their differences, divided by the step size or not."""
    ctx = measured(ctx)
    model: Any = ctx.model
    table = smoothness.smoothness(Smoothness(length=LENGTH, sequences=SEQUENCES), ctx)
    assert table.height == SEQUENCES * 2 * 5
    assert table.filter(layer=1)["depth"].unique().to_list() == [0.5]
    tokens = windows(ctx, 12)
    A = decays(model, tokens)
    outputs: list[Tensor] = []
    model.layers[1].mixer.out_proj.register_forward_hook(lambda _, given, out: outputs.append(out))
    state, recurrent_states = None, []
    with torch.no_grad():
        for t in range(LENGTH):
            _, state = model(tokens[:, t : t + 1], state)
            recurrent_states.append(state.recurrent_states()[1])
    h = torch.stack(recurrent_states, 1)  # (B, T, E D, N)
    b = h - A[1] * F.pad(h, (0, 0, 0, 0, 1, 0))[:, :-1]
    dt = -A[1].log() / model.layers[1].mixer.A_log.exp()
    expected_signals = {"h": h, "input": b, "b": b / dt, "mixer": torch.cat(outputs, 1)}
    for sequence in range(SEQUENCES):
        rows = table.filter(layer=2, sequence=sequence)
        for name, signal in expected_signals.items():
            row = rows.row(by_predicate=pl.col("signal") == name, named=True)
            expected = pairs(signal[sequence].flatten(1))
            assert row["pairwise_distance"] == pytest.approx(expected, rel=1e-6)
            of_b = pairs(expected_signals["b"][sequence].flatten(1))
            assert row["relative_to_b"] == pytest.approx(expected / of_b, rel=1e-6)


def test_attention_has_only_outputs(ctx: EvaluationContext) -> None:
    table = smoothness.smoothness(Smoothness(length=LENGTH, sequences=2), measured(ctx, mixer=ATTENTION))
    assert table["signal"].unique().sort().to_list() == ["block", "mixer"]
    assert table["relative_to_b"].null_count() == table.height


def test_influence_by_distance(ctx: EvaluationContext) -> None:
    """Distances count back from the last token. The seeds choose the directions."""
    ctx = measured(ctx)
    model: Any = ctx.model
    spec = Influence(length=LENGTH, sequences=SEQUENCES)
    table = influence.influence(spec, ctx)
    norms = inspect.influence(model, windows(ctx, 11))
    for sequence in range(SEQUENCES):
        rows = table.filter(sequence=sequence)
        assert rows["distance"].to_list() == list(range(LENGTH))
        np.testing.assert_allclose(rows["log_influence"], norms[sequence].flip(0).log(), rtol=1e-9)
    some = spec.model_copy(update={"directions": 8})
    first = influence.influence(some, ctx)
    assert first.equals(influence.influence(some, ctx))
    assert not first.equals(influence.influence(some, replace(ctx, seed=4)))
    assert (first["log_influence"] - table["log_influence"]).abs().max() > 1e-3
    rows = random_directions(8, 16, 1)
    torch.testing.assert_close(rows @ rows.T, torch.eye(8, dtype=torch.float64))


@pytest.mark.parametrize(
    ("measure", "spec"), [(influence, Influence), (smoothness, Smoothness), (decay_range, DecayRange)]
)
def test_layers_of_another_library_are_refused(measure: Any, spec: Any, ctx: EvaluationContext) -> None:
    function = getattr(measure, measure.__name__.rpartition(".")[2])
    with pytest.raises(CheckpointError, match="the model has layers of another library"):
        function(spec(length=8, sequences=2), replace(ctx, model=Rigged(torch.zeros_like)))

"""Costs by length: bytes are exact, and seconds are those of the clock."""

from __future__ import annotations

import polars as pl
import pytest
import torch
from small import model_spec

from ssm.evaluation import cost as module
from ssm.evaluation.cost import _kept_bytes, cost
from ssm.specs.measurements.cost import Cost
from ssm.specs.model import ModelSpec


def attention() -> ModelSpec:
    mixer = {"kind": "attention"}
    return ModelSpec.parse(
        {"name": "attention", "d_model": 64, "n_layers": 2, "mixer": mixer, "peak_lr": 1e-3}, "tests"
    )


def value(frame: pl.DataFrame, model: str, name: str, length: int) -> float:
    return float(frame.filter(model=model, cost=name, length=length)["value"].median())  # type: ignore[arg-type]


def test_a_state_stays_and_a_cache_grows() -> None:
    spec = Cost(models=(model_spec(), attention()), vocab_size=50, lengths=(8, 32), repeats=2)
    frame = cost(spec, torch.device("cpu"))
    assert frame.schema == Cost.table.columns
    assert frame.height == 2 * 2 * (2 + 2 + 1 + 1)  # models, lengths; two timed costs twice, two costs in bytes once
    assert float(frame["value"].min()) > 0  # type: ignore[arg-type]
    # 2 layers; memory of 4 heads x 8 x 8, and 3 inputs of a convolution over 32 + 2 * 8 channels; 4 bytes each
    assert value(frame, "tiny", "state", 8) == value(frame, "tiny", "state", 32) == 2 * 4 * (4 * 8 * 8 + 3 * 48)
    assert value(frame, "attention", "state", 32) > 3 * value(frame, "attention", "state", 8)
    assert value(frame, "tiny", "training_memory", 32) > 2 * value(frame, "tiny", "training_memory", 8)


def test_the_time_of_decoding_is_that_of_one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each timing takes 32 seconds on the clock, and decodes 16 tokens. The first round does not count."""
    timings = []
    monkeypatch.setattr(module, "seconds_of", lambda run, device: timings.append(run) or 32.0)
    frame = cost(Cost(models=(model_spec(),), vocab_size=50, lengths=(8, 16), repeats=2), torch.device("cpu"))
    assert frame.filter(cost="training_step")["value"].to_list() == [32.0] * 4
    assert frame.filter(cost="decoding_step")["value"].to_list() == [2.0] * 4
    assert len(timings) == 2 * 2 * 3


def test_every_block_that_autograd_saves_counts_once() -> None:
    weight = torch.randn(10, 20, requires_grad=True)
    x = torch.randn(5, 10)
    # x (for the weight's gradient) and the output of exp; a view of x is the same block, and x has no gradient
    assert _kept_bytes(lambda: (x.view(5, 10) @ weight).exp().sum()) == 4 * (5 * 10 + 5 * 20)
    # used twice: x once, two outputs
    assert _kept_bytes(lambda: (x @ weight).exp().sum() + (x @ weight).exp().sum()) == 4 * (5 * 10 + 2 * 5 * 20)

"""State statistics against states reached token by token."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

from ssm.evaluation.state_statistics import state_statistics
from ssm.evaluation.subject import Subject
from ssm.specs.measurement import StateStatistics


def test_statistics_are_those_of_the_states_at_their_positions(subject: Subject) -> None:
    table = state_statistics(StateStatistics(length=20, sequences=2), subject)
    assert table["position"].unique().sort().to_list() == [1, 2, 4, 8, 16, 20]
    inputs, _ = subject.windows(2, 20, 7).read(np.arange(2), 0, 20)
    for sequence in range(2):
        state = None
        for t in range(20):
            with torch.no_grad():
                _, state = subject.model(inputs[sequence, t].view(1, 1), state)
            rows = table.filter((pl.col("sequence") == sequence) & (pl.col("position") == t + 1))
            if rows.height == 0:
                continue
            whole = torch.cat([memory.flatten() for memory in state.memories()])
            row = rows.row(by_predicate=pl.col("layer") == -1, named=True)
            assert row["norm"] == pytest.approx(float(whole.norm()), rel=1e-9)
            assert row["std"] == pytest.approx(float(whole.std(correction=0)), rel=1e-9)
            head = rows.row(by_predicate=(pl.col("layer") == 1) & (pl.col("head") == 2), named=True)
            memory = state.memories()[1][0, 2]
            assert head["norm"] == pytest.approx(float(memory.norm()), rel=1e-9)
            assert head["mean"] == pytest.approx(float(memory.mean()), rel=1e-6)
            assert head["std"] == pytest.approx(float(memory.std(correction=0)), rel=1e-9)
    heads = 16 * 2 // 8
    assert table.height == 2 * 6 * (2 * heads + 1)

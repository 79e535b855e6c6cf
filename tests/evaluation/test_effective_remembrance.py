"""Effective Remembrance compared with its definition (lg Def. 3.3), and its distances with scipy."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cosine, jensenshannon

from ssm.evaluation.effective_remembrance import DISTANCES, effective_remembrance
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.specs.measurements.effective_remembrance import EffectiveRemembrance


def test_distances_of_equal_and_of_disjoint_distributions() -> None:
    p, q = torch.tensor([0.5, 0.5, 0.0, 0.0]), torch.tensor([0.0, 0.0, 1.0, 0.0])
    for distance in DISTANCES.values():
        assert float(distance(p, p)) == pytest.approx(0.0, abs=1e-6)
        assert float(distance(p, q)) == pytest.approx(1.0, abs=1e-6)


@given(st.lists(st.floats(0.01, 1), min_size=4, max_size=4), st.lists(st.floats(0.01, 1), min_size=4, max_size=4))
def test_distances_agree_with_scipy(a: list[float], b: list[float]) -> None:
    p, q = (np.array(x) / np.sum(x) for x in (a, b))
    given_p, given_q = torch.from_numpy(p), torch.from_numpy(q)
    assert float(DISTANCES["total_variation"](given_p, given_q)) == pytest.approx(0.5 * np.abs(p - q).sum())
    js = jensenshannon(p, q, base=2) ** 2
    assert float(DISTANCES["jensen_shannon"](given_p, given_q)) == pytest.approx(js, abs=1e-9)
    assert float(DISTANCES["one_minus_cosine"](given_p, given_q)) == pytest.approx(cosine(p, q), abs=1e-9)


def test_every_row_agrees_with_the_definition(ctx: EvaluationContext) -> None:
    length = 24
    table = effective_remembrance(EffectiveRemembrance(length=length, sequences=3), ctx)
    inputs, _ = ctx.windows(3, length, 6).read(np.arange(3), 0, length)

    def last(tokens: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return ctx.model(tokens[None])[0][0, -1].softmax(-1)

    assert table["t"].min() == 0
    assert table["t"].max() == length - 1
    for row in table.iter_rows(named=True):
        tokens = inputs[row["sequence"]]
        expected = DISTANCES[row["distance"]](last(tokens), last(tokens[row["t"] :]))
        assert row["value"] == pytest.approx(float(expected), abs=1e-9)
    assert table.filter(pl.col("t") == 0)["value"].abs().max() < 1e-9
    assert table.filter(pl.col("t") > 12)["value"].max() > 1e-4

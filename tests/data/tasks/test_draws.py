"""Random numbers of examples: uniform, independent, and the same for one example as for many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ssm.data.tasks.draws import Draws, RandomGenerator

BOUNDS = st.integers(1, 2**32)


@settings(max_examples=40)
@given(st.integers(0, 2**62), st.integers(0, 2**40), BOUNDS, st.text(max_size=8))
def test_generators_give_the_numbers_of_one_example(seed: int, index: int, bound: int, stream: str) -> None:
    draws = Draws(seed, "train", np.array([index, index + 1]))
    many = draws.integers(stream, bound, 6)
    for row, rng in zip(many, draws.generators(stream), strict=True):
        assert [rng.below(bound) for _ in range(6)] == row.tolist()
    assert many.min() >= 0
    assert many.max() < bound
    np.testing.assert_array_equal(many[:, :3], draws.integers(stream, bound, 3))


def test_the_numbers_are_those_of_splitmix64() -> None:
    """The first numbers of its reference implementation with the start 1234567."""
    rng = RandomGenerator(1234567)
    words = [rng.below(2**32) for _ in range(3)]
    assert words == [6457827717110365317 >> 32, 3203168211198807973 >> 32, 9817491932198370423 >> 32]


@pytest.mark.parametrize("bound", [2, 3, 10, 26])
def test_numbers_are_uniform_and_independent(bound: int) -> None:
    draws = {
        "one": Draws(1, "train", np.arange(4000)).integers("a", bound, 5),
        "another stream": Draws(1, "train", np.arange(4000)).integers("b", bound, 5),
        "another split": Draws(1, "test", np.arange(4000)).integers("a", bound, 5),
        "another seed": Draws(2, "train", np.arange(4000)).integers("a", bound, 5),
        "other examples": Draws(1, "train", np.arange(4000, 8000)).integers("a", bound, 5),
    }
    for values in draws.values():
        assert stats.chisquare(np.bincount(values.flatten(), minlength=bound)).pvalue > 1e-4
        for one, other in ((values[:-1], values[1:]), (values[:, :-1], values[:, 1:])):  # neighbors
            pairs = np.bincount((one * bound + other).flatten(), minlength=bound**2)
            assert stats.chisquare(pairs).pvalue > 1e-4
    for name, values in draws.items():
        if name != "one":
            assert np.mean(values == draws["one"]) == pytest.approx(1 / bound, abs=0.02)


def test_bounds_for_every_row_and_numbers_below_one() -> None:
    draws = Draws(1, "train", np.arange(1000))
    bounds = np.arange(1, 1001)
    assert (draws.integers("x", bounds, 4) < bounds[:, None]).all()
    uniform = draws.uniform("u", 3).flatten()
    assert stats.kstest(uniform, "uniform").pvalue > 1e-4
    assert uniform.max() < 1


def test_two_of_gives_every_pair_of_different_items() -> None:
    rng = RandomGenerator(5)
    pairs = [rng.two_of("abc") for _ in range(600)]
    assert all(first != second for first, second in pairs)
    assert stats.chisquare([pairs.count((a, b)) for a in "abc" for b in "abc" if a != b]).pvalue > 1e-4


def test_weighted_draws_without_replacement() -> None:
    """Ordered pairs have the right probabilities. A row depends only on its index."""
    weights = np.array([1.0, 4.0, 2.0, 0.5])
    found = Draws(1, "train", np.arange(20_000)).chosen("x", weights, 2)
    pairs = np.bincount(found @ [4, 1], minlength=16).reshape(4, 4)
    share = weights / weights.sum()
    expected = share[:, None] * share / (1 - share[:, None])
    np.fill_diagonal(expected, 0)
    assert pairs.diagonal().sum() == 0
    off = ~np.eye(4, dtype=bool)
    assert stats.chisquare(pairs[off], 20_000 * expected[off]).pvalue > 1e-4
    np.testing.assert_array_equal(found[7:9], Draws(1, "train", np.array([7, 8])).chosen("x", weights, 2))
    everything = Draws(1, "train", np.arange(5)).chosen("x", weights, 4)
    assert (np.sort(everything) == np.arange(4)).all()

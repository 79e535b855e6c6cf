"""The choice of the weights to keep."""

from __future__ import annotations

from math import inf, log, nan

import pytest

from ssm.extension.choice import END, ORIGINAL, Candidate, Measure, best_of_trained, choose


def candidate(name: str, in_context: float, far: float, ratio: float = 0.0, step: int = 1) -> Candidate:
    return Candidate(name, step, None, in_context, far, ratio)


ORIGIN = candidate(ORIGINAL, 2.0, 3.0, 0.9, step=0)


@pytest.mark.parametrize(
    ("others", "measure", "tolerance", "chosen"),
    [
        ([candidate("a", 2.0, 2.5), candidate("b", 2.0, 2.4)], "far_perplexity", 0.02, "b"),
        ([candidate("a", 2.0, 2.5, 0.1), candidate("b", 2.0, 2.4, 0.2)], "paired_ratio", 0.02, "a"),
        ([candidate("a", 2.0, 3.1)], "far_perplexity", 0.02, ORIGINAL),  # worse
        ([candidate("a", 2.0, 3.0)], "far_perplexity", 0.02, ORIGINAL),  # no better
        ([candidate("a", 2.0, 2.5), candidate("b", 2.0, 2.5)], "far_perplexity", 0.02, "a"),  # the earlier
        ([candidate("a", 2.0 + log(1.0199), 2.5)], "far_perplexity", 0.02, "a"),  # just within
        ([candidate("a", 2.0 + log(1.0201), 2.5)], "far_perplexity", 0.02, ORIGINAL),  # just beyond
        ([candidate("a", 2.0 + log(1.0201), 2.0), candidate("b", 1.9, 2.9)], "far_perplexity", 0.02, "b"),
        ([candidate("a", 2.0, 2.5)], "far_perplexity", 0.0, "a"),  # as good as ever
        ([candidate("a", 2.0 + 1e-6, 2.5)], "far_perplexity", 0.0, ORIGINAL),
        ([candidate("a", nan, 2.5), candidate("b", inf, 2.5)], "far_perplexity", 0.02, ORIGINAL),
        ([candidate("a", 2.0, nan), candidate("b", 2.0, 2.9)], "far_perplexity", 0.02, "b"),
        ([candidate("a", 2.0, -inf)], "far_perplexity", 0.02, ORIGINAL),
    ],
)
def test_the_best_admitted_candidate_is_chosen(
    others: list[Candidate], measure: Measure, tolerance: float, chosen: str
) -> None:
    assert choose([ORIGIN, *others], measure, tolerance).name == chosen


def test_any_known_far_loss_is_better_than_a_nan() -> None:
    broken = candidate(ORIGINAL, 2.0, nan, step=0)
    assert choose([broken, candidate(END, 2.0, 9.0)], "far_perplexity", 0.02).name == END
    assert choose([broken, candidate(END, 2.0, nan)], "far_perplexity", 0.02).name == ORIGINAL
    trained = [candidate("a", 2.0, nan), candidate("b", 9.0, 9.0)]
    assert best_of_trained([ORIGIN, *trained], "far_perplexity") is trained[1], "also without a limit in context"


def test_a_candidate_survives_json() -> None:
    for one in (ORIGIN, Candidate("0.5", 50, 0.5, 1.0, 2.0, 3.0)):
        assert Candidate.from_json(one.as_json()) == one
    lost = candidate("a", nan, inf)
    assert lost.as_json()["in_context"] is None
    assert str(Candidate.from_json(lost.as_json()).far_perplexity) == "nan"

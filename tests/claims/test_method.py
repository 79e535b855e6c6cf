"""How an interval was made, as words and from them."""

from __future__ import annotations

import pytest

from ssm.claims.method import BOOTSTRAP, DRAWS, EXACT, FIELLER, GAFFKE, SEEDS, SEQUENCES, STUDENT, Method


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (Method(EXACT), "exact"),
        (Method(STUDENT, 3, SEEDS), "95% Student t over 3 seeds"),
        (Method(FIELLER, 5, SEEDS), "95% Fieller over 5 seeds"),
        (Method(BOOTSTRAP, 4, DRAWS), "95% bootstrap over 4 draws"),
        (Method("bootstrap of the median", 9, "rounds"), "bootstrap of the median over 9 rounds"),
        (
            Method(STUDENT, 3, SEEDS, logarithms=True, steps=2),
            "95% Student t over 3 seeds, of logarithms; smallest of 2 steps",
        ),
        (
            Method(BOOTSTRAP, 64, SEQUENCES, steps=7),
            "95% bootstrap over 64 sequences of one seed (other seeds may differ more); smallest of 7 steps",
        ),
        (Method(STUDENT, 3, SEEDS, steps=1000), "95% Student t over 3 seeds; smallest of 1,000 steps"),
        (Method(GAFFKE, 4, SEEDS, possible=(-1.0, 1e-6)), "95% Gaffke over 4 seeds, possible values -1 to 1e-06"),
        (
            Method(GAFFKE, 8, SEQUENCES, logarithms=True, possible=(0.125, 16.0)),
            "95% Gaffke over 8 sequences of one seed (other seeds may differ more), of logarithms, "
            "possible values 0.125 to 16",
        ),
    ],
)
def test_a_method_is_read_from_its_words(method: Method, words: str) -> None:
    assert method.words() == words
    assert Method.of_words(words) == method


@pytest.mark.parametrize("words", ["", "none", "by eye"])
def test_another_text_is_a_name(words: str) -> None:
    assert Method.of_words(words) == Method(words)
    assert Method(words).words() == words

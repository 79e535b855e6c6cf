"""What readers see of a verdict, at the terminal."""

from __future__ import annotations

import doctest

from hypothesis import given
from hypothesis import strategies as st

from ssm.claims import words
from ssm.claims.words import natural, number, ours, verdict_lines


def row(**changes: object) -> dict[str, object]:
    base = {"target": "lg_fig5", "claim": "it", "says": "it holds", "expected": "> 1.5", "verdict": "confirmed"}
    return base | {"estimate": 2.0, "low": 1.8, "high": 2.25, "interval": "95% Student t over 3 seeds"} | changes


def test_examples() -> None:
    found = doctest.testmod(words)
    assert found.failed == 0
    assert found.attempted >= 3


def test_numbers() -> None:
    assert [number(x) for x in (0.0, -1234.4, 1e20, 999.7, float("nan"))] == ["0", "-1,234", "1e+20", "1,000", "none"]
    assert ours(row()) == "2 (1.8 to 2.25)"
    assert ours(row(interval="exact")) == "2 (exact)"
    assert ours(row(estimate=None, low=None, high=None)) == "no number"


def test_lines_are_aligned_and_end_with_totals() -> None:
    lines = verdict_lines(
        [row(), row(target="lg_fig11", claim="longer", verdict="refuted"), row(verdict="not decided")]
    )
    assert len({line.index("it holds") for line in lines[:3]}) == 1
    assert lines[0].endswith("2 (1.8 to 2.25), expected > 1.5  confirmed")
    assert lines[-1] == "3 claims: 1 confirmed, 1 refuted, 1 not decided"
    assert verdict_lines([]) == ["0 claims: 0 confirmed, 0 refuted, 0 not decided"]


text = st.text(st.characters(codec="ascii", min_codepoint=32), max_size=300)


@given(st.lists(st.builds(row, says=text, claim=text, target=text, expected=text), min_size=1, max_size=4))
def test_no_line_is_wider_than_the_terminal(rows: list[dict[str, object]]) -> None:
    assert all(len(line) <= 160 for line in verdict_lines(rows))
    assert all(line.endswith("confirmed") for line in verdict_lines(rows)[:-1])


def test_natural_order() -> None:
    names = ["lg_fig11", "lg_tab1", "lg_fig2", "bn_fig1", "lg_fig2b"]
    assert sorted(names, key=natural) == ["bn_fig1", "lg_fig2", "lg_fig2b", "lg_fig11", "lg_tab1"]

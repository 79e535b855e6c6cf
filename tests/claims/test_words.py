"""The text of verdicts at the terminal."""

from __future__ import annotations

import doctest

from hypothesis import given
from hypothesis import strategies as st

from ssm.claims import words
from ssm.claims.claim import Expected
from ssm.claims.statements import ADDED, CONFIRMED, DEFINITION, ELSEWHERE, MIXED, OPEN, PAPER, REFUTED
from ssm.claims.tally import expected_misses, tally
from ssm.claims.terminal import WEAK_AMONG, verdict_lines
from ssm.claims.verdict import decide
from ssm.claims.words import WEAK_MEANS, measured, number, seed_words


def row(**changes: object) -> dict[str, object]:
    base = {"target": "lg_fig5", "claim": "it", "paper": "about 3", "expected": "> 1.5", "verdict": "confirmed"}
    base |= {"reason": "because", "sort": PAPER, "number": "a", "registered": True}
    return base | {"estimate": 2.0, "low": 1.8, "high": 2.25, "interval": "95% Student t over 3 seeds"} | changes


def test_examples() -> None:
    found = doctest.testmod(words)
    assert found.failed == 0
    assert found.attempted >= 3


def test_numbers() -> None:
    assert [number(x) for x in (0.0, -1234.4, 1e20, 999.7, float("nan"))] == ["0", "-1,234", "1e+20", "1,000", "none"]
    assert measured(row()) == "2 (1.8 to 2.25)"
    assert measured(row(interval="exact")) == "2 (exact)"
    assert measured(row(estimate=None, low=None, high=None)) == "no number"


def test_a_number_beside_a_bound_is_told_apart_from_it() -> None:
    assert measured(row(low=1.50001, high=1.5)) == "2 (1.50001 to 1.5)", "a bound itself stays"
    found = row(estimate=0.8996, low=-1.2e-05, high=1.09999, expected="0.9 to 1.1")
    assert measured(found) == "0.8996 (-1.2e-05 to 1.09999)"
    assert measured(row(estimate=-1.0004, low=4095.9, high=4096.0001, expected="-1 to 4096")) == (
        "-1.0004 (4,095.9 to 4,096.0001)"
    )
    assert decide(0.9, 0.99996, Expected(below=1.0))[1] == "interval 0.9 to 0.99996 lies inside < 1"


def test_lines_are_aligned_and_end_with_totals() -> None:
    lines = verdict_lines(
        [
            row(),
            row(target="lg_fig11", claim="longer", verdict="refuted", number="b"),
            row(claim="a", verdict="not decided", number="c", expected="> 1.9"),
        ]
    )
    heads = "figure    claim   the paper  here (95% interval)  method of the interval  expected  verdict      why"
    first = "lg_fig5   it      about 3    2 (1.8 to 2.25)      Student t over 3 seeds  > 1.5     confirmed"
    assert lines[:2] == [heads, first]
    assert len({line.index("about 3") for line in lines[1:4]}) == 1
    assert lines[3].endswith("> 1.9     not decided  about 11 new seeds would decide it; because")
    assert lines[4:] == [
        "3 verdicts on 3 statements, each counted once",
        "  statements of the papers: 1 confirmed, 1 refuted, 0 mixed, 1 not decided",
        "  3 intervals of 95%: about 0.15 miss the true value by chance, "
        "so up to about 0.15 verdicts may be wrong, not counting earlier seeds",
    ]
    for width in (None, 80):
        assert verdict_lines([], width)[1:] == ["0 verdicts on 0 statements, each counted once"]


def test_unregistered_verdicts_are_marked_and_not_counted() -> None:
    lines = verdict_lines([row(registered=False), row(registered=False, verdict="refuted"), row(number="b")])
    assert lines[4] == "3 verdicts on 1 statement, each counted once"
    assert [line.endswith("confirmed, not registered") for line in lines[1:4]] == [True, False, False]
    assert "  statements of the papers: 1 confirmed, 0 refuted, 0 mixed, 0 not decided" in lines
    assert "  not counted, because registered too late or not at all: 2" in lines


def test_a_statement_counts_once_whatever_the_number_of_models() -> None:
    for verdicts, counted in (
        ((CONFIRMED, CONFIRMED), CONFIRMED),
        ((REFUTED, REFUTED), REFUTED),
        ((OPEN, OPEN, OPEN), OPEN),
        ((CONFIRMED, OPEN), MIXED),
        ((OPEN, REFUTED, CONFIRMED), MIXED),
    ):
        rows = [row(claim=f"it[size={i}]/m{i}", number=str(i), verdict=one) for i, one in enumerate(verdicts)]
        found = tally(rows)
        assert (found.counts, found.statements, found.intervals) == ({PAPER: {counted: 1}}, 1, len(verdicts))
        assert tally([*rows, row(target="lg_fig1", number="x")]).statements == 2, "another figure, another statement"


def test_statements_on_the_same_numbers_count_once() -> None:
    found = tally([row(), row(target="lg_fig1"), row(claim="other", number="b")])
    assert (found.verdicts, found.counts, found.repeated, found.intervals) == (3, {PAPER: {CONFIRMED: 2}}, 1, 2)
    assert tally([row(), row(target="lg_fig1", verdict=REFUTED)]).counts == {PAPER: {MIXED: 1}}
    stricter = row(claim="nearly all", expected="> 0.9", verdict=REFUTED)
    assert tally([row(), stricter]).counts == {PAPER: {CONFIRMED: 1, REFUTED: 1}}, "one number, two regions"
    absent = {"verdict": OPEN, "estimate": None, "interval": "none"}
    assert tally([row(**absent), row(claim="other", **absent)]).counts == {PAPER: {OPEN: 2}}, "no number, two names"
    assert tally([row(**absent), row(target="lg_fig1", **absent)]).counts == {PAPER: {OPEN: 1}}


def test_weak_verdicts_are_marked_and_the_mark_is_explained() -> None:
    lines = verdict_lines([row(), row(claim="other", number="b")], weak={("lg_fig5", "other")})
    assert [line.endswith("confirmed*") for line in lines[1:3]] == [False, True]
    assert lines[-2:] == [f"  * {WEAK_MEANS}", f"    {WEAK_AMONG}"], "other figures may have tests, too"
    assert not any(WEAK_MEANS in line for line in verdict_lines([row()]))


def test_numbers_of_seeds_as_text() -> None:
    assert seed_words(row(by_seed='{"31": 2.125, "32": null}')) == "31: 2.12, 32: none"
    assert seed_words(row(by_seed='{"31": [1, 2.5]}')) == "31: 1 2.5"
    assert seed_words(row(by_seed='{"31": {"before": 1, "after": null}}')) == "31: before 1 after none"
    assert seed_words(row(by_seed=None)) == seed_words(row()) == "no numbers of seeds"


def test_definitions_and_added_checks_are_counted_separately() -> None:
    rows = [row(), row(sort=ADDED, verdict=OPEN), row(sort=DEFINITION, number="b", interval="exact")]
    found = tally(rows)
    assert found.counts == {PAPER: {CONFIRMED: 1}, DEFINITION: {CONFIRMED: 1}, ADDED: {OPEN: 1}}
    assert found.intervals == 1  # exact numbers have no interval; a number that is judged twice has one
    assert "  definitions: 1 confirmed, 0 refuted, 0 mixed, 0 not decided" in verdict_lines(rows)
    assert "  added checks: 0 confirmed, 0 refuted, 0 mixed, 1 not decided" in verdict_lines(rows)


def test_statements_on_models_of_other_scales_are_not_counted() -> None:
    found = tally([row(), row(sort=ELSEWHERE, verdict=OPEN, estimate=None, interval="none")])
    assert (found.counts, found.elsewhere, found.repeated, found.unregistered) == ({PAPER: {CONFIRMED: 1}}, 1, 0, 0)


def test_expected_number_of_wrong_verdicts() -> None:
    assert tally(row(number=str(i)) for i in range(40)).wrong == 2.0
    assert tally(row(number=str(i), estimate=None, interval="none") for i in range(40)).wrong == 0
    for count, wrong in ((137, "7"), (9, "0.45")):
        told = expected_misses(tally(row(number=str(i)) for i in range(count)))
        miss = f"{count} intervals of 95%: about {wrong} miss the true value by chance"
        assert told == f"{miss}, so up to about {wrong} verdicts may be wrong, not counting earlier seeds"


def test_without_a_terminal_nothing_is_cut() -> None:
    paper = "in the paper " * 30
    given = row(paper=paper + "\n the end", estimate=None, verdict=OPEN, reason="a long reason " * 9 + "indeed")
    line = verdict_lines([given])[1]
    assert f"{paper}the end  no number            > 1.5     not decided  a long reason" in line
    assert line.endswith("reason indeed")
    assert "..." not in line


def test_a_narrow_terminal_cuts_the_papers_words_first() -> None:
    (_, line, *_) = verdict_lines([row(claim="a_claim_with_a_rather_long_id", paper="grows without bound " * 9)], 90)
    assert line == "lg_fig5  a_claim_with_a_rathe...  grows witho...  2 (1.8 to 2.25)      > 1.5     confirmed"
    assert "Student t over 3 seeds" in verdict_lines([row(paper="grows without bound " * 9)], 120)[1]


text = st.text(st.characters(codec="ascii", min_codepoint=32), max_size=300)
texts = dict.fromkeys(("paper", "claim", "target", "expected", "reason"), text)
numbers = st.sampled_from([2.0, None])


@given(st.lists(st.builds(row, estimate=numbers, **texts), min_size=1, max_size=4), st.integers(45, 200))
def test_no_line_is_wider_than_the_terminal(rows: list[dict[str, object]], width: int) -> None:
    lines = verdict_lines(rows, width)
    assert all(len(line) <= width for line in lines[: len(rows) + 1])
    assert all("  confirmed" in line for line in lines[1 : len(rows) + 1])

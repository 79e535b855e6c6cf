"""Counts of the statements that verdicts are about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ssm.base.counting import counted
from ssm.claims.method import EXACT, NONE
from ssm.claims.statements import ELSEWHERE, OUTCOMES, SORTS, outcome, statements
from ssm.claims.words import number, totals

MISSES = 0.05  # share of 95% intervals that do not contain the true value


@dataclass(frozen=True)
class Tally:
    """Counts of statements. A statement on several models counts once."""

    verdicts: int
    counts: dict[str, Counter[str]]  # kind of statement -> outcome -> distinct statements
    repeated: int  # statements on the numbers and regions of another statement of their kind
    unregistered: int  # verdicts that were registered too late or not at all: not counted
    elsewhere: int  # verdicts on models that this scale does not have: not counted
    intervals: int  # distinct numbers with a 95% interval

    @property
    def statements(self) -> int:
        """The number of distinct statements."""
        return sum(count.total() for count in self.counts.values())

    @property
    def wrong(self) -> float:
        """Expected number of intervals that miss the true value: an upper bound on the expected wrong verdicts."""
        return MISSES * self.intervals


def tally(rows: Iterable[Mapping[str, Any]]) -> Tally:
    """Count statements.

    A statement is confirmed if all its verdicts are "confirmed"; refuted and not decided are analogous. Otherwise it is
    mixed. Several statements of one kind that compare the very same numbers with the same regions count as one. Without
    a number, as on arms that a scale does not have, they must also have the same name.
    """
    rows = list(rows)
    here = [row for row in rows if row["sort"] != ELSEWHERE]
    included = [row for row in here if row["registered"] is not False]
    counts, repeated = {}, 0
    for sort in SORTS:
        of_kind = statements(row for row in included if row["sort"] == sort)
        verdicts: dict[frozenset[tuple[str, ...]], set[str]] = {}
        for statement in of_kind:
            judged = frozenset(
                (row["number"], row["expected"], row["claim"] if row["estimate"] is None else "")
                for row in statement.rows
            )
            verdicts.setdefault(judged, set()).update(row["verdict"] for row in statement.rows)
        if verdicts:
            counts[sort] = Counter(map(outcome, verdicts.values()))
            repeated += len(of_kind) - len(verdicts)
    intervals = {row["number"] for row in included if row["interval"] not in (EXACT, NONE)}
    return Tally(
        verdicts=len(rows),
        counts=counts,
        repeated=repeated,
        unregistered=len(here) - len(included),
        elsewhere=len(rows) - len(here),
        intervals=len(intervals),
    )


def tally_lines(found: Tally) -> list[str]:
    """A tally as lines for the terminal."""
    lines = [f"{counted(found.verdicts, 'verdict')} on {counted(found.statements, 'statement')}, each counted once"]
    for sort, count in found.counts.items():
        lines.append(f"  {SORTS[sort]}: {totals(count.elements(), OUTCOMES)}")
    if found.unregistered:
        lines.append(f"  not counted, because registered too late or not at all: {found.unregistered}")
    if found.elsewhere:
        lines.append(f"  not counted, because about models that this scale does not have: {found.elsewhere}")
    if found.intervals:
        lines.append(f"  {expected_misses(found)}")
    return lines


def expected_misses(found: Tally) -> str:
    """The number of wrong verdicts that chance explains, as text."""
    wrong = f"about {number(round(found.wrong) or found.wrong)}"
    miss = f"{wrong} miss the true value by chance, so up to {wrong} verdicts may be wrong, not counting earlier seeds"
    return f"{counted(found.intervals, 'interval')} of 95%: {miss}"

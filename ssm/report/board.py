"""The picture of everything: every figure of the four papers as a card, every claim on it as a mark."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ssm.base.formulas import plain
from ssm.report.gather import MARKS, Absent, Claim, Results
from ssm.report.papers import GROUPS, PAPERS, Paper, spoken

# A mark is a shape of its own and takes its colour from the page: 16 x 16, the outline and what is cut out of it.
SHAPES = {
    "confirmed": '<circle cx="8" cy="8" r="7"/><path class="cut" d="M4.6 8.4 7.1 10.8 11.6 5.6"/>',
    "refuted": '<path d="M8 0.4 15.6 8 8 15.6 0.4 8Z"/><path class="cut" d="M5.7 5.7 10.3 10.3M10.3 5.7 5.7 10.3"/>',
    "not-decided": '<circle class="line" cx="8" cy="8" r="6"/><path class="line" d="M5 8H11"/>',
    "unregistered": '<rect class="line dashed" x="2" y="2" width="12" height="12"/>',
    "elsewhere": '<path class="line" d="M4 8H12"/>',
    "rehearsed": '<circle cx="8" cy="8" r="2.5"/>',
}

NOT_PLANNED = Absent("not planned", "it has no figure file yet, or config.yaml leaves it out")


@dataclass(frozen=True)
class Card:
    """One figure or table of a paper.

    Attributes:
        href: where it is shown; "": nowhere, because it is not made.
        absent: why it is not; None: it is.
    """

    target: str
    spoken: str
    shows: str
    href: str
    claims: tuple[Claim, ...]
    absent: Absent | None

    @property
    def theirs(self) -> tuple[Claim, ...]:
        """The paper's own statements, whose marks are large."""
        return tuple(claim for claim in self.claims if claim.sort not in ("ours", "definition"))

    @property
    def others(self) -> tuple[Claim, ...]:
        """Definitions and checks of our own."""
        return tuple(claim for claim in self.claims if claim.sort in ("ours", "definition"))


@dataclass(frozen=True)
class Group:
    """A paper's cards."""

    paper: Paper
    cards: tuple[Card, ...]

    @property
    def made(self) -> int:
        return sum(card.absent is None for card in self.cards)


def board(results: Results, papers: tuple[str, ...] = tuple(PAPERS), here: tuple[str, ...] = ()) -> tuple[Group, ...]:
    """The cards of some papers, for a page that itself shows the figures `here`; any other is on its paper's page."""
    figures = {figure.target: figure for figure in results.figures}
    groups = []
    for paper in (GROUPS[short] for short in papers):
        planned = [target for target in (*figures, *results.unfinished) if target.startswith(f"{paper.short}_")]
        cards = []
        for target in dict.fromkeys([*paper.shows, *planned]):
            figure = figures.get(target)
            shows = paper.shows.get(target) or (plain(figure.task.figure.title) if figure else "")
            absent = None if figure else results.unfinished.get(target, NOT_PLANNED)
            href = f"{'' if target in here else f'{paper.short}.html'}#{target}" if figure else ""
            cards.append(Card(target, spoken(target), shows, href, figure.claims if figure else (), absent))
        groups.append(Group(paper, tuple(cards)))
    return tuple(groups)


def legend(groups: tuple[Group, ...]) -> list[tuple[str, str, int]]:
    """(mark, its words, how many) of the marks that there are; the three verdicts always, unless all was rehearsed."""
    counts = Counter(claim.mark for group in groups for card in group.cards for claim in card.claims)
    verdicts = () if counts["rehearsed"] else tuple(MARKS)[:3]
    return [(mark, words, counts[mark]) for mark, words in MARKS.items() if counts[mark] or mark in verdicts]

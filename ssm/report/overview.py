"""The overview: a card for every figure of the papers, with a mark for every claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ssm.base.prose import plain
from ssm.claims.statements import ADDED, DEFINITION
from ssm.report.agreement import Agreement, ReferenceResults
from ssm.report.gather import MARKS, Absent, Results, Verdict
from ssm.report.papers import GROUPS, Paper, spoken

# Each mark has its own shape, 16 x 16: an outline, and paths that are cut out of it. The page sets the color.
SHAPES = {
    "confirmed": '<circle cx="8" cy="8" r="7"/><path class="cut" d="M4.6 8.4 7.1 10.8 11.6 5.6"/>',
    "refuted": '<path d="M8 0.4 15.6 8 8 15.6 0.4 8Z"/><path class="cut" d="M5.7 5.7 10.3 10.3M10.3 5.7 5.7 10.3"/>',
    "not-decided": '<circle class="line" cx="8" cy="8" r="6"/><path class="line" d="M5 8H11"/>',
    "unregistered": '<rect class="line dashed" x="2" y="2" width="12" height="12"/>',
    "elsewhere": '<path class="line" d="M4 8H12"/>',
    "dry-run": '<circle cx="8" cy="8" r="2.5"/>',
}

NOT_PLANNED = Absent("not planned", "it has no figure file yet, or config.yaml leaves it out")


@dataclass(frozen=True)
class Card:
    """A figure or table of a paper.

    Attributes:
        href: the link to it; "": it is not shown, because it is missing and has no reference.
        claims: its verdicts, made here or taken from the reference.
        absent: why it is missing here; None: it is finished.
        reference: whether the card shows the reference.
        agreement: how its claims compare with the reference; None: there is nothing to compare.
    """

    target: str
    spoken: str
    shows: str
    href: str
    claims: tuple[Verdict, ...]
    absent: Absent | None
    reference: bool = False
    agreement: Agreement | None = None

    @property
    def theirs(self) -> tuple[Verdict, ...]:
        """The paper's own statements. Their marks are large."""
        return tuple(claim for claim in self.claims if claim.sort not in (ADDED, DEFINITION))

    @property
    def others(self) -> tuple[Verdict, ...]:
        """Definitions and added checks."""
        return tuple(claim for claim in self.claims if claim.sort in (ADDED, DEFINITION))


@dataclass(frozen=True)
class Group:
    """The cards of a paper."""

    paper: Paper
    cards: tuple[Card, ...]

    @property
    def made(self) -> int:
        return sum(card.absent is None for card in self.cards)

    @property
    def references(self) -> int:
        """The number of cards that show the reference."""
        return sum(card.reference for card in self.cards)


def board(
    results: Results, references: ReferenceResults, papers: tuple[str, ...], here: tuple[str, ...]
) -> tuple[Group, ...]:
    """The cards of some papers.

    Args:
        references: the reference results, for the cards of missing figures.
        here: targets that the same page shows in full. The cards of other figures link to the page of their paper.
    """
    figures = {figure.target: figure for figure in results.figures}
    groups = []
    for paper in (GROUPS[short] for short in papers):
        known = (*figures, *results.unfinished, *references.figures)
        planned = [target for target in known if target.startswith(f"{paper.short}_")]
        cards = []
        for target in dict.fromkeys([*paper.shows, *planned]):
            figure, reference = figures.get(target), references.figures.get(target)
            shows = paper.shows.get(target) or (plain(figure.task.figure.title) if figure else "")
            absent = None if figure else results.unfinished.get(target, NOT_PLANNED)
            shown = figure or reference
            href = f"{'' if target in here else f'{paper.short}.html'}#{target}" if shown else ""
            claims: tuple[Verdict, ...] = shown.claims if shown else ()
            agreement = references.agreements.get(target)
            cards.append(
                Card(target, spoken(target), shows, href, claims, absent, not figure and bool(reference), agreement)
            )
        groups.append(Group(paper, tuple(cards)))
    return tuple(groups)


@dataclass(frozen=True)
class FirstLook:
    """What a reader should open first.

    Attributes:
        start: the figure with the most decided statements of its paper.
        confirmed: the number of confirmed statements among them.
        refuted: the figures with a refuted statement of their paper.
    """

    start: Card
    confirmed: int
    refuted: tuple[Card, ...]


def first_look(groups: tuple[Group, ...], front: Sequence[str]) -> FirstLook | None:
    """What to open first among the finished figures; None: no statement of a paper is judged here.

    Args:
        front: targets that are preferred.
    """
    made = [card for group in groups for card in group.cards if card.absent is None and card.theirs]
    if not made:
        return None
    marks = {card.target: Counter(claim.mark for claim in card.theirs) for card in made}
    decided = {target: counts["confirmed"] + counts["refuted"] for target, counts in marks.items()}
    start = max(made, key=lambda card: (card.target in front, decided[card.target]))
    refuted = tuple(card for card in made if marks[card.target]["refuted"])
    return FirstLook(start, marks[start.target]["confirmed"], refuted)


def counts_by_mark(claims: Iterable[Verdict]) -> list[tuple[str, int]]:
    """(words of a mark, number of claims with it), without unused marks."""
    counts = Counter(claim.mark for claim in claims)
    return [(words, counts[mark]) for mark, words in MARKS.items() if counts[mark]]


def legend(groups: tuple[Group, ...], reference: bool = False) -> list[tuple[str, str, int]]:
    """(mark, its words, number of claims with it). The three verdicts are always listed, except for a dry run.

    Args:
        reference: count the cards that show the reference; otherwise those of finished figures.
    """
    cards = [card for group in groups for card in group.cards if card.reference == reference]
    counts = Counter(claim.mark for card in cards for claim in card.claims)
    verdicts = () if counts["dry-run"] or not cards else tuple(MARKS)[:3]
    return [(mark, words, counts[mark]) for mark, words in MARKS.items() if counts[mark] or mark in verdicts]

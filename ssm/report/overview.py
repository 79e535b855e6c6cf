"""The overview: every figure of the four papers as a card, every claim on it as a mark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ssm.base.prose import plain
from ssm.report.agreement import Against, Agreement
from ssm.report.gather import MARKS, Absent, Results, Verdict
from ssm.report.papers import GROUPS, PAPERS, Paper, spoken

# A mark is a shape of its own and takes its colour from the page: 16 x 16, the outline and what is cut out of it.
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
    """One figure or table of a paper.

    Attributes:
        href: where it is shown; "": nowhere, because it is not made and has no reference.
        claims: those that are judged here, or else in the reference.
        absent: why it is not made here; None: it is.
        reference: whether it shows the reference, because it is not made here.
        agreement: whether what is made here agrees with the reference; None: there is nothing to compare.
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
        """The paper's own statements, whose marks are large."""
        return tuple(claim for claim in self.claims if claim.sort not in ("ours", "definition"))

    @property
    def others(self) -> tuple[Verdict, ...]:
        """Definitions and added checks."""
        return tuple(claim for claim in self.claims if claim.sort in ("ours", "definition"))


@dataclass(frozen=True)
class Group:
    """A paper's cards."""

    paper: Paper
    cards: tuple[Card, ...]

    @property
    def made(self) -> int:
        return sum(card.absent is None for card in self.cards)

    @property
    def references(self) -> int:
        """How many show the reference."""
        return sum(card.reference for card in self.cards)


def board(
    results: Results, beside: Against, papers: tuple[str, ...] = tuple(PAPERS), here: tuple[str, ...] = ()
) -> tuple[Group, ...]:
    """The cards of some papers, for a page that itself shows the figures `here`; any other is on its paper's page.

    Args:
        beside: reference results, which cards of figures that are not made show.
    """
    figures = {figure.target: figure for figure in results.figures}
    groups = []
    for paper in (GROUPS[short] for short in papers):
        known = (*figures, *results.unfinished, *beside.figures)
        planned = [target for target in known if target.startswith(f"{paper.short}_")]
        cards = []
        for target in dict.fromkeys([*paper.shows, *planned]):
            figure, reference = figures.get(target), beside.figures.get(target)
            shows = paper.shows.get(target) or (plain(figure.task.figure.title) if figure else "")
            absent = None if figure else results.unfinished.get(target, NOT_PLANNED)
            shown = figure or reference
            href = f"{'' if target in here else f'{paper.short}.html'}#{target}" if shown else ""
            claims: tuple[Verdict, ...] = shown.claims if shown else ()
            agreement = beside.agreements.get(target)
            cards.append(
                Card(target, spoken(target), shows, href, claims, absent, not figure and bool(reference), agreement)
            )
        groups.append(Group(paper, tuple(cards)))
    return tuple(groups)


@dataclass(frozen=True)
class FirstLook:
    """What a reader of the report opens first.

    Attributes:
        start: a figure with many decided statements of its paper.
        confirmed: how many of these are confirmed.
        refuted: the figures with a refuted statement of their paper.
    """

    start: Card
    confirmed: int
    refuted: tuple[Card, ...]


def first_look(groups: tuple[Group, ...], front: Sequence[str]) -> FirstLook | None:
    """What to open first among the figures that are made here; None: no statement of a paper is judged here.

    Args:
        front: targets that are preferred.
    """
    made = [card for group in groups for card in group.cards if card.absent is None and card.theirs]
    if not made:
        return None
    marks = {card.target: Counter(claim.mark for claim in card.theirs) for card in made}
    start = max(made, key=lambda card: (card.target in front, _decided(marks[card.target])))
    refuted = tuple(card for card in made if marks[card.target]["refuted"])
    return FirstLook(start, marks[start.target]["confirmed"], refuted)


def _decided(marks: Counter[str]) -> int:
    return marks["confirmed"] + marks["refuted"]


def counts_by_mark(claims: Iterable[Verdict]) -> list[tuple[str, int]]:
    """(the words of a mark, how many claims have it), without marks that no claim has."""
    counts = Counter(claim.mark for claim in claims)
    return [(words, counts[mark]) for mark, words in MARKS.items() if counts[mark]]


def legend(groups: tuple[Group, ...], reference: bool = False) -> list[tuple[str, str, int]]:
    """(mark, its words, how many) of the marks that there are; the three verdicts always, unless all is a dry run.

    Args:
        reference: of the figures that show the reference; otherwise of those that are made here.
    """
    cards = [card for group in groups for card in group.cards if card.reference == reference]
    counts = Counter(claim.mark for card in cards for claim in card.claims)
    verdicts = () if counts["dry-run"] or not cards else tuple(MARKS)[:3]
    return [(mark, words, counts[mark]) for mark, words in MARKS.items() if counts[mark] or mark in verdicts]

"""Reference results in the report: they replace missing figures, and are compared with finished ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ssm.base.errors import TableError, UserError
from ssm.base.prose import plain
from ssm.claims.statements import paper_of
from ssm.claims.words import measured, number, to_the_minute
from ssm.figures.figure import FigureTask
from ssm.report.compare import AGREES, CONSISTENT, DIFFERS, ONE_SIDE, Comparison, compare, unlike
from ssm.report.gather import Results, Verdict
from ssm.report.image import Image, png_image
from ssm.report.papers import GROUPS, spoken
from ssm.report.reference import Reference, open_png, read_references
from ssm.report.scales import with_other_scales
from ssm.report.strip import REPORTED, strip_of_scales
from ssm.specs.base import SCALES

MADE = {"processor": "on {}", "python": "Python {}", "torch": "torch {}", "commit": "commit {}"}


class ReferenceClaim(Verdict):
    """A verdict of the reference, as a page shows it."""

    @property
    def words(self) -> str:
        return f"Reference result, not made on this machine. {super().words}"


@dataclass(frozen=True)
class ReferenceFigure:
    """The reference of a figure that is missing here.

    Attributes:
        caption: from the plan; empty if the figure is not planned here.
        made: when, on which machine and with which software.
        source: the file of its verdicts.
        planned: whether the workflow can make it here.
    """

    target: str
    scale: str
    title: str
    caption: str
    image: Image
    claims: tuple[ReferenceClaim, ...]
    made: str
    source: str
    planned: bool

    @property
    def spoken(self) -> str:
        return spoken(self.target)


@dataclass(frozen=True)
class Agreement:
    """How the claims of finished figures compare with the reference."""

    claims: tuple[Comparison, ...]
    unlike: tuple[str, ...]  # a line for each software version that differs and can change numbers

    def of(self, result: str) -> tuple[Comparison, ...]:
        """The claims with this result: AGREES, CONSISTENT, DIFFERS or ONE_SIDE."""
        return tuple(claim for claim in self.claims if claim.result == result)

    @property
    def compared(self) -> int:
        """The number of claims that both sides have."""
        return len(self.claims) - len(self.of(ONE_SIDE))

    @property
    def bitwise(self) -> int:
        return sum(claim.bitwise for claim in self.claims)

    @property
    def unequal(self) -> tuple[Comparison, ...]:
        """The claims that differ, then those that only one side has."""
        return self.of(DIFFERS) + self.of(ONE_SIDE)

    @property
    def counts(self) -> str:
        """How many agree, are consistent and differ, of which claims, as a sentence without its full stop."""
        consistent = f", {len(self.of(CONSISTENT))} consistent within their intervals" if self.of(CONSISTENT) else ""
        alone = f". Not compared, because only one side has them: {len(self.of(ONE_SIDE))}" if self.of(ONE_SIDE) else ""
        return (
            f"Of {self.compared} claims that are made here and have a reference result, {len(self.of(AGREES))} agree "
            f"({self.bitwise} of them bitwise){consistent}, {len(self.of(DIFFERS))} differ{alone}"
        )

    @property
    def words(self) -> str:
        """A summary for a card."""
        others = {CONSISTENT: "consistent", DIFFERS: "differ", ONE_SIDE: "on one side only"}
        shown = "".join(f", {len(self.of(result))} {words}" for result, words in others.items() if self.of(result))
        return f"{len(self.of(AGREES))} of {self.compared} claims agree with the reference{shown}"


@dataclass(frozen=True)
class ReferenceResults:
    """The reference results for a report; empty without a folder of references."""

    figures: dict[str, ReferenceFigure] = field(default_factory=dict)  # by target: figures that are missing here
    agreements: dict[str, Agreement] = field(default_factory=dict)  # by target: finished figures
    # (target, verdict) -> scale -> the verdict of a reference; for all figures and scales
    by_scale: dict[tuple[str, str], dict[str, dict[str, Any]]] = field(default_factory=dict)

    @property
    def total(self) -> Agreement:
        """The agreement of all finished figures that have a reference."""
        found = self.agreements.values()
        lines = dict.fromkeys(line for agreement in found for line in agreement.unlike)
        return Agreement(tuple(claim for agreement in found for claim in agreement.claims), tuple(lines))

    def strip_of_scales(self, claim: Verdict, scale: str, paper: float | None) -> Markup:
        """A verdict at every scale, on one axis. Empty: there is nothing to compare.

        Args:
            scale: that of the verdict.
            paper: the paper's number.
        """
        return strip_of_scales(self._scales(claim, scale), claim.expected, paper)

    def words_of_scales(self, claim: Verdict, scale: str, paper: float | None) -> str:
        """The numbers of the strip as text: "smoke 1.2 (1.1 to 1.3); desk 1.25 (1.2 to 1.3); reported 1.3".

        The strip has the region of `scale`. If another scale expects another region, the text says so.
        """
        words = []
        for one, row in self._scales(claim, scale).items():
            other = "" if row["expected"] == claim.row["expected"] else f", expected {row['expected']}"
            if row["estimate"] is not None:
                words.append(f"{one} {measured(row)}{other}")
        return "; ".join(words + ([] if paper is None else [f"{REPORTED} {number(paper)}"]))

    def _scales(self, claim: Verdict, scale: str) -> dict[str, dict[str, Any]]:
        """Scale -> the verdict there, in the order of the scales."""
        rows = self.by_scale.get((claim.row["target"], claim.row["claim"]), {}) | {scale: claim.row}
        return {one: rows[one] for one in SCALES if one in rows}

    @property
    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """Scale -> the verdicts of all references."""
        found: dict[str, list[dict[str, Any]]] = {}
        for at in self.by_scale.values():
            for scale, row in at.items():
                found.setdefault(scale, []).append(row)
        return found

    @property
    def claims(self) -> tuple[ReferenceClaim, ...]:
        """The claims of all figures that are missing here."""
        return tuple(claim for figure in self.figures.values() for claim in figure.claims)

    def of(self, targets: Iterable[str]) -> ReferenceResults:
        """Only these figures."""
        wanted = set(targets)
        return replace(
            self,
            figures={target: figure for target, figure in self.figures.items() if target in wanted},
            agreements={target: found for target, found in self.agreements.items() if target in wanted},
        )


def reference_results(results: Results, folder: Path, reference: Path | None) -> ReferenceResults:
    """The reference results that a report shows. They have the scale of the report.

    Args:
        results: the content of `folder`. The report of a dry run shows no reference, because its numbers mean nothing.
        folder: the results folder.
        reference: the folder of reference results; None: there are none.

    Raises:
        ConfigError: a reference is broken. The message names the file.
        TableError: the folder holds no reference, or a picture is missing or broken.
    """
    if reference is None or results.dry_run:
        return ReferenceResults()
    in_folder = read_references(reference)
    if not in_folder:
        raise TableError(f"{reference}: no reference results")
    references = {name: one for name, one in in_folder.items() if one.scale == results.scale}
    finished = [figure.target for figure in results.figures]
    return ReferenceResults(
        {name: _figure(one, reference, results, folder) for name, one in references.items() if name not in finished},
        {name: _agreement(folder, {name: references[name]}) for name in finished if name in references},
        _by_scale(with_other_scales(in_folder.values(), reference)),
    )


def _by_scale(references: Iterable[Reference]) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for one in references:
        for row in one.rows():
            found.setdefault((one.target, row["claim"]), {})[one.scale] = row
    return found


def _agreement(folder: Path, reference: Mapping[str, Reference]) -> Agreement:
    return Agreement(tuple(compare(folder, reference)), tuple(unlike(folder, reference)))


def _figure(reference: Reference, source: Path, results: Results, folder: Path) -> ReferenceFigure:
    target = reference.target
    title, caption = _words_of(folder / "specs" / "figures" / f"{target}.json")
    path = source / f"{target}.png"
    with open_png(path) as image:
        size = image.size
    group = GROUPS.get(paper_of(target))
    return ReferenceFigure(
        target=target,
        scale=reference.scale,
        title=title or (group.shows.get(target, "") if group else ""),
        caption=caption,
        image=png_image(path.read_bytes(), size),
        claims=tuple(map(ReferenceClaim, reference.rows())),
        made=_made(reference.made),
        source=(source / f"{target}.json").as_posix(),
        planned=target in results.unfinished,
    )


def _words_of(spec: Path) -> tuple[str, str]:
    """Title and caption of a planned figure; empty if it is not planned, or its spec is out of date."""
    try:
        figure = FigureTask.load(spec).figure
    except UserError:
        return "", ""
    return plain(figure.title), figure.caption


def _made(made: Mapping[str, str]) -> str:
    """When, on which machine and with which software a reference was made."""
    written = [to_the_minute(made["written"])] if "written" in made else []
    return ", ".join([*written, *(words.format(made[key]) for key, words in MADE.items() if key in made)])

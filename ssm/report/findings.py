"""The page of findings: sentences on several figures, with links to the statements that they rest on."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from ssm.claims.statements import CONFIRMED, REFUTED, paper_of, statement_id
from ssm.claims.synthesis import SUPPORTED, UNJUDGED, UNSUPPORTED, Finding, FindingGroup, Support, Synthesis, findings
from ssm.report.agreement import ReferenceResults
from ssm.report.gather import Results
from ssm.report.image import Image
from ssm.report.papers import GROUPS, spoken
from ssm.report.reference import Reference
from ssm.report.scales import all_scales, largest_rows, sized_statements, statements_by_scale
from ssm.specs.base import SCALES, slug

MARKED = {SUPPORTED: "", UNSUPPORTED: "<b>Not supported.</b> ", UNJUDGED: "<b>Not judged.</b> "}


def label(target: str) -> str:
    """A figure as links name it.

    >>> label("lg_fig5"), label("x_repairs")
    ('lg Figure 5', 'x Repairs')
    """
    return f"{paper_of(target)} {spoken(target)}"


def shows(target: str) -> str:
    """A figure and what it shows, in a few words.

    >>> shows("lg_fig5")
    'lg Figure 5: four interventions'
    """
    paper = GROUPS.get(paper_of(target))
    words = paper.shows.get(target, "") if paper else ""
    return f"{label(target)}: {words}" if words else label(target)


def state_counts(groups: Iterable[FindingGroup]) -> str:
    """How many sentences are supported.

    >>> state_counts([FindingGroup("One", (Finding("It holds.", ()),))])
    '1 of 1 sentences are supported'
    """
    counts = Counter(finding.state for group in groups for finding in group.findings)
    others = "".join(f", {counts[state]} {state}" for state in (UNSUPPORTED, UNJUDGED) if counts[state])
    return f"{counts[SUPPORTED]} of {counts.total()} sentences are supported{others}"


def reference_findings(synthesis: Synthesis, references: Iterable[Reference]) -> tuple[FindingGroup, ...]:
    """What the reference results say about the sentences. The largest scale at which a statement was judged counts."""
    return findings(synthesis, largest_rows(sized_statements(references)))


def unsupported_in(synthesis: Synthesis, folder: Path) -> list[str]:
    """A line for each sentence that the references in `folder`, and those of other scales beside it, do not support."""
    return [
        f"'{finding.says}' is {finding.state}: {finding.why}"
        for group in reference_findings(synthesis, all_scales(folder))
        for finding in group.findings
        if finding.state != SUPPORTED
    ]


@dataclass(frozen=True)
class ShownFindings:
    """What the page of findings shows; empty without sentences.

    Attributes:
        scale: of the report.
        elsewhere: (target, statement) -> the scale at which it was judged, if its verdicts are reference results.
        targets: figures that have a section in the report.
        picture, title: of the figure that is shown.
        href: the link to it.
    """

    groups: tuple[FindingGroup, ...] = ()
    scale: str = ""
    elsewhere: Mapping[tuple[str, str], str] = field(default_factory=dict)
    targets: frozenset[str] = frozenset()
    picture: Image | None = None
    title: str = ""
    href: str = ""

    @property
    def counts(self) -> str:
        return state_counts(self.groups)

    def label(self, support: Support) -> Markup:
        """The figure of a statement. Reference results are slanted, and another scale than the report's is named."""
        ground = support.ground
        scale = self.elsewhere.get((ground.figure, ground.claim))
        if scale is None:
            return escape(label(ground.figure))
        at_scale = "" if scale == self.scale else f", {scale}"
        return Markup("<em>{}</em>").format(label(ground.figure) + at_scale)

    def link(self, support: Support) -> str:
        """The link to the first verdict of a statement.

        At another scale than the report's, it leads to the figure. It is empty without a verdict, and if the report
        does not have the figure.
        """
        target = support.ground.figure
        if not support.rows or target not in self.targets:
            return ""
        scale = self.elsewhere.get((target, support.ground.claim), self.scale)
        anchor = slug(target, support.rows[0]["claim"]) if scale == self.scale else target
        return f"{paper_of(target)}.html#{anchor}"


def shown_findings(synthesis: Synthesis | None, results: Results, references: ReferenceResults) -> ShownFindings:
    """The page of findings of a report.

    The reference replaces figures that were not made here. The largest scale at which a statement was judged counts,
    but results made here count if they contradict the reference, or were not registered in time. A dry run judges
    nothing, so its page shows the sentences only.
    """
    if synthesis is None:
        return ShownFindings()
    if results.dry_run:
        return ShownFindings(findings(synthesis, ()))
    own = [claim.row for claim in results.claims]
    apart = {_name(row) for row in own if _stands_apart(row, references, results.scale)}
    judged = {
        scale: [row for row in rows if _name(row) not in apart]
        for scale, rows in references.rows.items()
        if scale != results.scale
    }
    judged[results.scale] = [*own, *(claim.row for claim in references.claims)]
    sized = statements_by_scale(judged.items())
    figures = references.figures | {figure.target: figure for figure in results.figures}
    shown = figures.get(synthesis.picture)
    return ShownFindings(
        groups=findings(synthesis, largest_rows(sized)),
        scale=results.scale,
        elsewhere={
            (one.target, one.id): one.scale
            for one in sized
            if one.scale != results.scale or one.target in references.figures
        },
        targets=frozenset(figures),
        picture=shown.image if shown else None,
        title=shows(synthesis.picture),
        href=f"{paper_of(synthesis.picture)}.html#{synthesis.picture}",
    )


def _name(row: Mapping[str, Any]) -> tuple[str, str]:
    """(target, statement) of a verdict."""
    return row["target"], statement_id(row["claim"])


def _stands_apart(row: Mapping[str, Any], references: ReferenceResults, scale: str) -> bool:
    """Whether a verdict made here at `scale` contradicts its reference, or was not registered in time.

    Its reference is the one at the same scale; if there is none, that of the largest scale.
    """
    at = references.by_scale.get((row["target"], row["claim"]), {})
    reference = at.get(scale) or next((at[one] for one in reversed(SCALES) if one in at), row)
    return row["registered"] is False or {row["verdict"], reference["verdict"]} == {CONFIRMED, REFUTED}


def findings_markdown(synthesis: Synthesis, references: Iterable[Reference], reports: str) -> str:
    """The sentences as Markdown, with the picture.

    Args:
        reports: the link from the page to the folder that has a folder of references for each scale.
    """
    references = list(references)
    groups = reference_findings(synthesis, references)
    lines = [f"{state_counts(groups)}.", ""]
    for group in groups:
        lines += [f"## {group.title}", "", *(_sentence(finding, reports) for finding in group.findings), ""]
    scales = [one.scale for one in references if one.target == synthesis.picture]
    if scales:
        path = f"{reports}/{max(scales, key=SCALES.index)}/{synthesis.picture}.png"
        words = shows(synthesis.picture)
        lines += [f"![{words}]({path})", "", f"*{words}*", ""]
    return "\n".join(lines[:-1])


def _sentence(finding: Finding, reports: str) -> str:
    """An item of a list. A click on the sentence shows what it rests on."""
    supports = "; ".join(_support(one, reports) for one in finding.supports)
    summary = f"<summary>{MARKED[finding.state]}{html.escape(finding.says, quote=False)}</summary>"
    # Markdown inside HTML needs empty lines around it.
    return f"- <details>{summary}\n\n  {supports}\n\n  </details>"


def _support(support: Support, reports: str) -> str:
    ground = support.ground
    words = support.words if support.holds else f"**{support.words}**"
    return f"[{label(ground.figure)}]({reports}/README.md#{slug(ground.figure, ground.claim)}) {words}"

"""What held and what did not, as README files show it: tables that are made of the committed reference results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ssm.base.errors import TableError
from ssm.base.marked_table import with_table
from ssm.claims.words import DEFINITION, ELSEWHERE, OURS, PAPER, SORTS, VERDICT_NAMES, number, ours, tally
from ssm.report.papers import GROUPS, spoken
from ssm.report.reference import Judged, Reference, read_references

COLUMNS = ("held", "did not hold", "not decided")  # as VERDICT_NAMES, for those who read no statistics
RANGE = 3  # panels of one claim from which on their numbers are given as a range
START, END = "<!-- verdicts: written by `ssm reference` -->", "<!-- end of verdicts -->"


def held(references: Iterable[Reference]) -> str:
    """What held and what did not, as Markdown: a table with a row a paper, and folded away a table a paper."""
    by_paper: dict[str, list[Reference]] = {}
    for reference in references:
        by_paper.setdefault(reference.target.partition("_")[0], []).append(reference)
    overview = [
        f"| paper | figures and tables | {SORTS[PAPER]}: {' / '.join(COLUMNS)} | {SORTS[OURS]}: the same |",
        "|---|---|---|---|",
    ]
    folded = []
    for paper, figures in by_paper.items():
        found = tally(claim.content() for figure in figures for claim in figure.claims)
        cells = [_counts(found.counts.get(sort)) for sort in (PAPER, OURS)]
        overview.append(f"| {_citation(paper)} | {len(figures)} | {' | '.join(cells)} |")
        folded += [
            "",
            f"<details><summary>{paper}, figure by figure</summary>",
            "",
            *_figures(figures),
            "",
            "</details>",
        ]
    return "\n".join([*overview, *folded])


def _citation(paper: str) -> str:
    return f"{paper}: {GROUPS[paper].citation}" if paper in GROUPS else paper


def _counts(verdicts: Counter[str] | None) -> str:
    return "" if verdicts is None else " / ".join(str(verdicts[name]) for name in VERDICT_NAMES)


def _figures(references: Iterable[Reference]) -> list[str]:
    """A table with a row a figure: its claims by name, each with its number."""
    lines = [f"| figure | {' | '.join(COLUMNS)} |", "|---|---|---|---|"]
    for reference in references:
        if not reference.claims:
            continue
        counted = [claim for claim in reference.claims if claim.registered and claim.sort != ELSEWHERE]
        left = sum(not claim.registered and claim.sort != ELSEWHERE for claim in reference.claims)
        note = f" ({left} not registered, not counted)" if left else ""
        cells = [_cell([claim for claim in counted if claim.verdict == verdict]) for verdict in VERDICT_NAMES]
        paper = GROUPS.get(reference.target.partition("_")[0])
        shows = paper.shows.get(reference.target, "") if paper else ""
        lines.append(f"| `{reference.target}` {shows}{note} | " + " | ".join(cells) + " |")
    return lines


def every_verdict(references: Iterable[Reference]) -> str:
    """Every verdict with its number, as a Markdown table: a row a claim."""
    lines = ["| figure | statement | here (95% interval) | expected | verdict |", "|---|---|---|---|---|"]
    for reference in references:
        for claim in reference.claims:
            note = "" if claim.registered else ", not registered"
            figure = f"`{reference.target}` {spoken(reference.target)}"
            says = _in_a_cell(claim.says)
            value = ours(claim.content()) + (f": {_in_a_cell(claim.reason)}" if claim.reason else "")
            shown = f"{value} | {claim.expected} | {claim.verdict}{note}"
            lines.append(f"| {figure} | {says} (`{claim.claim}`) | {shown} |")
    return "\n".join(lines)


def _in_a_cell(text: str) -> str:
    """Prose as a cell of a Markdown table; GitHub renders the formulas, which are LaTeX between dollar signs."""
    return text.replace("|", "\\|")


def readmes(folder: Path, readme: Path) -> dict[Path, tuple[str, str]]:
    """README -> its text as it is, and as it should be: the project's own, and that of the reference folder's parent.

    Args:
        folder: of the references, such as reports/smoke.

    Raises:
        ConfigError: a reference or a README cannot be read.
        TableError: a README has no place for its table.
    """
    references = list(read_references(folder).values())
    tables = {readme: held(references), folder.parent / readme.name: every_verdict(references)}
    texts = {path: _read(path) for path in tables}
    return {path: (text, with_table(text, tables[path], START, END, str(path))) for path, text in texts.items()}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"{path}: cannot be read ({error})") from error


def _cell(claims: Sequence[Judged]) -> str:
    """Claims by name, each with its number, those of several panels together; of definitions how many there are."""
    definitions = sum(claim.sort == DEFINITION for claim in claims)
    by_name: dict[str, list[Judged]] = {}
    for claim in claims:
        if claim.sort != DEFINITION:
            by_name.setdefault(claim.claim.partition("/")[0], []).append(claim)
    shown = [_together(name.replace("_", " "), of_name) for name, of_name in by_name.items()]
    if definitions:
        shown.append("1 definition" if definitions == 1 else f"{definitions} definitions")
    return ", ".join(shown)


def _together(name: str, claims: Sequence[Judged]) -> str:
    """What is claimed of several panels, of many with the range of its numbers; in italics where it is ours."""
    name = f"*{name}*" if claims[0].sort == OURS else name
    panels = [claim.claim.partition("/")[2] for claim in claims]
    numbers = ["" if claim.estimate is None else number(claim.estimate) for claim in claims]
    if len(claims) >= RANGE:
        estimates = sorted(claim.estimate for claim in claims if claim.estimate is not None)
        ends = f": {number(estimates[0])} to {number(estimates[-1])}" if estimates else ""
        return f"{name} ({len(claims)} models{ends})"
    if not any(panels):
        return f"{name} {numbers[0]}".strip()
    return f"{name} ({', '.join(f'{panel} {value}'.strip() for panel, value in zip(panels, numbers, strict=True))})"

"""The tables of verdicts in README files, made from the committed reference results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ssm.base.errors import TableError
from ssm.base.marked_table import with_table
from ssm.claims.words import ADDED, PAPER, VERDICT_NAMES, measured, tally
from ssm.report.papers import GROUPS, spoken
from ssm.report.reference import Reference, read_references

COLUMNS = "confirmed / refuted / not decided"
START, END = "<!-- verdicts: written by `ssm reference` -->", "<!-- end of verdicts -->"


def verdict_summary(references: Iterable[Reference]) -> str:
    """Counts of verdicts, as a Markdown table with a row for each paper."""
    lines = [
        f"| paper | figures and tables | the paper's statements: {COLUMNS} | added checks: {COLUMNS} |",
        "|---|---|---|---|",
    ]
    for paper, figures in _by_paper(references).items():
        found = tally(claim.content() for figure in figures for claim in figure.claims)
        cells = [_counts(found.counts.get(sort)) for sort in (PAPER, ADDED)]
        lines.append(f"| {_citation(paper)} | {len(figures)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def every_verdict(references: Iterable[Reference]) -> str:
    """Every verdict with its number, as Markdown: a section for each paper, and a row for each claim."""
    lines: list[str] = []
    for paper, figures in _by_paper(references).items():
        lines += [
            *([""] if lines else []),
            f"## {_citation(paper)}",
            "",
            "| figure | statement | here (95% interval) | expected | verdict |",
            "|---|---|---|---|---|",
        ]
        for reference in figures:
            for claim in reference.claims:
                note = "" if claim.registered else ", not registered"
                figure = f"`{reference.target}` {spoken(reference.target)}"
                says = _in_a_cell(claim.says)
                value = measured(claim.content()) + (f": {_in_a_cell(claim.reason)}" if claim.reason else "")
                shown = f"{value} | {claim.expected} | {claim.verdict}{note}"
                model = f"{_in_a_cell(claim.model)}, " if claim.model else ""
                lines.append(f"| {figure} | {says} ({model}`{claim.claim}`) | {shown} |")
    return "\n".join(lines)


def _by_paper(references: Iterable[Reference]) -> dict[str, list[Reference]]:
    found: dict[str, list[Reference]] = {}
    for reference in references:
        found.setdefault(reference.target.partition("_")[0], []).append(reference)
    return found


def _citation(paper: str) -> str:
    return f"`{paper}` {GROUPS[paper].citation}" if paper in GROUPS else f"`{paper}`"


def _counts(verdicts: Counter[str] | None) -> str:
    return "" if verdicts is None else " / ".join(str(verdicts[name]) for name in VERDICT_NAMES)


def _in_a_cell(text: str) -> str:
    """Prose as a cell of a Markdown table. GitHub renders formulas, which are LaTeX between dollar signs."""
    return text.replace("|", "\\|")


def readmes(folder: Path, readme: Path) -> dict[Path, tuple[str, str]]:
    """README -> its present text, and its text with the table of the present references.

    The two files are `readme`, and the file of the same name next to the folder of references.

    Args:
        folder: of the references, such as reports/smoke.

    Raises:
        ConfigError: a reference or a README cannot be read.
        TableError: a README has no place for its table.
    """
    references = list(read_references(folder).values())
    tables = {readme: verdict_summary(references), folder.parent / readme.name: every_verdict(references)}
    texts = {path: _read(path) for path in tables}
    return {path: (text, with_table(text, tables[path], START, END, str(path))) for path, text in texts.items()}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"{path}: cannot be read ({error})") from error

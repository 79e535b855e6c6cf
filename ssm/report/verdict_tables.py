"""The tables of verdicts in README files and the page of findings, made from the committed reference results."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ssm.base.errors import TableError
from ssm.base.marked_table import with_table
from ssm.claims.preregistration import Preregistration, Preregistrations, earlier_seeds
from ssm.claims.seeds_needed import needed_words
from ssm.claims.significance import weak_verdicts
from ssm.claims.statements import ADDED, OUTCOMES, PAPER, paper_of
from ssm.claims.synthesis import Synthesis
from ssm.claims.tally import expected_misses, tally
from ssm.claims.words import WEAK, WEAK_MEANS, measured, number
from ssm.report.findings import findings_markdown
from ssm.report.papers import GROUPS, spoken
from ssm.report.reference import Reference
from ssm.report.scales import SizedStatement, all_scales, largest_rows, sized_statements
from ssm.report.shared_models import OVERLAPS, shared_models
from ssm.specs.base import SCALES, slug

COLUMNS = " / ".join(OUTCOMES)
LARGE = 5  # statements on the same base models; smaller groups are counted, but not listed
START, END = "<!-- verdicts: written by `ssm reference` -->", "<!-- end of verdicts -->"


def verdict_summary(references: Iterable[Reference]) -> str:
    """Counts of statements, as a Markdown table with a row for each paper."""
    lines = [
        f"| paper | figures and tables | the paper's statements: {COLUMNS} | added checks: {COLUMNS} |",
        "|---|---|---|---|",
    ]
    references = list(references)
    for paper, sized in _by_paper(references).items():
        figures = len({one.target for one in references if paper_of(one.target) == paper})
        lines.append(f"| {_citation(paper)} | {figures} | {_count_cells(largest_rows(sized))} |")
    return "\n".join(lines)


def every_verdict(references: Iterable[Reference], preregistrations: Preregistrations) -> str:
    """Every statement with its numbers, as Markdown: a section for each paper, and a row for each statement.

    With several scales, counts for each of them come first.

    Args:
        preregistrations: they tell which seeds of a figure were read before.
    """
    references = list(references)
    several = len({reference.scale for reference in references}) > 1
    lines = _by_scale(references) if several else []
    for paper, sized in _by_paper(references).items():
        rows = largest_rows(sized)
        weak = weak_verdicts(rows)
        own = [one for one in references if paper_of(one.target) == paper]
        lines += [
            *([""] if lines else []),
            f"## {_citation(paper)}",
            "",
            *_notes(rows, weak, _seeds_read_before(own, preregistrations), _redesigned(own, preregistrations)),
            "| figure | statement | here (95% interval) | expected | verdict |",
            "|---|---|---|---|---|",
            *(_statement(one, weak, several) for one in sized),
        ]
    return "\n".join(lines)


def _by_scale(references: list[Reference]) -> list[str]:
    """Counts of the papers' statements and of the checks on them, with a row for each scale."""
    added = {short for short, group in GROUPS.items() if group.added}
    papers = [one for one in references if paper_of(one.target) not in added]
    scales = {f"`{scale}`": [one for one in papers if one.scale == scale] for scale in SCALES}
    counts = {scale: [row for one in own for row in one.rows()] for scale, own in scales.items() if own}
    counts["the largest of each statement"] = largest_rows(sized_statements(papers))
    lines = [
        "## By scale",
        "",
        f"| scale | figures with statements | statements of papers: {COLUMNS} | added checks: {COLUMNS} |",
        "|---|---|---|---|",
    ]
    for scale, rows in counts.items():
        lines.append(f"| {scale} | {len({row['target'] for row in rows})} | {_count_cells(rows)} |")
    return lines


def _seeds_read_before(references: Iterable[Reference], preregistrations: Preregistrations) -> list[str]:
    """A line for each set of seeds that counts as read before, with the figures that had it."""
    found: dict[str, list[str]] = {}
    for reference, past, current in _registered(references, preregistrations):
        for one in earlier_seeds(past, current):
            found.setdefault(one.words, []).append(f"`{reference.target}`")
    return [f"{', '.join(targets)}: {seeds}" for seeds, targets in found.items()]


def _redesigned(references: Iterable[Reference], preregistrations: Preregistrations) -> list[str]:
    """Figures that have a newer preregistration than that of their reference, at the same scale."""
    return [
        f"`{reference.target}` ({reference.scale})"
        for reference, past, current in _registered(references, preregistrations)
        if any(one.claims and one.date > current.date for one in past)
    ]


def _registered(
    references: Iterable[Reference], preregistrations: Preregistrations
) -> Iterator[tuple[Reference, tuple[Preregistration, ...], Preregistration]]:
    """Each registered reference, with all preregistrations of its figure and scale, and its own."""
    for reference in references:
        at = (reference.target, reference.scale)
        current = preregistrations.at(*at, {claim.number for claim in reference.claims})
        if current is not None:
            yield reference, preregistrations.of(*at), current


def _notes(
    rows: list[dict[str, Any]],
    weak: Collection[tuple[str, str]],
    read_before: Collection[str],
    redesigned: Collection[str],
) -> list[str]:
    """What a reader has to know about the verdicts of a paper, as Markdown."""
    found = tally(rows)
    registered = found.verdicts - found.unregistered - found.elsewhere
    lines = [
        f"- {registered} of {found.verdicts - found.elsewhere} verdicts were registered before they were measured.",
        f"- {expected_misses(found)}.",
    ]
    if weak:
        lines.append(f"- {_mark(WEAK)}: {WEAK_MEANS}. Verdicts with this mark: {len(weak)}.")
    groups = shared_models(rows)
    if groups:
        large = Counter(group.words for group in groups if group.statements >= LARGE)
        count = f"{len(groups)}. With {LARGE} or more statements: {large.total()}"
        lines.append(f"- Groups of statements that are not independent: {count}. {OVERLAPS}.")
        lines += [f"  - {words}{f' ({times} groups)' if times > 1 else ''}" for words, times in large.items()]
    if redesigned:
        lines.append(
            "- A newer design is registered, and its seeds are not read yet. The verdicts are those of the earlier "
            f"design: {', '.join(redesigned)}."
        )
    if read_before:
        lines.append("- Seeds that a figure had before. They count as read, and no verdict of the figure reads them.")
        lines += [f"  - {seeds}" for seeds in read_before]
    return [*lines, ""]


def _statement(sized: SizedStatement, weak: Collection[tuple[str, str]], several: bool) -> str:
    """A row of the table: a statement, with a line for each scale and each model."""
    rows = [(scale, statement, row) for scale, statement in sized.by_scale.items() for row in statement.rows]
    largest = sized.largest
    first = largest.rows[0]
    numbers = []
    if rows[-1][2]["paper_number"] is not None:
        numbers.append(f"paper: {number(rows[-1][2]['paper_number'])}")
    for scale, statement, row in rows:
        counts = scale == sized.scale
        where = statement.where(row)
        model = [f"{_in_a_cell(row.get('model') or f'`{where}`')}:"] if where else []
        before = [*([f"{scale}:"] if several else []), *model]
        value = measured(row) + (f": {_in_a_cell(row['reason'])}" if row["reason"] else "")
        if row["expected"] != first["expected"]:
            value += f", expected {row['expected']}"
        after = f", {_verdict(row, weak if counts else ())}" if len(rows) > 1 else ""
        numbers.append(" ".join([*before, value]) + after)
    if len(largest.rows) == 1:
        verdict = _verdict(first, weak)
    else:
        marked = any((row["target"], row["claim"]) in weak for row in largest.rows)
        verdict = f"{largest.outcome or 'not registered'}{_mark(WEAK) if marked else ''}"
    figure = f'<a id="{slug(sized.target, sized.id)}"></a>`{sized.target}` {spoken(sized.target)}'
    says = f"{_in_a_cell(first['says'])} (`{sized.id}`)"
    return f"| {figure} | {says} | {'<br>'.join(numbers)} | {first['expected']} | {verdict} |"


def _verdict(row: Mapping[str, Any], weak: Collection[tuple[str, str]]) -> str:
    mark = _mark(WEAK) if (row["target"], row["claim"]) in weak else ""
    needed = needed_words(row)
    after = f" ({needed})" if needed else ""
    return f"{row['verdict']}{mark}{after}{'' if row['registered'] else ', not registered'}"


def _mark(mark: str) -> str:
    return f"\\{mark}"  # Markdown would take a star for emphasis


def _by_paper(references: Iterable[Reference]) -> dict[str, list[SizedStatement]]:
    found: dict[str, list[SizedStatement]] = {}
    for one in sized_statements(references):
        found.setdefault(paper_of(one.target), []).append(one)
    return found


def _citation(paper: str) -> str:
    return f"`{paper}` {GROUPS[paper].citation}" if paper in GROUPS else f"`{paper}`"


def _count_cells(rows: Iterable[Mapping[str, Any]]) -> str:
    """The counts of the papers' statements and of added checks, as two cells."""
    counts = tally(rows).counts
    return " | ".join(_counts(counts.get(sort)) for sort in (PAPER, ADDED))


def _counts(verdicts: Counter[str] | None) -> str:
    return "" if verdicts is None else " / ".join(str(verdicts[name]) for name in OUTCOMES)


def _in_a_cell(text: str) -> str:
    """Prose as a cell of a Markdown table. GitHub renders formulas, which are LaTeX between dollar signs."""
    return text.replace("|", "\\|")


def written_pages(
    folder: Path, readme: Path, preregistrations: Preregistrations, synthesis: Synthesis | None
) -> dict[Path, tuple[str, str]]:
    """File -> its present text, and its text with what the present references say.

    The files are `readme`, the file of the same name next to the folder of references, and docs/findings.md next to
    `readme`. They have marks around the part that is written.

    Args:
        folder: of the references, such as reports/smoke. References of other scales beside it are read, too.
        preregistrations: they tell which seeds of a figure were read before.
        synthesis: the sentences of the page of findings; None: there is no such page.

    Raises:
        ConfigError: a file is not a reference.
        TableError: a file cannot be read, or has no place for its part.
    """
    folder = folder if folder.name else folder.absolute()  # "." has no name
    references = all_scales(folder)
    parts = {
        readme: verdict_summary(references),
        folder.parent / readme.name: every_verdict(references, preregistrations),
    }
    if synthesis is not None:
        page = readme.parent / "docs" / "findings.md"
        reports = Path(os.path.relpath(folder.parent, page.parent)).as_posix()
        parts[page] = findings_markdown(synthesis, references, reports)
    texts = {path: _read(path) for path in parts}
    return {path: (text, with_table(text, parts[path], START, END, str(path))) for path, text in texts.items()}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"{path}: cannot be read ({error})") from error

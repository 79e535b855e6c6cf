"""The report: gathered results, rendered into a front page and one page for each paper, each in one file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from ssm.base.files import write_text
from ssm.base.prose import marked
from ssm.claims.words import SORTS, VERDICT_NAMES, expected_misses, measured, number, span, tally
from ssm.report.agreement import Against, against
from ssm.report.facts import duration, facts
from ssm.report.gather import SYMBOLS, Gatherer, Results
from ssm.report.overview import NOT_PLANNED, SHAPES, board, counts_by_mark, first_look, legend
from ssm.report.papers import FRONT, GROUPS

STYLE = "style.css"


def build_report(
    results: Path,
    out: Path,
    front: Sequence[str] | None = None,
    needed: Sequence[str] = (),
    reference: Path | None = None,
) -> Results:
    """Write the pages of a results folder, each as a whole file: `out`/index.html, and one a paper.

    Args:
        results: a scale's folder, such as results/smoke.
        out: the folder of the pages; their links are relative to it.
        front: figures that the front page shows in full, as far as they are finished; None: the headline figures.
        needed: figures that have to be finished; the others are shown as far as they are.
        reference: the folder of reference results, which are shown in place of what is not made, and which what is made
            is compared with; None: there is none.

    Returns:
        What stands on the pages.

    Raises:
        TableError: what is needed is missing or broken; one line that names it and the command that makes it.
        ConfigError: a planned figure, a run's spec or a reference cannot be read.
        OutputError: a page cannot be written.
    """
    gathered = Gatherer(results, out).gather(needed)
    for name, page in render(gathered, against(gathered, results, reference), front).items():
        write_text(out / f"{name}.html", page)
    return gathered


def render(results: Results, beside: Against, front: Sequence[str] | None = None) -> dict[str, str]:
    """Name -> the text of a page."""
    if front is None:
        front = [figure.target for figure in results.figures if figure.task.figure.headline]
    targets = dict.fromkeys([*(figure.target for figure in results.figures), *results.unfinished, *beside.figures])
    own = {short: [target for target in targets if target.startswith(f"{short}_")] for short in GROUPS}
    shown = tuple(short for short, group in GROUPS.items() if not group.added or own[short])
    pages = {FRONT: _page("index.html.j2", FRONT, results, results.of(front), beside, shown)}
    for short, of_paper in own.items():
        own_results = results.of(of_paper)
        pages[short] = _page("paper.html.j2", short, own_results, own_results, beside.of(of_paper), (short,))
    return pages


def _page(name: str, page: str, results: Results, shown: Results, beside: Against, papers: tuple[str, ...]) -> str:
    """A page's text.

    Args:
        page: its name.
        results: what its counts are about.
        shown: what it shows in full.
        beside: the reference results; a paper's page shows those of figures that are not made in full.
        papers: whose figures stand in its overview.
    """
    references = tuple(beside.figures) if page != FRONT else ()
    groups = board(results, beside, papers, (*(figure.target for figure in shown.figures), *references))
    context: dict[str, Any] = {
        "page": page,
        "papers": GROUPS,
        "results": results,
        "shown": shown,
        "groups": groups,
        "legend": legend(groups),
        "beside": beside,
        "references": [beside.figures[target] for target in references],
        "legend_of_references": legend(groups, reference=True),
        "not_planned": NOT_PLANNED,
        "shapes": {mark: Markup(shape) for mark, shape in SHAPES.items()},
        "facts": facts(results),
        "first_look": None if results.dry_run else first_look(groups, [figure.target for figure in shown.figures]),
        "counts_by_mark": counts_by_mark,
        "sizes": {figure.target: facts(results.of([figure.target])).size for figure in shown.figures},
        "symbols": SYMBOLS,
        "tally": tally(claim.row for claim in results.claims),
        "tally_of_references": tally(claim.row for claim in beside.claims),
        "sorts": SORTS,
        "verdicts": VERDICT_NAMES,
        "expected_misses": expected_misses,
        "span": span,
        "style": style(),
    }
    return template("ssm.report", name).render(context)


def template(package: str, name: str) -> Template:
    """A package's template of a page. What it shows is escaped; a name that it is not given is an error."""
    return _environment(package).get_template(name)


@cache
def _environment(package: str) -> Environment:
    """Templates are read and compiled once."""
    environment = Environment(
        loader=PackageLoader(package, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "measured": measured, "duration": duration, "prose": prose}
    return environment


def prose(text: str) -> Markup:
    """Prose with its formulas set; all else is escaped."""
    return Markup(marked(text))


def style() -> Markup:
    """The look that all pages share."""
    return Markup((Path(__file__).with_name(STYLE)).read_text(encoding="utf-8"))

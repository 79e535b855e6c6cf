"""Render the report: a front page, the findings, and one page for each paper. Each page is one file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from ssm.base.counting import duration
from ssm.base.files import write_text
from ssm.base.prose import marked, plain
from ssm.claims.significance import weak_verdicts
from ssm.claims.statements import OUTCOMES, SORTS
from ssm.claims.synthesis import SUPPORTED, Synthesis
from ssm.claims.tally import expected_misses, tally
from ssm.claims.words import WEAK, WEAK_MEANS, bounds_of, measured, number, span
from ssm.report.agreement import ReferenceResults, reference_results
from ssm.report.facts import facts
from ssm.report.findings import ShownFindings, shown_findings
from ssm.report.gather import SYMBOLS, Gatherer, Results
from ssm.report.overview import NOT_PLANNED, SHAPES, board, counts_by_mark, first_look, legend
from ssm.report.papers import FINDINGS, FRONT, GROUPS
from ssm.report.shared_models import OVERLAPS, shared_models


def build_report(
    results: Path,
    out: Path,
    front: Sequence[str] | None = None,
    needed: Sequence[str] = (),
    reference: Path | None = None,
    synthesis: Synthesis | None = None,
) -> Results:
    """Write the pages of a results folder: `out`/index.html, findings.html, and one file for each paper.

    Args:
        results: a scale's folder, such as results/smoke.
        out: the folder of the pages. Their links are relative to it.
        front: targets, papers or `all`: the front page shows them in full if they are finished. None: the headline
            figures.
        needed: targets, papers or `all` that must be finished. Other figures are shown if they are finished.
        reference: the folder of reference results; None: there are none. A missing figure is replaced by its reference.
            The claims of a finished figure are compared with it.
        synthesis: the sentences of the page of findings; None: there are none.

    Returns:
        What the pages show.

    Raises:
        TableError: a needed file is missing or broken. The message names it and the command that makes it.
        ConfigError: a name is unknown; or the spec of a figure or a run, or a reference, cannot be read.
        OutputError: a page cannot be written.
    """
    gatherer = Gatherer(results, out)
    front = None if front is None else gatherer.planned(front)
    gathered = gatherer.gather(gatherer.planned(needed))
    references = reference_results(gathered, results, reference)
    for name, page in render(gathered, references, front, synthesis).items():
        write_text(out / f"{name}.html", page)
    return gathered


def render(
    results: Results,
    references: ReferenceResults,
    front: Sequence[str] | None = None,
    synthesis: Synthesis | None = None,
) -> dict[str, str]:
    """Name -> the text of a page."""
    if front is None:
        front = [figure.target for figure in results.figures if figure.task.figure.headline]
    targets = dict.fromkeys([*(figure.target for figure in results.figures), *results.unfinished, *references.figures])
    own = {short: [target for target in targets if target.startswith(f"{short}_")] for short in GROUPS}
    shown = tuple(short for short, group in GROUPS.items() if not group.added or own[short])
    said = shown_findings(synthesis, results, references)
    pages = {
        FRONT: _page("index.html.j2", FRONT, results, results.of(front), references, shown, said),
        FINDINGS: _page("findings.html.j2", FINDINGS, results, results.of(()), references, shown, said),
    }
    for short, of_paper in own.items():
        own_results = results.of(of_paper)
        pages[short] = _page("paper.html.j2", short, own_results, own_results, references.of(of_paper), (short,), said)
    return pages


def _page(
    name: str,
    page: str,
    results: Results,
    shown: Results,
    references: ReferenceResults,
    papers: tuple[str, ...],
    said: ShownFindings,
) -> str:
    """Render a page.

    Args:
        name: of the template.
        page: its name.
        results: the results that it counts.
        shown: the results that it shows in full.
        references: the reference results. Only the page of a paper shows them in full.
        papers: the papers in its overview.
        said: the content of the page of findings.
    """
    in_full = tuple(references.figures) if page in GROUPS else ()
    groups = board(results, references, papers, (*(figure.target for figure in shown.figures), *in_full))
    context: dict[str, Any] = {
        "page": page,
        "said": said,
        "supported": SUPPORTED,
        "papers": GROUPS,
        "results": results,
        "shown": shown,
        "groups": groups,
        "legend": legend(groups),
        "reference_results": references,
        "references": [references.figures[target] for target in in_full],
        "legend_of_references": legend(groups, reference=True),
        "not_planned": NOT_PLANNED,
        "shapes": {mark: Markup(shape) for mark, shape in SHAPES.items()},
        "facts": facts(results),
        "first_look": None if results.dry_run else first_look(groups, [figure.target for figure in shown.figures]),
        "counts_by_mark": counts_by_mark,
        "sizes": {figure.target: facts(results.of([figure.target])).size for figure in shown.figures},
        "symbols": SYMBOLS,
        "weak": weak_verdicts([*(claim.row for claim in results.claims), *(claim.row for claim in references.claims)]),
        "weak_mark": WEAK,
        "weak_means": WEAK_MEANS,
        "overlaps": OVERLAPS,
        "shared_models": shared_models(claim.row for claim in (*results.claims, *references.claims)),
        "tally": tally(claim.row for claim in results.claims),
        "tally_of_references": tally(claim.row for claim in references.claims),
        "sorts": SORTS,
        "outcomes": OUTCOMES,
        "expected_misses": expected_misses,
        "bounds_of": bounds_of,
        "span": span,
        "style": style(),
    }
    return template("ssm.report", name).render(context)


def template(package: str, name: str) -> Template:
    """A page template of a package. Values are escaped, and an undefined name is an error."""
    return _environment(package).get_template(name)


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=PackageLoader(package, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "measured": measured, "duration": duration}
    environment.filters |= {"prose": prose, "plain": plain}
    return environment


def prose(text: str) -> Markup:
    """Prose as HTML: formulas are typeset, and everything else is escaped."""
    return Markup(marked(text))


def style() -> Markup:
    """The style sheet of all pages."""
    return Markup(Path(__file__).with_name("style.css").read_text(encoding="utf-8"))

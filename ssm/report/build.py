"""The report: gathered results, rendered into one self-contained page."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from ssm.base.files import write_text
from ssm.claims.words import SORTS, VERDICT_NAMES, expected_misses, number, ours, span, tally
from ssm.report.facts import duration, facts
from ssm.report.gather import SYMBOLS, Gatherer, Results

PAGE, STYLE = "page.html.j2", "style.css"


def build_report(results: Path, out: Path, targets: list[str] | None = None) -> Results:
    """Write the page of a results folder as a whole file.

    Args:
        results: a scale's folder, such as results/smoke.
        out: the page; its links are relative to its folder.
        targets: the figures wanted; None: all that have their pictures and verdicts.

    Returns:
        What stands on the page.

    Raises:
        TableError: an input is missing or broken; one line that names it and the command that makes it.
        ConfigError: a planned figure or a run's spec cannot be read.
        OutputError: the page cannot be written.
    """
    gathered = Gatherer(results, out).gather(targets)
    write_text(out, render(gathered))
    return gathered


def render(results: Results) -> str:
    """The page as text."""
    page = template("ssm.report", PAGE)
    return page.render(
        results=results,
        facts=facts(results),
        symbols=SYMBOLS,
        tally=tally(claim.row for claim in results.claims),
        sorts=SORTS,
        verdicts=VERDICT_NAMES,
        expected_misses=expected_misses,
        span=span,
        style=style(),
    )


def template(package: str, name: str) -> Template:
    """A package's template of a page. What it shows is escaped; a name that it is not given is an error."""
    environment = Environment(
        loader=PackageLoader(package, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "ours": ours, "duration": duration}
    return environment.get_template(name)


def style() -> Markup:
    """The look that all pages share."""
    return Markup((Path(__file__).with_name(STYLE)).read_text(encoding="utf-8"))

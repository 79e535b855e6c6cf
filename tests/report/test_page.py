"""The pages parse, are self-contained, have no broken links, and show what the tables say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl
import pytest
from claims.synthetic import claim
from html_page import Page, squeezed
from report.folder import CLAIMS, edit_json, results_folder

from ssm.base.errors import ConfigError, TableError, UserError
from ssm.base.tables import VERDICTS, read_provenance, read_table, write_table
from ssm.figures.figure import FigureTask
from ssm.plan.library import figure_targets
from ssm.report.build import build_report
from ssm.report.gather import MARKS
from ssm.report.overview import SHAPES
from ssm.report.papers import GROUPS, PAGES, PAPERS, spoken
from ssm.report.shared_models import OVERLAPS


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for target in ("lg_fig11", "lg_fig5"):
        results_folder(tmp_path, target)
    return tmp_path


def built(results: Path, name: str = "lg", front: list[str] | None = None) -> tuple[str, Page]:
    """Build the report; the text and the parsed content of a page."""
    out = results / "report"
    build_report(results, out, front)
    text = (out / f"{name}.html").read_text(encoding="utf-8")
    return text, Page(text)


def test_every_page_is_self_contained_and_has_no_broken_links(results: Path) -> None:
    (results / "specs/figures/lg_fig4.json").write_text("{}")  # planned, and not finished
    built(results, "index", ["lg_fig5"])
    texts = {name: (results / "report" / name).read_text(encoding="utf-8") for name in PAGES}
    pages = {name: Page(text) for name, text in texts.items()}
    for name, page in pages.items():
        assert len(page.ids) == len(set(page.ids))
        assert not page.tags & {"script", "iframe", "link", "object", "embed"}
        for href in page.links:
            file, _, place = href.partition("#")
            assert not file or (results / "report" / unquote(file)).is_file(), href
            assert not place or place in pages[file or name].ids, href
        assert all(re.match(r"#mark-|data:image/svg\+xml;base64,", load) for load in page.loads)
        assert {*PAGES} - {name} <= set(page.links), "every page is one click from every other"
        assert not re.search(r"@import|url\((?!#)", texts[name])
        assert "://" not in texts[name]


def test_the_front_page_says_what_to_open_first(results: Path) -> None:
    text, page = built(results, "index", ["lg_fig5"])
    said = squeezed(page.text)
    assert "Start with lg_fig5, " in said
    judged = [claim for claim in CLAIMS if not claim.get("ours")]
    rows = read_table(results / "verdicts/lg_fig5.parquet", VERDICTS).filter(sort="paper")
    confirmed = rows.filter(verdict="confirmed").height
    assert f"{confirmed} of its paper's {len(judged)} statements are confirmed here." in said
    refuted = rows.filter(verdict="refuted").height
    assert refuted, "the folder has one"
    assert re.search(
        r'refuted statement: <a href="#lg_fig5">lg_fig5</a>, <a href="lg.html#lg_fig11">lg_fig11</a>', text
    )


def test_a_figure_starts_with_the_paper_here_and_why_it_may_differ(results: Path) -> None:
    text, _ = built(results)
    (section,) = re.findall(r'<section id="lg_fig5".*?</section>', text, re.S)
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td>(.*?)</td></tr>', section, re.S)
    figure = FigureTask.load(results / "specs/figures/lg_fig5.json").figure
    assert [name for name, _ in rows] == ["The paper", "Here", *(["Why it may differ"] if figure.deviations else [])]
    assert figure.setting in rows[0][1]
    assert "The largest model has 12,345 parameters." in rows[1][1]
    assert "1 confirmed, 1 refuted" in squeezed(rows[1][1])
    assert section.index("The paper</th>") < section.index("Expected</th>"), "before the numbers"


def test_links_are_relative_to_the_folder_of_the_pages(results: Path) -> None:
    out = results.parent / "elsewhere" / "deep"
    build_report(results, out)
    links = [href.partition("#")[0] for href in Page((out / "lg.html").read_text()).links if not href.startswith("#")]
    assert links
    assert all((out / href).resolve().is_file() for href in links)


def test_links_are_percent_encoded(tmp_path: Path) -> None:
    """A browser takes no part of a file name for a scheme, a query or markup."""
    results = tmp_path / 'javascript:alert(1)?a=100%&b#c "d" é'
    results_folder(results)
    build_report(results, tmp_path)
    links = [href for href in Page((tmp_path / "lg.html").read_text(encoding="utf-8")).links if href not in PAGES]
    links = [href for href in links if "#" not in href]
    assert len(links) > 10
    for href in links:
        assert re.fullmatch(r"[A-Za-z0-9._~/%-]+", href), href
        assert (tmp_path / unquote(href)).is_file()


def test_every_claim_has_its_verdict_number_and_reason(tmp_path: Path) -> None:
    results_folder(tmp_path)
    _, page = built(tmp_path)
    text = squeezed(page.text)
    assert "Statements of the papers 1 1 0 0 Added checks 0 0 0 1" in text  # confirmed, refuted, mixed, not decided
    assert "2 intervals of 95%: about 0.1 miss the true value by chance" in text
    assert len(re.findall("added check(?!s)", text)) == 2  # in the overview and in the figure
    assert text.count("registered 2024-12-31 00:00 UTC, before it was measured") == 3
    assert " not registered " not in text
    for shown in ("✓ confirmed", "✗ refuted", "? not decided"):
        assert text.count(shown) == 2
    assert "does not exist at the scale smoke" in text
    assert "lies inside > 1.5" in text
    assert "95% Student t over 3 seeds" in text
    assert "about 2 < 3" in text  # what the paper reports
    assert "bytes, not words" in text  # a deviation
    assert "Mamba-2 370m, 100 steps" in text  # the paper's setting


COUNTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "other readings": (
        {"readings": {(arm, seed): {"late": 4.0 + seed / 10} for arm in ("base", "passed") for seed in (1, 2, 3)}},
        ["Statements of the papers 2 0 0 0"],
    ),
    "two panels": (
        {"panels": ("tiny", "small")},
        ["Statements of the papers 1 1 0 0", "3 statements are counted."],
    ),
    "a definition": (
        {"claims": [*CLAIMS, claim({"kind": "parameter_ratio", "model": "tiny"}, "size", above=1.0)]},
        [
            "Statements of the papers 1 1 0 0 Definitions 1 0 0 0 Added checks 0 0 0 1",
            "the claim size holds definition",
        ],
    ),
}


@pytest.mark.parametrize("case", COUNTS)
def test_the_counts_follow_the_verdicts(tmp_path: Path, case: str) -> None:
    options, shown = COUNTS[case]
    results_folder(tmp_path, **options)
    _, page = built(tmp_path)
    text = squeezed(page.text)
    assert all(words in text for words in shown)
    assert len(page.ids) == len(set(page.ids))


def test_a_number_counts_once_for_two_figures(results: Path) -> None:
    text = squeezed(built(results)[1].text)
    assert "Statements of the papers 1 1 0 0 Added checks 0 0 0 1" in text
    assert "3 statements judge the very numbers of another one, and are not counted again." in text


def test_an_unregistered_verdict_is_marked_and_not_counted(tmp_path: Path) -> None:
    results_folder(tmp_path, registered=("base_fails",))
    text = squeezed(built(tmp_path)[1].text)
    assert "2 of 3 verdicts are not counted, because they were not registered before their seeds were read." in text
    assert "Statements of the papers 1 0 0 0" in text
    assert "Added checks" not in text
    assert text.count("✗ refuted not registered") == 2  # in the overview and in the figure
    assert "✓ confirmed not registered" not in text
    assert text.count("not registered: no registration has this claim with these seeds") == 2


def test_seeds_and_shared_base_models_are_shown(tmp_path: Path) -> None:
    results_folder(tmp_path)
    spec = tmp_path / "specs/figures/lg_fig5.json"
    earlier = [{"date": "2024-01-01T00:00:00+00:00", "seeds": [7, 8], "why": "tried"}]
    edit_json(spec, earlier=earlier)
    html, page = built(tmp_path)
    text = squeezed(page.text)
    assert html.count('<circle class="seed"') == 6, "two verdicts on three seeds"
    assert "Seeds1: 2.72, 2: 3, 3: 3.32" in text
    assert "Seeds that this figure had before: 1 set They count as read." in text
    assert "seeds 7 to 8 (2024-01-01: tried)" in text
    assert f"independent: 1 {OVERLAPS}. 2 statements (lg_fig5) rest on the same 3 base models." in text


def test_an_interval_beside_a_bound_is_told_apart_from_it(tmp_path: Path) -> None:
    results_folder(tmp_path)
    path = tmp_path / "verdicts/lg_fig5.parquet"
    write_table(read_table(path).with_columns(low=pl.lit(1.500001)), VERDICTS, path, read_provenance(path))
    _, page = built(tmp_path)
    assert "3 (1.500001 to " in squeezed(page.text)
    assert "(1.5 to " not in squeezed(page.text)


def marks(html: str) -> list[str]:
    """The marks of claims in the overview, in order. The marks of the legend have no link."""
    return re.findall(r'<a class="(?:large|small)"[^>]*><svg class="mark ([a-z-]+)"', html)


def test_the_front_page_opens_with_every_figure_and_every_claim(results: Path) -> None:
    html, page = built(results, "index", ["lg_fig5"])
    assert page.ids.index("summary") < page.ids.index("reading") < page.ids.index("lg_fig5")
    assert "lg_fig11" not in page.ids  # on its paper's page
    text = squeezed(page.text)
    assert "Rebuilt here: 2 of the 49 figures and tables of four papers" in text
    assert text.count("not planned") == 47
    assert marks(html) == ["confirmed", "refuted", "not-decided"] * 2
    assert {"#lg_fig5", "#lg-fig5_base-fails", "lg.html#lg_fig11", "lg.html#lg-fig11_base-fails"} <= set(page.links)
    for says in ("the claim base_fails holds Confirmed: 3 (2.34 to 3.85)", "the claim passed_fails holds Refuted: "):
        assert html.count(f'title="{says}') == html.count(f'aria-label="{says}') == 2
    assert "confirmed (2) refuted (2) not decided (2)" in text
    assert len(re.findall("added check(?!s)", text)) == 1  # of the figure that is shown


def test_a_mark_says_why_a_verdict_is_not_counted(tmp_path: Path) -> None:
    elsewhere = CLAIMS[0] | {"id": "large", "models": []}
    results_folder(tmp_path, claims=[*CLAIMS[:2], elsewhere], registered=("base_fails", "large"))
    html, page = built(tmp_path, "index")
    assert marks(html) == ["confirmed", "unregistered", "elsewhere"]
    assert "not registered (1) about models that this scale lacks (1)" in squeezed(page.text)


def test_every_mark_has_its_own_shape() -> None:
    assert list(SHAPES) == list(MARKS)
    assert len(set(SHAPES.values())) == len(SHAPES)


def test_the_headline_figures_are_on_the_front_page(results: Path) -> None:
    assert not {"lg_fig5", "lg_fig11"} & set(built(results, "index")[1].ids)
    task = FigureTask.load(results / "specs/figures/lg_fig11.json")
    headline = task.figure.model_copy(update={"headline": True})
    edit_json(results / "specs/figures/lg_fig11.json", figure=headline.content())
    ids = built(results, "index")[1].ids
    assert "lg_fig11" in ids
    assert "lg_fig5" not in ids


def test_all_figures_of_the_papers_have_a_card() -> None:
    assert [len(paper.shows) for paper in PAPERS.values()] == [15, 13, 10, 11]
    for short, paper in PAPERS.items():
        assert all(target.startswith(f"{short}_") and spoken(target)[0].isupper() for target in paper.shows)
    planned = figure_targets(Path(__file__).parents[2] / "config")
    assert not set(planned) - {target for paper in GROUPS.values() for target in paper.shows}


def test_text_is_escaped_everywhere(results: Path) -> None:
    text, page = built(results)
    assert "<b>&" not in text
    assert "base <b>&" in page.text
    assert "Interventions <against> base" in page.text


def test_the_setup_shows_sums_over_runs_and_the_machine(results: Path) -> None:
    text = squeezed(built(results)[1].text)
    for shown in (
        "6 (6 finished, 0 diverged)",  # two figures share the same six runs
        "1,920",  # tokens: 6 * 320
        "12.0 s",
        "160 tokens/s",
        "12,345",
        "A Processor (2 cores)",
        "torch 2.9.0",
        "commit 0123456789ab with uncommitted changes",
        "abababababababab",
        "2025-01-01 00:00 to 2025-01-02 03:04 UTC",
    ):
        assert shown in text, shown


def test_the_table_of_many_models_is_folded(tmp_path: Path) -> None:
    for folder, panels, head in (("few", 2, "<details open>"), ("many", 13, "<details>")):
        results_folder(tmp_path / folder, panels=tuple(f"model{place}" for place in range(panels)), seeds=(1,))
        text, _ = built(tmp_path / folder)
        assert f"{head}\n<summary>Models: {panels}</summary>" in text


def test_a_model_has_its_title_and_its_key(tmp_path: Path) -> None:
    """The title of the planned figure; without one, the name of the system."""
    results_folder(tmp_path, panels=("small", "large"), seeds=(1,))
    edit_json(tmp_path / "specs/figures/lg_fig5.json", titles={"small": "Mamba-2, slow"})
    text, _ = built(tmp_path)
    assert re.findall(r'"Model"><div>(.*?)</div>', text) == [
        'Mamba-2, slow<br><span class="small"><code>small</code></span>',
        'Mamba-2<br><span class="small"><code>large</code></span>',
    ]


def test_a_diverged_run_is_named_with_its_message(tmp_path: Path) -> None:
    task = results_folder(tmp_path, diverged="passed")
    text = squeezed(built(tmp_path)[1].text)
    assert "6 (3 finished, 3 diverged)" in text
    run = next(series.run for series in task.series if series.arm == "passed")
    assert f"{run}: diverged: loss is NaN at step 3 <b>" in text
    assert f"Of the runs behind this figure, 3 diverged: {run}" in text


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        ("figures/lg_fig5.svg", "ssm plot"),
        ("figures/lg_fig5.pdf", "ssm plot"),
        ("verdicts/lg_fig5.parquet", "ssm judge"),
        ("tables/model-size-1.parquet", "snakemake --cores all lg_fig5 --config scale=smoke"),
        ("runs/*/run.json", "snakemake --cores all lg_fig5 --config scale=smoke"),
        ("tokens/*/manifest.json", "snakemake"),
        ("specs/figures/*.json", "ssm plan --write"),
    ],
)
def test_a_missing_input_is_one_line_with_the_command_that_makes_it(tmp_path: Path, missing: str, command: str) -> None:
    results_folder(tmp_path)
    out = tmp_path / "report" / "index.html"
    out.parent.mkdir()
    out.write_text("the old page")
    for path in tmp_path.glob(missing):
        path.unlink()
    with pytest.raises(TableError) as error:
        build_report(tmp_path, out.parent, needed=["lg_fig5"])
    message = str(error.value)
    assert "\n" not in message
    assert command in message
    assert Path(missing).name.replace("*", "").split(".")[0] in message
    assert out.read_text() == "the old page"


@pytest.mark.parametrize("missing", ["figures/lg_fig5.png", "verdicts/lg_fig5.parquet"])
def test_unfinished_figures_are_named_and_not_shown(results: Path, missing: str) -> None:
    (results / missing).unlink()
    assert list(build_report(results, results / "report").unfinished) == ["lg_fig5"]
    _, page = built(results)
    assert "lg_fig11" in page.ids
    assert "lg_fig5" not in page.ids
    assert "lg_fig5 , not made yet: `snakemake --cores all lg_fig5 --config scale=smoke` makes it" in squeezed(
        page.text.replace(", not", " , not")
    )


@pytest.mark.parametrize("broken", ["specs/figures/lg_fig5.json", "verdicts/lg_fig5.parquet", "figures/lg_fig5.svg"])
def test_an_outdated_figure_is_left_out_unless_it_is_needed(results: Path, broken: str) -> None:
    (results / broken).write_text("{}")
    _, page = built(results)
    assert "lg_fig11" in page.ids
    assert "lg_fig5" not in page.ids
    assert "lg_fig5, to be made again: `snakemake --cores all lg_fig5 --config scale=smoke` makes it; " in squeezed(
        page.text
    )
    assert Path(broken).name in page.text
    with pytest.raises(UserError, match=Path(broken).name):
        build_report(results, results / "report", needed=["lg_fig5"])


def test_no_finished_figure_is_one_line(results: Path) -> None:
    for path in results.glob("figures/*.svg"):
        path.unlink()
    with pytest.raises(
        TableError, match="none of 2 planned figures is finished: lg_fig5 is not made yet; the workflow"
    ):
        build_report(results, results / "x")
    (results / "figures/lg_fig11.svg").write_text("<svg/>")
    with pytest.raises(TableError, match=r"is finished: lg_fig11 is to be made again; .*lg_fig11\.svg"):
        build_report(results, results / "x")


def test_the_pages_of_a_dry_run_show_no_result(tmp_path: Path) -> None:
    results_folder(tmp_path, dry_run=True)
    for name in ("index", "lg"):
        html, page = built(tmp_path, name, ["lg_fig5"])
        text = squeezed(page.text)
        assert "A dry run: no number, curve or verdict on this page means anything." in text
        assert re.search(r"Made in this dry run: 1 of the (49|15) figures and tables", text)
        assert "<title>A dry run: " in html
        assert html.index("A dry run: no number") < html.index('class="lead"')
        assert text.count("a dry run: its numbers mean nothing") == 3
        assert marks(html) == ["dry-run"] * 3
        assert not re.search(r"\d (confirmed|refuted|not decided)|[✓✗]|1\.5 to|class=.strip", html)
        assert "#dry-run" in page.links  # in the contents, which stay in sight
    results_folder(tmp_path)
    html, page = built(tmp_path)
    assert "dry run" not in page.text.lower()


def test_verdicts_of_a_dry_run_and_of_a_full_run_are_not_mixed(tmp_path: Path) -> None:
    results_folder(tmp_path)
    path = tmp_path / "specs" / "figures" / "lg_fig5.json"
    for dry_run in (True, False):
        results_folder(tmp_path, dry_run=not dry_run)
        edit_json(path, rehearsal=dry_run)
        with pytest.raises(TableError, match="judges again"):
            build_report(tmp_path, tmp_path / "x")


def test_the_page_says_what_intervals_over_seeds_include(results: Path) -> None:
    text = squeezed(built(results, "index")[1].text)
    assert "They include the sampling error of the text, because every seed reads its own windows" in text


def test_an_unknown_target_has_a_hint(results: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'lg_fig5'"):
        build_report(results, results / "x", needed=["lg_fig55"])


def test_verdicts_on_other_claims_are_refused(tmp_path: Path) -> None:
    results_folder(tmp_path, panels=("small", "medium", "large"), seeds=(1,))
    path = tmp_path / "specs" / "figures" / "lg_fig5.json"
    spec = json.loads(path.read_text())
    first, *others = spec["figure"]["claims"]
    for changes in (
        {"figure": spec["figure"] | {"claims": [first | {"says": "Another claim holds."}, *others]}},
        {"figure": spec["figure"] | {"claims": [first | {"models": ["small", "medium"]}, *others]}},
        {"numbers": spec["numbers"] | {"base_fails/large": "other seeds"}},
    ):
        path.write_text(json.dumps(spec | changes))
        with pytest.raises(TableError, match=r"'base_fails/(small|large)' is not what .* claims now; .* judges again"):
            build_report(tmp_path, tmp_path / "x", needed=["lg_fig5"])


def test_a_broken_run_record_is_named(results: Path) -> None:
    path = sorted(results.glob("runs/*/run.json"))[0]
    path.write_text("{")
    with pytest.raises(TableError, match=r"run\.json: not a readable record"):
        build_report(results, results / "x", needed=["lg_fig5"])
    path.write_text("{}")
    with pytest.raises(TableError, match="status: this key is required"):
        build_report(results, results / "x", needed=["lg_fig5"])


@pytest.mark.parametrize(
    ("provenance", "says"),
    [
        ({"packages": {"torch": 3}}, "provenance.packages.torch: expected text, got 3"),
        ({"packages": ["torch"]}, "provenance.packages: expected a mapping, got a list"),
        ({"machine": {"python": None}}, "provenance.machine.python: expected text, got None"),
        ({"code": {"commit": {}}}, "provenance.code.commit: expected text, got {}"),
        ({"written": "yesterday"}, "provenance.written: must be a time in UTC"),
    ],
)
def test_a_provenance_of_another_shape_is_refused(results: Path, provenance: dict[str, Any], says: str) -> None:
    path = sorted(results.glob("runs/*/run.json"))[0]
    edit_json(path, provenance=provenance)
    with pytest.raises(TableError, match=re.escape(says)):
        build_report(results, results / "x", needed=["lg_fig5"])
    table = results / "verdicts" / "lg_fig5.parquet"
    write_table(read_table(table), VERDICTS, table, provenance)
    with pytest.raises(TableError, match=re.escape(f"its provenance: {says.removeprefix('provenance.')}")):
        read_provenance(table)


def test_a_run_record_with_another_spec_is_refused(results: Path) -> None:
    edit_json(sorted(results.glob("runs/*/run.json"))[0], spec={"sed": 1})
    with pytest.raises(ConfigError, match=r"run\.json"):
        build_report(results, results / "x", needed=["lg_fig5"])


def test_a_figure_is_an_image_with_alternative_text(tmp_path: Path) -> None:
    """No element of the SVG file becomes an element of the page."""
    results_folder(tmp_path)
    html, page = built(tmp_path)
    (image,) = re.findall(r"<img [^>]*>", html)
    assert re.fullmatch(r'<img src="data:image/svg\+xml;base64,\S+" width="756" height="216" alt="[^"]+">', image)
    assert 'alt="Interventions &lt;against&gt; base. ' in image
    assert "alert(" not in html
    assert not any("example.org" in href for href in page.links + page.loads)


def test_an_added_check_of_other_scales_needs_no_verdict(tmp_path: Path) -> None:
    results_folder(tmp_path)
    path = tmp_path / "specs" / "figures" / "lg_fig5.json"
    spec = json.loads(path.read_text())
    check = spec["figure"]["claims"][0] | {"id": "elsewhere", "ours": True, "models": []}
    spec["figure"]["claims"].append(check)
    path.write_text(json.dumps(spec))
    build_report(tmp_path, tmp_path / "x", needed=["lg_fig5"])
    check["ours"] = False
    path.write_text(json.dumps(spec))
    with pytest.raises(TableError, match="has no verdict on 'elsewhere'; `ssm judge"):
        build_report(tmp_path, tmp_path / "x", needed=["lg_fig5"])


def test_a_claim_without_a_verdict_is_refused(tmp_path: Path) -> None:
    results_folder(tmp_path)
    path = tmp_path / "verdicts" / "lg_fig5.parquet"
    write_table(read_table(path).head(2), VERDICTS, path, {})
    with pytest.raises(TableError, match="has no verdict on 'control_fails'; `ssm judge"):
        build_report(tmp_path, tmp_path / "x")

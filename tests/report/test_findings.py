"""Sentences on several figures: a sentence is supported only while its claims have the verdicts that it needs."""

from __future__ import annotations

import doctest
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import words
from html_page import Page, squeezed
from PIL import Image
from report.command import lines
from report.folder import results_folder

from ssm.base.errors import ConfigError
from ssm.base.tables import VERDICTS, read_provenance, read_table, write_table
from ssm.claims.preregistration import Preregistrations
from ssm.claims.synthesis import Synthesis, findings, read_synthesis
from ssm.report import findings as page
from ssm.report.agreement import ReferenceResults
from ssm.report.gather import Gatherer
from ssm.report.verdict_tables import END, START

ROOT = Path(__file__).parents[2]
SENTENCE = "Base models fail. Passing helps."
RULES = [
    {"figure": "lg_fig5", "claim": "base_fails"},
    {"figure": "lg_fig5", "claim": "passed_fails", "verdict": "refuted"},
]
CONTENT = {"expected": "> 1.5", "quantity": "q", "arms": "a", "measurements": "m"}


def synthesis(*rests_on: dict[str, Any], says: str = SENTENCE) -> Synthesis:
    groups = [{"title": "Later"}, {"title": "What fails", "sentences": [{"says": says, "rests_on": list(rests_on)}]}]
    return Synthesis.parse({"picture": "lg_fig5", "groups": groups}, "synthesis.yaml")


def row(claim: str, verdict: str = "confirmed", **changes: Any) -> dict[str, Any]:
    made = {"target": "lg_fig5", "claim": claim, "verdict": verdict, "says": "it fails", "expected": "> 1.5"}
    made |= {"number": claim, "p": 0.001}
    return (
        made | {"sort": "paper", "registered": True, "estimate": 2.0, "low": 1.5, "high": 2.5, "interval": ""} | changes
    )


def only(rows: list[dict[str, Any]], **ground: Any) -> tuple[str, str]:
    """The state of a sentence on the claim `it`, and the words about this claim."""
    ((group),) = findings(synthesis({"figure": "lg_fig5", "claim": "it"} | ground), rows)
    (finding,) = group.findings
    return finding.state, finding.supports[0].words


def test_examples() -> None:
    assert doctest.testmod(page).failed == 0


def test_a_sentence_needs_the_verdict_of_its_claim() -> None:
    assert only([row("it")]) == ("supported", "2 (1.5 to 2.5)")
    needs = "2 (1.5 to 2.5), expected > 1.5, {}; the sentence needs '{}'"
    for verdict in ("refuted", "not decided"):
        assert only([row("it", verdict)]) == ("not supported", needs.format(verdict, "confirmed"))
        assert only([row("it", verdict)], verdict=verdict) == ("supported", f"2 (1.5 to 2.5), {verdict}")
        assert only([row("it")], verdict=verdict) == ("not supported", needs.format("confirmed", verdict))


def test_a_claim_that_was_not_registered_supports_nothing() -> None:
    assert only([row("it", registered=False)])[0] == "not supported"
    assert only([row("it/a"), row("it/b", registered=False)])[0] == "not supported"
    assert only([row("it/a"), row("it/b", registered=False)], models=["a"])[0] == "supported"


def test_a_verdict_with_a_star_supports_nothing() -> None:
    """Of 20 tests, a p-value of .04 does not survive the correction. Alone it does."""
    others = [row(f"other_{i}", "not decided", p=0.5) for i in range(19)]
    assert only([row("it", p=0.04)])[0] == "supported"
    assert only([row("it", p=0.04), *others]) == (
        "not supported",
        "2 (1.5 to 2.5), expected > 1.5, confirmed*; the sentence needs 'confirmed'",
    )
    assert only([row("it", "not decided", p=0.5), *others], verdict="not decided")[0] == "supported"


def test_a_claim_without_a_verdict_is_not_judged() -> None:
    assert only([]) == ("not judged", "not judged; the sentence needs 'confirmed'")
    assert only([row("it", sort="elsewhere")])[0] == "not judged"
    assert only([row("it/a")], models=["a", "b"])[0] == "not judged", "a model is missing"
    ((group),) = findings(synthesis(*RULES), [row("base_fails", "refuted")])
    assert group.findings[0].state == "not supported", "one claim is refuted, and one is not judged"


def test_all_models_of_a_claim_must_agree_or_the_named_ones() -> None:
    rows = [row("it/a"), row("it/b", "refuted", estimate=1.0, low=0.9, high=1.1)]
    state, told = only(rows)
    assert (state, told.split("; ")[0]) == (
        "not supported",
        "2 verdicts, 1 (0.9 to 1.1) to 2 (1.5 to 2.5), expected > 1.5, mixed",
    )
    assert only(rows, models=["a"]) == ("supported", "2 (1.5 to 2.5)")
    assert only(rows, models=["b"], verdict="refuted") == ("supported", "1 (0.9 to 1.1), refuted")


@pytest.mark.parametrize(
    ("ground", "problem"),
    [
        ({"figure": "lg_fig6"}, "figure: no claim of 'lg_fig6' is registered; did you mean 'lg_fig5'?"),
        ({"claim": "base_fail"}, "claim: no claim 'base_fail' of lg_fig5 is registered; did you mean 'base_fails'?"),
        ({"models": ["tin"]}, "models: 'base_fails' of lg_fig5 is not about 'tin'; did you mean 'tiny'?"),
        ({"claim": "passed_fails", "models": ["a"]}, "models: 'passed_fails' of lg_fig5 is on one model; leave"),
        ({"verdict": "refute"}, "verdict: unknown name 'refute'; did you mean 'refuted'?"),
        ({"model": "tiny"}, "unknown key 'model'; did you mean 'models'?"),
    ],
)
def test_a_bad_name_is_one_line(ground: dict[str, Any], problem: str) -> None:
    claims = {"base_fails/tiny": CONTENT, "passed_fails": CONTENT}
    entry = {"date": "2026-01-01T00:00:00+00:00", "seeds": [1], "claims": claims}
    known = Preregistrations.parse({"figures": {"lg_fig5": {"smoke": [entry]}}}, "registered.json")
    with pytest.raises(ConfigError) as caught:
        synthesis(RULES[0] | ground).check(known, "synthesis.yaml")
    assert str(caught.value).startswith("synthesis.yaml: groups.1.sentences.0.rests_on.0")
    assert problem in str(caught.value)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with results of one figure, a sentence on it, and places for what is written."""
    monkeypatch.chdir(tmp_path)
    results_folder(Path("results/smoke"))
    Image.new("RGB", (9, 9), "white").save("results/smoke/figures/lg_fig5.png")
    for file in ("README.md", "reports/README.md", "docs/findings.md"):
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_text(f"# Title\n\n{START}\n\n{END}\n")
    Path("config").mkdir()
    names = ("base_fails", "passed_fails")
    entry = {"date": "2026-01-01T00:00:00+00:00", "seeds": [1], "claims": dict.fromkeys(names, CONTENT)}
    Path("config/registered.json").write_text(json.dumps({"figures": {"lg_fig5": {"smoke": [entry]}}}))
    Path("config/synthesis.yaml").write_text(json.dumps(synthesis(*RULES).content()))
    return tmp_path


def test_the_page_follows_the_reference(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said, reference = Path("docs/findings.md"), Path("reports/smoke/lg_fig5.json")
    assert lines(capsys, "reference", "results/smoke", code=0)[-1] == "wrote docs/findings.md"
    text = said.read_text()
    assert "1 of 1 sentences are supported.\n\n## What fails\n\n" in text
    assert f"\n\n- <details><summary>{SENTENCE}</summary>\n\n  [lg Figure 5](" in text
    assert "Later" not in text, "a group without sentences"
    assert "![lg Figure 5: four interventions](../reports/smoke/lg_fig5.png)" in text
    for link, number in re.findall(r"\.\./reports/README\.md#(\S+)\) (\S+ \([^)]+\))", text):
        (line,) = [one for one in Path("reports/README.md").read_text().splitlines() if f'<a id="{link}"></a>' in one]
        assert f"| {number} |" in line, "the link leads to the number"
    said.write_text(f"# Title\n\n{START}\n\n{END}\n")
    lines(capsys, "reference", code=0)
    assert said.read_text() == text, "equal references give an equal page"
    assert lines(capsys, "reference", "--check", code=0) == [
        "README.md, reports/README.md, docs/findings.md: all agree with the reference results"
    ]

    reference.write_text(reference.read_text().replace('"verdict": "confirmed"', '"verdict": "not decided"'))
    number = "3 (2.34 to 3.85), expected > 1.5"
    wrong = f"ssm reference: '{SENTENCE}' is not supported: lg_fig5 base_fails: {number}, not decided"
    *files, line = lines(capsys, "reference", "--check", code=2)
    assert [file.split(": ")[1] for file in files] == ["README.md", "reports/README.md", "docs/findings.md"]
    assert line == f"{wrong}; the sentence needs 'confirmed'"
    assert lines(capsys, "reference", code=2)[-1].startswith(wrong), "it is written, and told"
    assert f"<summary><b>Not supported.</b> {SENTENCE}</summary>" in said.read_text()


def shown(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """The findings of a report: the classes of its sentences, and its text."""
    lines(capsys, "report", "results/smoke", "--out", "out", code=0)
    text = Path("out/findings.html").read_text()
    return " ".join(re.findall(r'<li class="([a-z-]+)">', text)), squeezed(Page(text).text)


def test_the_report_judges_sentences_by_its_own_results(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state, text = shown(capsys)
    assert state == "supported"
    assert f"{SENTENCE} lg Figure 5 3 (2.34 to 3.85)" in text
    parsed = Page(Path("out/findings.html").read_text())
    anchors = Page(Path("out/lg.html").read_text()).ids
    links = [link for link in parsed.links if link.startswith("lg.html#")]
    assert len(links) == 3, "two claims and the picture"
    assert all(link.partition("#")[2] in anchors for link in links)
    assert len(parsed.loads) == 1, "the picture"
    assert "1 of 1 sentences are supported" in squeezed(Page(Path("out/index.html").read_text()).text)

    lines(capsys, "reference", "results/smoke", code=0)
    path = Path("results/smoke/verdicts/lg_fig5.parquet")
    verdicts = read_table(path).with_columns(verdict=pl.lit("not decided"))
    write_table(verdicts, VERDICTS, path, read_provenance(path))
    state, text = shown(capsys)
    assert state == "not-supported", "the results of this run count, and not the reference"
    assert f"Not supported. {SENTENCE}" in text
    results = Gatherer(Path("results/smoke"), Path("out")).gather()
    dry = replace(results.figures[0], task=results.figures[0].task.model_copy(update={"dry_run": True}))
    said = page.shown_findings(synthesis(*RULES), replace(results, figures=(dry,)), ReferenceResults())
    assert [finding.state for group in said.groups for finding in group.findings] == ["not judged"]
    assert said.picture is None


def test_the_reference_replaces_a_figure_that_was_not_made(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(capsys, "reference", "results/smoke", code=0)
    for file in ("config/synthesis.yaml", "config/registered.json"):
        Path(file).write_text(Path(file).read_text().replace("lg_fig5", "mi_fig1"))
    state, text = shown(capsys)
    assert state == "not-judged"
    assert f"Not judged. {SENTENCE} mi Figure 1 not judged" in text
    for ending in ("json", "png"):
        Path(f"reports/smoke/lg_fig5.{ending}").rename(f"reports/smoke/mi_fig1.{ending}")
    moved = Path("reports/smoke/mi_fig1.json")
    moved.write_text(moved.read_text().replace("lg_fig5", "mi_fig1"))
    assert shown(capsys)[0] == "supported"
    assert "<em>mi Figure 1</em>" in Path("out/findings.html").read_text(), "labeled as a reference"


def test_the_largest_scale_counts_unless_an_own_verdict_contradicts(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The link to another scale leads to the figure, because the report has no verdict of that scale."""
    lines(capsys, "reference", "results/smoke", code=0)
    smaller, larger = Path("reports/smoke/lg_fig5.json"), Path("reports/desk/lg_fig5.json")
    larger.parent.mkdir()
    reference = smaller.read_text()
    larger.write_text(reference.replace('"scale": "smoke"', '"scale": "desk"'))
    verdicts = Path("results/smoke/verdicts/lg_fig5.parquet")
    made, provenance = read_table(verdicts), read_provenance(verdicts)

    def here(**columns: pl.Expr) -> str:
        write_table(made.with_columns(**columns), VERDICTS, verdicts, provenance)
        return shown(capsys)[0]

    undecided, verdict = pl.lit("not decided"), pl.col("verdict")
    other = verdict.replace({"confirmed": "refuted", "refuted": "confirmed"})
    assert here(verdict=undecided) == "supported"
    text = Path("out/findings.html").read_text()
    assert re.findall(r'<a href="([^"]+)"[^>]*><em>lg Figure 5, desk</em></a>', text) == ["lg.html#lg_fig5"] * 2
    assert here(verdict=other) == "not-supported"
    assert here(registered=pl.lit(False)) == "not-supported"
    for file in (smaller, smaller.with_suffix(".png")):  # the folder then has references, but none of this figure
        file.rename(file.with_stem("mi_fig1"))
    moved = smaller.with_stem("mi_fig1")
    moved.write_text(reference.replace("lg_fig5", "mi_fig1"))
    assert here(verdict=other) == "not-supported", "it contradicts the reference of the other scale"
    assert here(verdict=undecided) == "supported"


def test_without_sentences_the_page_says_where_they_come_from(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("config/synthesis.yaml").unlink()
    state, text = shown(capsys)
    assert state == ""
    assert "There are no sentences" in text


def test_the_projects_own_sentences_are_short_and_supported() -> None:
    own = read_synthesis(ROOT / "config")
    assert own is not None
    said = [sentence.says for group in own.groups for sentence in group.sentences]
    assert len(said) >= 10
    assert [one for one in said if words.words(one) > words.LONGEST] == []
    assert page.unsupported_in(own, ROOT / "reports" / "smoke") == []

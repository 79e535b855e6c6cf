"""The report shows the references of missing figures, labeled and counted separately, and compares finished figures."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from html_page import Page, squeezed
from PIL import Image
from report.folder import results_folder

from ssm.base.tables import VERDICTS, read_provenance, read_table, write_table
from ssm.claims.claim import Expected
from ssm.cli.main import main
from ssm.report.papers import PAGES
from ssm.report.reference import write_reference
from ssm.report.scales import all_scales
from ssm.report.strip import strip
from ssm.specs.base import SCALES

RESULTS, REFERENCE = Path("results/smoke"), Path("reports/smoke")
LABEL = "Reference result, not made on this machine"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with results of lg_fig5, and reference results of this figure and of lg_fig1 and mi_fig1."""
    monkeypatch.chdir(tmp_path)
    results_folder(RESULTS)
    Image.new("RGB", (9, 7), "white").save(RESULTS / "figures" / "lg_fig5.png")
    made = {"machine": {"python": "3.11.7", "processor": "A Processor"}, "packages": {"torch": "2.13.0"}}
    verdicts = RESULTS / "verdicts" / "lg_fig5.parquet"
    write_table(read_table(verdicts), VERDICTS, verdicts, made | {"written": "2025-01-01T10:20:30+00:00"})
    write_reference(RESULTS, REFERENCE)
    for target in ("lg_fig1", "mi_fig1"):
        content = json.loads((REFERENCE / "lg_fig5.json").read_text())
        claims = [claim | {"number": f"{target} {claim['number']}"} for claim in content["claims"]]
        (REFERENCE / f"{target}.json").write_text(json.dumps(content | {"target": target, "claims": claims}))
        shutil.copy(REFERENCE / "lg_fig5.png", REFERENCE / f"{target}.png")
    return tmp_path


def plan(target: str) -> None:
    """Plan a figure like lg_fig5, but do not make it."""
    specs = RESULTS / "specs" / "figures"
    (specs / f"{target}.json").write_text((specs / "lg_fig5.json").read_text().replace("lg_fig5", target))


def changed(provenance: dict[str, object] | None = None, **columns: pl.Expr) -> None:
    """Change the verdicts of lg_fig5."""
    path = RESULTS / "verdicts" / "lg_fig5.parquet"
    kept = read_provenance(path) | (provenance or {})
    write_table(read_table(path).with_columns(**columns), VERDICTS, path, kept)


def pages(*options: str) -> dict[str, str]:
    """Run `ssm report`; name -> text of a page."""
    out = RESULTS / "report"
    assert main(["report", str(RESULTS), "--out", str(out), *options]) == 0
    return {path.stem: path.read_text(encoding="utf-8") for path in out.iterdir()}


def text_of(page: str) -> str:
    return squeezed(Page(page).text)


def marks(page: str, reference: bool) -> list[str]:
    """The marks of claims on cards: those of references, or those of finished figures."""
    ending = " reference" if reference else ""
    return re.findall(rf'<a class="(?:large|small)"[^>]*><svg class="mark ([a-z-]+){ending}"', page)


def test_a_missing_figure_shows_its_reference() -> None:
    plan("lg_fig1")
    front, paper = (pages()[name] for name in ("index", "lg"))
    for page in (front, paper):
        assert marks(page, reference=False) == ["confirmed", "refuted", "not-decided"]
    assert marks(front, reference=True) == ["confirmed", "refuted", "not-decided"] * 2, "one figure is of the paper mi"
    assert marks(paper, reference=True) == ["confirmed", "refuted", "not-decided"]
    assert {"lg.html#lg_fig1", "lg.html#lg-fig1_base-fails", "mi.html#mi_fig1"} <= set(Page(front).links)
    assert f'title="{LABEL}. the claim base_fails holds Confirmed: 3 (2.34 to 3.85)"' in front
    assert text_of(front).count("reference, not made here") == 2
    page = Page(paper)
    assert page.ids.index("lg_fig5") < page.ids.index("references") < page.ids.index("lg_fig1")
    section = text_of(paper)[text_of(paper).index(LABEL + ":") :]
    assert "the smoke scale, from reports/smoke/lg_fig1.json, made 2025-01-01 10:20 UTC, on A Processor" in section
    assert (
        "Python 3.11.7, torch 2.13.0. make figures TARGETS=lg_fig1 ARGS='--config scale=smoke' makes it here."
        in section
    )
    for shown in ("3 (2.34 to 3.85)", "✓ confirmed reference", "does not exist at the scale smoke"):
        assert shown in section
    assert re.search(r'<img src="data:image/png;base64,[A-Za-z0-9+/=]+" width="9" height="7"', paper)


def test_a_reference_names_the_judged_model_by_its_title() -> None:
    path = REFERENCE / "lg_fig1.json"
    content = json.loads(path.read_text())
    content["claims"][0] |= {"claim": "base_fails/small", "model": "Mamba-2, slow decay"}
    path.write_text(json.dumps(content))
    text = text_of(pages()["lg"])
    assert "the claim base_fails holds Mamba-2, slow decay" in text
    assert "base_fails/small" not in text


def test_references_are_counted_separately() -> None:
    plan("lg_fig1")
    front, paper = (text_of(pages()[name]) for name in ("index", "lg"))
    assert "Rebuilt here: 1 of the 49 figures" in front
    assert "Not made here, but shown as reference results : 2." in front.replace("results:", "results :")
    assert "Rebuilt here: 1 of the 15 figures" in paper
    counts = "confirmed (1) refuted (1) not decided (1)"
    assert paper.count(counts) == 2
    assert front.count(counts) == 1, "the two references are added up"
    assert "confirmed (2) refuted (2) not decided (2)" in front
    for page, of_reference in ((front, 2), (paper, 1)):
        for head, count in (("made here", 1), ("reference results", of_reference)):
            table = page.split(f"Statements, {head}", 1)[1].removeprefix(" confirmed refuted mixed not decided ")
            assert table.startswith(f"Statements of the papers {count} {count} 0 0 Added checks 0 0 0 {count}")


def test_pages_with_references_are_self_contained_and_have_no_broken_links() -> None:
    found = pages()
    parsed = {f"{name}.html": Page(text) for name, text in found.items()}
    assert set(parsed) == set(PAGES)
    for name, page in parsed.items():
        assert len(page.ids) == len(set(page.ids))
        assert all(re.match(r"#|data:image/(png|svg\+xml);base64,", load) for load in page.loads)
        for file, _, anchor in (href.partition("#") for href in page.links):
            assert not file or (RESULTS / "report" / file).is_file()
            assert not anchor or anchor in parsed[file or name].ids


def test_a_reference_of_an_unplanned_figure_says_so() -> None:
    text = text_of(pages()["mi"])
    assert "It is not planned here: it has no figure file yet, or config.yaml leaves it out." in text
    assert "make figures TARGETS=mi_fig1" not in text


def test_a_finished_figure_says_whether_it_agrees() -> None:
    front, paper = (text_of(pages()[name]) for name in ("index", "lg"))
    assert "3 of 3 claims agree with the reference" in front
    assert "Compared with the reference. Of 3 claims that are made here and have a reference result, 3 agree" in paper

    def moved(**numbers: float) -> tuple[str, str]:
        """The pages, after these numbers of a claim were changed with another torch."""
        first = pl.col("claim") == "base_fails"
        new = {name: pl.when(first).then(pl.lit(number)).otherwise(name) for name, number in numbers.items()}
        changed({"packages": {"torch": "2.12.0"}}, **new)
        made = pages()
        return text_of(made["index"]), text_of(made["lg"])

    front, paper = moved(estimate=3.3)
    assert "2 of 3 claims agree with the reference, 1 consistent" in front
    counts = "2 agree (2 of them bitwise), 1 consistent within their intervals, 0 differ."
    for page in (front, paper):
        assert f"Of 3 claims that are made here and have a reference result, {counts}" in page
    front, paper = moved(estimate=6.0, low=5.0)
    assert "2 of 3 claims agree with the reference, 1 differ" in front
    for page in (front, paper):
        assert "2 agree (2 of them bitwise), 1 differ. torch is 2.12.0 here, 2.13.0 in the reference: it may" in page
    differs = "the claim base_fails holds base_fails : confirmed 6 here, confirmed 3 in the reference: "
    assert f"{differs}the estimate moved by 99.7%" in paper.replace("s:", "s :")
    path = REFERENCE / "lg_fig5.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"claims": content["claims"][1:]}))
    front, paper = (text_of(pages()[name]) for name in ("index", "lg"))
    assert "2 of 2 claims agree with the reference, 1 on one side only" in front
    for page in (front, paper):
        assert "0 differ. Not compared, because only one side has them: 1. torch" in page
    assert "is judged here, and not in the reference" in paper


def test_without_references_no_page_mentions_them() -> None:
    plan("lg_fig1")
    plan("lg_own")  # a figure of the user's own
    paper = pages()["lg"]
    assert (
        '<li class="absent" title="not made yet: `snakemake --cores all lg_own --config scale=smoke` makes it">'
        in paper
    )
    assert "lg_own" not in Page(paper).ids
    shutil.move("reports", "moved")
    for page in pages().values():
        assert "reference" not in Page(page).text.lower()
        assert not marks(page, reference=True)
    REFERENCE.mkdir(parents=True)  # and nothing in it
    assert "lg_fig1" not in Page(pages()["lg"]).ids
    assert "lg_fig1" in Page(pages("--reference", "moved/smoke")["lg"]).ids


def test_references_of_another_scale_are_ignored() -> None:
    for path in REFERENCE.glob("*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"scale": "gpu"}))
    assert "reference" not in Page(pages()["index"]).text.lower()


def test_the_report_of_a_dry_run_shows_no_reference() -> None:
    results_folder(RESULTS, dry_run=True)
    for page in pages().values():
        assert "reference" not in Page(page).text.lower()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("lg_fig1.json", "{}", "lg_fig1.json"),
        ("lg_fig1.png", "GIF89a", "lg_fig1.png: not a readable image"),
        ("lg_fig1.png", None, "lg_fig1.png: not a readable image"),
    ],
)
def test_a_broken_reference_is_one_line(
    name: str, content: str | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pages()
    before = {path: path.read_bytes() for path in (RESULTS / "report").iterdir()}
    (REFERENCE / name).unlink()
    if content is not None:
        (REFERENCE / name).write_text(content)
    capsys.readouterr()
    assert main(["report", str(RESULTS), "--out", str(RESULTS / "report")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert {path: path.read_bytes() for path in (RESULTS / "report").iterdir()} == before


def test_a_named_folder_without_references_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(RESULTS), "--out", "pages", "--reference", "nowhere"]) == 2
    assert capsys.readouterr().err == "ssm report: nowhere: no reference results\n"
    assert not Path("pages").exists()


def test_all_scales_and_the_papers_number_are_on_one_axis() -> None:
    content = json.loads((REFERENCE / "lg_fig1.json").read_text())
    assert "By scale:" not in pages()["lg"]
    content["claims"][0]["paper_number"] = 4.0
    larger = content | {
        "scale": "gpu",
        "claims": [content["claims"][0] | {"estimate": 5.0, "low": 4.5, "high": 5.5, "expected": "> 2"}],
    }
    Path("reports/gpu").mkdir()
    Path("reports/gpu/lg_fig1.json").write_text(json.dumps(larger))
    (REFERENCE / "lg_fig1.json").write_text(json.dumps(content))
    html = pages()["lg"]
    (drawn,) = re.findall(r"By scale:</span><svg.*?</svg>", html)
    assert re.findall(r"<text[^>]*>(\w+)</text>", drawn) == ["smoke", "gpu", "reported"]
    places = [float(place) for place in re.findall(r'<circle cx="([\d.]+)"', drawn)]
    (paper,) = re.findall(r'class="paper" d="M([\d.]+)', drawn)
    assert places[0] < float(paper) < places[1], "3, 4 and 5 on one axis"
    assert drawn.count('class="seed"') == 6
    (words,) = re.findall(re.escape(drawn) + r'<span class="small">(.*?)</span>', html)
    assert re.fullmatch(r"smoke 3 \(.* to .*\); gpu 5 \(4.5 to 5.5\), expected &gt; 2; reported 4", words)


def test_all_numbers_of_a_seed_are_dots_but_parts_are_none() -> None:
    """The pooled repaired share has two logarithms for each seed, on another axis."""
    row = {"estimate": 0.8, "low": 0.7, "high": 0.9}
    parts = {seed: {"before": 9.0, "after": 0.2} for seed in (1, 2)}
    alone = str(strip(row, Expected(above=0.5)))
    assert strip(row | {"by_seed": json.dumps(parts)}, Expected(above=0.5)) == alone
    for by_seed, dots in (({1: 0.8, 2: None}, 1), ({1: [1.0, 0.8], 2: [2.0, None]}, 3)):
        drawn = strip(row | {"by_seed": json.dumps(by_seed)}, Expected(above=0.5))
        assert drawn.count('class="seed"') == dots


def test_scales_have_one_order_whichever_folder_is_named() -> None:
    reports = Path(__file__).parents[2] / "reports"
    found = [[one.scale for one in all_scales(reports / scale)] for scale in ("smoke", "desk")]
    assert found[0] == found[1] == sorted(found[0], key=SCALES.index)
    assert {"smoke", "desk"} <= set(found[0])

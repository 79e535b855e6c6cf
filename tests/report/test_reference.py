"""Reference results are written and reworded, other results are compared with them, and README files list them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from claims.synthetic import claim, student
from PIL import Image
from plan import own
from plan.mini import edit, write_config
from report.command import lines
from report.folder import CLAIMS, results_folder
from scipy import stats

from ssm.base.tables import VERDICTS, read_provenance, read_table, write_table
from ssm.claims.claim import ClaimSpec
from ssm.claims.preregistration import Content, Preregistrations, read_preregistrations
from ssm.claims.quantities.cost_exponent import CostExponent
from ssm.claims.quantity import ROUNDING
from ssm.claims.statements import ELSEWHERE
from ssm.claims.synthesis import read_synthesis
from ssm.plan import load_config, make_plan
from ssm.report.compare import TOLERANCE
from ssm.report.papers import PAPERS
from ssm.report.reference import Judged, Reference, judged, read_references, save_reference
from ssm.report.scales import all_scales
from ssm.report.shared_models import OVERLAPS, shared_models
from ssm.report.verdict_tables import END, START, every_verdict, verdict_summary, written_pages

ROOT = Path(__file__).parents[2]
TABLE = f"# Title\n\n{START}\n\nold\n\n{END}\n\nMore.\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with results of one figure, and places for its tables."""
    monkeypatch.chdir(tmp_path)
    size = claim({"kind": "parameter_ratio", "model": "tiny"}, "size", above=1.0)
    results(Path("results/smoke"), claims=[*CLAIMS, size])
    for readme in (Path("README.md"), Path("reports/README.md")):
        readme.parent.mkdir(exist_ok=True)
        readme.write_text(TABLE)
    return tmp_path


def results(folder: Path, target: str = "lg_fig5", **options: Any) -> None:
    results_folder(folder, target, **options)
    Image.new("RGB", (9, 9), "white").save(folder / "figures" / f"{target}.png")


def changed(**columns: pl.Expr) -> None:
    """Change columns of the figure's verdicts."""
    path = Path("results/smoke/verdicts/lg_fig5.parquet")
    write_table(read_table(path).with_columns(**columns), VERDICTS, path, read_provenance(path))


def test_results_become_the_reference_and_agree_bitwise(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, "reference", "results/smoke", code=0) == [
        "wrote reports/smoke: lg_fig5",
        "wrote README.md",
        "wrote reports/README.md",
    ]
    assert sorted(path.name for path in Path("reports/smoke").iterdir()) == ["lg_fig5.json", "lg_fig5.png"]
    with Image.open("reports/smoke/lg_fig5.png") as image:
        assert image.size == (9, 9)
    text = Path("reports/smoke/lg_fig5.json").read_text()
    assert len([line for line in text.splitlines() if line.startswith('    {"claim": ')]) == 4
    rows = read_table("results/smoke/verdicts/lg_fig5.parquet").to_dicts()
    for row, written in zip(rows, json.loads(text)["claims"], strict=True):
        seeds = row.pop("by_seed")
        assert written.pop("by_seed", {}) == (json.loads(seeds) if seeds else {})
        assert (written.pop("base_models", 0), "base_group" in written) == ((3, True) if seeds else (0, False))
        written.pop("base_group", None)
        assert written.items() <= row.items()
    (reference,) = read_references(Path("reports/smoke")).values()
    assert reference.made == {"written": "2025-01-01T00:00:00+00:00"}
    first, *_, last = lines(capsys, "compare", "results/smoke", code=0)
    assert first.split() == ["lg_fig5", "base_fails", "agrees", "confirmed", "3,", "bitwise"]
    assert last == "4 of 4 claims agree with reports/smoke (4 of them bitwise), 0 are consistent, 0 differ"
    assert lines(capsys, "reference", code=0) == []  # both tables are up to date


def test_a_figure_with_an_old_verdict_is_left_out_and_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results(Path("results/smoke"), "lg_fig12")
    changed(says=pl.lit("An older statement."))
    first, *_, last = lines(capsys, "reference", "results/smoke", code=2)
    assert first == "wrote reports/smoke: lg_fig12"
    assert last.startswith("ssm reference: lg_fig5 is left out: to be made again, `")
    assert last.endswith("judges again")


def test_the_tables_show_the_reference(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(lines(capsys, "reference", "--check", code=2)) == 2
    assert Path("README.md").read_text() == TABLE, "a check writes nothing"
    lines(capsys, "reference", "results/smoke", code=0)
    text = Path("README.md").read_text()
    assert text.startswith("# Title\n")
    assert text.endswith("\n\nMore.\n")
    assert text.split("\n\n")[2].splitlines()[2:] == [
        f"| `lg` {PAPERS['lg'].citation} | 1 | 1 / 1 / 0 / 0 | 0 / 0 / 0 / 1 |"
    ]
    every = Path("reports/README.md").read_text()
    assert f"## `lg` {PAPERS['lg'].citation}\n\n- 4 of 4 verdicts were registered" in every, "a section for each paper"
    assert (
        '| <a id="lg-fig5_base-fails"></a>`lg_fig5` Figure 5 | the claim base_fails holds (`base_fails`) | '
        "3 (2.34 to 3.85) | > 1.5 | confirmed |" in every
    )
    missing = "| no number: the arm 'control' does not exist at the scale smoke | > 1 | not decided |"
    assert missing in every, "a missing number has its reason"
    assert lines(capsys, "reference", "--check", code=0) == [
        "README.md, reports/README.md: all agree with the reference results"
    ]
    Path("README.md").write_text(text.replace("1 / 1 / 0 / 0", "2 / 0 / 0 / 0"))
    assert lines(capsys, "reference", "--check", code=2) == [
        "ssm reference: README.md: does not agree with reports/smoke; `ssm reference` writes it"
    ]


def test_an_unregistered_verdict_is_not_counted(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results(Path("results/smoke"), registered=("base_fails",))
    lines(capsys, "reference", "results/smoke", code=0)
    assert f"| `lg` {PAPERS['lg'].citation} | 1 | 1 / 0 / 0 / 0 |  |" in Path("README.md").read_text()
    assert Path("reports/README.md").read_text().count(", not registered |") == 2


def test_an_interval_can_be_computed_again_from_the_reference(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(capsys, "reference", "results/smoke", code=0)
    found = [claim for claim in json.loads(Path("reports/smoke/lg_fig5.json").read_text())["claims"] if claim["low"]]
    of_seeds = [claim for claim in found if " seeds" in claim["interval"]]
    assert len(of_seeds) == 2
    for one in of_seeds:
        assert list(one["by_seed"]) == ["1", "2", "3"]
        assert one["interval"] == "95% Student t over 3 seeds, of logarithms"
        _, low, high = student(np.log(list(one["by_seed"].values())))
        assert (one["low"], one["high"]) == pytest.approx((np.exp(low), np.exp(high)), rel=1e-8)
        assert one["p"] == pytest.approx(
            stats.ttest_1samp(np.log(list(one["by_seed"].values())), np.log(1.5)).pvalue, rel=1e-6
        )
    printed = lines(capsys, "verdicts", "results/smoke", "--seeds", code=0)
    assert "lg_fig5  base_fails: 1: 2.72, 2: 3, 3: 3.32" in printed


def made(verdict: str, claim: str = "it", number: str = "a", scale: str = "smoke", **changes: Any) -> Reference:
    one = Judged(
        claim=claim, says="it holds", estimate=2.0, low=1.5, high=2.5, interval="95% Student t over 5 seeds",
        expected="> 1", verdict=verdict, sort="paper", number=number, registered=True,
    )  # fmt: skip
    return Reference(target="own_fig1", scale=scale, made={}, claims=(one.model_copy(update=changes),))


def test_a_statement_counts_once_if_several_panels_judge_it() -> None:
    claims = [made("confirmed", "it/a", "a").claims[0], made("not decided", "it/b", "b", low=0.5).claims[0]]
    reference = Reference(target="own_fig1", scale="smoke", made={}, claims=tuple(claims))
    assert verdict_summary([reference]).splitlines()[2:] == ["| `own` | 1 | 0 / 0 / 1 / 0 |  |"]
    row = every_verdict([reference], Preregistrations()).splitlines()[-1]
    numbers = "`a`: 2 (1.5 to 2.5), confirmed<br>`b`: 2 (0.5 to 2.5), not decided (about 14 new seeds would decide it)"
    assert f"it holds (`it`) | {numbers} | > 1 | mixed |" in row


def test_a_region_of_another_scale_stands_beside_its_number() -> None:
    both = [made("confirmed"), made("refuted", number="b", scale="gpu", expected="> 3")]
    row = every_verdict(both, Preregistrations()).splitlines()[-1]
    numbers = "smoke: 2 (1.5 to 2.5), expected > 1, confirmed<br>gpu: 2 (1.5 to 2.5), refuted"
    assert f"it holds (`it`) | {numbers} | > 3 | refuted |" in row


def test_the_largest_scale_counts_and_all_are_listed(place: Path) -> None:
    small, large = made("refuted"), made("confirmed", number="b", scale="gpu", paper_number=3.0)
    for reference in (small, large):
        save_reference(reference, Path("reports") / reference.scale)
    Path("reports/gpu/speed.json").write_text("{}")  # a result of `make gpu`
    pages = (Path("reports/smoke"), Path("README.md"), Preregistrations(), None)
    (_, readme), (_, every) = written_pages(*pages).values()
    assert "| `own` | 1 | 1 / 0 / 0 / 0 |  |" in readme
    cell = "paper: 3<br>smoke: 2 (1.5 to 2.5), refuted<br>gpu: 2 (1.5 to 2.5), confirmed"
    assert f"| {cell} | > 1 | confirmed |" in every
    for scale, counts in (("`smoke`", "0 / 1 / 0 / 0"), ("`gpu`", "1 / 0 / 0 / 0"), ("the largest", "1 / 0 / 0 / 0")):
        assert any(line.startswith(f"| {scale}") and f"| 1 | {counts} |" in line for line in every.splitlines())
    save_reference(made("not decided", number="b", scale="gpu", sort="elsewhere"), Path("reports/gpu"))
    (_, readme), _ = written_pages(*pages).values()
    assert "| `own` | 1 | 0 / 1 / 0 / 0 |  |" in readme, "the larger scale does not judge it"


def test_seeds_that_were_read_before_are_listed() -> None:
    content = {"expected": "> 1", "quantity": "q", "arms": "a", "measurements": "m"}
    number = Content.parse(content, "test").number((4, 5, 6))
    past = [
        {"date": "2026-01-01T00:00:00+00:00", "seeds": [1], "used": "read while it was tried"},
        {"date": "2026-01-02T00:00:00+00:00", "seeds": [2, 3], "claims": {"it": content | {"arms": "other"}}},
        {"date": "2026-01-03T00:00:00+00:00", "seeds": [4, 5, 6], "claims": {"it": content}},
    ]
    registered = Preregistrations.parse({"figures": {"own_fig1": {"smoke": past}}}, "test")
    listed = every_verdict([made("confirmed", number=number)], registered)
    assert "  - `own_fig1`: seeds 1 (2026-01-01: read while it was tried)" in listed
    assert "  - `own_fig1`: seeds 2 to 3 (2026-01-02: registered with 1 claims, of which 0 are unchanged)" in listed
    assert "seeds 4" not in listed
    assert "had before" not in every_verdict([made("confirmed", number="unknown")], registered)


def test_results_of_an_earlier_design_say_so() -> None:
    content = {"expected": "> 1", "quantity": "q", "arms": "a", "measurements": "m"}
    number = Content.parse(content, "test").number((4,))
    entries = [
        {"date": "2026-01-01T00:00:00+00:00", "seeds": [4], "claims": {"it": content}},
        {"date": "2026-01-02T00:00:00+00:00", "seeds": [5], "claims": {"it": content}},
    ]

    def listed(*past: object) -> str:
        registered = Preregistrations.parse({"figures": {"own_fig1": {"smoke": list(past)}}}, "test")
        return every_verdict([made("confirmed", number=number)], registered)

    assert "The verdicts are those of the earlier design: `own_fig1` (smoke)." in listed(*entries)
    assert "earlier design" not in listed(entries[0])
    assert "earlier design" not in listed(entries[0] | {"date": "2026-01-03T00:00:00+00:00"}, entries[1])


def test_statements_on_the_same_base_models_are_one_group() -> None:
    claims = [made("confirmed", f"it{i}", str(i), base_group="x", base_models=3).claims[0] for i in range(5)]
    apart = made("confirmed", "apart", "z", base_group="y", base_models=3).claims[0]
    reference = Reference(target="own_fig1", scale="smoke", made={}, claims=(*claims, apart))
    text = every_verdict([reference], Preregistrations())
    assert f"{OVERLAPS}.\n  - 5 statements (own_fig1) rest on the same 3 base models" in text
    assert len(shared_models(reference.rows())) == 1
    others = [made("confirmed", f"it{i}", f"o{i}", base_group="z", base_models=3).claims[0] for i in range(5, 10)]
    twice = Reference(target="own_fig1", scale="smoke", made={}, claims=(*claims, *others))
    text = every_verdict([twice], Preregistrations())
    assert "  - 5 statements (own_fig1) rest on the same 3 base models (2 groups)" in text
    elsewhere = [row | {"sort": ELSEWHERE} if row["claim"] == "it0" else row for row in reference.rows()]
    assert [group.statements for group in shared_models(elsewhere)] == [4], "a verdict without a number rests on none"


@pytest.mark.parametrize(
    ("factor", "mark", "words"),
    [
        (1.0, "agrees", "confirmed 3, bitwise"),
        (1 + TOLERANCE / 2, "agrees", "confirmed 3.03 here, confirmed 3 in the reference: the estimate moved by 1%"),
        (1 - TOLERANCE / 2, "agrees", "confirmed 2.97 here, confirmed 3 in the reference: the estimate moved by 1%"),
        (1 + TOLERANCE * 2, "DIFFERS", "confirmed 3.12 here, confirmed 3 in the reference: the estimate moved by 4%"),
    ],
)
def test_an_estimate_may_move_by_the_tolerance(
    place: Path, capsys: pytest.CaptureFixture[str], factor: float, mark: str, words: str
) -> None:
    lines(capsys, "reference", "results/smoke", code=0)
    changed(estimate=pl.when(pl.col("claim") == "base_fails").then(pl.col("estimate") * factor).otherwise("estimate"))
    first, *_, last = lines(capsys, "compare", "results/smoke", code=mark == "DIFFERS")
    assert first.split(maxsplit=3) == ["lg_fig5", "base_fails", mark, words]
    assert last.startswith("3 of 4" if mark == "DIFFERS" else "4 of 4")
    assert f"({4 if factor == 1 else 3} of them bitwise)" in last
    lines(capsys, "compare", "results/smoke", "--tolerance", "0.5", code=0)


def test_an_estimate_near_zero_is_compared_with_its_interval(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(estimate=pl.lit(0.001), low=pl.lit(-1.0), high=pl.lit(1.0))
    lines(capsys, "reference", "results/smoke", code=0)
    changed(estimate=pl.lit(-0.018))
    lines(capsys, "compare", "results/smoke", code=0)
    changed(estimate=pl.lit(-0.2))
    assert "DIFFERS" in lines(capsys, "compare", "results/smoke", code=1)[0]


@pytest.mark.parametrize(
    ("here", "there", "mark", "words"),
    [
        (
            (1.18e-15, 1.18e-15, 1.18e-15),
            (7.7e-16, 7.7e-16, 7.7e-16),
            "agrees",
            "confirmed 1.18e-15 here, confirmed 7.7e-16 in the reference: within 1e-12, which rounding can explain",
        ),
        ((0.0, 0.0, 0.0), (7.7e-16, 7.7e-16, 7.7e-16), "agrees", "which rounding can explain"),
        ((0.0, 0.0, 1e-9), (0.0, 0.0, 2e-9), "DIFFERS", "the upper end moved by 100%"),
        ((1e-9, 1e-9, 1e-9), (0.0, 0.0, 0.0), "DIFFERS", "the estimate moved by infinitely much"),
        ((3.0, 2.0, 4.3), (3.0, 2.0, 4.0), "DIFFERS", "the upper end moved by 10%"),
        ((3.0, 1.7, 4.0), (3.0, 2.0, 4.0), "DIFFERS", "the lower end moved by 10%"),
        ((3.0, 2.2, 4.0), (3.0, 2.0, 4.0), "agrees", "the lower end moved by 6.67%"),  # a quarter of half the interval
        ((3.0, 2.95, 3.05), (3.0, 3.0, 3.0), "agrees", "the lower end moved by 1.67%"),
        ((3.1, 2.2, 4.0), (3.0, 2.0, 4.0), "DIFFERS", "the estimate moved by 3.33%"),
    ],
)
def test_rounding_errors_agree_and_intervals_are_compared(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    here: tuple[float, float, float],
    there: tuple[float, float, float],
    mark: str,
    words: str,
) -> None:
    def only(numbers: tuple[float, float, float]) -> None:
        first = pl.col("claim") == "base_fails"
        names = zip(("estimate", "low", "high"), numbers, strict=True)
        changed(**{name: pl.when(first).then(pl.lit(number)).otherwise(name) for name, number in names})

    only(there)
    lines(capsys, "reference", "results/smoke", code=0)
    only(here)
    first, *rest = lines(capsys, "compare", "results/smoke", code=mark == "DIFFERS")
    assert first.split()[2] == mark
    assert first.endswith(words)
    assert not any("DIFFERS" in line for line in rest)


@pytest.mark.parametrize(("verdict", "code"), [("refuted", 1), ("not decided", 0)])
def test_a_verdict_that_only_rounding_changes_is_reported(
    verdict: str, code: int, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It disagrees only if the verdicts contradict each other."""
    changed(estimate=pl.lit(1e-15), low=pl.lit(1e-15), high=pl.lit(1e-15))
    lines(capsys, "reference", "results/smoke", code=0)
    changed(estimate=pl.lit(0.0), low=pl.lit(0.0), high=pl.lit(0.0), verdict=pl.lit(verdict))
    first, *_ = lines(capsys, "compare", "results/smoke", code=code)
    assert first.split()[2] == ("DIFFERS" if code else "agrees")
    assert first.endswith(f"{verdict} 0 here, confirmed 1e-15 in the reference: only rounding makes the difference")


def test_a_reference_holds_how_far_rounding_moves_a_number(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = read_table("results/smoke/verdicts/lg_fig5.parquet").row(0, named=True)
    shares = {"kind": "value_at", "arm": "base", "measurement": "accuracy", "column": "correct", "limits": [0, 100]}
    of_shares = ClaimSpec.parse(claim(shares, above=0.5), "claim")
    assert judged(row, of_shares).rounding == 100 * ROUNDING
    assert judged(row, of_shares.model_copy(update={"rounding": 0.5})).rounding == 0.5
    lines(capsys, "reference", "results/smoke", code=0)
    path = Path("reports/smoke/lg_fig5.json")
    assert '"rounding"' not in path.read_text(), "it is the default"
    path.write_text(path.read_text().replace('"claim": "base_fails"', '"rounding": 0.5, "claim": "base_fails"'))
    changed(estimate=pl.col("estimate") + 0.4)
    first, *_ = lines(capsys, "compare", "results/smoke", code=1)
    assert first.endswith("within 0.5, which rounding can explain")


def test_only_the_verdict_of_a_time_is_compared(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(capsys, "reference", "results/smoke", code=0)
    path = Path("reports/smoke/lg_fig5.json")
    assert '"timed"' not in path.read_text()
    path.write_text(path.read_text().replace('"claim": "base_fails"', '"timed": true, "claim": "base_fails"'))
    changed(estimate=pl.lit(9.0))
    first, *_ = lines(capsys, "compare", "results/smoke", code=1)
    assert first.split()[2] == "agrees"
    assert first.endswith("a time, so only the verdict is compared")
    changed(verdict=pl.lit("not decided"))
    assert lines(capsys, "compare", "results/smoke", code=1)[0].endswith(
        "a time, which may be not decided on a busy machine"
    )
    changed(verdict=pl.lit("refuted"))
    assert "DIFFERS" in lines(capsys, "compare", "results/smoke", code=1)[0]
    times = [CostExponent(model="m", cost=cost).timed for cost in ("training_step", "decoding_step", "state")]
    assert times == [True, True, False]


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("verdict", "not decided", "not decided 3 here, confirmed 3 in the reference"),
        ("expected", "> 1.4", "expects > 1.4 here, > 1.5 in the reference"),
        ("number", "another", "has other seeds, arms or measurements than in the reference"),
        ("estimate", None, "confirmed, no number here, confirmed 3 in the reference"),
    ],
)
def test_another_verdict_or_another_claim_disagrees(
    place: Path, capsys: pytest.CaptureFixture[str], column: str, value: object, words: str
) -> None:
    lines(capsys, "reference", "results/smoke", code=0)
    changed(**{column: pl.when(pl.col("claim") == "base_fails").then(pl.lit(value)).otherwise(column)})
    first, *rest = lines(capsys, "compare", "results/smoke", code=1)
    assert first.split(maxsplit=3) == ["lg_fig5", "base_fails", "DIFFERS", words]
    assert not any("DIFFERS" in line for line in rest)


def test_a_claim_that_one_side_lacks_is_not_compared(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(capsys, "reference", "results/smoke", code=0)
    changed(claim=pl.col("claim").replace("base_fails", "renamed"))
    found = lines(capsys, "compare", "results/smoke", code=1)
    assert "ONE SIDE    is in the reference, and not judged here" in found[0]
    assert "ONE SIDE    is judged here, and not in the reference" in found[-2]
    counts = "(3 of them bitwise), 0 are consistent, 0 differ, 2 more are on one side only"
    assert found[-1] == f"3 of 3 claims agree with reports/smoke {counts}"


def test_the_current_folder_has_references(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines(capsys, "reference", "results/smoke", code=0)
    Path("reports/desk").mkdir()
    Path("config").mkdir()
    monkeypatch.chdir("reports/desk")
    assert [one.target for one in all_scales(Path())] == ["lg_fig5"]
    monkeypatch.chdir("../smoke")
    options = ["--out", ".", "--readme", "../../README.md", "--config", "../../config"]
    (line,) = lines(capsys, "reference", "--check", *options, code=0)
    assert line == f"../../README.md, {Path('../README.md').resolve()}: all agree with the reference results"


def test_references_in_a_folder_of_another_name_stand_for_their_scale(place: Path) -> None:
    for name, scale in (("smoke", "smoke"), ("mine", "smoke"), ("desk", "desk")):
        save_reference(made("confirmed", number=name, scale=scale), Path("reports") / name)
    assert [one.claims[0].number for one in all_scales(Path("reports/mine"))] == ["mine", "desk"]


def test_a_figure_without_claims_is_compared(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(capsys, "reference", "results/smoke", code=0)
    folder, path = Path("reports/smoke"), Path("results/smoke/verdicts/lg_fig5.parquet")
    save_reference(read_references(folder)["lg_fig5"].model_copy(update={"claims": ()}), folder)
    write_table(read_table(path).clear(), VERDICTS, path, read_provenance(path))
    assert lines(capsys, "compare", "results/smoke", code=0) == [
        "0 of 0 claims agree with reports/smoke (0 of them bitwise), 0 are consistent, 0 differ"
    ]


def test_figures_that_only_one_side_has_are_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(capsys, "reference", "results/smoke", code=0)
    shutil.copy("reports/smoke/lg_fig5.json", "reports/smoke/lg_fig1.json")
    shutil.copy("results/smoke/verdicts/lg_fig5.parquet", "results/smoke/verdicts/ls_tab2.parquet")
    found = lines(capsys, "compare", "results/smoke", code=0)
    assert found[-3:-1] == ["not made here, not compared: lg_fig1", "without a reference, not compared: ls_tab2"]
    Path("results/smoke/verdicts/lg_fig5.parquet").unlink()
    (line,) = lines(capsys, "compare", "results/smoke", code=2)
    assert line == "ssm compare: reports/smoke: none of its figures is finished in results/smoke"
    (line,) = lines(capsys, "compare", "results/smoke", "elsewhere", code=2)
    assert line == "ssm compare: elsewhere: no reference results"
    shutil.rmtree("reports")
    (line,) = lines(capsys, "compare", "results/smoke", code=2)
    hint = "start the command in the clone, or name their folder after results/smoke"
    assert line == f"ssm compare: reports/smoke: no reference results; {hint}"
    Path("empty").mkdir()
    (line,) = lines(capsys, "compare", "empty", code=2)
    assert line.startswith("ssm compare: empty/verdicts: no verdicts here;")


def test_another_python_version_or_commit_is_reported(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("results/smoke/verdicts/lg_fig5.parquet")

    def made_by(python: str, commit: str = "aaaa") -> None:
        made = {"machine": {"python": python}, "packages": {"torch": "2.13.0"}, "code": {"commit": commit}}
        write_table(read_table(path), VERDICTS, path, made)

    made_by("3.11.7")
    lines(capsys, "reference", "results/smoke", code=0)
    assert not any("in the reference" in line for line in lines(capsys, "compare", "results/smoke", code=0))
    made_by("3.12.1")
    *_, line, last = lines(capsys, "compare", "results/smoke", code=0)
    so = "the text is the source of its standard library, which differs"
    assert line == f"Python is 3.12.1 here, 3.11.7 in the reference: {so}"
    assert last.startswith("4 of 4")
    made_by("3.11.7", "bbbb")
    *_, line, last = lines(capsys, "compare", "results/smoke", code=0)
    assert line == "The reference of 1 of 1 figures was made with another commit: other code may round differently"


def test_with_another_text_only_a_contradiction_disagrees(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("results/smoke/verdicts/lg_fig5.parquet")

    def compared(python: str, code: int, **columns: Any) -> str:
        table = read_table(path).with_columns(**{name: pl.lit(value) for name, value in columns.items()})
        write_table(table, VERDICTS, path, {"machine": {"python": python}})
        return lines(capsys, "compare", "results/smoke", code=code)[0]

    write_table(read_table(path), VERDICTS, path, {"machine": {"python": "3.11.7"}})
    lines(capsys, "reference", "results/smoke", code=0)
    assert "DIFFERS" in compared("3.11.7", 1, estimate=9.0)
    assert compared("3.12.1", 0).endswith(
        "confirmed 9 here, confirmed 3 in the reference: another text, so only a contradiction would disagree"
    )
    assert "agrees" in compared("3.12.1", 0, verdict="not decided")
    assert "DIFFERS" in compared("3.12.1", 1, verdict="refuted")


NO_NUMBER = {"estimate": None, "low": None, "high": None, "verdict": "not decided"}


@pytest.mark.parametrize(
    ("columns", "result"),
    [
        ({"estimate": 3.55, "low": 3.25}, "consistent"),  # the difference may be hypot(.5, .3) = .58
        ({"estimate": 3.6, "low": 3.3}, "DIFFERS"),
        ({"estimate": 2.45, "high": 2.75}, "consistent"),
        ({"estimate": 2.4, "high": 2.7}, "DIFFERS"),
        ({"estimate": 3.4, "verdict": "not decided"}, "consistent"),
        ({"estimate": 3.4, "verdict": "refuted"}, "DIFFERS"),
        ({**NO_NUMBER, "by_seed": '{"0": 1.0, "1": 2.0}'}, "consistent"),
        ({**NO_NUMBER, "by_seed": '{"0": 1.0, "1": null}'}, "DIFFERS"),
        ({**NO_NUMBER, "by_seed": ""}, "DIFFERS"),
        ({**NO_NUMBER, "verdict": "confirmed"}, "DIFFERS"),
        ({"estimate": 3.4, "low": 3.4, "high": 3.4}, "DIFFERS"),  # a number without uncertainty
        ({"verdict": "not decided"}, "DIFFERS"),  # the same numbers: other code judges
        ({"estimate": 3.4, "expected": "above 2.0"}, "DIFFERS"),
        ({"estimate": 3.4, "number": "other seeds"}, "DIFFERS"),
    ],
)
@pytest.mark.parametrize("what", ["processor", "torch"])
def test_other_rounding_may_move_an_estimate_within_its_interval(
    place: Path, capsys: pytest.CaptureFixture[str], columns: dict[str, Any], result: str, what: str
) -> None:
    path = Path("results/smoke/verdicts/lg_fig5.parquet")
    part = {"processor": "machine", "torch": "packages"}[what]
    first = pl.col("claim") == "base_fails"

    def write(made_by: str, values: dict[str, Any]) -> None:
        table = read_table(path)
        new = {
            name: pl.when(first).then(pl.lit(value, table.schema[name])).otherwise(name)
            for name, value in values.items()
        }
        write_table(table.with_columns(**new), VERDICTS, path, {part: {what: made_by}})

    write("one", {"estimate": 3.0, "low": 2.5, "high": 3.5})
    lines(capsys, "reference", "results/smoke", code=0)
    write("one", columns)
    found, *_, last = lines(capsys, "compare", "results/smoke", code=1)
    assert found.split()[2] == "DIFFERS"
    assert last == "3 of 4 claims agree with reports/smoke (3 of them bitwise), 0 are consistent, 1 differ"
    write("other", columns)
    found, *_, line, last = lines(capsys, "compare", "results/smoke", code=result == "DIFFERS")
    assert found.split()[2] == result
    if result == "consistent":
        assert found.endswith(
            "within both intervals together" if "low" not in columns or columns["low"] else "no number to compare"
        )
        assert last.endswith("(3 of them bitwise), 1 are consistent, 0 differ")
    assert "differently" in line


def test_models_that_read_other_files_are_compared_after_a_change_of_python(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path("results/smoke/verdicts/lg_fig5.parquet")
    write_table(read_table(path), VERDICTS, path, {"machine": {"python": "3.11.7"}})
    lines(capsys, "reference", "results/smoke", code=0)
    for run in Path("results/smoke/specs/runs").glob("*.json"):
        spec = json.loads(run.read_text())
        for part in (spec, spec["parent"] or {}):
            part.get("data", {})["corpus"] = {"kind": "files", "paths": ["x"]}
        run.write_text(json.dumps(spec))
    changed(estimate=pl.lit(9.0))
    write_table(read_table(path), VERDICTS, path, {"machine": {"python": "3.12.1"}})
    assert "DIFFERS" in lines(capsys, "compare", "results/smoke", code=1)[0]


def test_a_dry_run_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(capsys, "reference", "results/smoke", code=0)
    before = Path("reports/smoke/lg_fig5.json").read_bytes()
    results(Path("results/smoke"), dry_run=True)
    for verb in ("reference", "compare"):
        (line,) = lines(capsys, verb, "results/smoke", code=2)
        assert "a dry run, whose numbers mean nothing" in line
    assert Path("reports/smoke/lg_fig5.json").read_bytes() == before


def test_an_unreadable_file_is_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(capsys, "reference", "results/smoke", code=0)
    Path("README.md").write_text("no place")
    (line,) = lines(capsys, "reference", code=2)
    assert line.startswith(f"ssm reference: README.md: expected one line '{START}'")
    Path("README.md").unlink()
    (line,) = lines(capsys, "reference", code=2)
    assert line.startswith("ssm reference: README.md: cannot be read")
    Path("reports/smoke/lg_fig5.json").write_text("{}")
    for verb in (["reference"], ["compare", "results/smoke"]):
        (line,) = lines(capsys, *verb, code=2)
        assert "reports/smoke/lg_fig5.json" in line
    Path("results/smoke/figures/lg_fig5.png").write_text("png")
    (line,) = lines(capsys, "reference", "results/smoke", code=2)
    assert line.startswith("ssm reference: results/smoke/figures/lg_fig5.png: not a readable image")
    (line,) = lines(capsys, "reference", "results/smoke", "--check", code=2)
    assert line == "ssm reference: give only one of RESULTS, --wording and --check"


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a config folder, and a reference for the one claim of its lg_fig5."""
    monkeypatch.chdir(tmp_path)
    write_config(Path("config"))
    task = make_plan(load_config("config", "smoke", ["lg_fig5"])).figures["lg_fig5"]
    one = Judged(
        claim="repaired", says="It is repaired.", estimate=0.1 + 0.2, low=0.1, high=None, interval="", expected="< 1.1",
        verdict="confirmed", sort="paper", number=task.numbers["repaired"], registered=True, timed=True, rounding=0.1,
    )  # fmt: skip
    made = {"written": "2025-01-01T00:00:00+00:00", "processor": "é"}
    save_reference(Reference(target="lg_fig5", scale="smoke", made=made, claims=(one,)), Path("reports/smoke"))
    for readme in (Path("README.md"), Path("reports/README.md")):
        readme.write_text(TABLE)
    return Path("reports/smoke/lg_fig5.json")


UNCHANGED = [
    "reports/smoke: new wording in no file",
    "wrote README.md",
    "wrote reports/README.md",
]


def test_new_wording_changes_the_statements_only(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(capsys, "reference", "--wording", code=0)  # an older reference gets its base models
    files = (planned, Path("README.md"), Path("reports/README.md"))
    before = [file.read_text() for file in files]
    assert lines(capsys, "reference", "--wording", code=0) == ["reports/smoke: new wording in no file"]
    assert [file.read_text() for file in files] == before
    edit(Path("config"), "figures/lg_fig5.yaml", "says: It is repaired.", "says: State Passing repairs it.")
    assert lines(capsys, "reference", "--wording", code=0) == [
        "reports/smoke: new wording in lg_fig5",
        "wrote reports/README.md",
    ]
    after = [text.replace("It is repaired.", "State Passing repairs it.") for text in before]
    assert [file.read_text() for file in files] == after
    assert after[0] != before[0]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("id: repaired", "id: repairs", "its figure file has no claim 'repaired'; did you mean 'repairs'?"),
        ("below: 1.1", "below: 1.2", "repaired: another region is expected in its figure file"),
        ("seeds: [1]", "seeds: [2]", "repaired: other seeds, arms or measurements decide it in its figure file"),
    ],
)
def test_new_wording_of_other_claims_is_one_line(
    planned: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, problem: str
) -> None:
    before = planned.read_text()
    edit(Path("config"), "figures/lg_fig5.yaml", old, new)
    edit(Path("config"), "figures/lg_fig5.yaml", "says: It is repaired.", "says: State Passing repairs it.")
    *told, line = lines(capsys, "reference", "--wording", code=2)
    assert told == UNCHANGED
    again = "make lg_fig5, then take its results with `ssm reference results/smoke`"
    assert line == f"ssm reference: reference results of lg_fig5: {problem}: {again}"
    assert planned.read_text() == before


def test_new_wording_of_a_new_claim_is_one_line(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(planned.read_text())
    planned.write_text(json.dumps(content | {"claims": []}))
    *told, line = lines(capsys, "reference", "--wording", code=2)
    assert told == UNCHANGED
    assert "it has no verdict on 'repaired', a claim of its figure file" in line


@pytest.mark.parametrize("scale", ["smoke", "desk"])
def test_the_statements_of_the_references_are_those_of_the_figure_files(scale: str) -> None:
    """If this fails, run `ssm reference --wording`. Results of an earlier design keep the statements of that time."""
    figures = own.plan(scale).figures
    compared, every = 0, (ROOT / "reports" / "README.md").read_text()
    earlier = [line for line in every.splitlines() if line.startswith("- A newer design is registered")]
    for target, reference in read_references(ROOT / "reports" / scale).items():
        figure = figures[target]
        says = {name: claim.says for name, claim, _ in figure.verdicts}
        same = [claim for claim in reference.claims if figure.numbers.get(claim.claim) == claim.number]
        assert not [claim.claim for claim in same if claim.says != says[claim.claim]], target
        if len(same) < len(reference.claims):
            assert f"`{target}` ({scale})" in " ".join(earlier), "only an earlier design has other numbers"
        compared += len(same)
    assert compared > 100, "nearly nothing is compared"


def test_the_projects_own_pages_are_up_to_date() -> None:
    for path, (text, wanted) in written_pages(
        ROOT / "reports" / "smoke",
        ROOT / "README.md",
        read_preregistrations(ROOT / "config"),
        read_synthesis(ROOT / "config"),
    ).items():
        assert text == wanted, path

"""`ssm judge`, `ssm verdicts` and `ssm report`, as a user types them."""

from __future__ import annotations

import importlib
import io
import re
import shutil
from pathlib import Path

import pytest
from report.folder import results_folder

from ssm.base.tables import VERDICTS, read_provenance, read_table
from ssm.cli.main import main
from ssm.diagnosis import RECORD
from ssm.extension.folder import SETTINGS
from ssm.report.papers import PAGES


def test_judge_verdicts_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results_folder(tmp_path)
    shutil.rmtree(tmp_path / "verdicts")
    spec, out = tmp_path / "specs" / "figures" / "lg_fig5.json", tmp_path / "verdicts" / "lg_fig5.parquet"
    assert main(["judge", str(spec), "--tables", str(tmp_path / "tables"), "--out", str(out)]) == 0
    assert read_table(out, VERDICTS)["verdict"].to_list() == ["confirmed", "refuted", "not decided"]
    assert read_provenance(out)["figure"]["figure"]["target"] == "lg_fig5"
    capsys.readouterr()

    assert main(["verdicts", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split("  ")[0] == "figure"
    assert re.split("  +", printed[1]) == [
        "lg_fig5",
        "base_fails",
        "about 2 < 3",
        "3 (2.34 to 3.85)",
        "Student t over 3 seeds, of logarithms",
        "> 1.5",
        "confirmed",
    ]
    assert printed[3].endswith("not decided  the arm 'control' does not exist at the scale smoke")
    assert printed[4:] == [
        "3 verdicts on 3 statements, each counted once",
        "  statements of the papers: 1 confirmed, 1 refuted, 0 mixed, 0 not decided",
        "  added checks: 0 confirmed, 0 refuted, 0 mixed, 1 not decided",
        "  2 intervals of 95%: about 0.1 miss the true value by chance, "
        "so up to about 0.1 verdicts may be wrong, not counting earlier seeds",
    ]

    pages = tmp_path / "report"
    assert main(["report", str(tmp_path), "--out", str(pages), "--figures", "lg_fig5"]) == 0
    assert {path.name for path in pages.iterdir()} == set(PAGES)
    assert all(path.read_text().startswith("<!DOCTYPE html>") for path in pages.iterdir())


@pytest.mark.parametrize("name", ["lg_fig5 (copy)", "lg_fig11"])
def test_a_copied_table_of_verdicts_is_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for target in ("lg_fig5", "lg_fig11"):
        results_folder(tmp_path, target)
    copy = shutil.copy(tmp_path / "verdicts" / "lg_fig5.parquet", tmp_path / "verdicts" / f"{name}.parquet")
    said = f"{copy}: holds verdicts on 'lg_fig5'; move it out of this folder\n"
    assert main(["verdicts", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"ssm verdicts: {said}"
    figures = ["--figures", "lg_fig5", "lg_fig11"]
    code = main(["report", str(tmp_path), "--out", str(tmp_path / "report"), *figures])
    if name == "lg_fig11":
        assert (code, capsys.readouterr().err) == (2, f"ssm report: {said}")
    else:
        assert code == 0, "a table that no planned figure has is not read"


def test_verdicts_fit_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    results_folder(tmp_path)
    monkeypatch.setenv("COLUMNS", "90")
    assert main(["verdicts", str(tmp_path)]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) > 90  # not a terminal: nothing is cut
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["verdicts", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()[:4]
    assert max(map(len, lines)) <= 90
    assert "control_fails  about 2 < 3  no number             > 1       not decided  the..." in lines[3]


def test_a_greek_letter_of_a_claim_is_escaped_if_the_terminal_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results_folder(tmp_path)
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    monkeypatch.setattr("ssm.claims.terminal.verdict_lines", lambda *_: ["\N{GREEK SMALL LETTER GAMMA}"])
    monkeypatch.setattr("ssm.claims.words.seed_words", lambda _: "\N{GREEK SMALL LETTER GAMMA}")
    assert main(["verdicts", str(tmp_path), "--seeds"]) == 0
    assert written.getvalue().splitlines()[:2] == [b"\\u03b3", b"lg_fig5  base_fails: \\u03b3"]


def test_verdicts_of_a_dry_run_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results_folder(tmp_path, dry_run=True)
    assert main(["verdicts", str(tmp_path)]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    assert all(line.endswith("not decided  a dry run: its numbers mean nothing") for line in lines[:3])
    assert lines[3:] == [
        "3 verdicts on 3 statements, each counted once",
        "  statements of the papers: 0 confirmed, 0 refuted, 0 mixed, 2 not decided",
        "  added checks: 0 confirmed, 0 refuted, 0 mixed, 1 not decided",
    ]


def test_a_report_names_missing_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for target in ("lg_fig5", "lg_fig11"):
        results_folder(tmp_path, target)
    (tmp_path / "figures" / "lg_fig11.pdf").unlink()
    pages = tmp_path / "pages"
    assert main(["report", str(tmp_path), "--out", str(pages)]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "planned, and not made: lg_fig11 (not made yet)",
        f"wrote {pages / 'index.html'} and one page for each paper next to it",
    ]
    for number in range(12, 20):
        (tmp_path / "specs" / "figures" / f"lg_fig{number}.json").touch()
    assert main(["report", str(tmp_path), "--out", str(pages)]) == 0
    names = ", ".join(f"lg_fig{number}" for number in range(11, 16))
    assert capsys.readouterr().err.splitlines()[0] == f"planned, and not made: {names} and 4 more (not made yet)"


@pytest.mark.parametrize("verb", ["judge", "plot", "report", "verdicts"])
def test_help_does_not_repeat_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([verb, "--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    examples = [line for line in text.splitlines() if line.startswith(f"  ssm {verb} results/smoke")]
    assert len(examples) == len(set(examples)) >= 1
    module = importlib.import_module(f"ssm.cli.{verb}")
    assert module.HELP in text
    assert module.__doc__.splitlines()[0] not in text


def test_an_empty_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["verdicts", str(tmp_path)], ["report", str(tmp_path), "--out", str(tmp_path / "x.html")]):
        assert main(command) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "x.html").exists()


@pytest.mark.parametrize(
    "command", ["verdicts {}", "compare {}", "watch {}", "report {} --out x", "reference {}", "plan --results {}"]
)
def test_results_that_are_not_those_of_one_scale_are_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("results/smoke/specs").mkdir(parents=True)
    for page in (RECORD, SETTINGS):
        Path(f"results/{page}/tables").mkdir(parents=True)
        Path(f"results/{page}/{page}").touch()
    for number in range(5):
        Path(f"many/{number}/runs").mkdir(parents=True)
    wrote = "expected the results of one scale, but `{}` wrote this folder; open its index.html"
    for given, said in (
        ("results/diagnosis.json", f"results/diagnosis.json: {wrote.format('ssm diagnose')}"),
        ("results/extension.json", f"results/extension.json: {wrote.format('ssm extend')}"),
        ("many", "many: expected the results of one scale; did you mean many/0 or many/1 or many/2?"),
        ("results", "results: expected the results of one scale; did you mean results/smoke?"),
        ("results/smok", "results/smok: no such folder; did you mean 'smoke'?"),
        ("x/y", "x/y: no such folder; expected the results of one scale, which `make figures` makes"),
    ):
        assert main(command.format(given).split()) == 2
        error = capsys.readouterr().err
        assert f": {said} (see `ssm " in error
        assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--front", "lg_fig6"], "specs/figures: unknown figure 'lg_fig6'; did you mean 'lg_fig5'?"),
        (["--figures", "all", "lg_fig6"], "specs/figures: unknown figure 'lg_fig6'; did you mean 'lg_fig5'?"),
        (
            ["--config", "./tabels"],
            "argument --config: tabels: no such folder; did you mean 'tables'? (see `ssm report --help`)",
        ),
        (
            ["--config", "no/c"],
            "argument --config: no/c: no such folder; expected a folder with config.yaml (see `ssm report --help`)",
        ),
    ],
)
def test_an_unknown_figure_or_folder_is_one_line(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    results_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["report", ".", "--out", "pages", *options]) == 2
    assert capsys.readouterr().err == f"ssm report: {said}\n"
    assert not Path("pages").exists()


EMPTY = "argument --out: expected a name or a path, got '' (is a variable unset?) (see `ssm {} --help`)"


@pytest.mark.parametrize(
    ("verb", "out", "said"),
    [
        ("judge", ".", "argument --out: expected a name that ends in .parquet, got '.' (see `ssm judge --help`)"),
        ("judge", "", EMPTY.format("judge")),
        ("report", "", EMPTY.format("report")),
        (
            "report",
            "tables/model-size-1.parquet",
            "tables/model-size-1.parquet/index.html: cannot be written (File exists)",
        ),
    ],
)
def test_an_impossible_output_is_one_line(
    verb: str,
    out: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    given = {"judge": ["specs/figures/lg_fig5.json", "--tables", "tables"], "report": ["."]}[verb]
    assert main([verb, *given, "--out", out]) == 2
    assert capsys.readouterr().err == f"ssm {verb}: {said}\n"
    assert sorted(tmp_path.rglob("*")) == before

"""ssm judge, ssm verdicts and ssm report, as a user types them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from report.folder import results_folder

from ssm.base.tables import VERDICTS, read_provenance, read_table
from ssm.cli.main import main


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
    assert printed[0].startswith("lg_fig5  base_fails ")
    assert printed[-1] == "3 claims: 1 confirmed, 1 refuted, 1 not decided"

    page = tmp_path / "report" / "index.html"
    assert main(["report", str(tmp_path), "--out", str(page), "--figures", "lg_fig5"]) == 0
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_an_empty_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["verdicts", str(tmp_path)], ["report", str(tmp_path), "--out", str(tmp_path / "x.html")]):
        assert main(command) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "x.html").exists()

"""A few kills of the campaign, and that it would see what went wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
import torch
from campaign.kills import campaign
from campaign.tools import differences

from ssm.base.tables import METRICS, read_table, write_table
from ssm.models.checkpoint import load_tensors, save_tensors


def test_killed_runs_end_as_if_nobody_had_killed_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign(tmp_path, kills=6, seed=1, ranks=1) == (6, 6)
    said = capsys.readouterr().out
    assert said.endswith("6 of 6 kills: equal weights and tables (seed 1)\n")
    assert " of a rank" in said or " of the launcher" in said


def test_any_difference_is_seen(tmp_path: Path) -> None:
    whole, other = tmp_path / "whole", tmp_path / "other"
    save_tensors(whole / "model.safetensors", {"a": torch.zeros(3)}, {})
    row = dict.fromkeys(METRICS.columns, 1)
    write_table(pl.DataFrame([row], schema=METRICS.columns), METRICS, whole / "metrics.parquet", {})
    shutil.copytree(whole, other)
    assert differences(whole, other) == []

    (other / ".model.safetensors.1-abc.tmp").touch()
    tensors, header = load_tensors(other / "model.safetensors")
    tensors["a"][1] = -0.0  # equal, but not bit for bit
    save_tensors(other / "model.safetensors", tensors, header)
    table = read_table(other / "metrics.parquet")
    write_table(table.with_columns(loss=pl.lit(2.0)), METRICS, other / "metrics.parquet", {})
    assert [text.split(": ")[1] for text in differences(whole, other)] == ["left over", "other weights", "other rows"]
    (other / "metrics.parquet").unlink()
    assert "metrics.parquet: missing" in differences(whole, other)
    assert differences(tmp_path / "nothing", other)[-1].endswith("the undisturbed run made nothing")

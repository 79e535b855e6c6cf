"""A few kills of the campaign, and checks that it reports failures."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from campaign.kills import World, campaign
from campaign.tools import differences

from ssm.base.exit_codes import LOST, REQUEUE
from ssm.base.tables import METRICS, read_table, write_table
from ssm.models.weights_file import load_tensors, save_tensors


@pytest.mark.exhaustive
def test_killed_runs_end_like_undisturbed_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign(tmp_path, kills=3, seed=1) == (3, 3)
    assert capsys.readouterr().out.endswith("3 of 3 kills: equal weights and tables (seed 1)\n")


@pytest.mark.parametrize("ranks", [0, 1])
@pytest.mark.parametrize("code", [LOST, REQUEUE])
def test_a_run_that_cannot_continue_fails_the_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, code: int
) -> None:
    """Otherwise a run that always ends as if killed would be started forever."""
    starts = []

    def broken(world: World, out: Path) -> Any:
        starts.append(out)
        assert len(starts) < 5, "started again and again"
        return Broken(code)

    def hit(world: World, process: Any, *given: Any) -> str:
        process.wait()
        return "-9"

    monkeypatch.setattr(World, "undisturbed", lambda world, what, make: tmp_path)
    for name in ("start", "launch"):
        monkeypatch.setattr(World, name, broken)
    for name in ("_kill_run", "_kill_rank"):
        monkeypatch.setattr(World, name, hit)
    world = World(tmp_path, random.Random(1))
    done = world.kill_ranks(1) if ranks else world.kill_runs(1)
    assert done.kills == ["-9"]
    assert done.differences == [f"exit code {code} of a run that nobody killed: see {tmp_path / 'train.log'}"]
    assert len(starts) == 2


class Broken:
    """A process that ends with `code`."""

    pid = 0

    def __init__(self, code: int):
        self.exitcode = code

    def wait(self, seconds: float = 0) -> int:
        return self.exitcode

    def join(self, seconds: float = 0) -> None:
        pass

    def kill(self) -> None:
        pass


def test_any_difference_is_reported(tmp_path: Path) -> None:
    whole, other = tmp_path / "whole", tmp_path / "other"
    save_tensors(whole / "model.safetensors", {"a": torch.zeros(3)}, {})
    row = dict.fromkeys(METRICS.columns, 1)
    write_table(pl.DataFrame([row], schema=METRICS.columns), METRICS, whole / "metrics.parquet", {})
    shutil.copytree(whole, other)
    assert differences(whole, other) == []

    (other / ".model.safetensors.1-abc.tmp").touch()
    tensors, header = load_tensors(other / "model.safetensors")
    tensors["a"][1] = -0.0  # equal, but with other bits
    save_tensors(other / "model.safetensors", tensors, header)
    table = read_table(other / "metrics.parquet")
    write_table(table.with_columns(loss=pl.lit(2.0)), METRICS, other / "metrics.parquet", {})
    assert [text.split(": ")[1] for text in differences(whole, other)] == ["left over", "other weights", "other rows"]
    (other / "metrics.parquet").unlink()
    assert "metrics.parquet: missing" in differences(whole, other)
    assert differences(tmp_path / "nothing", other)[-1].endswith("the undisturbed run made nothing")

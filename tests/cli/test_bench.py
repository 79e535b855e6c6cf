"""`ssm bench`: correctness first, then a table of speeds; a red gate reports none."""

from __future__ import annotations

import argparse
import builtins
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from torch import Tensor

from ssm.base.errors import UserError
from ssm.base.tables import TRAINING_SPEED, read_provenance, read_table
from ssm.bench import training_speed as bench_module
from ssm.bench.training_speed import MODEL, GateError, ratios
from ssm.cli import bench
from ssm.plan.read import read_yaml
from ssm.specs.model import ModelSpec

TINY = ("training", "--repeats", 2, "--context", 6, "--batch", 2)


def run(*words: object) -> int:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return bench.run(parser.parse_args([str(word) for word in words]))


@pytest.fixture(autouse=True)
def _restore_threads() -> Any:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_speeds_are_printed_and_kept_with_their_provenance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "speed.parquet"
    assert run(*TINY, "--out", out) == 0
    said = capsys.readouterr().out.splitlines()
    assert "T=6, B=2: median of 2 training steps" in said[0]
    names = [line[:24].strip() for line in said[2:]]
    peers = [f"transformers chunk {chunk}" for chunk in (8, 16, 32, 64)]
    assert names[:8] == ["", "", "ssm chunk 32", *peers, "ssm / best transformers"]
    frame = read_table(out, TRAINING_SPEED)
    assert frame.height == 5 * 2 * 2  # implementations, denormal settings, repeats
    assert frame.filter(implementation="ssm", flush_denormal=True)["repeat"].to_list() == [1, 2]
    ratio, chunk = ratios(frame)[True]
    assert f"{ratio:.2f} x chunk {chunk}" in said[9]
    made = read_provenance(out)
    assert (made["context"], made["batch"], made["threads"]) == (6, 2, 1)
    assert made["machine"]["processor"] in said[-1]
    assert float(torch.tensor(1e-39) * 1) > 0  # denormals are back


def test_the_ratio_is_of_medians_and_to_the_fastest_peer() -> None:
    times = {("ssm", 32): [10, 10, 99], ("transformers", 8): [30, 30, 1], ("transformers", 16): [25, 20, 20]}
    rows = [
        (name, chunk, flush, repeat, ms * (1.0 if flush else 2.0 - (name == "ssm")), 1.0)
        for (name, chunk), values in times.items()
        for flush in (True, False)
        for repeat, ms in enumerate(values, 1)
    ]
    frame = pl.DataFrame(rows, schema=TRAINING_SPEED.columns, orient="row")
    assert ratios(frame) == {True: (2.0, 16), False: (4.0, 16)}


def no_speed(out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The message of the gate; nothing is printed or written."""
    with pytest.raises(GateError) as error:
        run(*TINY, "--out", out)
    assert capsys.readouterr().out == ""
    assert not out.exists()
    return str(error.value)


def test_other_logits_report_no_speed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = bench_module.transformers_mamba2

    def wrong(model: Any, chunk: int) -> Any:
        peer = right(model, chunk)
        if chunk == 32:
            with torch.no_grad():
                peer.backbone.norm_f.weight[3] += 0.1
        return peer

    monkeypatch.setattr(bench_module, "transformers_mamba2", wrong)
    said = no_speed(tmp_path / "speed.parquet", capsys)
    assert "no speed to report: the logits of ssm chunk 32 and transformers chunk 32 differ by" in said


def test_other_gradients_report_no_speed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal logits, another training step: a backward pass that is wrong is not called fast."""
    right = bench_module.Contestant.step

    def step(self: Any, tokens: Tensor, clip_norm: float) -> float:
        return right(self, tokens, clip_norm * (0.01 if self.chunk == 16 else 1))

    monkeypatch.setattr(bench_module.Contestant, "step", step)
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: sgd(self))
    said = no_speed(tmp_path / "speed.parquet", capsys)
    assert "the losses of ssm chunk 32 and transformers chunk 16 at training step 2 differ by" in said


def sgd(optimizer: torch.optim.Optimizer) -> None:
    """A step that feels the gradient's size, which Adam divides away."""
    with torch.no_grad():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter -= parameter.grad


def test_nan_is_no_agreement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = bench_module._logits_of
    monkeypatch.setattr(bench_module, "_logits_of", lambda peer: lambda tokens: right(peer)(tokens) * float("nan"))
    assert "differ by nan" in no_speed(tmp_path / "speed.parquet", capsys)


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "transformers":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"needs transformers: pip install 'ssm-length\[dev\]'$"):
        run(*TINY)


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(UserError, match="expected a whole number above zero, got '0'"):
        run("training", "--repeats", 0)


def test_the_model_is_the_one_that_the_smoke_scale_trains() -> None:
    fields = read_yaml(Path(__file__).parents[2] / "config" / "models.yaml")["mamba2-slow"]
    assert ModelSpec.parse({"name": "mamba2-slow"} | fields, "models.yaml") == MODEL

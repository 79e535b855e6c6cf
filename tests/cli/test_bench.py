"""`ssm bench`: correctness first, then a table of speeds; a red gate reports none."""

from __future__ import annotations

import argparse
import builtins
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from torch import Tensor

from ssm.base.errors import UserError
from ssm.base.tables import SCAN_SPEED, TRAINING_SPEED, read_provenance, read_table, write_table
from ssm.bench import limits as limits_module
from ssm.bench import scans as scans_module
from ssm.bench import training_speed as training_module
from ssm.bench.cases import Case, cpu_cases, gpu_cases
from ssm.bench.limits import Limits, limit_ms, work
from ssm.bench.markdown import END, START, main
from ssm.bench.race import Contestant, race
from ssm.bench.scans import scan_speed
from ssm.bench.table import block, warnings
from ssm.bench.training_speed import GateError, ratios
from ssm.cli import bench

CPU = torch.device("cpu")
TINY = ("training", "--model", "mamba2", "--repeats", 2, "--context", 6, "--batch", 2)
SMALL = Case("gated_scan", "Mamba-2", (2, 9, 2, 4, 4), state=True)
LIMITS = Limits("cpu", 1, memory=3e10, multiply_adds=5e10, gemm=4e10, instructions="avx2", processor="x86_64 A 1")


def run(*words: object) -> int:
    parser = argparse.ArgumentParser(exit_on_error=False)
    bench.add_arguments(parser)
    return bench.run(parser.parse_args([str(word) for word in words]))


@pytest.fixture(autouse=True)
def _restore_threads() -> Any:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _measure_limits_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One run of each loop, with nothing timed."""

    def once(run: Callable[[], object], seconds: float) -> float:
        run()
        return 1.0

    monkeypatch.setattr("ssm_kernels.native.limits.best_seconds", once)
    measured = limits_module._stream
    measured.cache_clear()
    yield
    measured.cache_clear()


# Races


def test_a_race_is_run_in_turn_and_the_slow_drop_out() -> None:
    order: list[str] = []
    contestants = [Contestant(name, lambda name=name: order.append(name)) for name in "abc"]
    race(contestants, 3, 60.0, CPU)
    assert order == [*"abc", *"abc", *"bca", *"cab"]  # one call of each to warm up, then each round begun by another
    assert [len(contestant.milliseconds) for contestant in contestants] == [3, 3, 3]
    race([alone := Contestant("slow", lambda: sum(range(20_000)))], 5, 1e-9, CPU)
    assert len(alone.milliseconds) == 1


# Scans


def table(case: Case = SMALL, repeats: int = 2) -> pl.DataFrame:
    (frame,) = scan_speed([case], CPU, repeats, 60.0, LIMITS)
    return frame


def test_every_backend_and_peer_is_timed_or_says_why_not() -> None:
    frame = table()
    assert frame.schema == SCAN_SPEED.columns
    timed = set(frame.filter(pl.col("milliseconds").is_not_null())["contestant"])
    assert {"torch", "cpp", "transformers, chunk 64"} <= timed
    assert frame.filter(contestant="torch")["repeat"].to_list() == [1, 2]
    assert float(frame["error"].max()) < 1e-5  # type: ignore[arg-type]
    reasons = dict(frame.filter(pl.col("reason").is_not_null()).select("contestant", "reason").iter_rows())
    assert "CUDA device" in reasons["triton"]
    assert timed.isdisjoint(reasons)


@pytest.mark.parametrize("case", [*dict.fromkeys((c.operation, c.system) for c in cpu_cases() + gpu_cases())])
@pytest.mark.parametrize("state", [False, True])
def test_small_cases_of_every_kind_agree_with_the_oracle(case: tuple[str, str], state: bool) -> None:
    matrix = (2, 7, 2, 4, 4)
    sizes = {"gated_scan": matrix, "delta_scan": matrix, "selective_scan": (2, 7, 8, 4)}.get(case[0], (2, 7, 8))
    frame = table(case=Case(*case, sizes, state=state), repeats=1)
    assert {"torch", "cpp"} <= set(frame.filter(pl.col("milliseconds").is_not_null())["contestant"])


def test_who_is_wrong_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = scans_module._ours

    def wrong(case: Case, backend: str) -> Any:
        scan = right(case, backend)
        if backend != "torch":
            return scan
        return lambda arguments: scan({**arguments, "h0": 1.01 * arguments["h0"]})

    monkeypatch.setattr(scans_module, "_ours", wrong)
    rows = table().filter(contestant="torch").to_dicts()
    assert [row["milliseconds"] for row in rows] == [None]
    assert rows[0]["reason"].startswith("wrong: its relative error is 0.01")


def test_a_wrong_gradient_is_wrong_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            return 2 * grads[0]

    right = scans_module._ours
    monkeypatch.setattr(
        scans_module,
        "_ours",
        lambda case, backend: (
            right(case, backend)
            if backend != "cpp"
            else lambda arguments: right(case, backend)({**arguments, "h0": Doubled.apply(arguments["h0"])})
        ),
    )
    assert table().filter(contestant="cpp")["reason"].to_list() == ["wrong: its relative error is 1"]


def test_who_gives_no_gradient_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    right = scans_module._ours
    monkeypatch.setattr(
        scans_module,
        "_ours",
        lambda case, backend: (
            right(case, backend)
            if backend != "cpp"
            else lambda arguments: right(case, backend)({**arguments, "h0": arguments["h0"].detach()})
        ),
    )
    assert table().filter(contestant="cpp")["reason"].to_list() == ["wrong: its relative error is inf"]


def test_a_case_is_printed_fastest_first() -> None:
    rows: list[Any] = [
        ("gated_scan", "GLA", "1x2", "float32", True, "forward", name, repeat, ms, 1e-7, None, 1.0)
        for name, times in {"slow": [8.0, 4.0, 4.0], "fast": [2.0, 2.0, 9.0]}.items()
        for repeat, ms in enumerate(times, 1)
    ]
    rows.append(("gated_scan", "GLA", "1x2", "float32", True, "forward", "none", None, None, None, "why", 1.0))
    said = block(pl.DataFrame(rows, schema=SCAN_SPEED.columns, orient="row")).splitlines()
    assert said[0] == "gated_scan, GLA, 1x2 float32, with a state in and out, forward"
    assert [line.split() for line in said[2:]] == [
        ["fast", "2.000", "1.00", "0.50", "1e-07"],
        ["slow", "4.000", "2.00", "0.25", "1e-07"],
        ["none", "-", "why"],
    ]


def least(case: Case) -> list[tuple[float, float]]:
    """Multiply-adds and numbers of each pass."""
    return [(done.multiply_adds, done.bytes / 4) for done in work(case)]


def test_the_least_work_follows_the_formulas() -> None:
    selective = (2, 3, 5, 7)  # B, T, D, N
    assert least(Case("selective_scan", "Mamba", selective)) == [
        (30 * (9 * 7 + 12), 6 * (3 * 5 + 2 * 7)),
        (30 * (16 * 7 + 16), 6 * (5 * 5 + 4 * 7)),
    ]
    matrix = (2, 3, 4, 8, 16)  # B, T, H, K, V
    assert least(Case("gated_scan", "Mamba-2", matrix)) == [  # q and k of all heads, a decay, v, y
        (24 * (2 * 8 * 16 + 5), 24 * (2 * 8 / 4 + 1 + 2 * 16)),
        (24 * 4 * 8 * 16, 24 * (2 * (2 * 8 / 4 + 1) + 3 * 16)),
    ]
    assert least(Case("gated_scan", "RetNet", matrix, backward=False)) == [(24 * 2 * 8 * 16, 24 * (2 * 8 + 2 * 16))]
    assert least(Case("delta_scan", "KDA", matrix, backward=False)) == [  # q, k, log_decay, beta, v, y
        (24 * (3 * 8 * 16 + 5 * 8), 24 * (3 * 8 + 1 + 2 * 16))
    ]
    assert least(Case("delta_scan", "RWKV-7", matrix)) == [  # q, k, a, b, log_decay, v, y
        (24 * (4 * 8 * 16 + 5 * 8), 24 * (5 * 8 + 2 * 16)),
        (24 * 8 * 8 * 16, 24 * (2 * 5 * 8 + 3 * 16)),
    ]
    assert least(Case("diagonal_scan", "RG-LRU", (2, 3, 5))) == [(30, 3 * 30), (2 * 30, 5 * 30)]
    assert least(Case("diagonal_scan", "S5, complex", (2, 3, 5))) == [(4 * 30, 2 * 60), (8 * 30, 3 * 60)]
    assert least(Case("causal_conv1d", "Mamba", (2, 3, 5))) == [(10 * 30, 2 * 30), (20 * 30, 3 * 30)]


@pytest.mark.parametrize("case", [replace(c, sizes=(2, 33, *c.sizes[2:])) for c in cpu_cases() if not c.state])
def test_least_bytes_are_those_of_the_tensors(case: Case) -> None:
    """All but what does not grow with the sequence: states, weights, constant decays."""
    arguments = case.arguments(CPU)
    y = arguments["v" if "v" in arguments else "u" if "u" in arguments else "b" if "a" in arguments else "x"]
    inputs = sum(x.nbytes for x in arguments.values() if x is not None and x.ndim > 2 and x.shape[1] == 33)
    assert y is not None
    forward, *backward = work(case)
    assert forward.bytes == inputs + y.nbytes
    # The backward pass reads dy and the inputs, and writes their gradients. Some inputs need not be read for that.
    assert all(inputs + y.nbytes <= done.bytes <= 2 * inputs + y.nbytes for done in backward)


def test_a_limit_is_the_larger_of_both_in_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("diagonal_scan", "RG-LRU", (2, 3, 5))  # 30 and 60 multiply-adds, 360 and 600 bytes
    streams = {360: 1.0, 600: 1e9}
    monkeypatch.setattr("ssm.bench.limits._stream", lambda touched, threads: streams[touched] * threads)
    limits = Limits("cpu", 2, memory=1.0, multiply_adds=3.0, gemm=3.0)
    assert limit_ms(case, limits) == pytest.approx(1000 * (360 / 2 + 60 / 3))
    assert limit_ms(case, Limits("cuda", 1, memory=4.0)) == pytest.approx(1000 * (360 + 600) / 4)


def test_who_is_faster_than_the_limit_is_named() -> None:
    rows: list[Any] = [
        ("gated_scan", "Mamba-2", "1x2", "float32", False, "forward", name, 1, ms, 1e-7, None, 1.0)
        for name, ms in {"cpp": 0.8, "torch": 0.97, "slow": 3.0}.items()
    ]
    rows.append(("gated_scan", "Mamba-2", "1x2", "float32", False, "forward", "none", None, None, None, "why", 1.0))
    (said,) = warnings(pl.DataFrame(rows, schema=SCAN_SPEED.columns, orient="row"))
    assert said.startswith("cpp, gated_scan, Mamba-2, 1x2 float32, from the zero state, forward: limit/t is 1.25;")
    assert LIMITS.warnings() == []
    (said,) = replace(LIMITS, gemm=6e10).warnings()
    assert said.startswith("GEMM by torch: 1.20 times the limit;")


def test_scans_are_printed_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr("ssm.bench.cases.cpu_cases", lambda: [SMALL])
    monkeypatch.setattr("ssm.bench.limits.measure_limits", lambda device: replace(LIMITS, multiply_adds=1.0))
    assert run("scans", "--repeats", 1, "--device", "cpu", "--out", tmp_path / "scans.parquet") == 0
    said, warned = capsys.readouterr()
    assert said.startswith("Limits of 1 thread(s): 0 GFLOP/s by multiply-adds (GEMM by torch: 80 GFLOP/s), 30 GB/s")
    assert "ssm bench: warning: GEMM by torch: " in warned  # nothing does a single multiply-add a second
    assert "ssm bench: warning: cpp, gated_scan, Mamba-2, 2x9x2x4x4 float32, with a state in and out" in warned
    assert "gated_scan, Mamba-2, 2x9x2x4x4 float32, with a state in and out, forward+backward" in said
    assert read_table(tmp_path / "scans.parquet", SCAN_SPEED).height > 3
    made = read_provenance(tmp_path / "scans.parquet")
    assert made["limits"]["memory"] == 3e10
    assert "transformers" in made["peers"]
    with pytest.raises(UserError, match="--only retnt: no operation or system of that name is measured on cpu"):
        run("scans", "--only", "retnt", "--device", "cpu")


def test_the_scans_of_a_chosen_instruction_set_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits are those of the processor at its best, whatever the C++ is compiled for."""
    monkeypatch.setenv("SSM_KERNELS_INSTRUCTIONS", "what the option replaces")
    monkeypatch.setattr("ssm.bench.cases.cpu_cases", lambda: [SMALL])
    monkeypatch.setattr("ssm.bench.limits.FAR", 2**22)
    out = tmp_path / "scans.parquet"
    assert run("scans", "--repeats", 1, "--device", "cpu", "--instructions", "plain", "--out", out) == 0
    assert capsys.readouterr().out.startswith("Limits of 1 thread(s): ")
    assert float(read_table(out, SCAN_SPEED).filter(contestant="cpp")["error"].max()) < 1e-5  # type: ignore[arg-type]
    assert read_provenance(out)["limits"]["instructions"] == "plain"
    with pytest.raises(
        UserError,
        match=r"^--instructions: unknown instruction set 'avx3', expected avx512, avx2, plain; did you mean 'avx2'\?$",
    ):
        run("scans", "--device", "cpu", "--instructions", "avx3")
    monkeypatch.setenv("SSM_KERNELS_INSTRUCTIONS", "avx3")  # as every verb that computes says it
    with pytest.raises(UserError, match=r"^SSM_KERNELS_INSTRUCTIONS: unknown instruction set 'avx3'"):
        run("scans", "--device", "cpu")


def speeds(path: Path, times: dict[tuple[bool, str], dict[str, float]], limits: Limits) -> str:
    rows = [
        ("gated_scan", "GLA", "8x256x4", "float32", state, direction, name, 1, ms, 1e-7, None, 1.0)
        for (state, direction), contestants in times.items()
        for name, ms in contestants.items()
    ]
    made = {"limits": limits.content(), "peers": {"fla": "0.6"}, "packages": {"torch": "2.13"}}
    write_table(pl.DataFrame(rows, schema=SCAN_SPEED.columns, orient="row"), SCAN_SPEED, path, made)
    return str(path)


def test_a_table_of_two_runs_is_written_into_a_readme(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forward, both = (False, "forward"), (True, "forward+backward")
    peers = {"transformers, chunk 32": 9.0, "transformers, chunk 64": 6.0, "fla, plain": 14.0}
    times = {forward: {"cpp": 2.0, "torch": 3.0, **peers}, (True, "forward"): {"cpp": 2.5}, both: {"cpp": 4.0}}
    one = speeds(tmp_path / "one.parquet", times, LIMITS)
    two = speeds(tmp_path / "two.parquet", {forward: {"cpp": 1.25}, both: {"cpp": 3.2}}, replace(LIMITS, threads=2))
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    assert main([one, two, str(readme)]) == 0
    lines = readme.read_text().splitlines()
    assert (lines[:2], lines[-2:]) == (["before", START], [END, "after"])
    assert "x86_64 A 1" in lines[3]
    assert lines[4] == "torch 2.13, fla 0.6."
    assert [line.split(":")[0] for line in lines[5:7]] == ["Limits of 1 thread(s)", "Limits of 2 thread(s)"]
    assert [line for line in lines if line.startswith("| `")] == [
        "| `gated_scan`, GLA | 8×256×4 | forward | 2 | 0.50 | 3 (1.5x) | 6 (3.0x) | 14 (7.0x) | 1.60 | 0.80 |",
        "| `gated_scan`, GLA | 8×256×4 | f + b, state | 4 | 0.25 | – | – | – | 1.25 | 0.31 |",
    ]
    whole = readme.read_text()
    assert main([one, two, str(readme)]) == 0
    assert readme.read_text() == whole

    less = speeds(tmp_path / "less.parquet", {forward: {"cpp": 1.0}}, replace(LIMITS, threads=2))
    other = speeds(tmp_path / "other.parquet", times, replace(LIMITS, threads=2, processor="B"))
    unmarked = tmp_path / "OTHER.md"
    unmarked.write_text("nothing\n")
    bad = {
        (two, one, readme): "two.parquet: expected a run with --device cpu --threads 1",
        (one, less, readme): "no time of cpp with one thread and with two: gated_scan, GLA, 8x256x4, True,",
        (one, other, readme): "the runs are of different machines",
        (one, two, unmarked): "OTHER.md: expected one line '<!-- scans:",
        (one, tmp_path / "none.parquet", readme): "none.parquet",
    }
    for words, expected in bad.items():
        capsys.readouterr()
        assert main([str(word) for word in words]) == 2
        said = capsys.readouterr().err
        assert expected in said
        assert said.count("\n") == 1
    assert main([one, two]) == 2
    assert readme.read_text() == whole


# Training steps


def test_training_speeds_are_printed_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "speed.parquet"
    assert run(*TINY, "--out", out) == 0
    said = capsys.readouterr().out.splitlines()
    assert "mamba2, T=6, B=2: median of up to 2 training steps" in said[0]
    names = [line[:24].strip() for line in said[2:]]
    peers = [f"transformers, chunk {chunk}" for chunk in (16, 32, 64, 256)]
    assert names[:8] == ["", "", "ssm", *peers, "ssm / fastest peer"]
    frame = read_table(out, TRAINING_SPEED)
    assert frame.height == 5 * 2 * 2  # implementations, denormal settings, repeats
    assert frame.filter(implementation="ssm", flush_denormal=True)["repeat"].to_list() == [1, 2]
    ratio, _ = ratios(frame)[True]
    assert f"{ratio:.2f}x" in said[9]
    made = read_provenance(out)
    assert (made["context"], made["batch"], made["threads"]) == (6, 2, 1)
    assert made["machine"]["processor"] in said[-1]
    assert float(torch.tensor(1e-39) * 1) > 0  # denormals are back


def test_mamba_1_is_held_against_mambapy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("training", "--model", "mamba1", "--repeats", 1, "--context", 6, "--batch", 2) == 0
    assert "transformers, mambapy" in capsys.readouterr().out


def test_the_ratio_is_of_medians_and_to_the_fastest_peer() -> None:
    times = {"ssm": [10, 10, 99], "slow": [30, 30, 1], "fast": [25, 20, 20]}
    rows = [
        ("mamba2", name, flush, repeat, ms * (1.0 if flush else 2.0 - (name == "ssm")), 1.0)
        for name, values in times.items()
        for flush in (True, False)
        for repeat, ms in enumerate(values, 1)
    ]
    frame = pl.DataFrame(rows, schema=TRAINING_SPEED.columns, orient="row")
    assert ratios(frame) == {True: (2.0, "fast"), False: (4.0, "fast")}


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
    right = training_module.transformers_mamba2

    def wrong(model: Any, chunk: int) -> Any:
        peer = right(model, chunk)
        if chunk == 32:
            with torch.no_grad():
                peer.backbone.norm_f.weight[3] += 0.1
        return peer

    monkeypatch.setattr(training_module, "transformers_mamba2", wrong)
    said = no_speed(tmp_path / "speed.parquet", capsys)
    assert "no speed to report: the logits of ssm and transformers, chunk 32 differ by" in said


@pytest.mark.parametrize("factor", [0.9, -1.0])
def test_other_gradients_report_no_speed(
    factor: float, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal logits, another backward pass: what is wrong is not called fast, though Adam would hide it."""
    right = training_module.transformers_mamba2

    def wrong(model: Any, chunk: int) -> Any:
        peer = right(model, chunk)
        if chunk == 16:
            peer.backbone.layers[1].mixer.A_log.register_hook(lambda gradient: factor * gradient)
        return peer

    monkeypatch.setattr(training_module, "transformers_mamba2", wrong)
    said = no_speed(tmp_path / "speed.parquet", capsys)
    assert "the gradients of layers.1.mixer.A_log of ssm and transformers, chunk 16 differ by" in said


def test_nan_is_no_agreement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = training_module._logits_of
    monkeypatch.setattr(training_module, "_logits_of", lambda peer: lambda tokens: right(peer)(tokens) * float("nan"))
    assert "differ by nan" in no_speed(tmp_path / "speed.parquet", capsys)


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "transformers":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"needs transformers: pip install 'ssm-length\[bench\]'$"):
        run(*TINY)


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(argparse.ArgumentError, match="argument --repeats: expected a whole number above zero, got '0'"):
        run("training", "--repeats", 0)

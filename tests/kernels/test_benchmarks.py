"""`ssm bench`: wrong implementations are not timed. Results are printed, saved, and written into a README."""

from __future__ import annotations

import argparse
import builtins
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from ssm_kernels.benchmarks import inference_speed as inference_module
from ssm_kernels.benchmarks import limits as limits_module
from ssm_kernels.benchmarks import scans as scans_module
from ssm_kernels.benchmarks import training_speed as training_module
from ssm_kernels.benchmarks.cases import Case, cpu_cases, gpu_cases
from ssm_kernels.benchmarks.gate import GateError
from ssm_kernels.benchmarks.limits import Limits, limit_ms, touched, work
from ssm_kernels.benchmarks.markdown import END, START, main
from ssm_kernels.benchmarks.race import Contestant, race
from ssm_kernels.benchmarks.table import speed_frame
from ssm_kernels.benchmarks.training_speed import SUBJECTS, ratios, shares_text, step_shares
from torch import Tensor

from ssm.base.errors import UserError
from ssm.base.tables import INFERENCE_SPEED, SCAN_SPEED, TRAINING_SPEED, read_provenance, read_table, write_table
from ssm.cli import bench
from ssm.specs.model import ModelSpec

CPU = torch.device("cpu")
TINY = ("training", "--repeats", 2, "--context", 6, "--batch", 2)
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
    """Run each loop of the limits once, without timing it."""

    def once(run: Callable[[], object], seconds: float) -> float:
        run()
        return 1.0

    monkeypatch.setattr("ssm_kernels.native.limits.best_seconds", once)
    measured = limits_module._stream
    measured.cache_clear()
    yield
    measured.cache_clear()


def test_a_race_takes_turns_and_drops_slow_contestants() -> None:
    order: list[str] = []
    contestants = [Contestant(name, lambda name=name: order.append(name)) for name in "abc"]
    race(contestants, 3, 60.0, CPU)
    assert order == [*"abc", *"abc", *"bca", *"cab"]  # one warm-up call each; then every round has another first
    assert [len(contestant.milliseconds) for contestant in contestants] == [3, 3, 3]
    race([alone := Contestant("slow", lambda: sum(range(20_000)))], 5, 1e-9, CPU)
    assert len(alone.milliseconds) == 1
    order.clear()
    race(contestants[:2], 1, 60.0, CPU, twice=True)
    assert order == [*"ab", *"aabb"]
    assert [len(contestant.milliseconds) for contestant in contestants] == [4, 4, 3]
    race([], 1, 60.0, CPU)


# Scans


def scans(*words: object) -> int:
    return run("scans", "--repeats", 1, "--device", "cpu", *words)


def table(case: Case = SMALL) -> pl.DataFrame:
    return speed_frame(case, scans_module.scan_speed(case, CPU, 1, 60.0), limit_ms(case, LIMITS))


@pytest.mark.parametrize("case", [*dict.fromkeys((c.operation, c.system) for c in cpu_cases() + gpu_cases())])
def test_small_cases_of_every_kind_agree_with_the_oracle(case: tuple[str, str]) -> None:
    matrix = (2, 7, 2, 4, 4)
    sizes = {"gated_scan": matrix, "delta_scan": matrix, "selective_scan": (2, 7, 8, 4)}.get(case[0], (2, 7, 8))
    for state in (False, True):
        frame = table(Case(*case, sizes, state=state))
        timed = set(frame.filter(pl.col("milliseconds").is_not_null())["contestant"])
        assert {"torch", "cpp"} <= timed
        assert timed.isdisjoint(frame.filter(pl.col("reason").is_not_null())["contestant"])
        assert float(frame["error"].max()) < 1e-5  # type: ignore[arg-type]


class Doubled(torch.autograd.Function):
    """The identity, with a doubled gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return 2 * grads[0]


@pytest.mark.parametrize(
    ("spoil", "error"),
    [(lambda h0: 1.01 * h0, "0.01"), (Doubled.apply, "1"), (Tensor.detach, "inf")],
    ids=["a value", "a gradient", "no gradient"],
)
def test_wrong_scans_are_not_timed(
    spoil: Callable[[Tensor], Tensor], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = scans_module._ours

    def wrong(case: Case, backend: str) -> Any:
        scan = right(case, backend)
        if backend != "cpp":
            return scan
        return lambda arguments: scan({**arguments, "h0": spoil(arguments["h0"])})

    monkeypatch.setattr(scans_module, "_ours", wrong)
    (row,) = table().filter(contestant="cpp").to_dicts()
    assert row["milliseconds"] is None
    assert row["reason"].startswith(f"wrong: its relative error is {error}")


def test_a_scan_that_breaks_the_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An illegal access on a GPU is seen late, and then by every call."""
    started: list[str] = []
    ours = scans_module._ours

    def noted(case: Case, backend: str) -> Any:
        return lambda arguments: started.append(backend) or ours(case, backend)(arguments)

    def wait(device: torch.device) -> None:
        if "cpp" in started:
            raise RuntimeError("CUDA error: an illegal memory access\nmore")

    monkeypatch.setattr(scans_module, "_ours", noted)
    monkeypatch.setattr(scans_module, "wait", wait)
    with pytest.raises(scans_module.DeviceLostError, match=r"^cpp: CUDA error: an illegal memory access$"):
        table()
    assert started[-1] == "cpp", "no later one is tried"


@pytest.mark.parametrize("case", [replace(c, sizes=(2, 33, *c.sizes[2:])) for c in cpu_cases() if not c.state])
def test_the_least_traffic_is_the_size_of_the_tensors(case: Case) -> None:
    """Without tensors that do not grow with the sequence: states, weights, constant decays."""
    arguments = case.arguments(CPU)
    y = arguments["v" if "v" in arguments else "u" if "u" in arguments else "b" if "a" in arguments else "x"]
    inputs = sum(x.nbytes for x in arguments.values() if x is not None and x.ndim > 2 and x.shape[1] == 33)
    assert y is not None
    forward, *backward = work(case)
    assert forward.bytes == inputs + y.nbytes
    # The backward pass reads dy and inputs, and writes the gradients. It does not need all inputs.
    assert all(inputs + y.nbytes <= done.bytes <= 2 * inputs + y.nbytes for done in backward)
    # Inputs and outputs of both passes, and their gradients, each once.
    assert touched(case) == (2 if backward else 1) * (inputs + y.nbytes)


def test_a_call_is_limited_by_memory_or_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("diagonal_scan", "RG-LRU", (2, 3, 5))  # 30 and 60 multiply-adds, 360 and 600 bytes, 720 in all
    streams = {720: 4.0}
    monkeypatch.setattr("ssm_kernels.benchmarks.limits._stream", lambda touched, threads: streams[touched] * threads)
    limits = Limits("cpu", 2, memory=1.0, multiply_adds=3.0, gemm=3.0)
    assert limit_ms(case, limits) == pytest.approx(1000 * 720 / 8)
    assert limit_ms(case, replace(limits, multiply_adds=0.5)) == pytest.approx(1000 * 90 / 0.5)


def test_each_pass_on_a_gpu_is_limited_by_memory_arithmetic_or_exponentials() -> None:
    """Numbers: B x T x H = 6, K = V = 4. A GLA has 32 multiply-adds and 4 exponentials per token and head."""
    gpu = Limits("cuda", 1, memory=1e9, multiply_adds=1.0, gemm=6.0, exponentials=1e9)
    case = Case("gated_scan", "GLA", (1, 3, 2, 4, 4), backward=False)
    assert limit_ms(case, gpu) == pytest.approx(1000 * 6 * 32 / 6), "on tensor cores"
    assert limit_ms(case, replace(gpu, gemm=1e9, exponentials=2.0)) == pytest.approx(1000 * 6 * 4 / 2)
    assert limit_ms(case, replace(gpu, gemm=1e9, memory=4.0)) == pytest.approx(1000 * work(case)[0].bytes / 4)
    case = Case("diagonal_scan", "RG-LRU", (2, 3, 5))
    assert limit_ms(case, replace(gpu, multiply_adds=3.0)) == pytest.approx(1000 * (30 + 60) / 3)
    assert gpu.warnings() == []


def test_scans_are_printed_and_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """Scans faster than the limit give a warning. The limit here is one multiply-add per second."""
    monkeypatch.setattr("ssm_kernels.benchmarks.cases.cpu_cases", lambda: [SMALL])
    monkeypatch.setattr(limits_module, "measure_limits", lambda device: replace(LIMITS, multiply_adds=1.0))
    assert scans("--out", tmp_path / "scans.parquet") == 0
    said, warned = capsys.readouterr()
    assert said.startswith("Limits of 1 thread(s): 0 GFLOP/s by multiply-adds (GEMM by torch: 80 GFLOP/s), 30 GB/s")
    assert "gated_scan, Mamba-2, 2x9x2x4x4 float32, with a state in and out, forward+backward" in said
    assert "ssm bench: warning: GEMM by torch: " in warned
    assert "ssm bench: warning: cpp, gated_scan, Mamba-2, 2x9x2x4x4 float32, with a state in and out" in warned
    assert read_table(tmp_path / "scans.parquet", SCAN_SPEED).height > 3
    made = read_provenance(tmp_path / "scans.parquet")
    assert made["limits"]["memory"] == 3e10
    assert "transformers" in made["peers"]


def test_peers_do_not_get_the_settings_of_our_triton_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our kernels set DISABLE_MMA_V3 at their first launch, and it stays set for their later ones."""
    monkeypatch.setenv("DISABLE_MMA_V5", "0")
    monkeypatch.setattr(scans_module, "PRODUCTS", {"DISABLE_MMA_V3": None, "DISABLE_MMA_V5": "0"})
    seen: list[tuple[str, str | None, str | None]] = []

    def called(name: str, *_: Any) -> tuple[None, str]:
        seen.append((name, os.environ.get("DISABLE_MMA_V3"), os.environ.get("DISABLE_MMA_V5")))
        if name == "triton":
            monkeypatch.setenv("DISABLE_MMA_V3", "1")
        return None, "not timed"

    monkeypatch.setattr(scans_module, "_checked", called)
    monkeypatch.setattr(scans_module, "_contestants", lambda *_: [(x, abs) for x in ("triton", "fla", "torch")])
    scans_module.scan_speed(SMALL, CPU, 1, 1.0)
    assert seen == [("triton", None, "0"), ("fla", None, "0"), ("torch", "1", "0")]


def test_what_was_measured_before_the_device_broke_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ssm_kernels.benchmarks.cases.cpu_cases", lambda: [SMALL, replace(SMALL, system="RetNet"), SMALL]
    )
    measured = scans_module.scan_speed

    def breaks(case: Case, *others: Any) -> list[Any]:
        if case.system == "RetNet":
            raise scans_module.DeviceLostError("triton: illegal memory access")
        return measured(case, *others)

    monkeypatch.setattr(scans_module, "scan_speed", breaks)
    with pytest.raises(
        UserError, match=r"^gated_scan \(RetNet\): triton: illegal memory access; the GPU cannot be used"
    ):
        scans("--out", tmp_path / "scans.parquet")
    assert {*read_table(tmp_path / "scans.parquet", SCAN_SPEED)["system"]} == {SMALL.system}


@pytest.mark.exhaustive
def test_the_scans_of_a_chosen_instruction_set_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits use the best instruction set of the processor, for every build of the C++."""
    monkeypatch.setenv("SSM_KERNELS_INSTRUCTIONS", "what the option replaces")
    monkeypatch.setattr("ssm_kernels.benchmarks.cases.cpu_cases", lambda: [SMALL])
    monkeypatch.setattr(limits_module, "FAR", 2**22)
    out = tmp_path / "scans.parquet"
    assert scans("--instructions", "plain", "--out", out) == 0
    assert "ssm bench: warning: cpp" not in capsys.readouterr().err
    assert read_provenance(out)["limits"]["instructions"] == "plain"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("scans", "--only", "retnt", "--device", "cpu"), "--only retnt: no operation or system of that name is "),
        (
            ("scans", "--instructions", "avx3"),
            "--instructions: unknown instruction set 'avx3', expected avx512, avx2, plain; did you mean 'avx2'?",
        ),
        (("training", "--only", "gated_scan"), "--only is an option of `ssm bench scans`"),
        (("scans", "--batch", 2), "--batch is an option of `ssm bench training`"),
        (("training", "--repeats", 0), "argument --repeats: expected a whole number above zero, got '0'"),
        (TINY, "the comparison needs transformers: pip install '.[bench]' in the clone"),
    ],
    ids=str,
)
def test_bad_arguments_are_one_line(words: tuple[object, ...], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "transformers":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises((UserError, argparse.ArgumentError)) as error:
        run(*words)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def speeds(path: Path, times: dict[tuple[bool, str], dict[str, float]], limits: Limits) -> str:
    rows = [
        ("gated_scan", "GLA", "8x256x4", "float32", state, direction, name, 1, ms, 1e-7, None, 1.0)
        for (state, direction), contestants in times.items()
        for name, ms in contestants.items()
    ]
    made = {"limits": limits.content(), "peers": {"fla": "0.6"}, "packages": {"torch": "2.13"}}
    write_table(pl.DataFrame(rows, schema=SCAN_SPEED.columns, orient="row"), SCAN_SPEED, path, made)
    return str(path)


def test_a_table_of_three_runs_is_written_into_a_readme(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forward, both = (False, "forward"), (True, "forward+backward")
    peers = {"transformers, chunk 32": 9.0, "transformers, chunk 64": 6.0, "fla, plain": 14.0}
    times = {forward: {"cpp": 2.0, "torch": 3.0, **peers}, (True, "forward"): {"cpp": 2.5}, both: {"cpp": 4.0}}
    wide = replace(LIMITS, instructions="avx512")
    one = speeds(tmp_path / "one.parquet", times, wide)
    two = speeds(tmp_path / "two.parquet", {forward: {"cpp": 1.25}, both: {"cpp": 3.2}}, replace(wide, threads=2))
    avx2 = speeds(tmp_path / "avx2.parquet", {forward: {"cpp": 2.5}, both: {"cpp": 5.0}}, LIMITS)
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    assert main([one, two, avx2, str(readme)]) == 0
    lines = readme.read_text().splitlines()
    assert (lines[:2], lines[-2:]) == (["before", START], [END, "after"])
    assert "x86_64 A 1" in lines[3]
    assert lines[4] == "torch 2.13, fla 0.6."
    assert [line.split(":")[0] for line in lines[5:7]] == ["Limits of 1 thread(s)", "Limits of 2 thread(s)"]
    assert [line for line in lines if line.startswith("| `")] == [
        "| `gated_scan`, GLA | 8×256×4 | forward | 2 | 0.50 | 3 (1.5x) | 6 (3.0x) | 14 (7.0x) | 1.60 | 0.80 | 0.40 |",
        "| `gated_scan`, GLA | 8×256×4 | f + b, state | 4 | 0.25 | – | – | – | 1.25 | 0.31 | 0.20 |",
    ]
    whole = readme.read_text()
    assert main([one, two, avx2, str(readme)]) == 0
    assert readme.read_text() == whole

    less = speeds(tmp_path / "less.parquet", {forward: {"cpp": 1.0}}, replace(wide, threads=2))
    other = speeds(tmp_path / "other.parquet", times, replace(wide, threads=2, instructions="plain"))
    foreign = speeds(tmp_path / "foreign.parquet", times, replace(LIMITS, processor="B"))
    unmarked = tmp_path / "OTHER.md"
    unmarked.write_text("nothing\n")
    bad = {
        (two, one, avx2, readme): "two.parquet: expected a run with --device cpu --threads 1",
        (one, two, one, readme): "one.parquet: expected a run with --instructions avx2, not avx512",
        (one, less, avx2, readme): "the backend cpp was not timed in all runs: gated_scan, GLA, 8x256x4, True,",
        (one, other, avx2, readme): "the runs are from different machines",
        (one, two, foreign, readme): "the runs are from different machines",
        (one, two, avx2, unmarked): "OTHER.md: expected one line '<!-- scans:",
        (one, tmp_path / "none.parquet", avx2, readme): "none.parquet",
    }
    for words, expected in bad.items():
        capsys.readouterr()
        assert main([str(word) for word in words]) == 2
        said = capsys.readouterr().err
        assert expected in said
        assert said.count("\n") == 1
    assert main([one, two, str(readme)]) == 2
    assert readme.read_text() == whole


# Training steps


def test_training_speeds_are_printed_and_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_module, "PROFILED_STEPS", 1)
    out = tmp_path / "speed.parquet"
    assert run(*TINY, "--out", out) == 0
    said = capsys.readouterr().out
    frame = read_table(out, TRAINING_SPEED)
    chunks = [f"transformers, chunk {chunk}" for chunk in (16, 32, 64, 256)]
    peers = {"mamba1": ["transformers, mambapy"], "mamba2": chunks, "rwkv7": [], "s5": []}
    assert tuple(SUBJECTS) == bench.MODELS
    for (model,), rows in frame.group_by("model"):
        names = rows["implementation"].unique(maintain_order=True).to_list()
        assert names == ["ssm", *peers.get(str(model), ["transformers"]), "ssm, PyTorch scans"]
    assert frame.filter(implementation="ssm", flush_denormal=True)["repeat"].to_list() == [1, 2] * len(SUBJECTS)
    for model in SUBJECTS:
        assert f"{model}, T=6, B=2: median of up to 2 training steps" in said
        assert f"{ratios(frame.filter(model=model))[True][0]:.2f}x" in said
    assert len(re.findall(r"ssm's step: \d+% matrix products, \d+% our operations, \d+% the rest", said)) == len(
        SUBJECTS
    )
    made = read_provenance(out)
    assert (made["context"], made["batch"], made["threads"]) == (6, 2, 1)
    assert float(torch.tensor(1e-39) * 1) > 0  # denormals are no longer flushed


def test_the_ratio_compares_medians_with_the_fastest_peer() -> None:
    times = {"ssm": [10, 10, 99], "slow": [30, 30, 1], "fast": [25, 20, 20]}
    rows = [
        ("mamba2", name, flush, repeat, ms * (1.0 if flush else 2.0 - (name == "ssm")), 1.0)
        for name, values in times.items()
        for flush in (True, False)
        for repeat, ms in enumerate(values, 1)
    ]
    frame = pl.DataFrame(rows, schema=TRAINING_SPEED.columns, orient="row")
    assert ratios(frame) == {True: (2.0, "fast"), False: (4.0, "fast")}


def test_the_shares_of_a_step() -> None:
    found = step_shares("mamba2", 8, 2)  # it checks that the profile has our operations
    assert sum(found.values()) == pytest.approx(1)
    assert min(found.values()) > 0
    frame = pl.DataFrame(
        [("mamba2", "ssm", flush, 1, 10.0, 1.0) for flush in (True, False)]
        + [("mamba2", "other", flush, 1, 20.0, 1.0) for flush in (True, False)],
        schema=TRAINING_SPEED.columns,
        orient="row",
    )
    shares = {"matrix products": 0.5, "our operations": 0.3, "the rest": 0.2}
    expected = "ssm's step: 50% matrix products, 30% our operations, 20% the rest; 4.0x if all else took no time"
    assert shares_text(shares, frame) == expected


def other_logits(peer: Any) -> None:
    with torch.no_grad():
        peer.backbone.norm_f.weight[3] += 0.1


def no_logits(peer: Any) -> None:
    with torch.no_grad():
        peer.backbone.norm_f.weight[3] = float("nan")


def other_gradients(peer: Any) -> None:
    """Equal logits, but another backward pass. Adam would hide the difference."""
    peer.backbone.layers[1].mixer.A_log.register_hook(lambda gradient: 0.9 * gradient)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (other_logits, r"nothing was timed: the logits of ssm and transformers, chunk 32 differ by \d"),
        (no_logits, "the logits of ssm and transformers, chunk 32 differ by nan"),
        (
            other_gradients,
            r"the gradients of backbone\.layers\.1\.mixer\.A_log of ssm and transformers, chunk 32 differ by",
        ),
    ],
)
def test_no_speed_is_reported_for_wrong_results(
    spoil: Callable[[Any], None],
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = training_module.transformers_peer

    def wrong(model: Any, form: str, **options: Any) -> Any:
        peer = right(model, form, **options)
        if options["chunk_size"] == 32:
            spoil(peer.model)
        return peer

    monkeypatch.setattr(training_module, "transformers_peer", wrong)
    with pytest.raises(GateError, match=says):
        run(*TINY, "--model", "mamba2", "--out", tmp_path / "speed.parquet")
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "speed.parquet").exists()


# Inference


@pytest.fixture
def small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    mixer = {"kind": "mamba2", "d_state": 4, "head_dim": 8}
    spec = {"name": "small", "d_model": 16, "n_layers": 2, "mixer": mixer, "peak_lr": 1e-3}
    for name, value in {"MODEL": ModelSpec.parse(spec, "small"), "VOCABULARY": 40, "READ": 50}.items():
        monkeypatch.setattr(inference_module, name, value)


@pytest.mark.usefixtures("small_model")
def test_inference_speeds_are_printed_and_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "speed.parquet"
    assert run("inference", "--repeats", 2, "--out", out) == 0
    frame = read_table(out, INFERENCE_SPEED)
    assert frame["repeat"].to_list() == [1, 2] * 4
    assert set(frame["implementation"]) == {"ssm", "transformers"}
    assert "read 50 tokens" in capsys.readouterr().out


@pytest.mark.usefixtures("small_model")
@pytest.mark.parametrize(("at", "what"), [(2, "generated tokens"), (1, "logits")])
def test_no_speed_of_inference_is_reported_for_wrong_results(
    at: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = inference_module._readers

    def wrong(model: Any) -> Any:
        ours, other = right(model)
        other = replace(other, read=lambda tokens: 1.01 * ours.read(tokens)) if at == 1 else other
        return ours, replace(other, generate=lambda prompt, n: ours.generate(prompt, n).flip(0))

    monkeypatch.setattr(inference_module, "_readers", wrong)
    with pytest.raises(GateError, match=f"the {what} of ssm and transformers differ"):
        run("inference", "--repeats", 1)


def test_the_peak_is_the_memory_that_a_call_adds() -> None:
    mebibytes = inference_module._peak_mib(lambda: torch.ones(64 * 2**18).add_(1).sum())
    assert mebibytes is None or 63 < mebibytes < 80

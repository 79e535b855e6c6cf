"""`ssm bench`: our speed on this machine, next to other implementations."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from ssm.cli import positive, table

MODELS = ("mamba1", "mamba2", "gated_deltanet", "griffin", "rwkv7", "s5")
# The options of one benchmark only: its name, and the default.
OPTIONS = {
    "only": ("scans", ""),
    "device": ("scans", "auto"),
    "instructions": ("scans", None),
    "model": ("training", None),
    "context": ("training", 128),
    "batch": ("training", 16),
}

HELP = "measure the speed of scans, training and inference"
EPILOG = """\
ssm bench scans:
  times every backend that runs here and every other implementation that is
  installed, at each size, with and without a state. First, outputs and
  gradients are compared with the same operation in float64. Implementations
  with wrong results are not timed. The times of Mamba-2 in transformers and
  mamba_ssm include one division by dt and its gradient.

  limit/t is the lower limit of the time, divided by the measured time: 1 is
  the best possible. The limit is the largest of these times. The first is that
  of the fewest multiply-adds of any known form of the scan, at the full rate
  of the processor or GPU. The second is that of one pass over each input and
  output, at the rate of the fastest stream. On a GPU, there is a third, that of
  the exponentials. All rates are measured in the same run. A row above 1.05
  gives a warning: its limit was disturbed, or is wrong.

ssm bench training:
  times training steps of small models against those of transformers, and
  against our models with PyTorch's scans instead of our C++ code. All have
  the same weights, batches and optimizer. It also says where the time of our
  step goes.

ssm bench inference:
  times a Mamba-2 of 130M parameters that reads 4,096 tokens and generates 32,
  and transformers' model with the same weights. The peak is the most memory
  that a call adds to the process.

The implementations take turns, and times are medians. To install the others:
pip install '.[bench]' in the clone

examples:
  ssm bench scans --threads 1 --out scans.parquet
  ssm bench scans --only gated_scan --repeats 5
  ssm bench scans --instructions avx2
  ssm bench training --model mamba1
  ssm bench inference --repeats 3
  make bench                           all, with tables in results/bench
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("scans", "training", "inference"), help="what to measure")
    parser.add_argument("--only", metavar="TEXT", help="scans: operations and systems with TEXT in their name")
    parser.add_argument("--model", choices=MODELS, help="training: only this model")
    parser.add_argument(
        "--context", type=positive(int), metavar="T", help="training: tokens of a sequence (default: 128)"
    )
    parser.add_argument("--batch", type=positive(int), metavar="B", help="training: sequences of a batch (default: 16)")
    parser.add_argument(
        "--repeats", type=positive(int), default=20, metavar="N", help="at most N timed calls (default: 20)"
    )
    parser.add_argument(
        "--seconds",
        type=positive(float),
        default=10.0,
        metavar="S",
        help="at most S seconds for one implementation (default: 10)",
    )
    parser.add_argument("--threads", type=positive(int), default=1, metavar="N", help="CPU threads (default: 1)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), help="scans: the device (default: auto)")
    parser.add_argument(
        "--instructions",
        metavar="NAME",
        help="scans: compile the C++ code for avx512, avx2 or plain (default: the best on this machine)",
    )
    parser.add_argument("--out", type=table, metavar="FILE.parquet", help="write a table of all timed calls")
    parser.set_defaults(**{name: default for name, (_, default) in OPTIONS.items()})


def run(args: argparse.Namespace) -> int:
    import torch

    from ssm.base.errors import UserError
    from ssm.base.files import require_writable
    from ssm.models.device import keep_freed_memory

    for name, (what, default) in OPTIONS.items():
        if what != args.what and getattr(args, name) != default:
            raise UserError(f"--{name} is an option of `ssm bench {what}`")
    if args.out is not None:
        require_writable(args.out)
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    return {"scans": _scans, "training": _training, "inference": _inference}[args.what](args)


def _scans(args: argparse.Namespace) -> int:
    import polars as pl
    from ssm_kernels.benchmarks.cases import cpu_cases, gpu_cases
    from ssm_kernels.benchmarks.limits import limit_ms, measure_limits
    from ssm_kernels.benchmarks.scans import DeviceLostError, scan_speed
    from ssm_kernels.benchmarks.table import block, speed_frame, warnings

    from ssm.base.errors import UserError
    from ssm.base.tables import SCAN_SPEED, write_table
    from ssm.models.device import prepare_device

    if args.instructions is not None:
        _compile_for(args.instructions)
    device = prepare_device(args.device)  # before there are threads: they inherit the flushing of denormals
    cases = [case for case in (gpu_cases() if device.type == "cuda" else cpu_cases()) if args.only in case.name]
    if not cases:
        raise UserError(f"--only {args.only}: no operation or system of that name is measured on {device.type}")
    limits = measure_limits(device)
    print(limits.text(), flush=True)
    _warn(limits.warnings())
    frames = []
    lost = None
    for case in cases:
        try:
            speeds = scan_speed(case, device, args.repeats, args.seconds)
        except DeviceLostError as error:
            lost = UserError(f"{case.name}: {error}; the GPU cannot be used any more, so the other cases are left out")
            break
        frame = speed_frame(case, speeds, limit_ms(case, limits))
        print(f"\n{block(frame)}", flush=True)
        _warn(warnings(frame))
        frames.append(frame)
    source = _provenance(args, limits=limits.content())
    print(f"\n{_machine(args, source)}")
    if args.out is not None and frames:
        write_table(pl.concat(frames), SCAN_SPEED, args.out, source)
    if lost is not None:
        raise lost
    return 0


def _warn(lines: list[str]) -> None:
    for line in lines:
        print(f"ssm bench: warning: {line}", file=sys.stderr, flush=True)


def _compile_for(instructions: str) -> None:
    """Compile and run the C++ code for one instruction set in this process."""
    from ssm_kernels.native import cpu

    from ssm.base.errors import UserError

    try:
        os.environ[cpu.VARIABLE] = cpu.checked(instructions, "--instructions")
    except cpu.InstructionsError as error:
        raise UserError(str(error)) from None


def _training(args: argparse.Namespace) -> int:
    import polars as pl
    from ssm_kernels.benchmarks.training_speed import SUBJECTS, shares_text, step_shares, table_text, training_speed

    from ssm.base.tables import TRAINING_SPEED, write_table

    frames = []
    for model in [args.model] if args.model else SUBJECTS:
        frame = training_speed(model, args.context, args.batch, args.repeats, args.seconds)
        print(f"{model}, T={args.context}, B={args.batch}: median of up to {args.repeats} training steps")
        print(f"\n{table_text(frame)}")
        print(f"{shares_text(step_shares(model, args.context, args.batch), frame)}\n", flush=True)
        frames.append(frame)
    source = _provenance(
        args,
        models=[subject.spec(name).content() for name, subject in SUBJECTS.items()],
        context=args.context,
        batch=args.batch,
    )
    print(_machine(args, source))
    if args.out is not None:
        write_table(pl.concat(frames), TRAINING_SPEED, args.out, source)
    return 0


def _inference(args: argparse.Namespace) -> int:
    from ssm_kernels.benchmarks.inference_speed import MODEL, READ, VOCABULARY, inference_speed, table_text

    from ssm.base.tables import INFERENCE_SPEED, write_table

    frame = inference_speed(MODEL, VOCABULARY, READ, args.repeats, args.seconds)
    print(f"{MODEL.name}: median of up to {args.repeats} calls\n\n{table_text(frame)}\n")
    source = _provenance(args, model=MODEL.content())
    print(_machine(args, source))
    if args.out is not None:
        write_table(frame, INFERENCE_SPEED, args.out, source)
    return 0


def _provenance(args: argparse.Namespace, **more: Any) -> dict[str, Any]:
    from importlib import metadata

    from ssm.base.provenance import provenance

    peers = {}
    for package in ("transformers", "mambapy", "flash-linear-attention", "mamba-ssm", "triton"):
        try:
            peers[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return provenance(threads=args.threads, peers=peers, **more)


def _machine(args: argparse.Namespace, source: dict[str, Any]) -> str:
    peers = ", ".join(f"{name} {version}" for name, version in source["peers"].items())
    machine = source["machine"]
    cores = f"{args.threads} of {machine['cores']} cores"
    return f"{machine['processor']}, {cores}, torch {source['packages']['torch']}, {peers}"

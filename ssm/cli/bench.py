"""ssm bench: our speed on this machine, side by side with other implementations'."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from ssm.cli import path, positive

HELP = "measure the speed of scans and training steps, side by side with what they compete with"
EPILOG = """\
scans     every backend that runs here and every peer that is installed, at each size with and without a state; first
          outputs and gradients are compared with the float64 oracle; wrong ones are not timed. limit/t is the least
          time that the machine allows, divided by the time measured: 1 is the best possible. The limit is the larger
          of two times: the fewest multiply-adds of any known form of the scan at the processor's full rate, and each
          input and output once at the rate of the fastest stream. Both rates are measured in the same run. A row
          above 1.05 is named in a warning: its limit was disturbed, or is wrong. On a GPU: copying alone
training  training steps of small Mamba and Mamba-2 models with the same weights, batches and optimizer as transformers'

Contestants take turns; times are medians. The peers: pip install 'ssm-length[bench]'

examples:
  ssm bench scans --threads 1 --out one.parquet
  ssm bench scans --only gated_scan --repeats 5
  ssm bench scans --instructions avx2
  ssm bench training --model mamba1
  make bench                                  both, with tables in results/bench
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("scans", "training"), help="what to measure")
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="scans: only those whose operation or system holds it"
    )
    parser.add_argument("--model", choices=("mamba1", "mamba2"), help="training: only this one")
    parser.add_argument("--context", type=positive(int), default=128, metavar="T", help="training (default: 128)")
    parser.add_argument("--batch", type=positive(int), default=16, metavar="B", help="training (default: 16)")
    parser.add_argument(
        "--repeats", type=positive(int), default=20, metavar="N", help="timed calls, at most (default: 20)"
    )
    parser.add_argument(
        "--seconds", type=positive(float), default=10.0, metavar="S", help="of one contestant's calls (default: 10)"
    )
    parser.add_argument("--threads", type=positive(int), default=1, metavar="N", help="CPU threads (default: 1)")
    parser.add_argument(
        "--device", default="auto", choices=("auto", "cpu", "cuda"), help="scans: where (default: auto)"
    )
    parser.add_argument(
        "--instructions",
        metavar="NAME",
        help="scans: compile the C++ for avx512, avx2 or plain (default: the best here)",
    )
    parser.add_argument("--out", type=path, metavar="FILE.parquet", help="write every timed call as a table")


def run(args: argparse.Namespace) -> int:
    import torch

    from ssm.models.device import keep_freed_memory

    torch.set_num_threads(args.threads)
    keep_freed_memory()
    return _scans(args) if args.what == "scans" else _training(args)


def _scans(args: argparse.Namespace) -> int:
    import polars as pl
    from ssm_kernels.benchmarks.cases import cpu_cases, gpu_cases
    from ssm_kernels.benchmarks.limits import measure_limits
    from ssm_kernels.benchmarks.scans import scan_speed
    from ssm_kernels.benchmarks.table import block, warnings

    from ssm.base.errors import UserError
    from ssm.base.tables import SCAN_SPEED, write_table
    from ssm.models.device import prepare_device

    if args.instructions is not None:
        _compile_for(args.instructions)
    device = prepare_device(args.device)  # denormals are flushed before there are threads, which inherit it
    cases = [case for case in (gpu_cases() if device.type == "cuda" else cpu_cases()) if args.only in case.name]
    if not cases:
        raise UserError(f"--only {args.only}: no operation or system of that name is measured on {device.type}")
    limits = measure_limits(device)
    print(limits.text(), flush=True)
    _warn(limits.warnings())
    frames = []
    for frame in scan_speed(cases, device, args.repeats, args.seconds, limits):
        print(f"\n{block(frame)}", flush=True)
        _warn(warnings(frame))
        frames.append(frame)
    made = _provenance(args, limits=limits.content())
    print(f"\n{_machine(args, made)}")
    if args.out is not None:
        write_table(pl.concat(frames), SCAN_SPEED, args.out, made)
    return 0


def _warn(lines: list[str]) -> None:
    for line in lines:
        print(f"ssm bench: warning: {line}", file=sys.stderr, flush=True)


def _compile_for(instructions: str) -> None:
    """Let this process compile and run the C++ for one instruction set."""
    from ssm_kernels.native import cpu

    from ssm.base.errors import UserError

    try:
        os.environ[cpu.VARIABLE] = cpu.checked(instructions, "--instructions")
    except cpu.InstructionsError as error:
        raise UserError(str(error)) from None


def _training(args: argparse.Namespace) -> int:
    import polars as pl
    from ssm_kernels.benchmarks.training_speed import MODELS, table_text, training_speed

    from ssm.base.tables import TRAINING_SPEED, write_table

    frames = []
    for model in [args.model] if args.model else MODELS:
        frame = training_speed(model, args.context, args.batch, args.repeats, args.seconds)
        print(
            f"{model}, T={args.context}, B={args.batch}: median of up to {args.repeats} training steps, taken in turn"
        )
        print(f"\n{table_text(frame)}\n", flush=True)
        frames.append(frame)
    made = _provenance(
        args, models=[spec.content() for spec in MODELS.values()], context=args.context, batch=args.batch
    )
    print(_machine(args, made))
    if args.out is not None:
        write_table(pl.concat(frames), TRAINING_SPEED, args.out, made)
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


def _machine(args: argparse.Namespace, made: dict[str, Any]) -> str:
    peers = ", ".join(f"{name} {version}" for name, version in made["peers"].items())
    cores = f"{args.threads} of {made['machine']['cores']} cores"
    return f"{made['machine']['processor']}, {cores}, torch {made['packages']['torch']}, {peers}"

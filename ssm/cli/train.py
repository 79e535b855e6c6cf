"""ssm train: train one run, or go on with it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ssm.cli import positive

HELP = "train a run from its spec, or resume it where it was killed"
EPILOG = """\
Reads a run's spec (written by `ssm plan --write`) and the tokens made by `ssm tokenize`; writes into --out the final
weights (model.safetensors), per-step metrics (metrics.parquet), snapshots/, a resumable checkpoint and run.json.
The same command after a kill resumes to bitwise the same result.

example:
  ssm train results/smoke/specs/runs/RUN.json --tokens results/smoke/tokens/DATA --out results/smoke/runs/RUN
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", type=Path, metavar="SPEC.json", help="the run's spec")
    parser.add_argument("--tokens", type=Path, required=True, metavar="DIR", help="the token store")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the run's folder")
    parser.add_argument("--parent", type=Path, metavar="DIR", help="the folder of the run that this one continues")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="default: auto")
    parser.add_argument("--threads", type=positive(int), metavar="N", help="CPU threads (default: all)")
    parser.add_argument(
        "--checkpoint-seconds",
        type=positive(float),
        default=60.0,
        metavar="S",
        help="time between checkpoints (default: 60)",
    )
    parser.add_argument("--checkpoint-steps", type=positive(int), metavar="N", help="steps between checkpoints instead")


def run(args: argparse.Namespace) -> int:
    from ssm.data.store import TokenStore
    from ssm.models.device import prepare_device
    from ssm.specs.training import RunSpec
    from ssm.training.loop import Interval, train

    spec = RunSpec.load(args.spec)
    device = prepare_device(args.device, args.threads)
    interval = Interval(args.checkpoint_seconds, args.checkpoint_steps)
    record = train(spec, TokenStore.open(args.tokens), args.out, device, args.parent, interval)
    print(
        f"{spec.id}: {record['message']}, {record['steps']} steps, {record['tokens_per_second']:.0f} tokens/s",
        file=sys.stderr,
    )
    return 0

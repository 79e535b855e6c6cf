"""ssm bench: compare our speed with another implementation's, on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from ssm.cli import positive

HELP = "measure the speed of a training step side by side with transformers' Mamba-2"
EPILOG = """\
Trains the smoke model (85k parameters) with both implementations in turn: the same weights, batches and optimizer.
First their logits and losses must agree, or no speed is reported. Needs transformers: pip install 'ssm-length[dev]'

example:
  ssm bench training --repeats 50 --out training_speed.parquet
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("training",), help="what to measure")
    parser.add_argument(
        "--repeats", type=positive(int), default=50, metavar="N", help="timed steps of each (default: 50)"
    )
    parser.add_argument(
        "--context", type=positive(int), default=32, metavar="T", help="tokens a sequence (default: 32)"
    )
    parser.add_argument("--batch", type=positive(int), default=16, metavar="B", help="sequences a step (default: 16)")
    parser.add_argument(
        "--threads",
        type=positive(int),
        default=1,
        metavar="N",
        help="CPU threads (default: 1; the denormal setting is a thread's)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE.parquet", help="write every timed step as a table")


def run(args: argparse.Namespace) -> int:
    from importlib import metadata

    import torch

    from ssm.base.provenance import provenance
    from ssm.base.tables import TRAINING_SPEED, write_table
    from ssm.bench.training_speed import MODEL, table_text, training_speed

    torch.set_num_threads(args.threads)
    frame = training_speed(args.context, args.batch, args.repeats)
    made = provenance(
        model=MODEL.content(),
        context=args.context,
        batch=args.batch,
        threads=args.threads,
        transformers=metadata.version("transformers"),
    )
    print(f"{MODEL.name}, T={args.context}, B={args.batch}: median of {args.repeats} training steps, taken in turn\n")
    print(table_text(frame))
    versions = f"torch {made['packages']['torch']}, transformers {made['transformers']}"
    print(f"\n{made['machine']['processor']}, {args.threads} of {made['machine']['cores']} cores, {versions}")
    if args.out is not None:
        write_table(frame, TRAINING_SPEED, args.out, made)
    return 0

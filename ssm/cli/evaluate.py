"""ssm evaluate: make one measurement, as one table."""

from __future__ import annotations

import argparse

from ssm.cli import add_processes, path, positive

HELP = "measure a trained run: loss by position, restart loss, remembrance, state statistics, length class"
EPILOG = """\
Reads a measurement's spec (written by `ssm plan --write`); writes one Parquet table with its provenance inside.
Several processes (--processes on this machine, or torchrun) share the sequences and make the same table.

examples:
  ssm evaluate results/smoke/specs/measurements/TASK.json --run results/smoke/runs/RUN \\
      --tokens results/smoke/tokens/DATA --out results/smoke/tables/TASK.parquet
  torchrun --nproc-per-node 8 -m -- ssm evaluate TASK.json --run RUN --tokens DATA --out TASK.parquet
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", type=path, metavar="SPEC.json", help="the measurement task's spec")
    parser.add_argument("--out", type=path, required=True, metavar="FILE.parquet", help="the table")
    parser.add_argument("--run", type=path, metavar="DIR", dest="run_folder", help="the folder of the run to measure")
    parser.add_argument("--tokens", type=path, metavar="DIR", help="the token store")
    parser.add_argument("--table", type=path, metavar="FILE", help="the table that it is made from (length_class)")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="default: auto")
    parser.add_argument("--threads", type=positive(int), metavar="N", help="CPU threads a process (default: all)")
    add_processes(parser)


def run(args: argparse.Namespace) -> int:
    from ssm.evaluation.measure import measure
    from ssm.models.device import prepare_device
    from ssm.specs.measurement import MeasurementTask
    from ssm.training.distributed import process_group

    device = prepare_device(args.device, args.threads)
    with process_group(device, "evaluate") as group:
        task = MeasurementTask.load(args.spec)
        measure(task, args.out, device, args.run_folder, args.tokens, args.table, group)
    return 0

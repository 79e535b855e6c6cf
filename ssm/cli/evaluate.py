"""`ssm evaluate`: make one measurement, as one table."""

from __future__ import annotations

import argparse

from ssm.cli import add_device, add_processes, path, table

HELP = "measure a trained run, and write one table"
EPILOG = """\
The command reads the spec of a measurement, the run and its tokens. It writes
one Parquet table, which also records what it was made from. `ssm plan --write`
writes the spec, `ssm train` the run, and `ssm tokenize` the tokens.

Several processes share the sequences and write the same table: --processes
starts them on this machine, torchrun on several machines.

examples:
  ssm evaluate results/smoke/specs/measurements/MEASUREMENT.json \\
    --run results/smoke/runs/RUN --tokens results/smoke/tokens/DATA \\
    --out results/smoke/tables/MEASUREMENT.parquet
  torchrun --nproc-per-node 8 -m -- ssm evaluate SPEC.json \\
    --run RUN --tokens DATA --out TABLE.parquet
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", type=path, metavar="SPEC.json", help="the spec of the measurement")
    parser.add_argument("--out", type=table, required=True, metavar="FILE.parquet", help="the table to write")
    parser.add_argument("--run", type=path, metavar="DIR", dest="run_folder", help="the folder of the run to measure")
    parser.add_argument("--tokens", type=path, metavar="DIR", help="the token store")
    parser.add_argument("--table", type=path, metavar="FILE", help="the table that a length_class is computed from")
    add_device(parser)
    add_processes(parser)


def run(args: argparse.Namespace) -> int:
    from ssm.base.files import require_writable
    from ssm.evaluation.measure import measure
    from ssm.models.device import prepare_device
    from ssm.specs.measurement import MeasurementTask
    from ssm.training.distributed import process_group

    device = prepare_device(args.device, args.threads)
    with process_group(device, "evaluate") as group:
        task = MeasurementTask.load(args.spec)
        require_writable(args.out)
        measure(task, args.out, device, args.run_folder, args.tokens, args.table, group)
    return 0

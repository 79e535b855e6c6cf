"""`ssm train`: train one run, or continue it."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from ssm.cli import add_device, add_processes, path, positive

if TYPE_CHECKING:
    import torch

    from ssm.specs.training import RunSpec

HELP = "train a run from its spec, or continue it"
EPILOG = """\
The command reads the spec of a run and its tokens. `ssm plan --write` writes
the spec, and `ssm tokenize` the tokens. It writes into --out the final weights
(model.safetensors), the metrics of each step (metrics.parquet), snapshots/, a
checkpoint and run.json. The spec of a repair trains nothing: its numbers are
chosen on held-out text, and run.json lists all trials.

after a kill:
  Type the same command again: it continues to bitwise the same result.

exit codes:
  75  stopped by SIGTERM or SIGUSR1, after it saved a checkpoint
  79  stopped by --stop-after, ahead of the time limit of a batch system
  76  one of several processes was killed, perhaps because the machine ran out
      of memory, and the others stopped

After each of them, the same command continues from the last checkpoint. A lack
of memory that PyTorch reports gives 2, and one line says what needs less.

several processes:
  They share every batch. The order of tokens does not depend on their number,
  and the loss differs only by rounding. A checkpoint of two processes can be
  continued by four. --processes starts them on this machine. On several
  machines, torchrun starts them. srun does too, if RANK, WORLD_SIZE,
  LOCAL_RANK, MASTER_ADDR and MASTER_PORT are set. With torchrun, all exit
  codes above become 1.

examples:
  ssm train results/smoke/specs/runs/RUN.json \\
    --tokens results/smoke/tokens/DATA --out results/smoke/runs/RUN
  ssm train RUN.json --tokens DATA --out RUN --processes 8 --shard \\
    --micro-batch-tokens 16384
  torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d \\
    --rdzv-endpoint HOST:29500 -m -- ssm train RUN.json --tokens DATA --out RUN
"""
LESS_MEMORY = "a smaller --micro-batch-tokens"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", type=path, metavar="SPEC.json", help="the spec of the run")
    parser.add_argument("--tokens", type=path, required=True, metavar="DIR", help="the token store")
    parser.add_argument("--out", type=path, required=True, metavar="DIR", help="the folder of the run")
    parser.add_argument(
        "--windows",
        type=path,
        metavar="DIR",
        help="refuse the run's text if it is too short for a measurement that is planned on it; "
        "`ssm plan --write SPECS` writes SPECS/windows",
    )
    parser.add_argument("--parent", type=path, metavar="DIR", help="the folder of the run that this run starts from")
    add_device(parser)
    add_processes(parser)
    parser.add_argument(
        "--shard",
        action="store_true",
        help="distribute the model over the processes, if it does not fit on one GPU (FSDP2)",
    )
    parser.add_argument(
        "--micro-batch-tokens",
        type=positive(int),
        metavar="N",
        help="tokens of one forward pass of a process; the batch stays the same (default: from the spec)",
    )
    parser.add_argument(
        "--checkpoint-seconds",
        type=positive(float),
        default=60.0,
        metavar="S",
        help="time between checkpoints; longer if writing one takes over 2%% of it (default: 60)",
    )
    parser.add_argument("--checkpoint-steps", type=positive(int), metavar="N", help="steps between checkpoints instead")
    parser.add_argument(
        "--stop-after",
        type=positive(float),
        metavar="S",
        help="save a checkpoint and stop after S seconds, and after at least one step (default: never)",
    )


def run(args: argparse.Namespace) -> int:
    from ssm.base.counting import counted
    from ssm.base.records import RUN_RECORD
    from ssm.data.batches import require_windows
    from ssm.data.store import TokenStore
    from ssm.models.device import prepare_device
    from ssm.specs.training import RunSpec
    from ssm.specs.windows import LongestWindows
    from ssm.training.checkpoint_schedule import CheckpointSchedule
    from ssm.training.distributed import process_group
    from ssm.training.job import Machine
    from ssm.training.loop import train
    from ssm.training.run_record import read_record

    until = None if args.stop_after is None else time.monotonic() + args.stop_after
    device = prepare_device(args.device, args.threads)
    with process_group(device, "train", LESS_MEMORY) as group:
        spec = RunSpec.load(args.spec)
        if spec.repair is not None:
            return _repair(spec, args, device) if group.main else 0
        checkpoints = CheckpointSchedule(args.checkpoint_seconds, args.checkpoint_steps, until)
        machine = Machine(group, args.shard, args.micro_batch_tokens)
        store = TokenStore.open(args.tokens)
        if args.windows:
            require_windows(store, LongestWindows.load(args.windows / f"{spec.data.id}.json"))
        ended = read_record(args.out) if (args.out / RUN_RECORD).exists() else None
        record = train(spec, store, args.out, device, args.parent, checkpoints, machine)
        if group.main:
            done = f"{counted(record['steps'], 'step')}, {record['tokens_per_second']:.0f} tokens/s"
            before = "had ended before this call: " if record == ended else ""
            print(f"{spec.id}: {before}{record['message']}, {done}", file=sys.stderr)
    return 0


def _repair(spec: RunSpec, args: argparse.Namespace, device: torch.device) -> int:
    from ssm.data.store import TokenStore
    from ssm.evaluation.repairing import repair_run

    record = repair_run(spec, TokenStore.open(args.tokens), args.out, device, args.parent)
    print(f"{spec.id}: {record['message']}, chosen in {len(record['trials'])} trials", file=sys.stderr)
    return 0

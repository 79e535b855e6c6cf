"""ssm train: train one run, or go on with it."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from ssm.cli import add_processes, path, positive

if TYPE_CHECKING:
    import torch

    from ssm.specs.training import RunSpec

HELP = "train a run from its spec, or resume it where it was killed; or repair one without training"
EPILOG = """\
Reads a run's spec (written by `ssm plan --write`) and the tokens made by `ssm tokenize`; writes into --out the final
weights (model.safetensors), per-step metrics (metrics.parquet), snapshots/, a resumable checkpoint and run.json.
The same command after a kill resumes to bitwise the same result.

SIGTERM and SIGUSR1 end it behind the step under way with a checkpoint and exit code 75: run the same command again.
With --stop-after it does the same by itself, with code 79, ahead of a batch system's time limit.
Code 76 says that one of several processes is gone (killed, out of memory); the others end too, and the same command
goes on from the last checkpoint.

The spec of a repair trains nothing: its numbers are chosen on text that is set aside, with every trial in run.json.

Several processes share every batch, in the same order of tokens whatever their number: the loss is the same but for
rounding, and a checkpoint of two goes on with four. --processes starts them on this machine, one a GPU; over several
machines torchrun does, or srun with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set (torchrun itself ends
with code 1 whatever its processes ended with).

examples:
  ssm train results/smoke/specs/runs/RUN.json --tokens results/smoke/tokens/DATA --out results/smoke/runs/RUN
  ssm train RUN.json --tokens DATA --out RUN --processes 8 --shard --micro-batch-tokens 16384
  torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 -m -- ssm train RUN.json ...
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", type=path, metavar="SPEC.json", help="the run's spec")
    parser.add_argument("--tokens", type=path, required=True, metavar="DIR", help="the token store")
    parser.add_argument("--out", type=path, required=True, metavar="DIR", help="the run's folder")
    parser.add_argument("--parent", type=path, metavar="DIR", help="the folder of the run whose weights it takes")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="default: auto")
    parser.add_argument("--threads", type=positive(int), metavar="N", help="CPU threads a process (default: all)")
    add_processes(parser)
    parser.add_argument(
        "--shard", action="store_true", help="spread the model over the processes, for one that does not fit (FSDP2)"
    )
    parser.add_argument(
        "--micro-batch-tokens",
        type=positive(int),
        metavar="N",
        help="tokens a forward pass of one process; the batch stays the same (default: what the spec says)",
    )
    parser.add_argument(
        "--checkpoint-seconds",
        type=positive(float),
        default=60.0,
        metavar="S",
        help="time between checkpoints, or more where writing one takes over 2%% of it (default: 60)",
    )
    parser.add_argument(
        "--stop-after",
        type=positive(float),
        metavar="S",
        help="end after so many seconds with a checkpoint and exit code 79, one step further at least (default: never)",
    )
    parser.add_argument("--checkpoint-steps", type=positive(int), metavar="N", help="steps between checkpoints instead")


def run(args: argparse.Namespace) -> int:
    from ssm.data.store import TokenStore
    from ssm.models.device import prepare_device
    from ssm.specs.training import RunSpec
    from ssm.training.distributed import process_group
    from ssm.training.job import Machine
    from ssm.training.loop import Interval, train

    until = None if args.stop_after is None else time.monotonic() + args.stop_after
    device = prepare_device(args.device, args.threads)
    with process_group(device, "train") as group:
        spec = RunSpec.load(args.spec)
        if spec.repair is not None:
            return _repair(spec, args, device) if group.main else 0
        interval = Interval(args.checkpoint_seconds, args.checkpoint_steps, until)
        machine = Machine(group, args.shard, args.micro_batch_tokens)
        record = train(spec, TokenStore.open(args.tokens), args.out, device, args.parent, interval, machine)
        if group.main:
            done = f"{record['steps']} steps, {record['tokens_per_second']:.0f} tokens/s"
            print(f"{spec.id}: {record['message']}, {done}", file=sys.stderr)
    return 0


def _repair(spec: RunSpec, args: argparse.Namespace, device: torch.device) -> int:
    from ssm.base.errors import CheckpointError
    from ssm.data.store import TokenStore
    from ssm.evaluation.repairing import repair_run

    if args.parent is None:
        assert spec.parent is not None
        raise CheckpointError(f"this run repairs '{spec.parent.id}': give its folder as --parent")
    record = repair_run(spec, TokenStore.open(args.tokens), args.out, device, args.parent)
    print(f"{spec.id}: {record['message']}, chosen in {len(record['trials'])} trials", file=sys.stderr)
    return 0

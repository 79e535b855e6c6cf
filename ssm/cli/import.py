"""`ssm import`: weights that were trained elsewhere, as a run."""

from __future__ import annotations

import argparse
import sys

from ssm.cli import path

HELP = "make a run from weights that were trained elsewhere"
EPILOG = """\
A figure's arm with the key `checkpoint` starts from published weights. The
workflow calls this command for it.

The command reads the spec of the run, which `ssm plan --write` writes. It
names a checkpoint: a folder, a file of weights, a name of the Hugging Face hub
(owner/model@revision), or a run of ssm. The format must be one that ssm reads
with its own code; `ssm diagnose --help` lists them.

The command writes into --out the weights in float32 (model.safetensors), and
run.json with their fingerprint and their revision on the hub. The model and
its vocabulary must be those of the spec. If they differ, one line says how,
and the exit code is 2.

Without a network, copy the hub's cache from another machine. Or copy
config.json and the weights into a folder with the checkpoint's name, such as
state-spaces/mamba2-370m, below the folder in which the workflow runs.


example:
  ssm import results/paper/specs/runs/RUN.json --out results/paper/runs/RUN
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", type=path, metavar="SPEC.json", help="the spec of the run")
    parser.add_argument("--out", type=path, required=True, metavar="DIR", help="the folder of the run")


def run(args: argparse.Namespace) -> int:
    from ssm.specs.training import RunSpec
    from ssm.training.imported import import_run

    spec = RunSpec.load(args.spec)
    record = import_run(spec, args.out)
    published = record["published"]
    revision = f", revision {published['revision']}" if published["revision"] else ""
    print(f"{spec.id}: {record['message']} (fingerprint {published['fingerprint']}{revision})", file=sys.stderr)
    return 0

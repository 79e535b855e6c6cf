"""ssm import: weights that were trained elsewhere, as a run."""

from __future__ import annotations

import argparse
import sys

from ssm.cli import path

HELP = "make a run of weights that were trained elsewhere"
EPILOG = """\
Reads the spec of a run of zero steps (written by `ssm plan --write` for a figure's arm with the key `checkpoint`) and
the checkpoint that it names: a folder, a file of weights, a name of the hub (owner/model@revision), or a run of ssm, in
any format that `ssm diagnose` opens and that becomes a model of ssm's own. Writes into --out the weights
(model.safetensors, in float32) and run.json, which holds their fingerprint and, of the hub's, their revision.

The model must be the spec's, and its vocabulary that of the spec's data set: a difference is one line and exit code 2.

Without a network: put the hub's files (config.json and the weights) into a folder of the name that the spec has, such
as state-spaces/mamba2-370m, where the workflow runs; or bring the hub's cache from another machine.

example:
  ssm import results/paper/specs/runs/RUN.json --out results/paper/runs/RUN
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", type=path, metavar="SPEC.json", help="the run's spec")
    parser.add_argument("--out", type=path, required=True, metavar="DIR", help="the run's folder")


def run(args: argparse.Namespace) -> int:
    from ssm.specs.training import RunSpec
    from ssm.training.imported import import_run

    spec = RunSpec.load(args.spec)
    record = import_run(spec, args.out)
    found = record["published"]
    revision = f", revision {found['revision']}" if found["revision"] else ""
    print(f"{spec.id}: {record['message']} (fingerprint {found['fingerprint']}{revision})", file=sys.stderr)
    return 0

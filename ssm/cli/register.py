"""`ssm register`: write down what figures claim, and on which seeds, before these seeds are read."""

from __future__ import annotations

import argparse
import sys

from ssm.cli import path
from ssm.specs.base import SCALES

HELP = "preregister what figures claim, and on which seeds, before these are read; or check it"
EPILOG = """\
Reads the config folder; adds to config/registered.json, for every figure and scale: each claim's region and hashes of
its quantity, of the models, recipes and data behind it, and of its measurements, with the seeds and the date. What is
registered stays. A figure that changed since takes seeds that it never had; without, nothing is written, and a line for
each such figure says which claims changed, how, and which seeds to replace (exit code 2).

examples:
  ssm register                           every figure at every scale
  ssm register lg_fig5 --scale smoke     one figure
  ssm register --check                   writes nothing: is every figure what was registered?
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="figures (default: all)")
    parser.add_argument("--scale", choices=SCALES, help="one scale (default: all)")
    parser.add_argument(
        "--config", type=path, metavar="DIR", default="config", help="the config folder (default: config)"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 2 where something is amiss")


def run(args: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from ssm.base.errors import UserError
    from ssm.plan.library import PREREGISTERED
    from ssm.plan.preregister import preregister_figures, write_preregistrations

    file = args.config / PREREGISTERED
    date = datetime.now(UTC).isoformat(timespec="seconds")
    preregistrations, added, findings = preregister_figures(
        args.config, args.targets or None, (args.scale,) if args.scale else SCALES, date
    )
    lines = findings.refused + (findings.missing if args.check else [])
    for line in lines:
        print(f"ssm register: {UserError(line)}", file=sys.stderr)  # the register's names may hold anything
    if lines:
        return 2
    if args.check:
        print("every claim is what was registered")
    elif added:
        write_preregistrations(preregistrations, file)
        print(f"registered in {file}: {', '.join(added)}")
    else:
        print(f"{file}: every claim is registered already")
    return 0

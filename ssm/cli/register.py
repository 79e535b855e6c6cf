"""`ssm register`: write down the claims of figures before their random seeds are read."""

from __future__ import annotations

import argparse
import sys

from ssm.cli import add_config
from ssm.specs.base import SCALES

HELP = "register the claims of figures before their seeds are read"
EPILOG = """\
The command adds to config/registered.json, for every figure and scale: the
date, the seeds, the region of each claim, and hashes. The hashes cover the
quantity, the models, recipes and data, and the measurements. Registered
entries are never changed.

If the claims of a figure changed after registration, the figure needs seeds
that it never had. Until it has them, the command writes nothing. One line for
each figure then says which claims changed, how, and which seeds to replace.
The exit code is 2.

examples:
  ssm register                        every figure at every scale
  ssm register lg_fig5 --scale smoke  one figure
  ssm register lg                     all figures of a paper
  ssm register --check                write nothing; compare with the register
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "targets",
        nargs="*",
        default=["all"],
        metavar="TARGET",
        help="figures, such as lg_fig5, or papers, such as lg (default: all)",
    )
    parser.add_argument("--scale", choices=SCALES, help="one scale (default: all)")
    add_config(parser)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 2 if a figure is not as registered"
    )


def run(args: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from ssm.base.errors import UserError
    from ssm.claims.preregistration import PREREGISTERED
    from ssm.plan.register import preregister_figures, write_preregistrations

    file = args.config / PREREGISTERED
    date = datetime.now(UTC).isoformat(timespec="seconds")
    preregistrations, added, findings = preregister_figures(
        args.config, args.targets, (args.scale,) if args.scale else SCALES, date
    )
    lines = findings.refused + (findings.missing if args.check else [])
    for line in lines:
        print(f"ssm register: {UserError(line)}", file=sys.stderr)  # UserError escapes control characters in names
    if lines:
        return 2
    if args.check:
        print("every claim is what was registered")
    elif added:
        write_preregistrations(preregistrations, file)
        print(f"registered in {file}: {', '.join(added)}")
        for line in findings.measured:
            print(f"ssm register: {UserError(line)}", file=sys.stderr)
    else:
        print(f"{file}: every claim is registered already")
    return 0

"""`ssm plot`: draw one figure from its tables."""

from __future__ import annotations

import argparse

from ssm.cli import path

HELP = "draw one figure from its tables, as SVG, PNG and PDF"
EPILOG = """\
The command reads a planned figure and its tables, and writes TARGET.svg, .png
and .pdf. `ssm plan --write` writes the figure, and `ssm evaluate` the tables.

example:
  ssm plot results/smoke/specs/figures/lg_fig5.json \\
    --tables results/smoke/tables --out results/smoke/figures
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", type=path, metavar="SPEC.json", help="the planned figure")
    parser.add_argument("--tables", type=path, required=True, metavar="DIR", help="the folder of its tables")
    parser.add_argument("--out", type=path, required=True, metavar="DIR", help="the folder of the pictures")


def run(args: argparse.Namespace) -> int:
    from ssm.figures.draw import draw
    from ssm.figures.figure import FigureTask

    for picture in draw(FigureTask.load(args.spec), args.tables, args.out):
        print(picture)
    return 0

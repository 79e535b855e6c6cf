"""`ssm plot`: draw one figure from its tables."""

from __future__ import annotations

import argparse

from ssm.cli import path

HELP = "draw one figure from its tables, as SVG, PNG and PDF"
EPILOG = """\
Reads a figure's planned task (written by `ssm plan --write`) and its tables; writes <target>.svg, .png and .pdf.

example:
  ssm plot results/smoke/specs/figures/lg_fig5.json --tables results/smoke/tables --out results/smoke/figures
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ssm plot`."""
    parser.add_argument("spec", type=path, metavar="SPEC.json", help="the planned figure")
    parser.add_argument("--tables", type=path, required=True, metavar="DIR", help="the folder of its tables")
    parser.add_argument("--out", type=path, required=True, metavar="DIR", help="the folder of figures")


def run(args: argparse.Namespace) -> int:
    """Draw the figure; print the paths written."""
    from ssm.figures.draw import draw
    from ssm.figures.figure import FigureTask

    for plot in draw(FigureTask.load(args.spec), args.tables, args.out):
        print(plot)
    return 0

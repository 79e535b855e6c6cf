"""The command line: one file per verb, each with HELP, add_arguments(parser) and run(args)."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ssm.base.errors import UserError


def positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    """An argparse type: a number above zero, of type `int` or `float`."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not value > 0:
            raise UserError(f"expected {'a whole' if kind is int else 'a'} number above zero, got '{text}'")
        return value

    return parse


def add_processes(parser: argparse.ArgumentParser) -> None:
    """The option of verbs that can work in several processes."""
    parser.add_argument(
        "--processes",
        type=positive(int),
        default=1,
        metavar="N",
        help="processes on this machine, one a GPU or each with its own CPU threads (default: 1)",
    )

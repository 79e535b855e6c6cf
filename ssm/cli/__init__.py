"""The command line: one file per verb, each with HELP, add_arguments(parser) and run(args)."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path


def positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    """An argparse type: a number above zero, of type `int` or `float`."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not value > 0:
            expected = f"{'a whole' if kind is int else 'a'} number above zero"
            raise argparse.ArgumentTypeError(f"expected {expected}, got '{text}'")
        return value

    return parse


def given(text: str) -> str:
    """An argparse type: a name or a path, which the value of an unset variable is not."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"expected a name or a path, got '{text}' (is a variable unset?)")
    return text


def path(text: str) -> Path:
    """An argparse type: a path."""
    return Path(given(text))


def version(text: str) -> str:
    """An argparse type: eight hex digits."""
    if not re.fullmatch("[0-9a-f]{8}", text):
        raise argparse.ArgumentTypeError(f"expected eight hex digits, got '{text}'")
    return text


def add_replace(parser: argparse.ArgumentParser) -> None:
    """The option of verbs whose folder may take the place of an older one."""
    parser.add_argument(
        "--replace",
        type=version,
        metavar="VERSION",
        help="make DIR.VERSION, or go on with it, and put it in the place of DIR when it is whole; eight hex digits",
    )


def add_processes(parser: argparse.ArgumentParser) -> None:
    """The option of verbs that can work in several processes."""
    parser.add_argument(
        "--processes",
        type=positive(int),
        default=1,
        metavar="N",
        help="processes on this machine, one a GPU or each with its own CPU threads (default: 1)",
    )

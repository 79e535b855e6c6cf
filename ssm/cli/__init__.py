"""The command line: one file per verb, each with HELP, add_arguments(parser) and run(args)."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from ssm.base.errors import shown

LONGEST_NAME, LONGEST_PATH = 255, 3500  # bytes; of a path Linux takes 4,095


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
    """An argparse type: a path that a file system can have, with room for the names of what is written there."""
    encoded = os.fsencode(given(text))
    if len(encoded) > LONGEST_PATH or any(len(name) > LONGEST_NAME for name in encoded.split(b"/")):
        shape = f"names of at most {LONGEST_NAME} bytes, {LONGEST_PATH:,} in all"
        raise argparse.ArgumentTypeError(f"expected a path ({shape}), got {shown(text)}")
    return Path(text)


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


def add_json(parser: argparse.ArgumentParser, name: str) -> None:
    """The option of verbs whose result is a JSON file beside their page.

    Args:
        name: of the file.
    """
    parser.add_argument("--json", action="store_true", help=f"print the content of {name}, and nothing else, on stdout")


def options(
    args: argparse.Namespace, add_arguments: Callable[[argparse.ArgumentParser], None], without: Iterable[str]
) -> list[str]:
    """The options of a verb whose values are not their defaults, as words of a command.

    Args:
        args: parsed by the verb's parser.
        add_arguments: of the verb.
        without: names of arguments that are left out.
    """
    parser, words = argparse.ArgumentParser(), list[str]()
    add_arguments(parser)
    for name, value in vars(args).items():
        if name not in without and value != parser.get_default(name):
            option = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{option}" if value else f"--no-{option}")
            else:
                words += [f"--{option}", str(value)]
    return words


def say(lines: Iterable[str]) -> None:
    """Print lines on stdout. What its encoding does not have, as in names of files, is escaped, as on stderr."""
    encoding = sys.stdout.encoding or "utf-8"
    for line in lines:
        print(line.encode(encoding, "backslashreplace").decode(encoding))


def add_processes(parser: argparse.ArgumentParser) -> None:
    """The option of verbs that can work in several processes."""
    parser.add_argument(
        "--processes",
        type=positive(int),
        default=1,
        metavar="N",
        help="processes on this machine, one a GPU or each with its own CPU threads (default: 1)",
    )

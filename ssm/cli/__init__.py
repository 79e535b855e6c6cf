"""The command line: one file for each command, with HELP, EPILOG, add_arguments(parser) and run(args)."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from ssm.base.errors import TableError, nearest, shown
from ssm.base.names import natural
from ssm.base.paths import is_utf8

LONGEST_NAME, LONGEST_PATH = 255, 3500  # bytes; Linux allows paths of 4,095 bytes
PARTS = ("specs", "runs", "tables", "verdicts")  # folders in the results of a scale
PAGES = {
    "diagnosis.json": "ssm diagnose",
    "extension.json": "ssm extend",
}  # a file of another folder -> its command
MOST_HINTS = 3


def positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    """An argparse type for numbers above zero; `kind` is `int` or `float`."""

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
    """An argparse type for names and paths. It refuses "", the value of an unset shell variable.

    It also refuses bytes that are not UTF-8: JSON, safetensors and pages cannot hold them.
    """
    if not text.strip():
        raise argparse.ArgumentTypeError(f"expected a name or a path, got '{text}' (is a variable unset?)")
    if not is_utf8(text):
        raise argparse.ArgumentTypeError(f"expected a name in UTF-8, got {shown(text)} (is the locale UTF-8?)")
    return text


def path(text: str) -> Path:
    """An argparse type for paths. It leaves room for the names of the files that are written below the path."""
    encoded = os.fsencode(given(text))
    if len(encoded) > LONGEST_PATH or any(len(name) > LONGEST_NAME for name in encoded.split(b"/")):
        limits = f"names of at most {LONGEST_NAME} bytes, {LONGEST_PATH:,} in all"
        raise argparse.ArgumentTypeError(f"expected a path ({limits}), got {shown(text)}")
    return Path(text)


def config_folder(text: str) -> Path:
    """An argparse type for the config folder, which must exist."""
    return _existing(path(text), "expected a folder with config.yaml")


def results_folder(text: str) -> Path:
    """An argparse type for the results of one scale, which must exist."""
    folder = _existing(path(text), "expected the results of one scale, which `make figures` makes")
    if (other := _other_command(folder)) is not None:
        hint = f"expected the results of one scale, but `{other}` wrote this folder; open its index.html"
        raise argparse.ArgumentTypeError(f"{folder}: {hint}")
    if not _of_one_scale(folder):
        near = sorted(str(child) for child in folder.glob("*/") if _of_one_scale(child))
        if near:
            hint = f"expected the results of one scale; did you mean {' or '.join(near[:MOST_HINTS])}?"
            raise argparse.ArgumentTypeError(f"{folder}: {hint}")
    return folder


def _of_one_scale(folder: Path) -> bool:
    return _other_command(folder) is None and any((folder / part).is_dir() for part in PARTS)


def _other_command(folder: Path) -> str | None:
    """The command that wrote a folder with the results of one model."""
    return next((command for file, command in PAGES.items() if (folder / file).is_file()), None)


def _existing(folder: Path, expected: str) -> Path:
    if not os.path.isdir(folder):  # noqa: PTH112 (a part of the path may be unreadable)
        near = [one.name for one in folder.parent.glob("*") if one.is_dir()]
        raise argparse.ArgumentTypeError(f"{folder}: no such folder; {nearest(folder.name, near, expected)}")
    return folder


def table(text: str) -> Path:
    """An argparse type for a table that is written. Other files are not overwritten by mistake."""
    chosen = path(text)
    if chosen.suffix != ".parquet":
        raise argparse.ArgumentTypeError(f"expected a name that ends in .parquet, got {shown(text)}")
    return chosen


def version(text: str) -> str:
    """An argparse type for the version of an output folder."""
    if not re.fullmatch("[0-9a-f]{8}", text):
        raise argparse.ArgumentTypeError(f"expected eight hex digits, got '{text}'")
    return text


def add_results(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """Add the argument RESULTS; `nargs="?"` makes it optional."""
    parser.add_argument(
        "results",
        nargs=nargs,
        type=results_folder,
        metavar="RESULTS",
        help="the results of one scale, such as results/smoke",
    )


def verdict_files(results: Path) -> list[Path]:
    """The tables of verdicts of a results folder, in natural order.

    Raises:
        TableError: there is none.
    """
    folder = results / "verdicts"
    files = sorted(folder.glob("*.parquet"), key=lambda path: natural(path.stem))
    if not files:
        raise TableError(f"{folder}: no verdicts here; `snakemake --cores all TARGET` or `ssm judge` writes them")
    return files


def reference_of(results: Path) -> Path:
    """The usual folder of reference results of a results folder: reports/NAME, with the name of the folder."""
    return Path("reports") / results.absolute().name  # absolute: "." has a name; links keep their own name


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the option --config."""
    parser.add_argument(
        "--config",
        type=config_folder,
        metavar="DIR",
        default=Path("config"),  # not checked: `ssm report` does not need it
        help="the config folder (default: config)",
    )


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add the options --device and --threads."""
    parser.add_argument(
        "--device",
        default="auto",
        choices=("auto", "cpu", "cuda"),
        help="auto takes the GPU if there is one (default: auto)",
    )
    parser.add_argument("--threads", type=positive(int), metavar="N", help="CPU threads of each process (default: all)")


def add_processes(parser: argparse.ArgumentParser) -> None:
    """Add the option --processes."""
    parser.add_argument(
        "--processes",
        type=positive(int),
        default=1,
        metavar="N",
        help="processes on this machine, each with its own GPU or CPU threads (default: 1)",
    )


def add_replace(parser: argparse.ArgumentParser) -> None:
    """Add the option --replace."""
    parser.add_argument(
        "--replace",
        type=version,
        metavar="VERSION",
        help="for the workflow: write the folder .DIR.VERSION.part, and let it replace DIR when it is complete; "
        "a DIR with a file that ssm did not write is refused; eight hex digits",
    )


def add_json(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the option --json, which prints the content of the file `name`."""
    parser.add_argument("--json", action="store_true", help=f"print only the content of {name}")


def options(
    args: argparse.Namespace, add_arguments: Callable[[argparse.ArgumentParser], None], without: Iterable[str]
) -> list[str]:
    """The options of a command that differ from their defaults, as words of a command line.

    Args:
        args: the parsed arguments.
        add_arguments: declares the arguments of the command.
        without: names of arguments to leave out.
    """
    from ssm.base.strict_parsing import option  # slow import, which help does not need

    parser, words = argparse.ArgumentParser(), list[str]()
    add_arguments(parser)
    for name, value in vars(args).items():
        if name not in without and value != parser.get_default(name):
            if isinstance(value, bool):
                words.append(option(name if value else f"no_{name}"))
            else:
                words += [option(name), str(value)]
    return words


def say(lines: Iterable[str]) -> None:
    """Print lines on stdout. Characters that its encoding does not have, such as in file names, are escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    for line in lines:
        print(line.encode(encoding, "backslashreplace").decode(encoding))

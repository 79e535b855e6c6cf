"""ssm watch: the runs of a results folder."""

from __future__ import annotations

import argparse
import shutil
import sys
import time

from ssm.cli import path, positive

HELP = "show the runs of a results folder: state, progress, rate, time left, loss"
EPILOG = """\
Reads the files that training leaves in RESULTS/runs (progress.json, run.json and the metrics of the last checkpoint),
and nothing else: it works for jobs on other machines too, over a shared disk, and writes nothing. At a terminal it
looks again every few seconds, until Ctrl-C; into a pipe or a file it prints once.

running   its files change: training writes its progress every ten seconds
stale     begun, not finished, and its files have not changed for --stale seconds: killed, or its machine is gone
stopped   told to stop, or failed; the same command goes on from its last checkpoint
waiting   planned, and not begun
unreadable  one of its files is damaged

example:
  ssm watch results/smoke
  ssm watch results/paper --every 60
  ssm watch results/paper | grep stale
"""
CLEAR = "\x1b[H\x1b[J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=path, metavar="RESULTS", help="a scale's results, such as results/smoke")
    parser.add_argument(
        "--every", type=positive(float), default=5.0, metavar="S", help="seconds between two looks (default: 5)"
    )
    parser.add_argument("--once", action="store_true", help="print once, at a terminal too")
    parser.add_argument(
        "--stale",
        type=positive(float),
        default=180.0,
        metavar="S",
        help="seconds without a change after which a run counts as stale (default: 180)",
    )


def run(args: argparse.Namespace) -> int:
    from ssm.watch.runs import Watcher
    from ssm.watch.screen import lines

    watcher = Watcher(args.results, args.stale)
    if args.once or not sys.stdout.isatty():
        print(_text(lines(watcher.look(), shutil.get_terminal_size().columns)))
        return 0
    try:
        while True:
            size = shutil.get_terminal_size()
            found = lines(watcher.look(), size.columns, size.lines - 2)
            print(CLEAR + _text([time.strftime("%H:%M:%S"), *found]), flush=True)
            time.sleep(args.every)
    except KeyboardInterrupt:
        return 0


def _text(found: list[str]) -> str:
    from ssm.watch.screen import for_terminal

    return "\n".join(for_terminal(line, sys.stdout.encoding or "ascii") for line in found)

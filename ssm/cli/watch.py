"""`ssm watch`: the state of the runs of a results folder."""

from __future__ import annotations

import argparse
import shutil
import sys
import time

from ssm.cli import add_results, positive

HELP = "show the progress of the runs of a results folder"
EPILOG = """\
The command shows the state, progress, speed, remaining time and loss of every
started run. It only reads the files that training writes into RESULTS/runs. So
it also works for jobs on other machines that share the disk. In a terminal, it
repeats until you press Ctrl-C. In a pipe or a file, it prints once.

running     training writes its progress, every ten seconds
stale       not finished, and no file changed for --stale seconds: it was
            killed, or its machine is gone
stopped     told to stop, or failed; the same command continues from the last
            checkpoint
diverged    ended early: the loss is too high, or the loss or the gradient is
            not finite; this is a result
finished    all steps are done
waiting     not started: counted, and not listed
unreadable  one of its files is damaged

examples:
  ssm watch results/smoke
  ssm watch results/paper --every 60
  ssm watch results/paper | grep stale
"""
CLEAR = "\x1b[H\x1b[J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_results(parser)
    parser.add_argument(
        "--every", type=positive(float), default=5.0, metavar="S", help="seconds between updates (default: 5)"
    )
    parser.add_argument("--once", action="store_true", help="print once, also in a terminal")
    parser.add_argument(
        "--stale",
        type=positive(float),
        default=180.0,
        metavar="S",
        help="seconds without a change after which a run is stale (default: 180)",
    )


def run(args: argparse.Namespace) -> int:
    from ssm.watch.runs import Watcher
    from ssm.watch.screen import lines

    watcher = Watcher(args.results, args.stale)
    if args.once or not sys.stdout.isatty():
        print(_printable(lines(watcher.look(), shutil.get_terminal_size().columns)))
        return 0
    try:
        while True:
            size = shutil.get_terminal_size()
            table = lines(watcher.look(), size.columns, size.lines - 2)
            print(CLEAR + _printable([time.strftime("%H:%M:%S"), *table]), flush=True)
            time.sleep(args.every)
    except KeyboardInterrupt:
        return 0


def _printable(text: list[str]) -> str:
    from ssm.watch.screen import for_terminal

    return "\n".join(for_terminal(line, sys.stdout.encoding or "ascii") for line in text)

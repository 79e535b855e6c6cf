"""The command line: `ssm <command>`. A command's module is imported only when it is called, so that help is fast."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

import ssm
from ssm.base.errors import FULL, UserError, advise, as_user_error, nearest
from ssm.base.fork_client import run_in_worker
from ssm.base.stopping import Preempted, preempted_by_signals, report

GROUPS = {
    "your own checkpoint": ("diagnose", "extend"),
    "results": ("verdicts", "compare", "watch", "reference", "register"),
    "steps of the workflow, in this order": (
        *("plan", "tokenize", "import", "train", "evaluate", "judge", "plot", "report"),
    ),
    "speed": ("bench",),
}
VERBS = tuple(verb for group in GROUPS.values() for verb in group)
OVERVIEW = """usage: ssm <command> [arguments]

Diagnose and repair the length generalization of recurrent language models, and
rebuild the figures of four papers about it.

{groups}

`ssm <command> --help` shows what a command reads and writes, with an example.
In the clone, `make figures` installs the workflow and runs its steps for you.
After pip install '.[workflow]', `snakemake --cores all TARGET` does it too.

`ssm --version` prints the version.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit code:
        0: success.
        1: `ssm compare` found a difference, or a claim that only one side has.
        2: an error that the user can correct, or a lack of permission or of memory, described by one line on stderr.
        75, 76, 79: stopped; the same command continues (`ssm.base.exit_codes`).
        130: interrupted.
        141: the reader of our output has closed it.
        Any other exception is a defect and keeps its traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = arguments[0] if arguments else ""
    try:
        with preempted_by_signals(verb):
            code = run_in_worker(arguments)
            if code is None:
                code = _dispatch(verb, arguments[1:])
                sys.stdout.flush()
            return code
    except BrokenPipeError:
        _discard_stdout()
        return 141
    except Preempted as stop:
        report(verb, stop)
        return stop.code
    except KeyboardInterrupt:
        print(f"ssm {verb}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        told = as_user_error(error)
        if told is None:
            raise
        if isinstance(error, OSError) and error.errno in FULL:
            _discard_stdout()
        print(f"ssm {verb}: {told}", file=sys.stderr)
        return 2


def _discard_stdout() -> None:
    """Redirect stdout to nothing. Python flushes it once more when it exits, and this must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(verb: str, arguments: list[str]) -> int:
    if verb in ("", "-h", "--help", "help"):
        print(_overview(), file=sys.stdout if verb else sys.stderr)
        return 0 if verb else 2
    if verb in ("-V", "--version"):
        print(f"ssm {ssm.__version__}")
        return 0
    if verb not in VERBS:
        print(f"ssm: unknown command '{verb}'; {nearest(verb, VERBS)}", file=sys.stderr)
        return 2
    module = _module(verb)
    parsed = _parser(verb, module).parse_args(arguments)
    try:
        if getattr(parsed, "processes", 1) > 1 and "RANK" not in os.environ:
            from ssm.base.launch import launch

            return launch(parsed.processes, [verb, *arguments])
        return int(module.run(parsed))
    except Exception as error:
        advise(error, _less_memory(module, parsed, error))
        raise


def _less_memory(module: ModuleType, parsed: argparse.Namespace, error: Exception) -> str:
    """Options of the command that need less memory; empty: there are none."""
    if isinstance(error, ImportError):
        return ""
    less = getattr(module, "LESS_MEMORY", "")
    default = "bfloat16" if "CUDA" in str(error) else "float32"  # for most models
    if hasattr(parsed, "precision") and (parsed.precision or default) == "float32":
        less += ", or --precision bfloat16"
    return less


class _Parser(argparse.ArgumentParser):
    """Reports wrong arguments in one line, like all other errors."""

    def error(self, message: str) -> NoReturn:
        if message.endswith("are required: MODEL"):
            message += "; write it before --text, which takes every word after it"
        raise UserError(f"{message} (see `{self.prog} --help`)")


def _module(verb: str) -> ModuleType:
    return importlib.import_module(f"ssm.cli.{verb}")


def _parser(verb: str, module: ModuleType) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"ssm {verb}",
        description=module.HELP,
        epilog=module.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    return parser


def _overview() -> str:
    groups = (
        "\n".join([f"{title}:", *(f"  {verb:<9}  {_module(verb).HELP}" for verb in verbs)])
        for title, verbs in GROUPS.items()
    )
    return OVERVIEW.format(groups="\n\n".join(groups)).rstrip()


if __name__ == "__main__":
    sys.exit(main())

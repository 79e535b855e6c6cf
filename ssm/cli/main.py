"""The command line: `ssm <verb>`. A verb's module is imported when it is chosen, so that help answers at once."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

import ssm
from ssm.base.errors import UserError, nearest
from ssm.base.fork_client import ask
from ssm.base.stopping import Preempted, on_signals, preempt

VERBS = (
    *("plan", "register", "tokenize", "import", "train", "evaluate", "judge", "plot", "report"),
    *("verdicts", "watch", "bench", "reference", "compare", "diagnose", "extend"),
)
OVERVIEW = """usage: ssm <verb> [arguments]

Rebuild, check and use what is known about length generalization in recurrent language models.
The workflow (`make figures`, or `snakemake <target>`) calls these verbs in this order; each can be called by hand.
`ssm diagnose` and `ssm extend` need nothing of it; what it needs: pip install 'ssm-length[workflow]'.

{verbs}

`ssm <verb> --help` says what a verb reads and writes, with an example. `ssm --version` prints the version.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb.

    Returns:
        The exit code: 0 fine, 1 no (`ssm compare`), 2 something that the user can put right (one line on stderr), 75,
        76 and 79 stopped, to be called again (`ssm.base.exit_codes`), 130 interrupted, 141 the reader of our output
        went away. Any other exception is a defect and keeps its traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = arguments[0] if arguments else ""
    try:
        with on_signals(preempt):
            code = ask(arguments)
            if code is None:
                code = _dispatch(verb, arguments[1:])
                sys.stdout.flush()
            return code
    except UserError as error:
        print(f"ssm {verb}: {error}", file=sys.stderr)
        return 2
    except Preempted as stop:
        if os.environ.get("RANK", "0") == "0":
            print(f"ssm {verb}: {stop}", file=sys.stderr)
        return stop.code
    except KeyboardInterrupt:
        print(f"ssm {verb}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Python flushes stdout once more on its way out: let it write to nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _dispatch(verb: str, arguments: list[str]) -> int:
    if verb in ("", "-h", "--help", "help"):
        print(_overview(), file=sys.stdout if verb else sys.stderr)
        return 0 if verb else 2
    if verb in ("-V", "--version"):
        print(f"ssm {ssm.__version__}")
        return 0
    if verb not in VERBS:
        print(f"ssm: unknown verb '{verb}'; {nearest(verb, VERBS)}", file=sys.stderr)
        return 2
    module = _module(verb)
    parsed = _parser(verb, module).parse_args(arguments)
    if getattr(parsed, "processes", 1) > 1 and "RANK" not in os.environ:
        from ssm.base.launch import launch

        return launch(parsed.processes, [verb, *arguments])
    return int(module.run(parsed))


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line, as everything else is said."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see `{self.prog} --help`)")


def _module(verb: str) -> ModuleType:
    return importlib.import_module(f"ssm.cli.{verb}")


def _parser(verb: str, module: ModuleType) -> argparse.ArgumentParser:
    """The verb's parser; its help ends with what it reads and writes, and an example."""
    parser = _Parser(
        prog=f"ssm {verb}",
        description=module.HELP,
        epilog=getattr(module, "EPILOG", module.__doc__),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    return parser


def _overview() -> str:
    lines = (f"  {verb:<9} {_module(verb).HELP}" for verb in VERBS)
    return OVERVIEW.format(verbs="\n".join(lines)).rstrip()


if __name__ == "__main__":
    sys.exit(main())

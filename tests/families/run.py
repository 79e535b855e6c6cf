"""The commands of the docs, typed with their defaults on a tiny model of every family that they name.

    python tests/families/run.py                every family
    python tests/families/run.py Mamba-2 Jamba  some of them

A model is made with its own library, trained for some steps and saved by the library's own method, with a tokenizer.
Then follow `ssm diagnose MODEL --text one.txt --context 32 --length 1024 -o report` and `ssm extend` with the same
arguments. Where the model holds, so that nothing was trained, `ssm extend` follows once more with the arguments
`--tolerance 1.000000001 --steps 10`. One line a family says how it is read, what came of the commands, and how long
they took. Exit code: 0 where everything is as the docs say, 1 where something is not.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from families.road import travel

from ssm.base.errors import nearest
from ssm.models.families import FAMILIES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FAMILIES)} (default: all)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make everything in this folder, and keep it")
    args = parser.parse_args()
    for name in args.names:
        if name not in FAMILIES:
            parser.error(f"unknown family '{name}'; {nearest(name, FAMILIES)}")
    warnings.simplefilter("ignore")  # what the libraries say of their own future
    failed = []
    with tempfile.TemporaryDirectory(prefix="families-") as scratch:
        for name in args.names or FAMILIES:
            folder = (args.keep or Path(scratch)).absolute() / name.replace(" ", "-")
            folder.mkdir(parents=True)
            if not arrived(name, folder):
                failed.append(name)
    print(f"{len(args.names or FAMILIES) - len(failed)} families as the docs say, {len(failed)} not", flush=True)
    return int(bool(failed))


def arrived(name: str, folder: Path) -> bool:
    """Print a family's line, with the traceback if there is one; whether all was as promised."""
    printed, read = io.StringIO(), 0

    def said() -> str:
        nonlocal read
        text, read = printed.getvalue()[read:], len(printed.getvalue())
        return text

    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(printed):
            end = travel(FAMILIES[name], folder, said, train=True)
    except Exception:  # a defect: the other families are still to be seen
        print(f"{name} | NOT as promised: a traceback\n{traceback.format_exc()}", flush=True)
        return False
    print(end, flush=True)
    return not end.wrong


if __name__ == "__main__":
    sys.exit(main())

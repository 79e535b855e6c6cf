"""Type the commands of the documentation on a tiny model of every family that it names.

    python tests/families/run.py                every family
    python tests/families/run.py Mamba-2 Jamba  some families

The script makes each model with its own library, trains it for some steps, and saves it with the library's own method
and a tokenizer. Then it runs `ssm diagnose MODEL --text text.txt --context 16 --length 1024 -o report`, and `ssm
extend` with the same arguments. It prints one line per family: how the model is read, the outcomes, and the time. The
exit code is 0 if everything is as documented, else 1.
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

from families.check import LONG, check_family

from ssm.base.errors import nearest
from ssm.models.families import FAMILIES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(FAMILIES)} (default: all)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write all files into this folder, and keep them")
    args = parser.parse_args()
    for name in args.names:
        if name not in FAMILIES:
            parser.error(f"unknown family '{name}'; {nearest(name, FAMILIES)}")
    warnings.simplefilter("ignore")  # deprecation warnings of the libraries
    failed = []
    with tempfile.TemporaryDirectory(prefix="families-") as scratch:
        for name in args.names or FAMILIES:
            folder = (args.keep or Path(scratch)).absolute() / name.replace(" ", "-")
            folder.mkdir(parents=True)
            if not as_documented(name, folder):
                failed.append(name)
    print(f"{len(args.names or FAMILIES) - len(failed)} families are as documented, {len(failed)} not", flush=True)
    return int(bool(failed))


def as_documented(name: str, folder: Path) -> bool:
    """Check one family, and print its line, with the traceback of an error. Returns whether all is as documented."""
    printed, read = io.StringIO(), 0

    def stderr() -> str:
        nonlocal read
        text, read = printed.getvalue()[read:], len(printed.getvalue())
        return text

    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(printed):
            checked = check_family(FAMILIES[name], folder, stderr, LONG)
    except Exception:  # a defect of ssm; go on with the other families
        print(f"{name} | WRONG: a traceback\n{traceback.format_exc()}", flush=True)
        return False
    print(checked, flush=True)
    return not checked.wrong


if __name__ == "__main__":
    sys.exit(main())

"""`ssm tokenize`: write the token store of a data set."""

from __future__ import annotations

import argparse

from ssm.cli import path, positive

HELP = "tokenize a corpus or a task into a token store"
EPILOG = """\
The command reads the spec of a data set, which `ssm plan --write` writes, and
the text that the spec names. It writes a token store: the tokens, the document
boundaries, the tokenizer, and manifest.json with checksums. A finished store
of the same spec is left unchanged. The command refuses a finished store if
files of its text changed later.

example:
  ssm tokenize results/smoke/specs/data/DATA.json \\
    --out results/smoke/tokens/DATA
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", type=path, metavar="SPEC.json", help="the spec of the data set")
    parser.add_argument("--out", type=path, metavar="DIR", required=True, help="the folder of the store")
    parser.add_argument(
        "--workers", metavar="N", type=positive(int), help="processes that tokenize (default: one for each core)"
    )


def run(args: argparse.Namespace) -> int:
    from ssm.base.counting import counted
    from ssm.data.build import build_store
    from ssm.data.store import TokenStore
    from ssm.specs.tasks import load_data

    spec = load_data(args.spec)
    built = build_store(spec, args.out, args.workers)
    splits = TokenStore.open(args.out, verify=False).manifest["splits"]
    sizes = ", ".join(
        f"{splits[name]['tokens']:,} {name} tokens in {counted(splits[name]['documents'], 'document')}"
        for name in splits
    )
    sizes = sizes or f"the manifest of {spec.words}"
    print(f"{args.out}: {'' if built else 'already there, nothing done: '}{sizes}")
    return 0

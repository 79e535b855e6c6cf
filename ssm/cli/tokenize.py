"""`ssm tokenize`: a corpus becomes a token store."""

from __future__ import annotations

import argparse

from ssm.cli import path, positive

HELP = "tokenize a corpus, or what a task needs, into a token store"
EPILOG = """\
Reads a data set's spec (written by `ssm plan --write`) and the text that it names; writes into --out the shards, the
document boundaries, the tokenizer and manifest.json with checksums. A finished store of the same spec is left as it is.

example:
  ssm tokenize results/smoke/specs/data/DATA.json --out results/smoke/tokens/DATA
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", type=path, metavar="SPEC.json", help="a data spec, as `ssm plan --write` makes it")
    parser.add_argument(
        "--out", type=path, metavar="DIR", required=True, help="folder of the store; its parent is made if needed"
    )
    parser.add_argument(
        "--workers", metavar="N", type=positive(int), help="tokenizing processes (default: one for each core)"
    )


def run(args: argparse.Namespace) -> int:
    from ssm.data.build import build_store
    from ssm.data.store import TokenStore
    from ssm.specs.tasks import load_data

    spec = load_data(args.spec)
    built = build_store(spec, args.out, args.workers)
    splits = TokenStore.open(args.out, verify=False).manifest["splits"]
    sizes = ", ".join(
        f"{splits[name]['tokens']:,} {name} tokens in {splits[name]['documents']:,} documents" for name in splits
    )
    sizes = sizes or f"the manifest of {spec.words}"
    print(f"{args.out}: {'' if built else 'already there, nothing done: '}{sizes}")
    return 0

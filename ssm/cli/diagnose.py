"""ssm diagnose: up to where a model can be trusted, and why it breaks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from ssm.cli import add_json, add_replace, given, options, path, positive, say
from ssm.models.families import what_is_read

if TYPE_CHECKING:
    from ssm.diagnosis.result import Facts

HELP = "up to where can a model be trusted, and why does it break: your own checkpoint, read on your own text"
EPILOG = f"""\
MODEL is a folder, a file of weights with its config.json beside it, a name of the hub (owner/model), or a run of ssm.
{fill(what_is_read(), 118)}

Windows of the text are read with the whole history and by the same model restarted within its context, until the
verdict is decided or the budget is spent; that it holds is said of 64 windows or more. Writes index.html,
diagnosis.json and tables/ into a new folder. Prints the verdict, a table, and what to type next; index.html explains
them. With --json, prints what is in diagnosis.json instead.

examples:
  ssm diagnose state-spaces/mamba2-130m --tokenizer EleutherAI/gpt-neox-20b --text texts/*.txt --context 2048 -o report
  ssm diagnose my-model --text books.jsonl --context 2048 --length 65536 --budget 30 -o report
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_and_text(parser)
    add_diagnosis(parser)
    parser.add_argument("-o", "--out", type=path, required=True, metavar="DIR", help="a new folder for page and tables")
    add_json(parser, "diagnosis.json")
    add_replace(parser)


def add_model_and_text(parser: argparse.ArgumentParser) -> None:
    """What `ssm extend` takes too: whose model, on which text."""
    parser.add_argument(
        "model", type=given, metavar="MODEL", help="a folder, a file, a name of the hub, or a run of ssm"
    )
    parser.add_argument(
        "--text",
        nargs="+",
        type=given,
        required=True,
        metavar="FILES",
        help="text, JSONL or Parquet files (.zst and .gz too), folders or globs; the model must not have seen them",
    )
    parser.add_argument(
        "--tokenizer",
        type=given,
        metavar="T",
        help="a tokenizer.json, its folder, a name of the hub, or bytes (default: the model's)",
    )


def add_diagnosis(parser: argparse.ArgumentParser) -> None:
    """How a model is read, for `ssm extend` too."""
    whole = positive(int)
    parser.add_argument(
        "--context", type=whole, metavar="T", help="tokens it was trained on (default: as its config says)"
    )
    parser.add_argument("--length", type=whole, metavar="N", help="tokens it is read up to (default: 16 x the context)")
    parser.add_argument(
        "--tolerance",
        type=positive(float),
        metavar="R",
        help="it breaks where its perplexity is R times that of the restarted model (default: 1.1)",
    )
    parser.add_argument(
        "--budget",
        type=positive(float),
        default=10.0,
        metavar="MIN",
        help="minutes of a diagnosis (default: 10)",
    )
    parser.add_argument("--sequences", type=whole, default=256, metavar="N", help="windows at most (default: 256)")
    parser.add_argument(
        "--no-passkey", dest="passkey", action="store_false", help="leave passkeys, needles and RULER's prompts out"
    )
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"), help="default: bfloat16 on a GPU, float32 on a CPU"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="which windows come first (default: 1)")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="default: auto")
    parser.add_argument("--threads", type=whole, metavar="N", help="CPU threads (default: all)")


def run(args: argparse.Namespace) -> int:
    from ssm.base.files import replacing
    from ssm.diagnosis import PAGE, RECORD, diagnose, load_diagnosis
    from ssm.diagnosis.terminal import diagnosis_lines

    asked = {name: value for name, value in vars(args).items() if name not in ("out", "replace", "json")}
    with replacing(args.out, args.replace, RECORD) as out:
        whole = args.replace and out.exists()  # by a process that was killed then
        found = load_diagnosis(out) if whole else diagnose(out=out, **asked)
    if args.json:
        print((args.out / RECORD).read_text(encoding="utf-8"), end="")
        return 0
    say(diagnosis_lines(found, args.out / PAGE, extend_words(args, found.facts)))
    return 0


def extend_words(args: argparse.Namespace, facts: Facts) -> list[str]:
    """`ssm extend` of the same model on the same text, with the options that were given."""
    words = ["ssm", "extend", args.model, "--text", *few(args.text)]
    lengths = ["--context", str(facts.context), "--length", str(facts.length)]
    own = ("model", "text", "context", "length", "out", "replace", "json")
    policy = ["--policy", "scale_a"] if facts.can_be_scaled else []
    return [*words, *lengths, *policy, *options(args, add_arguments, own), "-o", "extended"]


def few(text: Sequence[str]) -> list[str]:
    """Names of files and folders, as a glob where a shell made them from one."""
    first = Path(text[0])
    glob = first.parent / f"*{first.suffix}"
    plain = first.suffix and not set("*?[") & {*str(first.parent), *first.suffix}
    if len(text) > 1 and plain and {*map(Path, text)} == {*first.parent.glob(glob.name)}:
        return [str(glob)]
    return [*text]

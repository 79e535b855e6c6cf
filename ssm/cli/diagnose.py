"""`ssm diagnose`: up to which length you can trust a model, and why it fails."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from ssm.base.errors import shown
from ssm.cli import add_device, add_json, add_replace, given, options, path, positive, say
from ssm.models.families import what_is_read
from ssm.specs.diagnosis_defaults import BUDGET, SEED, SEQUENCES, TEXT_KEY, TOLERANCE

if TYPE_CHECKING:
    from ssm.diagnosis.result import Facts

HELP = "find up to which length you can trust your model, and why it fails"
EPILOG = f"""\
The command compares two perplexities at every length: with the full history
of a token, and after a restart. The restarted model reads only the last T/2 to
T tokens before the token (T: the context). The command reads windows of your
text until the verdict is decided, or until 60% of --budget is over. The rest is
for measurements that explain the verdict. It reads at least 4 windows. Loading
the model and tokenizing the text do not count. The verdict "holds" needs 64
windows or more.

It prints the verdict, a table, and the command to type next. It writes into
the new folder --out: index.html, which explains the result, diagnosis.json and
tables/.

MODEL is one of:
  a folder        with config.json and weights
  a file          of weights, with its config.json in the same folder
  owner/model     a name of the Hugging Face hub
  a run of ssm    the folder of the run

{fill(what_is_read(), 79)}

examples:
  ssm diagnose my-mamba --text texts/*.txt --context 2048 -o report
  ssm diagnose my-mamba --text books.jsonl --context 2048 --length 65536 \\
    --budget 30 -o report
  ssm diagnose state-spaces/mamba2-130m --tokenizer EleutherAI/gpt-neox-20b \\
    --text texts/*.txt --context 2048 -o report
"""
LESS_MEMORY = "a smaller --length"
OUTPUTS = ("out", "replace", "json")  # options that do not change a diagnosis or an extension


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_and_text(parser)
    add_diagnosis(parser)
    parser.add_argument(
        "-o", "--out", type=path, required=True, metavar="DIR", help="a new folder for the page and the tables"
    )
    add_json(parser, "diagnosis.json")
    add_replace(parser)


def add_model_and_text(parser: argparse.ArgumentParser) -> None:
    """Add MODEL, --text, --text-key and --tokenizer, also for `ssm extend`."""
    parser.add_argument(
        "model", type=given, metavar="MODEL", help="a folder, a file, a name of the hub, or a run of ssm"
    )
    parser.add_argument(
        "--text",
        nargs="+",
        type=given,
        required=True,
        metavar="FILES",
        help="text that the model has not seen: text, JSON or Parquet files (also .zst and .gz), folders or globs",
    )
    parser.add_argument(
        "--text-key",
        type=given,
        default=TEXT_KEY,
        metavar="KEY",
        help=f"JSON key or Parquet column with the text (default: {TEXT_KEY})",
    )
    parser.add_argument(
        "--tokenizer",
        type=given,
        metavar="TOKENIZER",
        help="a tokenizer.json, its folder, a name of the hub, or bytes (default: the model's tokenizer)",
    )


def add_diagnosis(parser: argparse.ArgumentParser) -> None:
    """Add the options of a measurement, also for `ssm extend`."""
    whole = positive(int)
    parser.add_argument(
        "--context",
        type=whole,
        metavar="T",
        help="training length in tokens, a power of two (default: from the model's config)",
    )
    parser.add_argument("--length", type=whole, metavar="N", help="longest text in tokens (default: 16 x the context)")
    parser.add_argument(
        "--tolerance",
        type=positive(float),
        metavar="R",
        help=f"the model breaks if its perplexity is above R times that of a restart (default: {TOLERANCE})",
    )
    parser.add_argument(
        "--budget",
        type=positive(float),
        default=BUDGET,
        metavar="MIN",
        help=f"minutes for the measurements of a diagnosis (default: {BUDGET:g})",
    )
    parser.add_argument(
        "--sequences",
        type=whole,
        default=SEQUENCES,
        metavar="N",
        help=f"read at most N windows of the text (default: {SEQUENCES})",
    )
    parser.add_argument(
        "--no-passkey", dest="passkey", action="store_false", help="skip passkeys, needles and RULER's tasks"
    )
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        help="of the computation (default: bfloat16 on a GPU; float32 on a CPU, and for models "
        "whose recurrences bfloat16 would round, such as MiniMax and xLSTM)",
    )
    parser.add_argument(
        "--seed",
        type=_seed,
        default=SEED,
        metavar="S",
        help=f"random seed of the windows' order and of prompts; in `ssm extend` also of training (default: {SEED})",
    )
    add_device(parser)


def _seed(text: str) -> int:
    """An argparse type. The record of a diagnosis holds the seed, and reading a record refuses larger numbers."""
    from ssm.base.strict_parsing import WHOLE, can_be_stored

    try:
        value = int(text)
    except ValueError:
        value = WHOLE
    if not can_be_stored(value):
        raise argparse.ArgumentTypeError(f"expected a whole number above -2^63 and below 2^63, got {shown(text)}")
    return value


def run(args: argparse.Namespace) -> int:
    from ssm.base.files import replacing
    from ssm.base.hub import require_model

    require_model(args.model)  # before the slow imports
    from ssm.diagnosis import PAGE, RECORD, WRITTEN, diagnose, load_diagnosis, write_page
    from ssm.diagnosis.terminal import diagnosis_lines

    settings = {name: value for name, value in vars(args).items() if name not in OUTPUTS}
    command = partial(extend_words, args)
    with replacing(args.out, args.replace, RECORD, WRITTEN, inputs_of(args)) as out:
        if args.replace and out.exists():  # from a process that ended before the page, or before it replaced the folder
            diagnosis = load_diagnosis(out)
            write_page(diagnosis, out, command(diagnosis.facts))
        else:
            diagnosis = diagnose(out=out, extend=command, **settings)
    if args.json:
        print((args.out / RECORD).read_text(encoding="utf-8"), end="")
        return 0
    say(diagnosis_lines(diagnosis, args.out / PAGE, command(diagnosis.facts)))
    return 0


def inputs_of(args: argparse.Namespace) -> list[str]:
    """The names, files, folders and globs that a command reads, also for `ssm extend`."""
    held_out = getattr(args, "held_out", ())
    files = held_out if isinstance(held_out, list) else []  # a number is a share of the text
    return [args.model, *args.text, *files, *([args.tokenizer] if args.tokenizer else [])]


def extend_words(args: argparse.Namespace, facts: Facts) -> list[str]:
    """The words of the `ssm extend` command for the same model, text and options."""
    from ssm.diagnosis import outcome

    others = options(args, add_arguments, ("model", "text", "context", "length", *OUTPUTS))
    return outcome.extend_words(facts, args.model, few(args.text), others)


def few(text: Sequence[str]) -> list[str]:
    """The names in `text`; one glob if they are exactly the files that this glob matches."""
    first = Path(text[0])
    glob = first.parent / f"*{first.suffix}"
    literal = first.suffix and not set("*?[") & {*str(first.parent), *first.suffix}
    if len(text) > 1 and literal and {*map(Path, text)} == {*first.parent.glob(glob.name)}:
        return [str(glob)]
    return [*text]

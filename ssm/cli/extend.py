"""ssm extend: a short post-training that lets a model read on beyond its context."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping
from textwrap import fill
from typing import TYPE_CHECKING, Any

from ssm.cli import add_json, add_replace, given, options, path, positive, say
from ssm.cli.diagnose import add_diagnosis, add_model_and_text
from ssm.models.families import what_is_extended
from ssm.specs.extension import POLICIES, STEPS, USUAL_POLICY
from ssm.specs.initial_states import INTERVENTIONS

if TYPE_CHECKING:
    from ssm.diagnosis.result import Diagnosis

NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?"
HELP = "post-train your own checkpoint so that it reads on beyond its context, and get it back in its own format"
EPILOG = f"""\
Diagnoses the model as `ssm diagnose` does. If it does not hold, trains it for some steps from states other than zero
(lg: State Passing, TBTT, fitted or random noise), at a tenth of the peak learning rate of its size; chooses among the
original, three snapshots and the end by held-out text that neither trains nor is shown; diagnoses again on the same
windows. Writes into --out a page (index.html), result.json, the diagnoses, and, if something was gained, model/: the
model in the format that it came in, with its tokenizer. The original is never changed. work/ may be deleted once
something was gained. Prints the outcome, a table, and commands that load the new model: in its own library, and in
lm-evaluation-harness. With --json, prints what is in result.json instead.

Gained means proven by 95% intervals: a lower far perplexity, no more than --in-context-tolerance in context, and a
model that holds where it broke (repaired; that takes 64 windows) or has a lower paired ratio (improved). The intervals
allow for one window that was not drawn and is far worse. What is open is "undecided": more text may decide it.

The defaults are the recipe of lg Appendix B.2 but for its batch: a step of theirs reads half a million tokens, here 32
times the context (--batch-tokens). Nor do they choose among checkpoints. The page says what differs.

--policy scale_a and clip_dt train nothing, and take no option of training: A (of Mamba-1, Mamba-2, and of what
transformers itself reads and has an A_log) is scaled by the factor, or the dt of Mamba-2 gets the upper limit, that
does best of those that are tried, on the text that chooses. Ways of reading (reset_state, restarts) cannot be written
into a checkpoint.

With any other outcome the trained model lies in candidate/, never in model/, unless its training diverged. The same
command with other files in --held-out then chooses and measures anew on these, and trains nothing again: training goes
on not to read the part of --text that was held out first. So does the same command with another
--in-context-tolerance, --measure, --budget or --sequences.

The same command after a kill goes on where it was. SIGTERM and SIGUSR1 end it with exit code 75: run it again.

What is measured is held out of training: all of --held-out, or a part of --text: a tenth, or more (up to half) where a
tenth has fewer windows of --length than a verdict takes, or the share that --held-out names. Documents are held out
whole. One that is longer than half of what is held out may be cut: its last part is held out, and nothing reads the
--length tokens before it. Before any work, a line on stderr says how many windows there are and what they can decide.

MODEL as for `ssm diagnose`.
{fill(what_is_extended(), 118)}
In a hybrid the recurrences are given a state; attention starts from an empty cache, at position 0.

examples:
  ssm extend state-spaces/mamba2-370m --text texts/*.jsonl --context 2048 --length 32768 -o extended
  ssm extend my-model --text train.txt --held-out books/ --context 1024 --steps 200 --lr 6e-5 --control -o extended
"""


class _HeldOut(argparse.Action):
    """Files; or one number alone, the share of --text."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        alone = len(values) == 1 and re.fullmatch(NUMBER, values[0])
        setattr(namespace, self.dest, float(values[0]) if alone else values)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    whole, number = positive(int), positive(float)
    add_model_and_text(parser)
    parser.add_argument(
        "--held-out",
        nargs="+",
        type=given,
        action=_HeldOut,
        default=(),
        metavar="FILES",
        help="measure on these, or on a share of --text: one number between 0 and 1 (default: see below)",
    )
    parser.add_argument(
        "--policy",
        default=USUAL_POLICY,
        choices=POLICIES,
        metavar="POLICY",  # the others are ways of reading, refused with that reason
        help=f"what sequences start from: {', '.join(INTERVENTIONS)} (default: {USUAL_POLICY}); or a repair that "
        "trains nothing: scale_a, clip_dt",
    )
    parser.add_argument("--by", choices=("model", "layer"), help="one number of scale_a for all layers, or one a layer")
    parser.add_argument("--p-zero", type=float, metavar="P", help="share that starts from zero all the same")
    parser.add_argument(
        "--sigma", type=number, metavar="S", help="standard deviation of the noise of a policy that asks for it"
    )
    parser.add_argument("--steps", type=whole, metavar="N", help=f"default: {STEPS}")
    parser.add_argument("--lr", type=number, metavar="LR", help="peak learning rate (default: a tenth of its size's)")
    parser.add_argument(
        "--batch-tokens", type=whole, metavar="N", help="tokens a step (default: 32 x the context; the paper: 524288)"
    )
    parser.add_argument("--micro-batch-tokens", type=whole, metavar="N", help="tokens a forward pass (default: 8192)")
    parser.add_argument("--activation-checkpointing", action="store_true", help="less memory, more time")
    parser.add_argument("--control", action="store_true", help="train as many steps from zero states, to compare with")
    parser.add_argument(
        "--measure",
        default="far_perplexity",
        choices=("far_perplexity", "paired_ratio"),
        help="what the checkpoint that is kept has least of (default: far_perplexity)",
    )
    parser.add_argument(
        "--in-context-tolerance",
        type=float,
        default=0.02,
        metavar="R",
        help="its perplexity in context may rise by this share (default: 0.02)",
    )
    add_diagnosis(parser)
    parser.add_argument("-o", "--out", type=path, required=True, metavar="DIR", help="the extension's folder")
    add_json(parser, "result.json")
    add_replace(parser)


def run(args: argparse.Namespace) -> int:
    from ssm.base.files import replacing
    from ssm.extension import extend
    from ssm.extension.folder import RESULT

    asked = {name: value for name, value in vars(args).items() if name not in ("out", "replace", "json")}
    with replacing(args.out, args.replace, RESULT) as out:
        result = extend(out=out, **asked)
    if args.json:
        print((args.out / RESULT).read_text(encoding="utf-8"), end="")
    else:
        say(lines_of(result, args))
    return 0


def lines_of(result: Mapping[str, Any], args: argparse.Namespace) -> list[str]:
    """What the terminal shows of a finished extension."""
    from ssm.diagnosis import load_diagnosis
    from ssm.diagnosis.terminal import extension_lines
    from ssm.extension.folder import Folder
    from ssm.extension.usage import usages

    folder = Folder(args.out)
    before, after = (folder.diagnosis(name) for name in ("before", "after"))
    places, commands = {"Page": folder.page}, dict[str, str]()
    if result["model"] is not None:
        places["Model"] = args.out / result["model"]
        loading = usages(result.get("library"), places["Model"], args.tokenizer)
        commands = {f"With {library}": command for library, command in loading.items()}
    extended = load_diagnosis(after) if after.exists() else None
    if result["candidate"] is not None:
        places["Trained, but not proven better"] = args.out / result["candidate"]
        what, words = more_words(args, extended)
        commands = {f"Measure it {what}, without training again": shlex.join(words)}
    return extension_lines(result, load_diagnosis(before), extended, places, commands)


def more_words(args: argparse.Namespace, after: Diagnosis | None) -> tuple[str, list[str]]:
    """The same command with what the diagnoses lacked: time, windows that were not read, or else other files."""
    from ssm.diagnosis.verdict import decides_more

    held_out = args.held_out if isinstance(args.held_out, list) else [str(args.held_out)] if args.held_out else []
    own = ["model", "text", "held_out", "out", "replace", "json"]
    kind, count = decides_more(after.facts) if after is not None else ("text", 0)
    if kind == "text":
        what, more = "on more text", ["--held-out", "MORE.txt"]
    else:
        what = {"budget": "for longer", "sequences": "on more windows"}[kind]
        more = [*(["--held-out", *held_out] if held_out else []), f"--{kind}", str(count)]
        own.append(kind)
    words = ["ssm", "extend", args.model, "--text", *args.text, *more]
    return what, [*words, *options(args, add_arguments, own), "-o", str(args.out)]

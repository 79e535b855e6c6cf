"""`ssm extend`: a short post-training after which a model reads beyond its context."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping
from textwrap import fill
from typing import TYPE_CHECKING, Any, get_args

from ssm.cli import add_json, add_replace, given, options, path, positive, say
from ssm.cli.diagnose import OUTPUTS, add_diagnosis, add_model_and_text, few, inputs_of
from ssm.models.families import what_is_extended
from ssm.specs.extension import (
    IN_CONTEXT_TOLERANCE,
    INTERVENTIONS,
    MEASURE,
    STEPS,
    STORED_REPAIRS,
    USUAL_POLICY,
    Measure,
    known_policy,
)

if TYPE_CHECKING:
    from ssm.diagnosis.result import Diagnosis

NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?"
HELP = "post-train your model so that it reads beyond its context"
EPILOG = f"""\
what happens:
  1. The model is diagnosed as by `ssm diagnose`. If it holds, the command ends
     here.
  2. It is trained from initial states that are not zero (--policy; lg Section
     4), at a tenth of the peak learning rate for its size.
  3. The best of five checkpoints is chosen, on text that is used for nothing
     else: the original, three snapshots, or the end of training.
  4. The new model is diagnosed on the same windows as the original.
The recipe is that of lg Appendix B.2, with two main differences. A step reads
32 times the context instead of half a million tokens (--batch-tokens). And the
best of several checkpoints is chosen. The page lists all differences.

what is written into --out:
  index.html   explains the result; result.json holds the numbers
  before/      the diagnosis of the original; after/: that of the new model;
               control/: that of the control (--control)
  model/       the new model in the format of the original, with its tokenizer;
               only if the gain is certain
  candidate/   otherwise the trained or repaired model; there is none if
               training diverged, or if no value of the repair was better
  work/        what a continued command needs; you may delete it
The original is never changed. The terminal shows the outcome, a table, and
commands that load the new model in its own library and in
lm-evaluation-harness.

when a gain is certain:
  95% intervals show a lower perplexity far beyond the context, and in context
  a rise of at most --in-context-tolerance. The perplexity in context is that
  of the restarted model, T/2 to T tokens after its start (T: the context), over
  the whole text. In addition, the model broke before and holds now
  ("repaired"; needs 64 windows), or its paired ratio is lower ("improved").
  The intervals allow for one far worse window that was not read. "not decided"
  means that more measurements may decide it.

after a gain that is not certain:
  The last lines show the command that measures the candidate on more text
  (--held-out FILES), on more windows, or for longer. It does not train again,
  and training never reads the text that was held out first. The same is true
  for other values of --in-context-tolerance, --measure, --budget and
  --sequences.

time:
  --budget is the time of one diagnosis. There are two, up to two more if the
  gain is not decided, and one more with --control. Training, and the choice
  among checkpoints, do not count.

which text is held out:
  All of --held-out, or a part of --text. The part is a tenth, or up to half if
  a verdict needs more windows of --length tokens. Documents stay whole. A
  document longer than half of that part is cut: its last part is held out, and
  the --length tokens before it are not used. A line on stderr gives the number
  of windows.

repairs without training:
  --policy scale_a multiplies A by a factor. It works for Mamba, Mamba-2, Gated
  DeltaNet, KDA, and models with an A_log that transformers itself reads.
  Several factors are tried on text that is used only for this choice. Options
  of training are refused. No checkpoint can hold the repairs clip_dt,
  reset_state and restarts: they are arms of figures. A run of ssm is repaired
  as an arm of a figure too.

after a kill:
  Type the same command again: it continues. SIGTERM and SIGUSR1 stop it with
  exit code 75.

MODEL: see `ssm diagnose --help`.
{fill(what_is_extended(), 79)}
In a hybrid, recurrent layers and attention with a window receive a state.
Attention without a window starts from an empty cache. So does all attention of
models that are read through transformers.

examples:
  ssm extend my-mamba --text texts/*.txt --context 2048 --length 32768 \\
    -o extended
  ssm extend my-mamba --text train.txt --held-out books/ --context 1024 \\
    --steps 200 --lr 6e-5 --control -o extended
  ssm extend my-mamba --text texts/*.txt --context 2048 --policy scale_a \\
    -o repaired
"""
LESS_MEMORY = "a smaller --micro-batch-tokens or --activation-checkpointing; or, with another -o, a smaller --length"


class _HeldOut(argparse.Action):
    """Reads names of files, or a single number: the share of --text."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        is_share = len(values) == 1 and re.fullmatch(NUMBER, values[0])
        setattr(namespace, self.dest, float(values[0]) if is_share else values)


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
        help="measure on these files, or on a share of --text: one number between 0 and 1 (default: see below)",
    )
    parser.add_argument(
        "--policy",
        default=USUAL_POLICY,
        type=known_policy,
        metavar="POLICY",
        help=f"initial states for training: {', '.join(INTERVENTIONS)} (default: {USUAL_POLICY}); or a repair "
        f"without training: {', '.join(STORED_REPAIRS)}",
    )
    parser.add_argument("--by", choices=("model", "layer"), help="scale_a: one factor for the model, or for each layer")
    parser.add_argument(
        "--p-zero",
        type=float,
        metavar="P",
        help="share of sequences that start from zero (default: 0.1 for state_passing, 0 for the others)",
    )
    parser.add_argument("--sigma", type=number, metavar="S", help="standard deviation of random_noise, required for it")
    parser.add_argument("--steps", type=whole, metavar="N", help=f"training steps (default: {STEPS})")
    parser.add_argument(
        "--lr", type=number, metavar="LR", help="peak learning rate (default: a tenth of the usual one for its size)"
    )
    parser.add_argument(
        "--batch-tokens", type=whole, metavar="N", help="tokens of a step (default: 32 x the context; lg: 524288)"
    )
    parser.add_argument(
        "--micro-batch-tokens", type=whole, metavar="N", help="tokens of one forward pass (default: at most 8192)"
    )
    parser.add_argument("--activation-checkpointing", action="store_true", help="use less memory and more time")
    parser.add_argument(
        "--control", action="store_true", help="also train from zero states for as many steps, as a comparison"
    )
    parser.add_argument(
        "--measure",
        default=MEASURE,
        choices=get_args(Measure),
        help=f"choose the checkpoint with the lowest value of this (default: {MEASURE})",
    )
    parser.add_argument(
        "--in-context-tolerance",
        type=float,
        default=IN_CONTEXT_TOLERANCE,
        metavar="R",
        help=f"how much the perplexity in context may rise, as a share (default: {IN_CONTEXT_TOLERANCE})",
    )
    add_diagnosis(parser)
    parser.add_argument("-o", "--out", type=path, required=True, metavar="DIR", help="the folder of the extension")
    add_json(parser, "result.json")
    add_replace(parser)


def run(args: argparse.Namespace) -> int:
    from ssm.base.files import replacing
    from ssm.base.hub import require_model

    require_model(args.model)  # before the slow imports
    from ssm.extension import extend
    from ssm.extension.folder import RESULT, written_in

    settings = {name: value for name, value in vars(args).items() if name not in OUTPUTS}
    with replacing(args.out, args.replace, RESULT, written_in(args.out), inputs_of(args)) as out:
        result = extend(out=out, **settings)
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
        trained = result.get("repair") is None  # the numbers of a repair are chosen again on other text
        places[f"{'Trained' if trained else 'Repaired'}, but not proven better"] = args.out / result["candidate"]
        what, words = more_words(args, extended)
        commands = {f"Measure it {what}{', without training again' * trained}": shlex.join(words)}
    return extension_lines(result, load_diagnosis(before), extended, places, commands)


def more_words(args: argparse.Namespace, after: Diagnosis | None) -> tuple[str, list[str]]:
    """How to decide a gain that is not decided: with more time, windows or files, and the words of that command."""
    from ssm.diagnosis.outcome import decides_more

    held_out = args.held_out if isinstance(args.held_out, list) else [str(args.held_out)] if args.held_out else []
    without = ["model", "text", "held_out", *OUTPUTS]
    kind, count = decides_more(after.readings, after.facts) if after is not None else ("text", 0)
    if kind == "text":
        what, more = "on more text", ["--held-out", "MORE.txt"]
        if count > args.sequences:
            more += ["--sequences", str(count)]
            without.append("sequences")
    else:
        what = {"budget": "for longer", "sequences": "on more windows"}[kind]
        more = [*(["--held-out", *few(held_out)] if held_out else []), f"--{kind}", str(count)]
        without.append(kind)
    words = ["ssm", "extend", args.model, "--text", *few(args.text), *more]
    return what, [*words, *options(args, add_arguments, without), "-o", str(args.out)]

"""ssm extend: a short post-training that lets a model read on beyond its context."""

from __future__ import annotations

import argparse
import sys
from textwrap import fill

from ssm.cli import add_replace, given, path, positive
from ssm.cli.diagnose import add_diagnosis, add_model_and_text
from ssm.models.families import what_is_extended
from ssm.specs.extension import POLICIES, STEPS, USUAL_POLICY
from ssm.specs.initial_states import INTERVENTIONS

HELP = "post-train your own checkpoint so that it reads on beyond its context, and get it back in its own format"
EPILOG = f"""\
Diagnoses the model as `ssm diagnose` does. If it does not hold, trains it for some steps from states other than zero
(lg: State Passing, TBTT, fitted or random noise), at a tenth of the peak learning rate of its size; chooses among the
original, three snapshots and the end by held-out text that neither trains nor is shown; diagnoses again on the same
windows. Writes into --out a page (index.html), result.json, the diagnoses, and, if something was gained, model/: the
model in the format that it came in, with its tokenizer. The original is never changed. work/ may be deleted in the end.
The last lines are commands that load the new model: in its own library, and in lm-evaluation-harness.

Gained means proven, on 64 windows or more: a lower far perplexity, no more than --in-context-tolerance in context, and
a model that holds where it broke (repaired) or has a lower paired ratio (improved). What is open is "undecided".

The defaults are the recipe of lg Appendix B.2 but for its batch: a step of theirs reads half a million tokens, here 32
times the context (--batch-tokens). Nor do they choose among checkpoints. The page says what differs.

--policy scale_a and clip_dt train nothing, and take no option of training: A (of Mamba-1, Mamba-2, and of what
transformers itself reads and has an A_log) is scaled by the factor, or the dt of Mamba-2 gets the upper limit, that
does best of those that are tried, on the text that chooses. Ways of reading (reset_state, restarts) cannot be written
into a checkpoint.

The same command after a kill goes on where it was. SIGTERM and SIGUSR1 end it with exit code 75: run it again.

A tenth of the documents is held out to measure on, or all of --held-out. MODEL as for `ssm diagnose`.
{fill(what_is_extended(), 118)}
In a hybrid the recurrences are given a state; attention starts from an empty cache, at position 0.

examples:
  ssm extend state-spaces/mamba2-370m --text texts/*.jsonl --context 2048 --length 32768 -o extended
  ssm extend my-model --text train.txt --held-out books/ --context 1024 --steps 200 --lr 6e-5 --control -o extended
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    whole, number = positive(int), positive(float)
    add_model_and_text(parser)
    parser.add_argument(
        "--held-out",
        nargs="+",
        type=given,
        default=(),
        metavar="FILES",
        help="measure on these (default: a tenth of the documents)",
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
    add_replace(parser)


def run(args: argparse.Namespace) -> int:
    from ssm.base.files import replacing
    from ssm.extension import extend
    from ssm.extension.folder import RESULT
    from ssm.extension.usage import usages

    asked = {name: value for name, value in vars(args).items() if name not in ("out", "replace")}
    with replacing(args.out, args.replace, RESULT) as out:
        result = extend(out=out, **asked)
    print(f"{result['outcome']}: {result['reason']}")
    print(f"Report: {args.out / 'index.html'}", file=sys.stderr)
    if result["model"] is not None:
        model = args.out / result["model"]
        print(f"Model: {model}", file=sys.stderr)
        for library, command in usages(result.get("library"), model, args.tokenizer).items():
            print(f"With {library}: {command}", file=sys.stderr)
    return 0

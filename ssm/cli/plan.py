"""`ssm plan`: what the config files ask for, and what it costs."""

from __future__ import annotations

import argparse
import shutil

from ssm.cli import add_config, options, path, positive, results_folder

HELP = "show what the config files ask for, and what it costs"
EPILOG = """\
The command reads the config folder: config.yaml, models.yaml, data.yaml,
training.yaml and figures/*.yaml. For each figure, it prints the number of runs
and tables, the GPU or CPU hours, the disk space, the memory, and the time. With
--write, it writes one JSON file for each spec, which the other commands read.

examples:
  ssm plan                                  everything in the config folder
  ssm plan --scale paper --figures lg_fig5  one figure at the paper's size
  ssm plan --scale paper --gpus 64          how long it takes on 64 GPUs
  ssm plan --results results/smoke          also what finished figures took
  ssm plan --write results/smoke/specs      write the specs of all jobs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--scale", metavar="SCALE", help="smoke, desk, gpu or paper (default: the scale in config.yaml)"
    )
    parser.add_argument(
        "--figures",
        metavar="TARGET",
        nargs="+",
        help="plan only these figures, or papers, such as lg_fig5 or lg, or all (default: those in config.yaml)",
    )
    parser.add_argument(
        "--gpus",
        type=positive(int),
        metavar="N",
        help="estimate the time on N GPUs, or with N jobs at a time on CPUs (default: 8 GPUs; on CPUs, as many jobs "
        "as the cores allow)",
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="change a key of config.yaml, with a value in YAML: --set 'dry_run={max_steps: 2}'",
    )
    parser.add_argument(
        "--results",
        metavar="DIR",
        type=results_folder,
        help="add a column with the time that finished figures of DIR took",
    )
    parser.add_argument("--write", type=path, metavar="DIR", help="write the specs below DIR")
    parser.add_argument(
        "--schemas", type=path, metavar="DIR", help="only write JSON schemas of the config files into DIR"
    )


def run(args: argparse.Namespace) -> int:
    from ssm.base.errors import UserError
    from ssm.plan import given_settings, load_config, make_plan, write_specs
    from ssm.plan.schemas import write_schemas
    from ssm.plan.summary import summary

    if args.schemas:
        others = [word for word in options(args, add_arguments, ("schemas",)) if word.startswith("--")]
        if others:
            raise UserError(f"--schemas only writes schemas: leave out {' and '.join(others)}")
        write_schemas(args.schemas)
        return 0
    library = load_config(args.config, args.scale, args.figures, given_settings(args.set, "--set"))
    plan = make_plan(library)
    written = write_specs(plan, args.write) if args.write else 0  # first, so that an error is all that it prints
    # `device: auto` in config.yaml does not say whether there are GPUs. Assume them if the scale is too large for a CPU
    # or this machine has one.
    has_gpu = library.scale not in ("smoke", "desk") or shutil.which("nvidia-smi") is not None
    print(summary(plan, library.workflow, args.gpus, library.checkpoints, has_gpu, args.results, library.left_out))
    if args.write:
        print(f"\n{written} spec files written below {args.write}")
    return 0

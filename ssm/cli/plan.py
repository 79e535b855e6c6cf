"""ssm plan: what the config files ask for."""

from __future__ import annotations

import argparse
import shutil
from typing import Any

from ssm.cli import path, positive

HELP = "show what the config files ask for and what it costs: runs, tables, GPU hours, disk, time of a figure"
EPILOG = """\
Reads the config folder: config.yaml, models.yaml, data.yaml, training.yaml and figures/*.yaml. Writes nothing, or with
--write a JSON file per spec, which the other verbs take. A file that holds its content already is left alone.

examples:
  ssm plan                                    what the config folder asks for
  ssm plan --scale paper --figures lg_fig5    what one figure needs at the paper's size
  ssm plan --scale paper --gpus 64            how long everything takes on 64 GPUs
  ssm plan --results results/smoke            and what finished figures took
  ssm plan --write results/smoke/specs        the specs of all jobs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "--config", type=path, metavar="DIR", default="config", help="the config folder (default: config)"
    )
    parser.add_argument("--scale", metavar="S", help="smoke, gpu or paper, instead of config.yaml's")
    parser.add_argument("--figures", metavar="T", nargs="+", help="plan these targets alone")
    parser.add_argument(
        "--gpus",
        type=positive(int),
        metavar="N",
        help="GPUs for the estimate of the wall time (default: 8); without, jobs side by side (default: by cores)",
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a key of config.yaml with another value, as YAML: --set 'dry_run={max_steps: 2}'",
    )
    parser.add_argument(
        "--results", metavar="DIR", type=path, help="a scale's results: a last column says what finished figures took"
    )
    parser.add_argument("--write", type=path, metavar="DIR", help="write the specs below DIR")
    parser.add_argument("--schemas", type=path, metavar="DIR", help="write the config files' JSON schemas into DIR")


def run(args: argparse.Namespace) -> int:
    """Print the plan, and write what was asked for."""
    from ssm.plan import load_config, make_plan, write_specs
    from ssm.plan.schemas import write_schemas
    from ssm.plan.summary import summary

    if args.schemas:
        write_schemas(args.schemas)
    library = load_config(args.config, args.scale, args.figures, _settings(args.set))
    plan = make_plan(library)
    # Where config.yaml leaves the device open, a plan for GPUs is one that asks for them or that no CPU could follow.
    here = args.gpus is not None or library.scale != "smoke" or shutil.which("nvidia-smi") is not None
    print(summary(plan, library.workflow, args.gpus, library.checkpoints, here, args.results))
    if args.write:
        written = write_specs(plan, args.write)
        print(f"\n{written} spec files written below {args.write}")
    return 0


def _settings(pairs: list[str]) -> dict[str, Any]:
    """KEY=VALUE pairs, the values read as YAML."""
    from ssm.base.errors import ConfigError
    from ssm.base.strict_parsing import parse_yaml

    settings = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"--set {pair}: expected KEY=VALUE")
        settings[key] = parse_yaml(text, f"--set {key}", ConfigError)
    return settings

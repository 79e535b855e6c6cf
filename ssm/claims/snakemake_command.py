"""The command that runs the workflow, also for users who installed ssm without it."""

from __future__ import annotations

from importlib.util import find_spec


def snakemake_command(target: str, scale: str) -> str:
    """The command that makes a figure; with the command that installs Snakemake first if it is missing."""
    install = "" if find_spec("snakemake") else "pip install '.[workflow]' && "
    return f"{install}snakemake --cores all {target} --config scale={scale}"

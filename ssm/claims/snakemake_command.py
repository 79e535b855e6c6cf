"""The workflow engine, which an extra brings: who only diagnoses and extends models has none."""

from __future__ import annotations

from importlib.util import find_spec


def snakemake_command(arguments: str) -> str:
    """The command that makes something by the workflow; one that installs the engine first where it is not there."""
    install = "" if find_spec("snakemake") else "pip install 'ssm-length[workflow]' && "
    return f"{install}snakemake {arguments}"

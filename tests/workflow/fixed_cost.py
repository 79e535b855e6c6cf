"""The fixed processor time of a job, measured with the dry-run config of a local `snakemake all`.

    python tests/workflow/fixed_cost.py

Jobs of the dry-run config compute almost nothing, so the number is an upper bound. The time that snakemake needs to
plan is measured separately and subtracted.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SNAKEMAKE = [sys.executable, "-m", "snakemake", "all", "--cores", "2", "--nolock"]
DRY_RUN = ["--configfile", "config/config.yaml", "config/dry_run.yaml"]


def processor_seconds(results: str, *more: str) -> tuple[float, str]:
    """The processor time of snakemake and its children, and their output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*SNAKEMAKE, *more, *DRY_RUN, "--config", f"results={results}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout + done.stderr


def main() -> None:
    with tempfile.TemporaryDirectory() as results:
        planning, _ = processor_seconds(results, "--dry-run")
        total, said = processor_seconds(results)
    jobs = int(re.findall(r"(\d+) of \1 steps \(100%\) done", said)[-1])
    print(f"{jobs} jobs: {total:.1f} s of processor time, {planning:.1f} s of it to plan; ", end="")
    print(f"{(total - planning) / jobs:.2f} s for each job, including its computation")


if __name__ == "__main__":
    main()

"""Free the working directory of the locks that a killed snakemake left; refuse while a living one works here.

Exit code: 0 nothing is in the way of a new snakemake, 1 another one is running.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from instance_lock import hold_instance_lock

from ssm.base.errors import UserError

LOCKS = Path(".snakemake/locks")  # snakemake's own: what it makes and reads, for another one to stay away from


def main() -> int:
    """Look, and unlock what is left over."""
    if not LOCKS.is_dir() or not any(LOCKS.iterdir()):
        return 0
    try:
        held = hold_instance_lock(alone=True)
    except UserError as problem:
        print(problem, file=sys.stderr)
        return 1
    if held:
        held.close()  # snakemake looks again
    print("Unlocking the folder: the last snakemake here was killed. Its finished work is kept.", file=sys.stderr)
    unlock = [sys.executable, "-m", "snakemake", "--unlock"]
    result = subprocess.run(unlock, capture_output=True, text=True, check=False)
    if result.returncode:
        print(result.stderr.strip(), file=sys.stderr)
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())

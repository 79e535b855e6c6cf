"""Free the working directory of the locks that a killed snakemake left; refuse while a living one works here.

Exit code: 0 nothing is in the way of a new snakemake, 1 another one is alive.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

LOCKS = Path(".snakemake/locks")  # snakemake's own: what it makes and reads, for another one to stay away from
ALIVE = Path(".snakemake/alive")  # held by every living snakemake: see the Snakefile
WORKING = (
    "Another snakemake works in this folder, or the jobs of a killed one on a cluster: "
    "wait until they end, or stop them (scancel)."
)


def main() -> int:
    """Look, and unlock what is left over."""
    if not LOCKS.is_dir() or not any(LOCKS.iterdir()):
        return 0
    with ALIVE.open("w") as alive:
        try:
            fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(WORKING, file=sys.stderr)
            return 1
        print("Unlocking the folder: the last snakemake here was killed. Its finished work is kept.", file=sys.stderr)
        unlock = [sys.executable, "-m", "snakemake", "--unlock"]
        result = subprocess.run(unlock, capture_output=True, text=True, check=False)
    if result.returncode:
        print(result.stderr.strip(), file=sys.stderr)
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())

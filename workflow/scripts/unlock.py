"""Remove the locks that a killed snakemake left in this folder, unless another snakemake is running here.

Exit code: 0 if a new snakemake can start, 1 if another one is running or could be.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from instance_lock import hold_instance_lock

from ssm.base.errors import UserError

LOCKS = Path(".snakemake/locks")  # Snakemake's own locks, on the files that it reads and writes


def main() -> int:
    if not LOCKS.is_dir() or not any(LOCKS.iterdir()):
        return 0
    try:
        held = hold_instance_lock(alone=True)
    except UserError as problem:
        print(problem, file=sys.stderr)
        return 1
    if held is None:
        advice = "if no other snakemake is running here, type: snakemake --unlock"
        print(f"This disk has no file locks that show whether another snakemake is running; {advice}", file=sys.stderr)
        return 1
    held.close()  # `snakemake --unlock` takes the lock itself
    print("Unlocking the folder: the last snakemake here was killed. Its finished work is kept.", file=sys.stderr)
    unlock = [sys.executable, "-m", "snakemake", "--unlock"]
    result = subprocess.run(unlock, capture_output=True, text=True, check=False)
    if result.returncode:
        print(result.stderr.strip(), file=sys.stderr)
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())

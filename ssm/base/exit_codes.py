"""Exit codes with a meaning for whoever started the process; ssm/cli/main.py lists the others."""

# The job was told to stop, its checkpoint is whole, and the same command goes on from there: submit it again. In
# sysexits.h it is EX_TEMPFAIL, "the user is invited to retry". Snakemake's `retries` submits any failed job again.
REQUEUE = 75

# One of several processes of the job is gone (killed, out of memory, its host down), and the others have ended with it.
# The last checkpoint holds: the same command goes on from there.
LOST = 76

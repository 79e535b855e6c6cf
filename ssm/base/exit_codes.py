"""Exit codes with a meaning for whoever started the process; ssm/cli/main.py lists the others."""

# The job was told to stop, all that it keeps is on disk, and the same command goes on from there, or does it anew where
# it is short: submit it again. In sysexits.h it is EX_TEMPFAIL, "the user is invited to retry". The workflow has SLURM
# start the same job again, so that no retry is used up (workflow/rules/common.smk, at its end). A process that has no
# handlers yet ends by the signal itself; the workflow takes that for the same.
REQUEUE = 75

# One of several processes of the job is gone (killed, out of memory, its host down), and the others have ended with it.
# The last checkpoint holds: the same command goes on from there.
LOST = 76

# The time that training was given (`--stop-after`) is nearly over. It has come further, and the rest is as above.
TIME_OVER = 79

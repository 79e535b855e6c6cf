"""Exit codes with a meaning for whoever started the process; ssm/cli/main.py lists the others."""

# The job was told to stop, its checkpoint is whole, and the same command goes on from there: submit it again. In
# sysexits.h it is EX_TEMPFAIL, "the user is invited to retry". The workflow has SLURM start the same job again, so that
# no retry is used up (workflow/rules/common.smk: start_again).
REQUEUE = 75

# One of several processes of the job is gone (killed, out of memory, its host down), and the others have ended with it.
# The last checkpoint holds: the same command goes on from there.
LOST = 76

# The time that training was given (`--stop-after`) is nearly over. It has come further, and the rest is as above.
TIME_OVER = 79

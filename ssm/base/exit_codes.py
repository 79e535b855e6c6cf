"""Exit codes that the starter of a process reacts to. ssm/cli/main.py lists the others."""

# The job was told to stop. Its state is on disk, and the same command continues (a short job starts again): submit it
# again. sysexits.h calls this code EX_TEMPFAIL, "the user is invited to retry". The workflow lets SLURM requeue the
# same job, which uses up no retry (see the end of workflow/rules/common.smk). A process without signal handlers ends by
# the signal itself. The workflow treats that in the same way.
REQUEUE = 75

# One of several processes of the job has ended (killed, perhaps for a lack of memory, or its host is down), and so have
# the others. The same command continues from the last checkpoint.
LOST = 76

# The training time (`--stop-after`) is almost over. Training made progress, and the same command continues.
TIME_OVER = 79

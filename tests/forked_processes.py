"""Processes that start fast: a server, which has imported everything that they need, forks them.

Python has one such server per process of pytest, and one list of its modules. A second list would replace this one.
Some of the modules start threads. They wait for work, and hold no lock that a forked process needs.
"""

from __future__ import annotations

import multiprocessing

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        # What jobs and tests import. An optimizer imports dynamo at its first step, which is slow.
        *("pytest", "scipy.stats", "ssm.evaluation.measure", "ssm.extension", "ssm.cli.train", "ssm.training.loop"),
        "torch._dynamo",
        # What the Snakefile imports.
        *("snakemake.cli", "ssm.plan.checkpoints", "ssm.plan.job_packing", "ssm.report.papers"),
    ]
)

"""The configuration of the workflow, config/config.yaml."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, field_validator

from ssm.base.paths import home_expanded
from ssm.specs.base import Distinct, Scale, Spec

MOST_THREADS = 1024  # of one process: OpenMP aborts the process when it is asked for more


class DryRun(Spec):
    """Caps that shorten the workflow at any scale to seconds. All jobs run, but their numbers mean nothing."""

    max_steps: PositiveInt = 8  # optimizer steps of each training
    max_sequences: PositiveInt = 4  # sequences of each measurement
    max_contexts: PositiveInt = 8  # longest evaluation, in training contexts
    max_seeds: PositiveInt = 1  # seeds of each figure
    max_documents: PositiveInt = 40  # documents of each text


class Peaks(Spec):
    """Dense peak of one GPU by precision, in TFLOP/s, from its data sheet."""

    bfloat16: PositiveFloat = 989.0  # TFLOP/s
    float32: PositiveFloat = 67.0  # TFLOP/s


class Hardware(Spec):
    """The hardware, for estimates of run time and memory (ssm/plan/resources.py)."""

    gpu_tflops: Peaks = Peaks()  # dense peak of one GPU, from its data sheet
    gpu_memory_gb: PositiveFloat = 80.0  # memory of one GPU, in GB
    utilization: Annotated[float, Field(gt=0, le=1)] = 0.2  # fraction of the peak that training reaches
    # milliseconds that Python and kernel launches take for a layer, forward and backward, at any batch size
    layer_ms: NonNegativeFloat = 2.0
    cpu_gflops: PositiveFloat = 55.0  # GFLOP/s that one CPU thread reaches in float32
    cpu_layer_ms: NonNegativeFloat = 1.7  # like layer_ms, on a CPU; it is added to the time of the arithmetic
    gpus_per_run: PositiveInt = 1  # maximum number of GPUs of one training job
    # the GPUs of a run are doubled while it would take longer than this, or does not fit into their memory
    hours_per_run: PositiveFloat = 24.0


class Cluster(Spec):
    """Options that jobs pass to a batch system (workflow/profiles/slurm)."""

    account: str | None = None  # without it, the default of the cluster
    partition: str | None = None  # partition of jobs without a GPU; without it, the default of the cluster
    gpu_partition: str | None = None  # partition of jobs with a GPU; without it, `partition`
    qos: str | None = None  # quality of service; without it, the default of the cluster
    max_hours: PositiveFloat = 24.0  # time limit of the partition; a longer training continues in another job
    time_margin: Annotated[float, Field(ge=1)] = 2.0  # a job first requests this many times its expected time


class WorkflowConfig(Spec):
    """The settings of the workflow. Relative paths start in the folder where snakemake runs."""

    # two CPU cores for minutes to hours, two CPU cores for a night, one GPU, or the papers' sizes on a cluster
    scale: Scale = "smoke"
    # the figures to make, by the names of their files, or by papers such as lg: `make figures` makes all of them, and
    # no other figure can be made; with `all`, it makes the headline figures, and any other can be made by its name
    figures: Annotated[tuple[str, ...], Field(strict=False, min_length=1), Distinct] | Literal["all"] = "all"
    results: str = "results"  # folder of the results, which has a folder for each scale
    device: Literal["auto", "cpu", "cuda"] = "auto"  # device for training and measuring
    threads: Annotated[int, Field(gt=0, le=MOST_THREADS)] = 1  # CPU threads of a training or measuring job
    dry_run: DryRun | None = None  # caps for a quick try of the whole workflow
    hardware: Hardware = Hardware()  # hardware, for estimates of time and memory
    cluster: Cluster = Cluster()  # options for SLURM

    @field_validator("results")
    @classmethod
    def _folder_name(cls, results: str) -> str:
        """Snakemake would read braces as wildcards."""
        if not results.strip() or not results.isprintable() or set(results) & set("{}"):
            raise ValueError("expected the name of a folder, without { and }")
        return os.path.normpath(home_expanded(results))  # Snakemake reads ~ and ./ as parts of a name

"""The workflow's configuration: which scale, which figures, where results go."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, field_validator

from ssm.specs.base import Distinct, Spec

MOST_THREADS = 1024  # of one process: an OpenMP that is asked for more ends the process


class DryRun(Spec):
    """Caps that turn any scale into a run of seconds: every job is real, no number means anything."""

    max_steps: PositiveInt = 8  # of every training
    max_sequences: PositiveInt = 4  # of every measurement
    max_contexts: PositiveInt = 8  # evaluation lengths, in training contexts
    max_seeds: PositiveInt = 1  # of every figure
    max_documents: PositiveInt = 40  # of every text


class Peaks(Spec):
    """The data sheet's dense peak of one GPU, TFLOP/s, by precision."""

    bfloat16: PositiveFloat = 989.0
    float32: PositiveFloat = 67.0


class Hardware(Spec):
    """What run times are estimated with before anything has run: the arithmetic is in ssm/plan/resources.py."""

    gpu_tflops: Peaks = Peaks()
    gpu_memory_gb: PositiveFloat = 80.0  # of one GPU
    utilization: Annotated[float, Field(gt=0, le=1)] = 0.2  # the share of a GPU's peak that is reached
    layer_ms: NonNegativeFloat = 2.0  # Python and kernel launches of a layer, forward and backward, in any batch
    cpu_gflops: PositiveFloat = 45.0  # what one thread reaches in float32
    cpu_layer_ms: NonNegativeFloat = 4.0  # on a CPU, where they come on top
    gpus_per_run: PositiveInt = 1  # at most; what one training job can use
    hours_per_run: PositiveFloat = 24.0  # a run is given twice the GPUs while it takes longer, or does not fit


class Cluster(Spec):
    """What jobs tell a batch system (workflow/profiles/slurm)."""

    account: str | None = None  # None: the cluster's default
    partition: str | None = None  # of jobs without a GPU; None: the cluster's default
    gpu_partition: str | None = None  # of jobs that ask for a GPU; None: the same
    qos: str | None = None  # quality of service; None: the cluster's default
    max_hours: PositiveFloat = 24.0  # no job asks for more: the partition's limit; training goes on in another job
    time_margin: Annotated[float, Field(ge=1)] = 2.0  # times the expected run time, at the first attempt


class WorkflowConfig(Spec):
    """config/config.yaml."""

    scale: Literal["smoke", "gpu", "paper"] = "smoke"  # two CPU cores, one GPU, or the papers' sizes on a cluster
    # the targets that are planned
    figures: Annotated[tuple[str, ...], Field(strict=False, min_length=1), Distinct] | Literal["all"] = "all"
    results: str = "results"  # results of a scale go to <results>/<scale>
    device: Literal["auto", "cpu", "cuda"] = "auto"  # where models are trained and measured
    threads: Annotated[int, Field(gt=0, le=MOST_THREADS)] = 1  # CPU threads a training or measuring job uses
    dry_run: DryRun | None = None  # caps for a quick try of the whole workflow; None: no caps
    hardware: Hardware = Hardware()  # what times and memory are estimated with
    cluster: Cluster = Cluster()  # what jobs tell SLURM

    @field_validator("results")
    @classmethod
    def _a_folder(cls, results: str) -> str:
        """Snakemake takes braces for wildcards."""
        if not results.strip() or not results.isprintable() or set(results) & set("{}"):
            raise ValueError("expected the name of a folder, without { and }")
        return results

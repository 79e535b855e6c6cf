"""The printed summary of a plan: a table with one line for each figure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from ssm.base.counting import counted, estimated_duration, short, size
from ssm.base.text_table import aligned
from ssm.plan.plan import Plan
from ssm.plan.resources import Need, needs, takes_gpus, training_tokens
from ssm.plan.walltime import jobs_for, wall_seconds
from ssm.specs.checkpoint import CheckpointSpec
from ssm.specs.config import Hardware, WorkflowConfig

GPUS = 8  # the default number
CALL_SECONDS = 8.0  # of a call of snakemake: it plans, and starts the process that jobs are forked from
DRAW_SECONDS = 2.0  # for drawing and judging a figure
LONG = 2  # times `hours_per_run`: longer runs are reported


def summary(
    plan: Plan,
    workflow: WorkflowConfig,
    gpus: int | None = None,
    checkpoints: Mapping[str, CheckpointSpec] | None = None,
    here: bool = True,
    results: Path | None = None,
    left_out: Sequence[str] = (),
) -> str:
    """A table with a line for each figure, the targets of checkpoints, and the assumptions of the estimates.

    Runs and tables that several figures share are `new` only in the first of them. Tokens, hours and disk count only
    what is new, so that they add up. GPUs and memory are the maximum over the figure's runs: memory of one GPU, or of a
    job without GPUs. The wall time is that of making only this figure.

    Args:
        gpus: the number of GPUs, or of parallel jobs if no job uses a GPU. None: GPUS, or as many as the cores allow.
        here: whether this machine has a GPU. It decides if the configuration does not.
        results: a scale's folder. A last column shows the wall time of finished figures, from the recorded seconds of
            their jobs, and a line counts the jobs that are finished.
        left_out: the figures that the scale does not have.
    """
    gpu = takes_gpus(workflow, here=here)
    slots = gpus or (GPUS if gpu else max(1, (os.cpu_count() or 1) // workflow.threads))
    needed = needs(plan, workflow, gpu)
    past, made = None, list[str]()
    if results is not None:
        from ssm.plan.elapsed import elapsed  # slow import

        past = elapsed(plan, needed, results, gpu)
        made = _made_lines(plan, past, results)
    notices = [
        *_published_lines(plan),
        *_checkpoint_lines(checkpoints or {}),
        *_left_out_lines(plan, left_out),
        *made,
        *(_unregistered_lines(plan) if workflow.dry_run is None else []),
        *(_too_much(plan, workflow, needed) if gpu else []),
        *_notes(plan, workflow, needed, gpu, slots),
    ]
    table = aligned(_table(plan, needed, past, gpu, slots), left=(0,))
    return "\n".join([_title(plan), "", *table, "", *notices])


def _title(plan: Plan) -> str:
    trained = sum(run.checkpoint is None for run in plan.runs.values())
    return (
        f"Plan at the scale '{plan.scale}': data sets {len(plan.data)}, training runs {trained}, "
        f"tables {len(plan.measurements)}, figures {len(plan.figures)}"
    )


def _table(
    plan: Plan, needed: Mapping[str, Need], past: Mapping[str, Need] | None, gpu: bool, slots: int
) -> list[list[str]]:
    """The rows of the table: the head, a row for each figure, and their total.

    Args:
        past: what finished jobs took, for a last column; None: no such column.
        slots: the number of GPUs, or of parallel jobs if no job uses a GPU.
    """
    head = ["figure", "runs", "new", "tables", "new", "claims", "training tokens", "GPU hours" if gpu else "CPU hours"]
    head += ["disk", *(["GPUs per run"] if gpu else []), "memory", "wall time", *(["took"] if past is not None else [])]
    lines: list[tuple[list[str], set[str], set[str], int]] = []  # first cells, jobs, new jobs, figures
    seen, claims = set[str](), 0
    for target, task in plan.figures.items():
        tables = plan.tables_of(target)
        jobs = jobs_for(plan, tables)
        runs = plan.runs.keys() & jobs
        new, own = jobs - seen, len({claim.id for _, claim, _ in task.verdicts})
        counts = (len(runs), len(new & runs), len(tables), len(new & set(tables)), own)
        lines.append(([target, *map(str, counts)], jobs, new, 1))
        seen |= jobs
        claims += own
    total = ["all", "", str(len(plan.runs)), "", str(len(plan.measurements)), str(claims)]
    lines.append((total, seen, seen, len(plan.figures)))
    rows = [head]
    for cells, jobs, new, figures in lines:
        around = CALL_SECONDS + DRAW_SECONDS * figures
        times = [estimated_duration(around + wall_seconds(plan, jobs, needed, slots))]
        if past is not None:
            times.append(
                estimated_duration(around + wall_seconds(plan, jobs, past, slots)) if jobs <= past.keys() else ""
            )
        rows.append([*cells, *_sums(plan, new, needed, gpu), *_most(plan, jobs, needed, gpu), *times])
    return rows


def _published_lines(plan: Plan) -> list[str]:
    """A line about imported weights."""
    names = dict.fromkeys(run.checkpoint.name for run in plan.runs.values() if run.checkpoint is not None)
    return [f"Imported weights, not trained here: {', '.join(names)}.", ""] if names else []


def _left_out_lines(plan: Plan, left_out: Sequence[str]) -> list[str]:
    """A line about the figures that the scale does not have."""
    return (
        [f"Without seeds for the scale '{plan.scale}', and so not planned: {', '.join(left_out)}.", ""]
        if left_out
        else []
    )


def _made_lines(plan: Plan, past: Mapping[str, Need], results: Path) -> list[str]:
    """A line that counts the finished jobs."""
    runs, tables = (sum(job in past for job in jobs) for jobs in (plan.runs, plan.measurements))
    words = f"{runs} of {len(plan.runs)} runs and {tables} of {len(plan.measurements)} tables"
    return [f"Made already in {results}: {words}. The table counts them, too.", ""]


def _unregistered_lines(plan: Plan) -> list[str]:
    """A line about figures with claims that are not registered."""
    missing = {
        target: f"{target} ({len(task.verdicts) - len(task.registered)} of {len(task.verdicts)})"
        for target, task in plan.figures.items()
        if len(task.registered) < len(task.verdicts)
    }
    if not missing:
        return []
    command = f"ssm register {' '.join(missing)} --check --scale {plan.scale}"
    return [f"Claims that are not registered: {', '.join(missing.values())}. `{command}` says why.", ""]


def _checkpoint_lines(checkpoints: Mapping[str, CheckpointSpec]) -> list[str]:
    """A line for each target of a checkpoint."""
    rows = []
    for spec in checkpoints.values():
        diagnose, extend = spec.targets
        arms = " and a control" if spec.control else ""
        work = f"{counted(spec.training_steps, 'step')} of {spec.policy}{arms}"
        work = f"{spec.policy}, without training" if spec.trains_nothing else work
        rows.append((diagnose, f"{spec.checkpoint}: at most {spec.budget:g} minutes"))
        rows.append((extend, f"{spec.checkpoint}: {work}, and diagnoses"))
    width = max((len(target) for target, _ in rows), default=0)
    lines = [f"{target:<{width}}  {does}" for target, does in rows]
    return ["Targets of checkpoints (models.yaml), made only when you name them:", *lines, ""] if lines else []


def _sums(plan: Plan, jobs: Iterable[str], found: Mapping[str, Need], gpu: bool) -> tuple[str, str, str]:
    """The sums of training tokens, hours and disk of some jobs."""
    jobs = list(jobs)
    tokens = sum(training_tokens(plan.runs[job]) for job in jobs if job in plan.runs)
    hours = sum(found[job].gpu_hours if gpu else found[job].cpus * found[job].seconds / 3600 for job in jobs)
    return short(tokens, " "), _hours(hours), _megabytes(sum(found[job].kept_mb for job in jobs))


def _most(plan: Plan, jobs: Iterable[str], found: Mapping[str, Need], gpu: bool) -> tuple[str, ...]:
    """The largest number of GPUs (if any are used) and the largest memory of a run; empty cells without runs."""
    runs = [found[job] for job in jobs if job in plan.runs and plan.runs[job].checkpoint is None]
    if not runs:
        return ("", "") if gpu else ("",)
    memory = max(need.gpu_memory_mb if need.gpus else need.memory_mb for need in runs)
    gpus = (str(max(need.gpus for need in runs)),) if gpu else ()
    return *gpus, _megabytes(memory)


def too_large(
    jobs: Iterable[str], kind: Literal["runs", "measurements"], hardware: Hardware, found: Mapping[str, Need]
) -> list[str]:
    """A line about the jobs of a kind that do not fit into a GPU, if there are any."""
    taken = [found[job].gpu_memory_mb for job in jobs]
    large = [megabytes for megabytes in taken if megabytes > 1e3 * hardware.gpu_memory_gb]
    if not large:
        return []
    see = "gpus_per_run and " if kind == "runs" else ""
    return [
        f"{len(large)} of {len(taken)} {kind} do not fit into a GPU's {hardware.gpu_memory_gb:g} GB (the largest needs "
        f"{_megabytes(max(large))}): change {see}gpu_memory_gb in config.yaml."
    ]


def _too_much(plan: Plan, workflow: WorkflowConfig, found: Mapping[str, Need]) -> list[str]:
    """Lines about jobs that do not fit into a GPU, and about a run that takes very long."""
    hardware, runs = workflow.hardware, [found[run] for run in plan.runs]
    lines = too_large(plan.runs, "runs", hardware, found)
    lines += too_large(plan.measurements, "measurements", hardware, found)
    longest = max(runs, key=lambda need: need.seconds, default=None)
    if longest and longest.seconds > LONG * hardware.hours_per_run * 3600:
        lines.append(
            f"The longest run takes {estimated_duration(longest.seconds)} on {counted(longest.gpus, 'GPU')}: change "
            "gpus_per_run in config.yaml."
        )
    return [*lines, ""] if lines else []


def _passing(plan: Plan, found: Mapping[str, Need], gpus: int) -> int:
    """MB of temporary disk space of the runs that can train at the same time on `gpus` GPUs, at most."""
    most, free = 0, gpus
    for need in sorted((found[run] for run in plan.runs), key=lambda need: -need.passing_mb):
        slots = min(max(1, need.gpus), gpus)
        most, free = (most + need.passing_mb, free - slots) if slots <= free else (most, free)
    return most


def _notes(plan: Plan, workflow: WorkflowConfig, found: Mapping[str, Need], gpu: bool, gpus: int) -> list[str]:
    """The notes below the table: what the numbers mean, and how they are estimated."""
    hardware, passing = workflow.hardware, _passing(plan, found, gpus)
    speed = f"{hardware.cpu_gflops:g} GFLOP/s per thread and {hardware.cpu_layer_ms:g} ms per layer and batch"
    if gpu:
        peaks = hardware.gpu_tflops
        speed = f"{peaks.bfloat16:g} TFLOP/s per GPU in bfloat16 and {peaks.float32:g} in float32"
        speed = f"{hardware.utilization:.0%} of {speed}"
    side = f"on {counted(gpus, 'GPU')}" if gpu else f"with {counted(gpus, 'job')} in parallel"
    lines = [
        "A shared run or table is new in the first figure that uses it. Tokens, hours and disk count only what is new.",
        f"Disk: what stays. Runs {side} need up to {_megabytes(passing)} more while they train." if passing else "",
        "GPUs per run and memory: the most that a run needs. The memory is that of one GPU."
        if gpu
        else "Memory: the most that a run needs.",
        f"Wall time: for making only this figure, {side}, without waiting in a queue.",
        f"All numbers are estimates: {speed} (config.yaml: hardware).",
    ]
    return [line for line in lines if line]


def _megabytes(count: float) -> str:
    return size(1e6 * count, 3) if count else "0"


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.2g}"

"""Stage figure: lg_fig5 at scale gpu, from tokens to verdicts, with tokens per second and the share of the peak.

The first task makes the whole figure with a few steps of each job: it shows that every job runs on the device. The
second task makes it in full, with one seed. If its time is over, the next call of the stage continues. Fewer seeds make
it a dry run, whose verdicts are not decided. Its picture and tables have the numbers. Verdicts with all seeds:
`make figures TARGETS=lg_fig5 ARGS='--config scale=gpu'`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from ssm_kernels.benchmarks.on_gpu.task import Setting, TaskError
from ssm_kernels.benchmarks.on_gpu.worker import called

FIGURE = "lg_fig5"
JOBS = 8  # at the same time: small models are limited by the start of kernels
NO_CAPS = dict.fromkeys(("max_steps", "max_sequences", "max_contexts", "max_documents"), 10**9)
CAPS = {"a few steps of each job": {"max_steps": 20, "max_seeds": 1}, "one seed": NO_CAPS | {"max_seeds": 1}}
REHEARSED = {"max_steps": 2, "max_seeds": 1, "max_sequences": 2, "max_contexts": 2, "max_documents": 40}


def names(setting: Setting) -> list[str]:
    return list(CAPS)[: 1 if setting.rehearse else None]


def run(setting: Setting, name: str) -> dict[str, Any]:
    """The verdicts and the speed of every run.

    Raises:
        TaskError: a job failed; the last lines of snakemake say which.
    """
    scale, caps = ("smoke", REHEARSED) if setting.rehearse else ("gpu", CAPS[name])
    results = setting.out / "figure" / name.replace(" ", "_")
    results.mkdir(parents=True, exist_ok=True)
    settings = {"scale": scale, "figures": [FIGURE], "device": setting.device, "results": str(results), "dry_run": caps}
    (results / "settings.yaml").write_text(json.dumps(settings))  # JSON is YAML
    command = results / "bin" / "ssm"  # the rules call it, and without an environment it is not installed
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ssm "$@"\n')
    command.chmod(0o755)
    os.environ["PATH"] = os.pathsep.join([str(command.parent), os.environ.get("PATH", "")])
    files = ("--configfile", str(results / "settings.yaml"))
    jobs = 1 if setting.rehearse else min(JOBS, os.cpu_count() or 1)
    _called(setting, "snakemake", *files, "--unlock")
    _called(setting, "snakemake", *files, "--cores", str(jobs), "--rerun-incomplete", "--", FIGURE)
    verdicts = _called(setting, "ssm", "verdicts", str(results / scale)).splitlines()
    runs = [_run(setting, path) for path in sorted((results / scale / "runs").glob("*/run.json"))]
    tokens, fastest = sum(run["tokens"] for run in runs), max(run["share"] for run in runs)
    says = f"{len(verdicts)} lines of verdicts, {len(runs)} runs, {tokens:,} tokens"
    says += f", at most {fastest:.1%} of the peak in config.yaml"
    return {"says": says, "verdicts": verdicts, "runs": runs, "jobs": jobs}


def _run(setting: Setting, path: Path) -> dict[str, Any]:
    """Speed of a finished run. Several runs shared the device."""
    from ssm.plan.library import load_config
    from ssm.plan.parameters import operations_per_token
    from ssm.specs.training import RunSpec

    record = json.loads(path.read_text())
    run = RunSpec.model_validate(record["spec"])
    training = run.training
    each = training.passes * operations_per_token(run.own_model, run.data.vocab_size, training.context)
    hardware = load_config(setting.root / "config").workflow.hardware
    peak = 1e12 * getattr(hardware.gpu_tflops, training.precision)
    rate = record["tokens_per_second"]
    return {"run": path.parent.name, "tokens": record["tokens"], "rate": rate, "share": rate * each / peak}


def _called(setting: Setting, module: str, *words: str) -> str:
    """Output of `python -m module`, in the folder of the project. All goes to the log too."""
    done = called([sys.executable, "-m", module, *words], setting.root)
    if done.returncode:
        last = [line for line in (done.stderr or done.stdout).splitlines() if "rror" in line] or [done.stderr[-200:]]
        raise TaskError(f"{module} {words[0]}: exit code {done.returncode}: {last[0].strip()}")
    return done.stdout

"""The slurm profile on a real SLURM, with killed jobs, up to the report. `make test-slurm`: four minutes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from plan.mini import edit, write_config
from workflow.slurm import Job, Slurm, missing, running_slurm

ROOT = Path(__file__).parents[2]
SECONDS = 900  # for everything, on a busy machine too: a snakemake that hangs is killed
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--workflow-profile", "workflow/profiles/slurm"]
QUICKLY = ["--slurm-init-seconds-before-status-checks", "3", "--latency-wait", "10"]

# `ssm` with a time limit for the first run: without a checkpoint, it stops after one step.
HASTY = """#!{python}
import sys
from pathlib import Path
from ssm.cli.main import main
argv = sys.argv[1:]
if argv[0] == "train" and "--parent" not in argv:
    begun = Path(argv[argv.index("--out") + 1], "checkpoint.safetensors").exists()
    argv += [] if begun else ["--stop-after", "0.001"]
sys.exit(main(argv))
"""

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(
        bool(missing()),
        reason=f"SLURM is not installed ({', '.join(missing())}); on Debian and Ubuntu: apt install slurm-wlm munge",
    ),
]


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    with running_slurm() as cluster:
        yield cluster
    left = cluster.processes()
    assert not left, f"still running: {left}"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a small config for the real `ssm`: a run, its post-training, and their tables."""
    config = write_config(tmp_path / "config")
    (config / "config.yaml").write_text(
        "cluster: {partition: cpu, gpu_partition: gpu}\n"
        "hardware: {gpus_per_run: 2, hours_per_run: 1.0e-9}\n"
        "dry_run: {max_steps: 8, max_documents: 40, max_sequences: 4}\n"
    )
    edit(config, "figures/lg_fig5.yaml", "drawings:", "  - {kind: length_class}\ndrawings:")
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    ssm = tmp_path / "bin/ssm"
    ssm.parent.mkdir()
    ssm.write_text(HASTY.format(python=sys.executable))
    ssm.chmod(0o755)
    return tmp_path


class Workflow:
    """A running snakemake in `place`, with a log."""

    def __init__(self, place: Path, slurm: Slurm, *arguments: str):
        paths = os.pathsep.join((str(place / "bin"), str(Path(sys.executable).parent), slurm.environment["PATH"]))
        self.environment = os.environ | slurm.environment | {"PATH": paths, "OMP_NUM_THREADS": "1"}
        self.place, self.slurm, self.log, self.deadline = place, slurm, place / "log.txt", time.monotonic() + SECONDS
        command = ["timeout", "-k", "10", str(SECONDS), *SNAKEMAKE, *QUICKLY, *arguments]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=place, env=self.environment, stdout=log, stderr=log)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run another command at the same time."""
        return subprocess.run(
            command, cwd=self.place, env=self.environment, capture_output=True, text=True, check=False, timeout=SECONDS
        )

    def wait(self) -> str:
        """Wait for its success, and return its log."""
        assert self.process.wait() == 0, self.log.read_text()
        return self.log.read_text()

    def until(self, what: str, found: Callable[[], object]) -> None:
        """Wait until `found` returns something true; ask ten times per second."""
        while not found():
            assert self.process.poll() is None, f"ended before {what}\n{self.log.read_text()}"
            assert time.monotonic() < self.deadline, f"no {what} in time\n{self.log.read_text()}"
            time.sleep(0.1)


def at_work(slurm: Slurm, verb: str) -> dict[psutil.Process, list[str]]:
    """The running `ssm` processes that have signal handlers, without their shells, and their words."""
    found = {}
    for process in slurm.processes():
        with contextlib.suppress(psutil.Error, OSError):
            words, status = process.cmdline(), Path(f"/proc/{process.pid}/status").read_text()
            heeds = int(status.partition("SigCgt:")[2].split()[0], 16) >> signal.SIGTERM - 1 & 1
            if heeds and verb in words and any(word.endswith("/ssm") for word in words[:2]):
                found[process] = words
    return found


def training(slurm: Slurm, child: bool = False) -> set[psutil.Process]:
    """The `ssm train` of the first run, or of its child."""
    return {process for process, words in at_work(slurm, "train").items() if child == ("--parent" in words)}


def measuring(slurm: Slurm, run: str) -> list[psutil.Process]:
    """The `ssm evaluate` processes of runs with this text in their names."""
    return [process for process, words in at_work(slurm, "evaluate").items() if any(run in word for word in words)]


def task(process: psutil.Process) -> psutil.Process:
    """The parent of this process that SLURM started. With proctrack/cgroup, only this parent gets signals."""
    line = [process, *process.parents()]
    return next(one for one, above in pairwise(line) if above.name() == "slurmstepd")


def of_rule(jobs: list[Job], rule: str) -> list[Job]:
    return [job for job in jobs if job.comment.startswith(rule)]


def test_from_nothing_to_the_report_through_kills(place: Path, slurm: Slurm, capsys: pytest.CaptureFixture) -> None:
    started = time.monotonic()
    workflow = Workflow(place, slurm)
    results = place / "results/smoke"

    # A second workflow on the same results is refused, and so is `make`.
    workflow.until("a submitted job", slurm.jobs)
    second = workflow.run(*SNAKEMAKE, *QUICKLY)
    assert second.returncode != 0
    assert "Directory cannot be locked" in second.stdout + second.stderr
    unlock = workflow.run(sys.executable, "workflow/scripts/unlock.py")
    assert unlock.returncode == 1
    assert "Another snakemake is running in this folder" in unlock.stderr

    # The process of the first training job is killed. That of the child gets SIGUSR1; after its restart, its job is
    # cancelled. The job that measures the child gets SIGTERM, as before a preemption, but only in the process that
    # SLURM started itself.
    workflow.until("a training process", lambda: training(slurm))
    (victim,) = training(slurm)
    victim.kill()
    workflow.until("the other training process", lambda: training(slurm, child=True))
    (told,) = [job for job in of_rule(slurm.jobs(), "rule_train") if job.state == "RUNNING"]
    before = training(slurm, child=True)
    slurm.command("scancel", "--signal=USR1", told.id)
    workflow.until("that process anew", lambda: training(slurm, child=True) - before)
    slurm.command("scancel", told.id)
    workflow.until("a measuring process", lambda: measuring(slurm, "state-passing"))
    (process,) = measuring(slurm, "state-passing")
    task(process).send_signal(signal.SIGTERM)
    log, jobs = workflow.wait(), slurm.jobs()

    with capsys.disabled():
        print("\n" + "\n".join(line for line in log.splitlines() if re.search(r"submitted with|failed|Report:", line)))
        print("\n".join(" ".join(vars(job).values()) for job in jobs))
        print(f"{time.monotonic() - started:.0f} s from the first job to the report")

    assert f"Report: {results.relative_to(place)}/report/index.html" in log
    assert (results / "report/index.html").stat().st_size > 10_000
    assert (results / "verdicts/lg_fig5.parquet").is_file()
    assert len(list(results.glob("tables/*.parquet"))) == 4
    logs = {path.stem: path.read_text() for path in (place / ".snakemake/slurm_logs").rglob("*.log")}
    # Only the killed and the cancelled job were submitted again, with twice the time and memory.
    trained = of_rule(jobs, "rule_train")
    assert [job.state for job in trained] == ["FAILED", "COMPLETED", "CANCELLED", "COMPLETED"]
    assert trained[0].comment == trained[1].comment != trained[2].comment == trained[3].comment
    assert [job.time for job in trained] == ["10:00", "20:00"] * 2
    for first, again in (trained[:2], trained[2:]):
        assert int(again.memory.removesuffix("M")) == 2 * int(first.memory.removesuffix("M"))
    # The first run stopped ahead of its time limit, the second one after a signal: the same jobs continued.
    assert [job.restarts for job in trained] == ["0", "1", "1", "0"]
    assert re.search(r"stopped by its time limit at step 1 of 8;(.*\n)*.*: finished, 8 steps", logs[trained[1].id])
    assert "stopped by SIGUSR1" in logs[trained[2].id]
    # Runs and their tables were on the node with GPUs. Runs had two processes. The tables of a run were one job.
    measured = of_rule(jobs, "rule_measure")
    found = [(job.state, job.restarts) for job in measured]
    assert found == [("COMPLETED", "0"), ("COMPLETED", "1")], "\n".join(logs.get(job.id, "") for job in measured)
    assert {(job.partition, job.node, job.gpus[-5:]) for job in trained} == {("gpu", "n2", "gpu:2")}
    assert {(job.partition, job.node, job.gpus[-5:]) for job in measured} == {("gpu", "n2", "gpu:1")}
    assert "--processes 2" in log
    (tokenized,) = of_rule(jobs, "rule_tokenize")
    assert (tokenized.partition, tokenized.node) == ("cpu", "n1")
    assert len(jobs) == 7, "snakemake itself runs plot and judge"
    assert not slurm.command("squeue", "--noheader")

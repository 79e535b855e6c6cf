"""The warm parent of a workflow's jobs: who asks it ends as the job does, and whoever is killed, nobody works on."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ssm.base.exit_codes import LOST, REQUEUE
from ssm.base.warm import VARIABLE
from ssm.cli.parent import PACKAGES

SECONDS = 20.0
# What a workflow is to the parent: starts it, tells the socket's name, and ends when it is told to.
WORKFLOW = "import os, ssm.base.warm as warm; warm.start(); print(os.environ[warm.VARIABLE], flush=True); input()"
JUDGE = ("judge", "spec.json", "--tables", ".", "--out", "verdicts.parquet")
# They start threads when they are imported, so that each worker has to import them.
THREADED = {"polars", "pyarrow"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every job works by itself")


class Workflow:
    """A process with a warm parent, and what it asks for in a folder where the spec of a job is a FIFO."""

    def __init__(self, folder: Path):
        self.folder, self.variables = folder, {**os.environ}
        os.mkfifo(folder / "spec.json")
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKFLOW],
            env=self.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.name = self.process.stdout.readline().strip()
        (self.parent,) = psutil.Process(self.process.pid).children()

    def ask(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "ssm", *arguments],
            cwd=self.folder,
            env=self.variables | {VARIABLE: self.name} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def worker(self) -> psutil.Process:
        """The one that waits for its spec, at last: who opens a FIFO to write waits for who reads it."""
        self.gate = (self.folder / "spec.json").open("w")
        (worker,) = self.parent.children()
        return worker


@pytest.fixture
def workflow(tmp_path: Path) -> Iterator[Workflow]:
    workflow = Workflow(tmp_path)
    yield workflow
    workflow.process.kill()
    gone([workflow.parent])


def gone(processes: list[psutil.Process]) -> None:
    """Wait until they have ended, whether somebody asks how or not."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            ended = os.pidfd_open(process.pid)
            assert select.select([ended], [], [], SECONDS)[0], f"{process} lives on"
            os.close(ended)


def test_the_code_and_the_output_of_a_worker_are_those_of_who_asked(workflow: Workflow) -> None:
    for _ in range(2):
        asker = workflow.ask(*JUDGE)
        worker = workflow.worker()
        workflow.gate.write("{")
        workflow.gate.close()
        says = asker.communicate(timeout=SECONDS)
        assert asker.returncode == 2
        assert says[0] == ""
        assert says[1].startswith("ssm judge: spec.json: not ")
        gone([worker])
    helped = workflow.ask("judge", "--help")
    assert helped.communicate(timeout=SECONDS)[0].startswith("usage: ssm judge")
    assert helped.returncode == 0


def test_jobs_are_side_by_side(workflow: Workflow) -> None:
    first = workflow.ask(*JUDGE)
    worker = workflow.worker()
    second = workflow.ask("report", "nowhere", "--out", "page.html")
    assert "nowhere" in second.communicate(timeout=SECONDS)[1]
    assert second.returncode == 2
    assert worker.is_running()
    assert first.poll() is None
    first.kill()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, REQUEUE), (signal.SIGUSR1, REQUEUE), (signal.SIGINT, 130)]
)
def test_a_signal_is_the_workers_once(workflow: Workflow, number: signal.Signals, code: int) -> None:
    asker = workflow.ask(*JUDGE)
    worker = workflow.worker()
    asker.send_signal(number)
    says = asker.communicate(timeout=SECONDS)[1]
    assert asker.returncode == code
    stopped = f"stopped by {number.name}; the same command starts it again"
    assert says == f"ssm judge: {'interrupted' if code == 130 else stopped}\n"
    gone([worker])


def test_who_asked_ends_by_the_signal_that_ended_the_worker(workflow: Workflow) -> None:
    asker = workflow.ask(*JUDGE)
    workflow.worker().kill()
    assert asker.wait(SECONDS) == -signal.SIGKILL


def test_who_asked_is_killed_and_the_worker_with_it(workflow: Workflow) -> None:
    asker = workflow.ask(*JUDGE)
    worker = workflow.worker()
    asker.kill()
    gone([worker])
    assert workflow.parent.is_running()


@pytest.mark.parametrize("victim", ["parent", "workflow"])
def test_the_parent_or_the_workflow_is_killed_and_the_workers_leave(workflow: Workflow, victim: str) -> None:
    asker = workflow.ask(*JUDGE)
    worker = workflow.worker()
    (workflow.parent if victim == "parent" else workflow.process).kill()
    gone([worker, workflow.parent])
    says = asker.communicate(timeout=SECONDS)[1]
    assert asker.returncode == LOST
    assert "ssm judge: the warm parent of this job is gone; the same command starts it again\n" in says


def test_the_parent_ends_with_the_workflow(workflow: Workflow) -> None:
    workflow.process.communicate("", timeout=SECONDS)
    assert not workflow.parent.is_running()


@pytest.mark.parametrize("why", ["nobody is there", "another environment", "a verb without packages"])
def test_who_is_not_served_works_by_itself(workflow: Workflow, why: str) -> None:
    if why == "nobody is there":
        workflow.parent.kill()
        gone([workflow.parent])
    words = ("tokenize", "spec.json", "--out", "tokens") if why == "a verb without packages" else JUDGE
    own = {"LD_LIBRARY_PATH": "/elsewhere"} if why == "another environment" else {}
    asker = workflow.ask(*words, **own)
    with (workflow.folder / "spec.json").open("w") as gate:
        assert not workflow.parent.is_running() or not workflow.parent.children()
        gate.write("{")
    says = asker.communicate(timeout=SECONDS)[1]
    assert asker.returncode == 2
    assert says.startswith(f"ssm {words[0]}: spec.json: not ")


def alone(code: str) -> str:
    """What Python prints that runs `code` in a process of its own, as the parent's."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_packages_that_the_parent_imports_start_no_threads() -> None:
    """Or it would never fork. One after another, so that the guilty one is named."""
    names = sorted({name for packages in PACKAGES.values() for name in packages})
    code = (
        "import os, json; from ssm.base.warm import ONE_THREAD; os.environ.update(ONE_THREAD)\n"
        "from ssm.cli.parent import threads, _warm_up\n"
        f"seen = {{}}\nfor name in {names}:\n    _warm_up([name]); seen[name] = threads()\nprint(json.dumps(seen))"
    )
    assert json.loads(alone(code)) == dict.fromkeys(names, 1)


MODULES = {
    "train": ("ssm.training.loop", "ssm.data.store", "ssm.models.device", "torch._dynamo"),
    "evaluate": ("ssm.evaluation.measure", "ssm.models.device"),
    "judge": ("ssm.claims.verdict", "ssm.base.provenance"),
    "plot": ("ssm.figures.draw",),
    "report": ("ssm.report.build",),
}


@pytest.mark.parametrize("verb", PACKAGES)
def test_what_a_job_imports_the_parent_has_but_what_starts_threads(verb: str) -> None:
    code = (
        "import importlib, json, sys; from ssm.cli.parent import PACKAGES, _warm_up\n"
        f"_warm_up(PACKAGES['{verb}']); had = set(sys.modules)\n"
        f"for name in {MODULES[verb]}:\n    importlib.import_module(name)\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in set(sys.modules) - had} - sys.stdlib_module_names)))"  # noqa: E501
    )
    assert set(json.loads(alone(code))) - {"ssm", "ssm_kernels"} <= THREADED, "a package for ssm.cli.parent.PACKAGES"
    assert ("torch" in PACKAGES[verb]) == (verb in ("train", "evaluate"))

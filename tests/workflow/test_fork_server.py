"""The fork server of a workflow's jobs: clients end like their jobs, and no worker survives the kill of a process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import psutil
import pytest
from workflow.stand_in import until

from ssm.base import fork_client
from ssm.base.exit_codes import LOST, REQUEUE
from ssm.base.fork_client import TAKEN, VARIABLE, identity
from ssm.base.stopping import SIGNALS
from ssm.cli import fork_server
from ssm.cli.fork_server import MODULES, code_changed

SECONDS = 60.0
# A signal that arrives just before a blocking read is not noticed. So the test sends it again after some seconds.
AGAIN = 5.0
# A workflow, for the server: starts it, prints the name of its socket, and ends after a line of input.
WORKFLOW = (
    "import os, ssm.base.fork_client as warm; warm.start(); print(os.environ[warm.VARIABLE], flush=True); input()"
)
JUDGE = ("judge", "spec.json", "--tables", ".", "--out", "verdicts.parquet")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a fork server only on Linux")


class Workflow:
    """A process with a fork server. The spec of its jobs is a FIFO, so that a job waits until the test writes it."""

    def __init__(self, folder: Path):
        self.folder, self.variables = folder, {**os.environ}
        self.gate: TextIO | None = None
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
        (self.server,) = psutil.Process(self.process.pid).children()

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
        """The worker that reads its spec. Opening a FIFO to write waits for a reader."""
        self.gate = (self.folder / "spec.json").open("w")
        (worker,) = self.server.children()
        return worker


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Workflow]:
    workflow = Workflow(folder)
    try:
        yield workflow
    finally:
        workflow.process.kill()
        gone([workflow.server])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workflow]:
    """A workflow for several tests: the imports of the server take longer than a test."""
    with running(tmp_path_factory.mktemp("shared")) as workflow:
        yield workflow


@pytest.fixture
def workflow(shared: Workflow) -> Iterator[Workflow]:
    """The shared workflow, without workers before and after the test."""
    yield shared
    if shared.gate is not None:
        shared.gate.close()  # a worker that reads the FIFO waits for its end
    until(lambda: not shared.server.children())


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Workflow]:
    """A workflow for one test."""
    with running(tmp_path) as workflow:
        yield workflow


def gone(processes: list[psutil.Process]) -> None:
    """Wait until the processes have ended, also without a parent that waits for them."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            ended = os.pidfd_open(process.pid)
            assert select.select([ended], [], [], SECONDS)[0], f"{process} is still running"
            os.close(ended)


def test_a_client_has_the_exit_code_and_the_output_of_its_worker(workflow: Workflow) -> None:
    for _ in range(2):
        asker = workflow.ask(*JUDGE)
        worker = workflow.worker()
        assert workflow.gate is not None
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


def test_a_link_to_an_environment_is_the_same_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise every job would import torch again, and nothing would say so."""
    before = identity(os.environ)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert identity(os.environ) == before
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert identity(os.environ) != before


def test_jobs_run_at_the_same_time(workflow: Workflow) -> None:
    first = workflow.ask(*JUDGE)
    worker = workflow.worker()
    second = workflow.ask("report", "nowhere", "--out", "page.html")
    assert "nowhere" in second.communicate(timeout=SECONDS)[1]
    assert second.returncode == 2
    assert worker.is_running()
    assert first.poll() is None
    first.kill()
    first.wait(SECONDS)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_worker_like_any_job(workflow: Workflow, number: signal.Signals) -> None:
    asker = workflow.ask(*JUDGE)
    worker = workflow.worker()
    says = None
    for _ in range(int(SECONDS / AGAIN)):
        asker.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            says = asker.communicate(timeout=AGAIN)[1]
            break
    assert asker.returncode == REQUEUE
    assert says == f"ssm judge: stopped by {number.name}; the same command starts it again\n"
    gone([worker])


@pytest.mark.parametrize("number", [*SIGNALS, signal.SIGINT])
def test_a_client_forwards_signals_and_exits_with_the_answer(number: signal.Signals) -> None:
    """The test plays the server."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(SECONDS)
        listener.bind("\0" + (name := f"ssm-test-{os.getpid()}"))
        listener.listen()
        code = "import sys; from ssm.base.fork_client import run_in_worker; sys.exit(run_in_worker(['judge']))"
        asker = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {VARIABLE: name})
        client, _ = listener.accept()
        client.settimeout(SECONDS)
        with client, client.makefile("rb") as sent:
            sent.readline()
            client.send(TAKEN)
            until(lambda: catches(asker.pid, signal.SIGTERM))
            asker.send_signal(number)
            assert client.recv(8) == bytes([number])
            client.send((79).to_bytes(4, "big"))
    assert asker.wait(SECONDS) == 79


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    found = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return bool(int(found[1], 16) >> (number - 1) & 1)


def test_a_client_ends_by_the_signal_that_ended_its_worker(workflow: Workflow) -> None:
    asker = workflow.ask(*JUDGE)
    workflow.worker().kill()
    assert asker.wait(SECONDS) == -signal.SIGKILL


def test_the_kill_of_a_client_ends_its_worker(workflow: Workflow) -> None:
    asker = workflow.ask(*JUDGE)
    worker = workflow.worker()
    asker.kill()
    gone([worker])
    assert workflow.server.is_running()


@pytest.mark.parametrize("victim", ["server", "workflow"])
def test_the_kill_of_the_server_or_the_workflow_ends_the_workers(own: Workflow, victim: str) -> None:
    asker = own.ask(*JUDGE)
    worker = own.worker()
    (own.server if victim == "server" else own.process).kill()
    gone([worker, own.server])
    says = asker.communicate(timeout=SECONDS)[1]
    assert asker.returncode == LOST
    assert "ssm judge: the fork server of this job has ended; run the same command again\n" in says


def test_a_worker_has_the_temporary_folder_of_its_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tempfile.gettempdir() != str(tmp_path)
    monkeypatch.setattr(fork_server, "main", lambda words: os.write(1, tempfile.gettempdir().encode()))
    asked = {"arguments": ["train"], "folder": str(tmp_path), "variables": os.environ | {"TMPDIR": str(tmp_path)}}
    with (tmp_path / "said").open("w") as file:
        streams = [os.dup(file.fileno()) for _ in range(2)]
        job = fork_server.FORK.Process(target=fork_server._work, args=(asked, streams, [], os.getpid()))
        job.start()
        job.join(SECONDS)
    for stream in streams:
        os.close(stream)
    assert (tmp_path / "said").read_text() == str(tmp_path)


def test_a_client_is_killed_before_it_has_a_worker(own: Workflow) -> None:
    """The first job makes the server import for a while. Meanwhile its client disappears."""
    with socket.socket(socket.AF_UNIX) as asker:
        asker.connect(f"\0{own.name}")
        socket.send_fds(asker, [b" "], [1, 2])
        place = {"arguments": JUDGE, "folder": str(own.folder), "variables": own.variables}
        asker.sendall(json.dumps(identity(own.variables) | place).encode() + b"\n")
    assert own.ask("report", "nowhere", "--out", "page.html").wait(SECONDS) == 2  # the next request
    assert own.server.children() == []


@pytest.fixture
def broken_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that reports need fails when it is imported."""
    (tmp_path / "jinja2.py").write_text("1 / 0")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def test_a_failed_import_ends_no_other_job(broken_package: None, own: Workflow) -> None:
    first = own.ask(*JUDGE)
    worker = own.worker()
    alone = own.ask("report", "nowhere", "--out", "page.html")
    alone.communicate(timeout=SECONDS)
    assert alone.returncode != LOST
    assert worker.is_running()
    first.kill()


def test_the_server_ends_with_the_workflow(own: Workflow) -> None:
    own.process.communicate("", timeout=SECONDS)
    assert not own.server.is_running()


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """`source .venv/bin/activate` exports PS1. The bash of each Snakemake job removes it."""
    monkeypatch.setenv("PS1", "(.venv) $ ")


def test_a_prompt_in_the_environment_of_the_workflow_does_not_matter(prompt: None, own: Workflow) -> None:
    job = subprocess.Popen(
        ["bash", "-c", f"exec {shlex.quote(sys.executable)} -m ssm {shlex.join(JUDGE)}"],
        cwd=own.folder,
        env=own.variables | {VARIABLE: own.name},
        stderr=subprocess.DEVNULL,
    )
    worker = own.worker()
    job.kill()
    gone([worker])


@pytest.mark.parametrize("why", ["no server", "another environment", "a verb without modules"])
def test_a_client_without_a_worker_does_the_job_itself(why: str, request: pytest.FixtureRequest) -> None:
    workflow = request.getfixturevalue("own" if why == "no server" else "workflow")
    if why == "no server":
        workflow.server.kill()
        gone([workflow.server])
    words = ("tokenize", "spec.json", "--out", "tokens") if why == "a verb without modules" else JUDGE
    own = {"LD_LIBRARY_PATH": "/elsewhere"} if why == "another environment" else {}
    asker = workflow.ask(*words, **own)
    with (workflow.folder / "spec.json").open("w") as gate:
        assert not workflow.server.is_running() or not workflow.server.children()
        gate.write("{")
    says = asker.communicate(timeout=SECONDS)[1]
    assert asker.returncode == 2
    assert says.startswith(f"ssm {words[0]}: spec.json: not ")


def test_the_modules_of_the_server_exist_and_start_no_threads() -> None:
    """Otherwise the server would never fork. The failure names the module."""
    names = sorted({name for modules in MODULES.values() for name in modules})
    code = (
        "import os; from ssm.base.fork_client import ONE_THREAD; os.environ.update(ONE_THREAD)\n"
        "from ssm.cli.fork_server import threads, warm_up\n"
        f"print([name for name in {names} if warm_up([name]) or threads() > 1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_drawing_and_judging_do_not_import_torch() -> None:
    assert [verb for verb, modules in MODULES.items() if "torch._dynamo" in modules] == ["train", "evaluate"]


def test_a_changed_file_of_ssm_is_detected() -> None:
    assert not code_changed(time.time() + 1)
    assert code_changed(Path(fork_client.__file__).stat().st_mtime - 1)


def test_a_changed_native_source_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "scan.cpp"
    source.touch()
    later = source.stat().st_mtime + 60
    os.utime(source, (later, later))
    assert not code_changed(later - 1)
    monkeypatch.setattr(fork_server, "_native_sources", lambda: (source,))
    assert code_changed(later - 1)

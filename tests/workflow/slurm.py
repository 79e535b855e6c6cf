"""A SLURM cluster of two nodes on this machine, for tests. The second node has two simulated GPUs.

It needs only Debian's packages slurm-wlm and munge: no systemd, no cgroups and no accounting database. All its files
are in one folder, and it listens on free ports of 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
SYSTEM = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))
START_SECONDS = 30
COLUMNS = (  # squeue's
    *("jobid", "state", "partition", "nodelist", "timelimit", "minmemory", "tres-per-job", "restartcnt", "comment"),
)

CONFIG = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=86400
KillWait=2
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=16 RealMemory=64000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8 RealMemory=64000 Gres=gpu:2
PartitionName=cpu Nodes=n1 Default=YES MaxTime=2-0
PartitionName=gpu Nodes=n2 MaxTime=2-0
"""


@dataclass(frozen=True)
class Job:
    """A row of squeue, with COLUMNS; also for finished jobs."""

    id: str
    state: str
    partition: str
    node: str
    time: str
    memory: str
    gpus: str
    restarts: str
    comment: str


@dataclass(frozen=True)
class Slurm:
    """A running cluster."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which commands find the cluster. A job step drops SLURM_CONF, so srun has a wrapper."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": f"{self.folder}{os.pathsep}{SYSTEM}"}

    def command(self, *words: str, check: bool = True) -> str:
        """Run a command of the cluster, and return its output."""
        environment = os.environ | self.environment
        result = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert not check or result.returncode == 0, f"{words}: {result.stderr}"
        return result.stdout

    def jobs(self) -> list[Job]:
        """All jobs, in the order of their submission."""
        columns = ",".join(f"{name}:|" for name in COLUMNS)
        lines = self.command("squeue", "--states=all", "--noheader", "--sort=i", f"--Format={columns}").splitlines()
        return [Job(*line.split("|")[: len(COLUMNS)]) for line in lines]

    def processes(self) -> list[psutil.Process]:
        """All processes of the cluster: its daemons, and everything that its jobs started."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                about = [*process.cmdline(), *process.environ().values()]
                if process.pid != os.getpid() and any(str(self.folder) in text for text in about):
                    found.append(process)
        return found


def missing() -> list[str]:
    """The programs that a cluster needs and that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=SYSTEM) is None]


@contextlib.contextmanager
def running_slurm() -> Iterator[Slurm]:
    """A cluster, which is stopped with all its jobs when the block ends.

    Raises:
        RuntimeError: it did not start; the message has the end of its logs.
    """
    # Not in a folder of pytest: munged needs a folder that all users can enter, and the path of a socket must be short.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    slurm = Slurm(folder)
    try:
        _configure(folder)
        _start(slurm)
        yield slurm
    finally:
        _stop(slurm)
        shutil.rmtree(folder, ignore_errors=True)


def _configure(folder: Path) -> None:
    folder.chmod(0o755)
    host = socket.gethostname().split(".")[0]
    (folder / "slurm.conf").write_text(CONFIG.format(host=host, user=getuser(), folder=folder, ports=_free_ports(3)))
    (folder / "gres.conf").write_text("NodeName=n2 Name=gpu File=/dev/null,/dev/zero\n")
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))
    (folder / "munge.key").chmod(0o600)
    (folder / "state").mkdir()
    srun = folder / "srun"
    srun.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun", path=SYSTEM)} "$@"\n')
    srun.chmod(0o755)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _start(slurm: Slurm) -> None:
    folder = slurm.folder
    munge = {name: f"--{name}={folder}/munge.{name.split('-')[0]}" for name in ("socket", "pid-file", "log-file")}
    slurm.command("munged", f"--key-file={folder}/munge.key", f"--seed-file={folder}/munge.seed", *munge.values())
    for words in (["slurmctld", "-c"], ["slurmd", "-N", "n1"], ["slurmd", "-N", "n2"]):
        slurm.command(*words)
    deadline = time.monotonic() + START_SECONDS
    while slurm.command("sinfo", "-hN", "-t", "idle", "-o", "%N", check=False).split() != ["n1", "n2"]:
        if time.monotonic() > deadline:
            logs = (f"{path.name}: {path.read_text()[-500:]}" for path in folder.glob("*.log"))
            raise RuntimeError("the cluster did not start\n" + "\n".join(logs))
        time.sleep(0.2)


def _stop(slurm: Slurm) -> None:
    """Stop the jobs, then the daemons, then all other processes."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        slurm.command("scancel", f"--user={getuser()}", check=False)
    for kind, seconds in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
        left = slurm.processes()
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.send_signal(kind)
        psutil.wait_procs(left, timeout=seconds)

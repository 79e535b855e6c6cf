"""Kill runs and workflows at random moments, continue them, and compare with undisturbed results, bit for bit.

    python tests/campaign/kills.py --kills 100 --seed 1

Each small run is killed several times and continued. At the end, its weights and checkpoints are compared bit for bit,
and its tables row for row, with those of a run that was not killed. The kills are:

- A tenth: a whole workflow with its runs, tables and verdicts. The victim is snakemake (kill -9 or SIGTERM) or one of
  its jobs (kill -9).
- A quarter: a training run of two processes. The victim is one of them or their launcher (kill -9 or SIGTERM), at a
  random moment or while a checkpoint is written. The other processes must end within a minute.
- The rest: a training run of one process (kill -9 or SIGTERM), at a random moment or, for kill -9, while a checkpoint
  is written. Training writes a checkpoint every ten steps.

The seed decides victims, signals and waiting times; the exact moments depend on the machine. A kill counts if it hit a
running process. Exit code: 0 if all results are equal, else 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")]  # as in pyproject.toml for pytest; this file is also a command

from campaign.tools import (  # noqa: E402
    PATIENCE,
    differences,
    job,
    jobs,
    until,
    until_time,
    wait_for_checkpoints,
    writes_checkpoint,
)
from plan.mini import edit, write_config  # noqa: E402
from small import make_store, run_spec, text  # noqa: E402

from ssm.base.exit_codes import LOST, REQUEUE  # noqa: E402
from ssm.base.files import write_json  # noqa: E402

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["ssm.training.loop", "ssm.cli.train", "torch._dynamo"])
KILLS_A_ROUND = 5
STEPS, CHECKPOINT_STEPS = 300, 10
TEAM = 2  # processes of a distributed run
IN_CHECKPOINT = " in a checkpoint"
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--snakefile", "workflow/Snakefile", "--cores", "2", "lg_fig5"]
AFTER_KILL = {-signal.SIGKILL, -signal.SIGTERM, REQUEUE, LOST, 0}  # 0: it came too late


@dataclass
class Round:
    """The kills before one finished result, and the differences of the result."""

    kills: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


class World:
    """The inputs of all runs, and the undisturbed results.

    Args:
        folder: for all files.
        moments: chooses victims and waiting times.
    """

    def __init__(self, folder: Path, moments: random.Random):
        self.folder, self.moments = folder, moments
        self.store = make_store(folder)
        recipe = {"budget": {"steps": STEPS}, "snapshots": [0.4], "initial_state": {"policy": "state_passing"}}
        write_json(folder / "run.json", run_spec(self.store.spec, **recipe).content())
        self.rounds = 0
        self.whole: dict[str, Path] = {}  # folders of undisturbed results, by kind

    def arguments(self, out: Path, processes: int = 1) -> list[str]:
        """The arguments of `ssm` that train the small run."""
        given = ["--device", "cpu", "--threads", "1", "--checkpoint-steps", str(CHECKPOINT_STEPS)]
        given += ["--processes", str(processes)] if processes > 1 else []
        return ["train", f"{self.folder}/run.json", "--tokens", str(self.store.folder), "--out", str(out), *given]

    def new_folder(self) -> Path:
        self.rounds += 1
        return self.folder / f"round-{self.rounds}"

    def wait_for_moment(self, out: Path, aimed: bool, checkpoints: int, alive: Callable[[], bool]) -> None:
        """Wait for some checkpoints, and then for the writing of the next one (`aimed`) or for a random time."""
        delay = self.moments.uniform(0, 0.1)
        if aimed:
            wait_for_checkpoints(out, checkpoints or 1, alive)  # this also removes interrupted files
            until(lambda: writes_checkpoint(out) or not alive())
        else:
            wait_for_checkpoints(out, checkpoints, alive)
            until_time(delay, alive)

    # --- One process --------------------------------------------------------------------------------------------------

    def start(self, out: Path) -> multiprocessing.process.BaseProcess:
        """Train in a process that has already imported torch."""
        process = PROCESSES.Process(target=job, args=(self.arguments(out), self.folder / "train.log"))
        process.start()
        return process

    def kill_runs(self, kills: int) -> Round:
        """Kill one run at most `kills` times, and compare."""

        def ended(process: multiprocessing.process.BaseProcess) -> int | None:
            process.join(PATIENCE)
            code = process.exitcode
            process.kill()
            return code

        whole = self.undisturbed("run", self._train)
        return self._kill_and_continue(kills, whole, self.start, self._kill_run, ended)

    def _kill_and_continue(
        self,
        kills: int,
        whole: Path,
        start: Callable[[Path], Any],
        kill: Callable[[Any, Path, Round], str],
        ended: Callable[[Any], int | None],
    ) -> Round:
        """Start and kill a training run until it finishes, and compare it with `whole`.

        Args:
            start: starts or continues the run in a folder.
            kill: kills the run and returns what was killed; empty if the run had ended.
            ended: waits for the end of the run and returns its exit code; None if it does not end.
        """
        out, done = self.new_folder(), Round()
        while True:
            process = start(out)
            what = kill(process, out, done) if len(done.kills) < kills else ""
            done.kills += [what] if what else []
            code = ended(process)
            if code == 0:
                done.differences += differences(whole, out)
                return done
            if not what or code not in AFTER_KILL:  # an undisturbed process must finish
                after = f"after {what}" if what else "of a run that was not killed"
                done.differences.append(f"exit code {code} {after}: see {self.folder / 'train.log'}")
                return done

    def _kill_run(self, process: multiprocessing.process.BaseProcess, out: Path, done: Round) -> str:
        """Wait for up to three checkpoints, and kill. Returns the kind of the kill; empty if the process had ended."""
        aim = self.moments.choice(["-9", "-9" + IN_CHECKPOINT, "-TERM"])
        self.wait_for_moment(out, aim.endswith(IN_CHECKPOINT), self.moments.randint(0, 3), process.is_alive)
        if not process.is_alive() or process.pid is None:
            return ""
        os.kill(process.pid, signal.SIGTERM if aim == "-TERM" else signal.SIGKILL)
        process.join(PATIENCE)
        if aim != "-TERM":  # whether the kill really hit the writing of a checkpoint
            aim = "-9" + IN_CHECKPOINT * writes_checkpoint(out)
        return aim if process.exitcode != 0 else ""

    def _train(self, out: Path) -> int | None:
        process = self.start(out)
        process.join()
        return process.exitcode

    # --- Several processes --------------------------------------------------------------------------------------------

    def launch(self, out: Path) -> subprocess.Popen[bytes]:
        """Train in several processes."""
        with (self.folder / "train.log").open("ab") as log:
            command = [sys.executable, "-m", "ssm", *self.arguments(out, TEAM)]
            return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def kill_ranks(self, kills: int) -> Round:
        """Kill one of several processes or their launcher at most `kills` times, and compare."""
        whole = self.undisturbed("team", lambda out: self.launch(out).wait())
        ended = lambda launcher: launcher.wait(PATIENCE)  # noqa: E731
        return self._kill_and_continue(kills, whole, self.launch, self._kill_rank, ended)

    def _kill_rank(self, launcher: subprocess.Popen[bytes], out: Path, done: Round) -> str:
        """Wait for up to three checkpoints, and kill. Returns the kind of the kill; empty if the process had ended."""
        which, number = self.moments.choice(["a rank", "the launcher"]), self.moments.choice([9, 15])
        rank, aimed = self.moments.randrange(TEAM), self.moments.random() < 0.5
        self.wait_for_moment(out, aimed, self.moments.randint(1, 3), lambda: launcher.poll() is None)
        try:
            ranks = psutil.Process(launcher.pid).children()
            victim = launcher if which == "the launcher" else ranks[rank]
            victim.send_signal(number)
        except (psutil.NoSuchProcess, IndexError):
            return ""
        _, alive = psutil.wait_procs(ranks, timeout=60)
        if alive:
            done.differences.append(f"{len(alive)} processes were still running a minute after the kill of {which}")
        return f"-{number} of {which}" + IN_CHECKPOINT * writes_checkpoint(out)

    # --- A workflow ---------------------------------------------------------------------------------------------------

    def workflow_in(self, place: Path) -> None:
        """Write a small config and text, and an `ssm` that often writes checkpoints."""
        write_config(place / "config")
        edit(place / "config", "data.yaml", "{kind: stdlib}", "{kind: files, paths: [texts]}, held_out: 0.3")
        edit(place / "config", "training.yaml", "budget: {steps: 100}}", f"budget: {{steps: {STEPS}}}}}")
        (place / "texts").mkdir()
        for number in range(24):
            (place / "texts" / f"{number:03}.txt").write_text(text(number))
        (place / "workflow").symlink_to(ROOT / "workflow")
        command = place / "bin/ssm"
        command.parent.mkdir()
        command.write_text(
            f"#!{sys.executable}\nimport sys\nfrom ssm.cli.main import main\nargv = sys.argv[1:]\n"
            f"sys.exit(main(argv + ['--checkpoint-steps', '{CHECKPOINT_STEPS}'] * (argv[0] == 'train')))\n"
        )
        command.chmod(0o755)

    def snakemake(self, place: Path) -> subprocess.Popen[bytes]:
        """Start the workflow like `make figures`."""
        path = os.pathsep.join([str(place / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with (place / "snakemake.log").open("ab") as log:
            unlock = [sys.executable, "workflow/scripts/unlock.py"]
            subprocess.run(unlock, cwd=place, env=environment, stdout=log, stderr=log, check=False)
            return subprocess.Popen(SNAKEMAKE, cwd=place, env=environment, stdout=log, stderr=log)

    def _whole_workflow(self, place: Path) -> int:
        self.workflow_in(place)
        return self.snakemake(place).wait()

    def kill_workflows(self, kills: int) -> Round:
        """Kill one workflow at most `kills` times, and compare."""
        whole, place, done, failures = self.undisturbed("workflow", self._whole_workflow), self.new_folder(), Round(), 0
        self.workflow_in(place)
        while True:
            living = self.snakemake(place)
            what = ""
            if len(done.kills) < kills:
                what = self._kill_workflow(psutil.Process(living.pid))
                done.kills += [what] if what else []
            code = living.wait(PATIENCE)
            failures += code != 0 and not what  # jobs of a killed one may still be running
            if code == 0 or failures > 1:
                done.differences += differences(whole / "results", place / "results")
                done.differences += [f"snakemake ended with {code}: see {place / 'snakemake.log'}"] * (code != 0)
                return done

    def _kill_workflow(self, snakemake: psutil.Process) -> str:
        aim = self.moments.choice(["snakemake -9", "snakemake -TERM", "job -9", "job -9"])
        verb, delay = self.moments.choice(["tokenize", "train", "train", "evaluate"]), self.moments.uniform(0, 4)
        job: list[psutil.Process] = []

        def at_work() -> bool:
            job[:] = jobs(snakemake, verb)
            return bool(job) or not snakemake.is_running() or snakemake.status() == psutil.STATUS_ZOMBIE

        until(at_work, 0.05)
        until_time(delay, snakemake.is_running)
        try:
            victim = jobs(snakemake, "")[0] if aim == "job -9" else snakemake
            verb = victim.cmdline()[2] if aim == "job -9" else ""
            victim.send_signal(signal.SIGTERM if aim.endswith("TERM") else signal.SIGKILL)
        except (psutil.Error, IndexError):
            return ""
        return f"workflow: {aim.replace('job', f'ssm {verb}')}"

    def undisturbed(self, what: str, make: Callable[[Path], int | None]) -> Path:
        """The folder of the undisturbed result, which is made once."""
        if what not in self.whole:
            code = make(self.folder / f"whole-{what}")
            if code != 0:
                raise RuntimeError(f"the undisturbed {what} ended with {code}: see {self.folder}")
            self.whole[what] = self.folder / f"whole-{what}"
        return self.whole[what]


def campaign(folder: Path, kills: int, seed: int, workflow: int = 0, ranks: int = 0) -> tuple[int, int]:
    """Kill until `kills` kills have hit: `workflow` of them a workflow, `ranks` a run of several processes.

    Returns:
        The number of kills with equal results, and the number of kills.
    """
    world = World(folder, random.Random(seed))
    parts = [(world.kill_workflows, workflow), (world.kill_ranks, ranks), (world.kill_runs, kills - workflow - ranks)]
    total, until_total, equal, kinds = 0, 0, 0, Counter[str]()
    for kill, share in parts:
        until_total += share
        while total < until_total:
            done = kill(min(KILLS_A_ROUND, until_total - total))
            total += len(done.kills)
            equal += 0 if done.differences else len(done.kills)
            kinds.update(done.kills)
            verdict = "; ".join(done.differences) or "equal"
            print(f"{total:4}/{kills}  {', '.join(done.kills) or 'too late'}: {verdict}", flush=True)
    for kind, count in sorted(kinds.items()):
        print(f"{count:4}  {kind}")
    print(f"{equal} of {total} kills: equal weights and tables (seed {seed})")
    return equal, total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="kills that hit (default: 100)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="default: 1")
    parser.add_argument("--workflow", type=int, metavar="N", help="of these, kills of a workflow (default: a tenth)")
    parser.add_argument("--ranks", type=int, metavar="N", help="of these, kills of two processes (default: a quarter)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep all files, in this new folder")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kills-")) if args.keep is None else args.keep
    workflow = args.kills // 10 if args.workflow is None else args.workflow
    ranks = args.kills // 4 if args.ranks is None else args.ranks
    equal, total = campaign(folder, args.kills, args.seed, workflow, ranks)
    if args.keep is None and equal == total:
        shutil.rmtree(folder)
    else:
        print(f"all files are in {folder}")
    return int(equal != total)


if __name__ == "__main__":
    sys.exit(main())

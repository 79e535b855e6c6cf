"""Kills runs at random moments, and checks that their results are bitwise those of undisturbed runs.

    python tests/campaign/kills.py --kills 100 --seed 1

Micro runs are killed and continued many times. In the end they are compared with an undisturbed run in as many
processes: weights and checkpoints bitwise, tables row by row. There are three kinds of kills:

- A tenth hits a whole workflow: snakemake (kill -9, SIGTERM) or one of its jobs (kill -9).
- A quarter hits a training run of two processes: one of them, or their launcher (kill -9, SIGTERM). The moment is
  random, or a checkpoint is being written, which its temporary file shows. The other processes must end in a minute.
- The others hit a training run of one process: kill -9 at a random moment or during a checkpoint, or SIGTERM.
  Training writes a checkpoint every ten steps.

The seed decides victims, signals and waiting times; the exact moments depend on the machine. A kill counts if it hit a
living process. Exit code: 0 if all results are equal, otherwise 1.
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

import psutil

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")]  # as in pyproject.toml for pytest, because this is a command too

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
from forked_processes import PROCESSES  # noqa: E402
from plan.mini import edit, write_config  # noqa: E402
from small import make_store, run_spec, text  # noqa: E402

from ssm.base.exit_codes import LOST, REQUEUE  # noqa: E402
from ssm.base.files import write_json  # noqa: E402

KILLS_A_ROUND = 5
STEPS, CHECKPOINT_STEPS = 300, 10
TEAM = 2  # processes of a run with several
IN_CHECKPOINT = " in a checkpoint"
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--snakefile", "workflow/Snakefile", "--cores", "2", "lg_fig5"]
AFTER_KILL = {-signal.SIGKILL, -signal.SIGTERM, REQUEUE, LOST, 0}  # 0: the kill came too late


@dataclass
class Round:
    """The kills on the way to one finished result, and the differences of the result."""

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
        self.whole: dict[str, Path] = {}  # undisturbed results by kind

    def arguments(self, out: Path, processes: int = 1) -> list[str]:
        """Arguments of `ssm` that train the micro run."""
        given = ["--device", "cpu", "--threads", "1", "--checkpoint-steps", str(CHECKPOINT_STEPS)]
        given += ["--processes", str(processes)] if processes > 1 else []
        return ["train", f"{self.folder}/run.json", "--tokens", str(self.store.folder), "--out", str(out), *given]

    def new_folder(self) -> Path:
        self.rounds += 1
        return self.folder / f"round-{self.rounds}"

    def wait_for_moment(self, out: Path, aimed: bool, checkpoints: int, alive: Callable[[], bool]) -> None:
        """Wait for some checkpoints, and then for the next one to be written (`aimed`) or for a short time."""
        delay = self.moments.uniform(0, 0.1)
        if aimed:
            wait_for_checkpoints(out, checkpoints or 1, alive)  # by then, remains of an earlier kill are deleted
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
        whole, out, done = self.undisturbed("run", self._train), self.new_folder(), Round()
        while True:
            process = self.start(out)
            what = self._kill_run(process, out) if len(done.kills) < kills else ""
            done.kills += [what] if what else []
            process.join(PATIENCE)
            if process.exitcode == 0:
                done.differences += differences(whole, out)
                return done
            if not what or process.exitcode not in AFTER_KILL:  # left alone, it has to come to its end
                process.kill()
                done.differences.append(self._wrong_end(process.exitcode, what))
                return done

    def _wrong_end(self, code: int | None, what: str) -> str:
        """The error for an exit code; None means that the process did not end."""
        after = f"after {what}" if what else "of a run that nobody killed"
        return f"exit code {code} {after}: see {self.folder / 'train.log'}"

    def _kill_run(self, process: multiprocessing.process.BaseProcess, out: Path) -> str:
        """Wait for some checkpoints, and kill; returns what was done, or nothing if the process had ended."""
        aim = self.moments.choice(["-9", "-9" + IN_CHECKPOINT, "-TERM"])
        self.wait_for_moment(out, aim.endswith(IN_CHECKPOINT), self.moments.randint(0, 3), process.is_alive)
        if not process.is_alive() or process.pid is None:
            return ""
        os.kill(process.pid, signal.SIGTERM if aim == "-TERM" else signal.SIGKILL)
        process.join(PATIENCE)
        if aim != "-TERM":  # the aim may have missed, or hit without being taken
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
        """Kill one of several processes, or their launcher, at most `kills` times, and compare."""
        whole, out, done = self.undisturbed("team", self._train_together), self.new_folder(), Round()
        while True:
            launcher = self.launch(out)
            what = self._kill_rank(launcher, out, done) if len(done.kills) < kills else ""
            done.kills += [what] if what else []
            code = launcher.wait(PATIENCE)
            if code == 0:
                done.differences += differences(whole, out)
                return done
            if not what or code not in AFTER_KILL:
                done.differences.append(self._wrong_end(code, what))
                return done

    def _kill_rank(self, launcher: subprocess.Popen[bytes], out: Path, done: Round) -> str:
        """Wait for some checkpoints, and kill; returns what was done, or nothing if the process had ended."""
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
            done.differences.append(f"{len(alive)} processes outlived {which} that was killed by a minute")
        return f"-{number} of {which}" + IN_CHECKPOINT * writes_checkpoint(out)

    def _train_together(self, out: Path) -> int:
        return self.launch(out).wait()

    # --- A workflow ---------------------------------------------------------------------------------------------------

    def workflow_in(self, place: Path) -> None:
        """A folder with a small config and text, and an `ssm` that checkpoints often."""
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
        """The workflow, called as by `make figures`."""
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
            failures += code != 0 and not what  # a killed one's jobs may still be at work
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
        """The undisturbed result, made once."""
        if what not in self.whole:
            code = make(self.folder / f"whole-{what}")
            if code != 0:
                raise RuntimeError(f"the undisturbed {what} ended with {code}: see {self.folder}")
            self.whole[what] = self.folder / f"whole-{what}"
        return self.whole[what]


def campaign(folder: Path, kills: int, seed: int, workflow: int = 0, ranks: int = 0) -> tuple[int, int]:
    """Kill until `kills` kills have hit, `workflow` of them a workflow and `ranks` a run of several processes.

    Returns (kills with equal ends, kills).
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
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="that hit (default: 100)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="default: 1")
    parser.add_argument("--workflow", type=int, metavar="N", help="of these, of a workflow (default: a tenth)")
    parser.add_argument("--ranks", type=int, metavar="N", help="of these, of two processes (default: a quarter)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make everything in this new folder, and keep it")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kills-")) if args.keep is None else args.keep
    workflow = args.kills // 10 if args.workflow is None else args.workflow
    ranks = args.kills // 4 if args.ranks is None else args.ranks
    equal, total = campaign(folder, args.kills, args.seed, workflow, ranks)
    if args.keep is None and equal == total:
        shutil.rmtree(folder)
    else:
        print(f"everything is in {folder}")
    return int(equal != total)


if __name__ == "__main__":
    sys.exit(main())

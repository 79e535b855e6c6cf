"""Run the stages and print a summary. A stage that is finished is not run again."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ssm_kernels.benchmarks.on_gpu import machine, report
from ssm_kernels.benchmarks.on_gpu.report import Report
from ssm_kernels.benchmarks.on_gpu.stages import STAGES, WITHOUT_DEVICE, Stage, rehearsed
from ssm_kernels.benchmarks.on_gpu.task import Setting
from ssm_kernels.benchmarks.on_gpu.workers import Answer, Worker, WorkerError, do_tasks

EPILOG = """\
Each stage writes STAGE.json after every task, and STAGE.log. A second call
continues: it keeps what passed on the same device with the same code, and does
the rest. On a GPU, no stage takes longer than eight minutes.

exit code: 0 if every stage passed; 1 if one failed, or was not finished in its
time; 2 if the words of the command were wrong; 130 after Ctrl-C.
"""


def main(words: Sequence[str]) -> int:
    args = _parser().parse_args(words)
    unknown = [name for name in args.stages if name not in STAGES]
    if unknown:
        print(f"on_gpu: unknown stage '{unknown[0]}', expected one of {', '.join(STAGES)}", file=sys.stderr)
        return 2
    on_device = any(name not in WITHOUT_DEVICE for name in args.stages or STAGES)
    problem = machine.problem(args.rehearse) if on_device else None
    if problem:
        print(f"on_gpu: {problem}", file=sys.stderr)
        return 1
    root = Path(__file__).parents[4]
    folder = args.out or root / ("results/gpu_rehearsal" if args.rehearse else "reports/gpu")
    setting = Setting(args.rehearse, folder.resolve(), root)
    setting.out.mkdir(parents=True, exist_ok=True)
    chosen = [STAGES[name] for name in _in_order(args.stages or list(STAGES))]
    if args.rehearse:
        chosen = [rehearsed(stage) for stage in chosen]
    if args.seconds is not None:
        chosen = [replace(stage, seconds=min(stage.seconds, args.seconds)) for stage in chosen]
    _say_missing(chosen)
    try:
        reports = [_run(stage, setting, args) for stage in chosen]
    except KeyboardInterrupt:
        print("on_gpu: interrupted; the same command continues", file=sys.stderr)
        return 130
    print("\n" + "\n".join(_summary(reports)))
    return 1 if any(found.state == "failed" or found.open(args.only) for found in reports) else 0


def _parser() -> argparse.ArgumentParser:
    about = "\n".join(f"  {stage.name:<10} {stage.about}" for stage in STAGES.values())
    parser = argparse.ArgumentParser(
        prog="python -m ssm_kernels.benchmarks.on_gpu",
        description=f"Show what only a GPU can show.\n\nstages:\n{about}",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="only these stages (default: all)")
    parser.add_argument("--rehearse", action="store_true", help="without a GPU, at tiny sizes, with stand-ins")
    parser.add_argument("--again", action="store_true", help="also run what is finished")
    parser.add_argument("--only", metavar="TEXT", default="", help="only tasks with TEXT in their name")
    parser.add_argument("--seconds", type=float, metavar="N", help="end each stage after N seconds, if that is sooner")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the folder of the results (default: reports/gpu)")
    return parser


def _in_order(names: Sequence[str]) -> list[str]:
    """The chosen stages, each once, and before them what must run first."""
    return list(dict.fromkeys(stage for name in names for stage in (STAGES[name].first, name) if stage is not None))


def _say_missing(stages: Sequence[Stage]) -> None:
    lacking = {stage.name: machine.missing(stage.packages) for stage in stages}
    packages = sorted({name for names in lacking.values() for name in names})
    if not packages:
        return
    for name, names in lacking.items():
        if names:
            print(f"Stage {name} needs packages that are missing: {', '.join(names)}")
    download, install = machine.wheels(packages)
    print(f"On a machine with a network:\n  {download}\nHere, with the folder wheels:\n  {install}\n", flush=True)


def _run(stage: Stage, setting: Setting, args: argparse.Namespace) -> Report:
    """Run one stage, or what is left of it."""
    found = Report(setting.out / f"{stage.name}.json", stage.name)
    if not stage.repeats:
        found = report.read(stage.name, setting.out)
    if args.again:
        found.tasks = {name: task for name, task in found.tasks.items() if args.only not in name}
    print(f"== {stage.name}: {stage.about}", flush=True)
    lacking = machine.missing(stage.packages)
    if lacking:
        return _cannot(found, f"missing packages: {', '.join(lacking)}")
    start = time.monotonic()
    with (setting.out / f"{stage.name}.log").open("w") as log:
        try:
            worker = Worker(stage, setting, log, stage.seconds)
        except WorkerError as error:
            return _cannot(found, str(error))
        about = {
            "device": worker.hello["device"],
            "versions": machine.versions(),
            "code": report.code_of(stage, setting),
        }
        found.begin(worker.hello["names"], about)
        waiting, kept = found.open(args.only), len(found.tasks)
        if kept:
            print(f"   {kept} of {len(found.names)} tasks are done", flush=True)

        def on_answer(name: str, answer: Answer) -> None:
            found.tasks[name] = answer
            found.save()
            print(f"   {_line(name, answer)}", flush=True)

        do_tasks(stage, setting, waiting, worker, start + stage.seconds, log, on_answer)
    found.save()
    print(f"   {found.state}, {time.monotonic() - start:.0f} s", flush=True)
    return found


def _cannot(found: Report, reason: str) -> Report:
    found.reason = reason
    found.save()
    print(f"   failed: {reason}", flush=True)
    return found


def _line(name: str, answer: dict[str, Any]) -> str:
    said = answer.get("reason") or answer.get("result", {}).get("says", "")
    return f"{answer['state']:<8}{answer['seconds']:>7.1f} s  {name}{': ' if said else ''}{said}"


def _summary(reports: Sequence[Report]) -> list[str]:
    """One line for each stage, then one for each task that failed, and for each reason of skipped tasks."""
    lines = []
    for found in reports:
        counts = ", ".join(f"{count} {state}" for state, count in found.counts().items() if count)
        lines.append(f"{found.stage:<10} {found.state:<11} {found.reason or counts}")
    for found in reports:
        for name, task in found.tasks.items():
            if task["state"] == "failed":
                lines.append(f"{found.stage}: {name}: {task['reason']}")
        skipped = Counter(task["reason"] for task in found.tasks.values() if task["state"] == "skipped")
        lines += [f"{found.stage}: {count} skipped: {reason}" for reason, count in skipped.items()]
    if any(found.state == "unfinished" for found in reports):
        lines.append("Unfinished: the same command continues.")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

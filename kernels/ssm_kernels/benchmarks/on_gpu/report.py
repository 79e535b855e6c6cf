"""The result file of a stage: what each task found, on which device, with which code."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ssm_kernels.benchmarks.on_gpu.stages import Stage
from ssm_kernels.benchmarks.on_gpu.task import Setting

SOURCES = (".py", ".h", ".cpp", ".cu", ".cuh", ".yaml", ".smk", ".j2", "Snakefile")


@dataclass
class Report:
    """The results of one stage. `tasks` has state, reason, seconds and result of each task that was tried."""

    path: Path
    stage: str
    about: dict[str, Any] = field(default_factory=dict)  # device, versions, hash of the code
    names: list[str] = field(default_factory=list)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    reason: str | None = None  # why the stage could not run

    @property
    def state(self) -> str:
        """passed, failed, or unfinished: some tasks were not reached."""
        if self.reason or any(task["state"] == "failed" for task in self.tasks.values()):
            return "failed"
        return "unfinished" if self.open() or not self.names else "passed"

    def open(self, text: str = "") -> list[str]:
        """The tasks that have not been done, of those with `text` in their name."""
        return [name for name in self.names if text in name and name not in self.tasks]

    def counts(self) -> dict[str, int]:
        """How many tasks passed, failed, were skipped, and were not reached."""
        states = [task["state"] for task in self.tasks.values()]
        known = {state: states.count(state) for state in ("passed", "failed", "skipped")}
        return known | {"not reached": len(self.open())}

    def begin(self, names: Sequence[str], about: dict[str, Any]) -> None:
        """Keep what passed, if it is from this device and this code. The rest is to be done."""
        kept = self.tasks if about == self.about else {}
        self.tasks = {name: kept[name] for name in names if kept.get(name, {}).get("state") == "passed"}
        self.names, self.about, self.reason = list(names), about, None

    def save(self) -> None:
        """Write the file through a temporary name."""
        content = {
            "stage": self.stage,
            "state": self.state,
            "reason": self.reason,
            "counts": self.counts(),
            **self.about,
            "names": self.names,
            "tasks": self.tasks,
        }
        temporary = self.path.with_suffix(".json.new")
        temporary.write_text(json.dumps(content, indent=1) + "\n")
        temporary.replace(self.path)


def read(stage: str, folder: Path) -> Report:
    """The report of a stage; an empty one if there is no file, or a damaged one."""
    report = Report(folder / f"{stage}.json", stage)
    try:
        content = json.loads(report.path.read_text())
        about = {key: content[key] for key in ("device", "versions", "code")}
        return Report(report.path, stage, about, content["names"], content["tasks"], content["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return report


def code_of(stage: Stage, setting: Setting) -> str:
    """A hash of the code that the results of a stage depend on."""
    folders = ["kernels", *(("ssm", "workflow", "config") if stage.whole_project else ())]
    digest = hashlib.blake2b(digest_size=8)
    for folder in folders:
        for directory, _, files in sorted(os.walk(setting.root / folder)):
            for name in sorted(name for name in files if name.endswith(SOURCES)):
                digest.update(f"{name}\0".encode() + (Path(directory) / name).read_bytes())
    return digest.hexdigest()

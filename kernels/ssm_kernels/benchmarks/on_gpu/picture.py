"""Stage picture: the speeds of the stage speed against the limits, as speed.png."""

from __future__ import annotations

import math
from typing import Any

from ssm_kernels.benchmarks.on_gpu import report
from ssm_kernels.benchmarks.on_gpu.task import Setting, TaskError

COLORS = {"triton": "#0072b2", "cuda": "#009e73", "torch": "#999999", "fla": "#d55e00", "mamba_ssm": "#cc79a7"}


def names(setting: Setting) -> list[str]:
    return ["speed against limit"]


def run(setting: Setting, name: str) -> dict[str, Any]:
    """Draw a row for each case: the share of the limit that each implementation reaches.

    Raises:
        TaskError: the stage speed has no times yet.
    """
    speeds = report.read("speed", setting.out)
    done = {case: task["result"] for case, task in speeds.tasks.items() if _timed(task)}  # also of a failed task
    if not done:
        raise TaskError("the stage speed has no results yet; run it first")
    path = setting.out / "speed.png"
    _draw(done, speeds.about["device"]["name"], path)
    return {"says": f"{len(done)} cases in {path.name}"}


def _timed(task: dict[str, Any]) -> bool:
    return any(entry["share"] for entry in task.get("result", {}).get("found", ()))


def _draw(done: dict[str, dict[str, Any]], device: str, path: Any) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    cases = list(done)[::-1]
    figure, axes = plt.subplots(figsize=(10, 1.5 + 0.22 * len(cases)), layout="constrained")
    for name, color in COLORS.items():
        points = [
            (entry["share"], row)
            for row, case in enumerate(cases)
            for entry in done[case]["found"]
            if entry["name"] == name and entry["share"]
        ]
        if points:
            x, y = zip(*points, strict=True)
            axes.scatter(x, y, s=22, color=color, label=name, zorder=2)
    axes.axvline(1.0, color="black", lw=1)
    shares = [entry["share"] for task in done.values() for entry in task["found"] if entry["share"]]
    axes.set_xscale("log")
    axes.set_xlim(10 ** math.floor(math.log10(min(shares))), max(2.0, 1.2 * max(shares)))
    axes.set_yticks(range(len(cases)), cases, fontsize=7)
    axes.set_ylim(-1, len(cases))
    axes.grid(axis="x", color="#dddddd", zorder=0)
    axes.set_xlabel("limit / time (1: the chip allows no more)")
    axes.set_title(f"Speed against limit, {device}", fontsize=10)
    figure.legend(loc="outside lower center", ncols=len(COLORS), fontsize=8, frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)

"""The table of stages, in the order in which they run: the most telling first."""

from __future__ import annotations

from dataclasses import dataclass, replace

KERNELS = ("torch", "triton")  # all that most stages need
WITHOUT_DEVICE = ("picture",)  # stages that use no GPU
LONGEST = 540  # seconds; no stage may take longer


@dataclass(frozen=True)
class Stage:
    """One stage. Its module in this package has its name."""

    name: str
    about: str
    seconds: float  # after this time no task starts, and running tasks end
    workers: int = 1  # processes; more than one only where nothing is timed
    task_seconds: float = LONGEST  # a task that takes longer counts as failed
    packages: tuple[str, ...] = KERNELS  # names of imports
    whole_project: bool = False  # whether its results depend on all code, not on that of the kernels alone
    repeats: bool = False  # whether it runs every time
    first: str | None = None  # the stage that must run before


PROJECT = (
    *KERNELS,
    *("jinja2", "latex2mathml", "markupsafe", "matplotlib", "numpy", "PIL", "polars", "pyarrow"),
    *("pydantic", "yaml", "safetensors", "scipy", "tokenizers", "tqdm"),
)
WORKFLOW = (*PROJECT, "psutil", "pygments", "sklearn", "snakemake")

STAGES = {
    stage.name: stage
    for stage in (
        Stage("kernels", "every Triton and CUDA kernel against the float64 oracle", 360, workers=8, task_seconds=300),
        Stage("compile", "what the stage speed compiles, in several processes", 120, workers=8, repeats=True),
        Stage(
            "speed",
            "scans against the chip's limits, PyTorch, mamba_ssm and fla",
            420,
            task_seconds=120,
            first="compile",
        ),
        Stage("figure", "lg_fig5 at scale gpu, from tokens to verdicts", 480, packages=WORKFLOW, whole_project=True),
        Stage("training", "training steps at the papers' sizes", 300, packages=PROJECT, whole_project=True),
        Stage("sanitizer", "memcheck, racecheck and synccheck of compute-sanitizer", 240, workers=6, task_seconds=200),
        Stage("rules", "launch shapes around the rules", 300, task_seconds=120),
        Stage("picture", "speed against limit, as a picture", 60, packages=("matplotlib",), repeats=True),
    )
}


def rehearsed(stage: Stage) -> Stage:
    """The stage without a GPU: one worker, and more time, because a CPU with stand-ins is slower, and may be busy."""
    return replace(stage, workers=1, seconds=4 * stage.seconds, task_seconds=4 * stage.task_seconds)

"""The cost of a task's examples per training step: every task of config/data.yaml at the smoke scale, on one thread.

    python tests/data/tasks/cost.py

A batch of 16 sequences is made at the run's start and ten million examples later, and compared with a training step of
the smoke scale's model. Times are medians of processor time, so that other programs have little influence.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from ssm.data.build import build_store
from ssm.data.store import TokenStore
from ssm.data.tasks import build_generator
from ssm.data.training_batches import TaskBatches
from ssm.models.backbone import build_model
from ssm.models.device import prepare_device
from ssm.plan import load_config
from ssm.specs.model import ModelSpec
from ssm.specs.tasks.base import Task
from ssm.specs.training import Budget, TrainingSpec
from ssm.training.optimizer import build_optimizer
from ssm.training.step import loss_of

ROOT = Path(__file__).parents[3]
BATCH, FAR, REPEATS = 16, 10_000_000, 20


def milliseconds(work: Callable[[], object]) -> float:
    """Of one call, the median."""
    times = []
    for _ in range(REPEATS):
        begun = time.process_time()
        work()
        times.append(1000 * (time.process_time() - begun))
    return median(times)


def main() -> None:
    library = load_config(ROOT / "config", "smoke")
    model, device = library.models.get("mamba2-slow", "cost.py"), prepare_device("cpu", 1)
    print(f"{'task':<12}{'T':>6}{'first, ms':>12}{'far, ms':>12}{'step, ms':>12}{'share':>8}")
    for name, task in library.data.entries.items():
        if isinstance(task, Task):  # others are text, or have no value at this scale
            context = -(-task.least_context // 32) * 32
            first, far, step = measured(task, model, context, device)
            share = max(first, far) / (max(first, far) + step)
            print(f"{name:<12}{context:>6}{first:>12.2f}{far:>12.2f}{step:>12.2f}{share:>8.1%}", flush=True)


def measured(task: Task, spec: ModelSpec, context: int, device: torch.device) -> tuple[float, float, float]:
    """Milliseconds of the first batch, of a much later batch, and of a training step."""
    with tempfile.TemporaryDirectory() as folder:
        build_store(task, Path(folder) / "tokens")
        generator = build_generator(task, "train", 1, TokenStore.open(Path(folder) / "tokens"))
        batches = TaskBatches(generator, context, BATCH, starts=False)
        training = TrainingSpec(context=context, batch_tokens=BATCH * context, budget=Budget(steps=1))
        model = build_model(spec, task.vocab_size, 1, task.channels)
        optimizer, batch = build_optimizer(model, training), batches.batch(0)

        def step() -> None:
            optimizer.zero_grad()
            loss_of(model, batch, None, training, device).loss.backward()
            optimizer.step()

        step()
        first, far = (milliseconds(lambda at=at: batches.batch(at)) for at in (0, FAR // BATCH))
        return first, far, milliseconds(step)


if __name__ == "__main__":
    main()

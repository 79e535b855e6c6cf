"""Tasks, one file each. To add a task, write its spec in ssm/specs/tasks/ and its generator here."""

from __future__ import annotations

from ssm.data.store import TokenStore
from ssm.data.tasks.base import GENERATORS, Generator
from ssm.specs.tasks import TaskSpec
from ssm.specs.tasks.base import Split

GENERATORS.discover()


def build_generator(spec: TaskSpec, split: Split, seed: int, store: TokenStore) -> Generator:
    """The generator of a task's examples in one split. `store` is the task's own."""
    return GENERATORS[spec.task](spec, split, seed, store)

"""The tasks, one file each. A new one: its spec in ssm/specs/tasks/, its generator here, a line in both registries."""

from __future__ import annotations

from ssm.data.store import TokenStore
from ssm.data.tasks.base import Generator, Split
from ssm.data.tasks.copy import Copy
from ssm.data.tasks.facts import Facts
from ssm.data.tasks.needle import Needle
from ssm.data.tasks.passkey import Passkey
from ssm.data.tasks.pixels import Pixels
from ssm.data.tasks.recall import Recall
from ssm.data.tasks.ruler import Ruler
from ssm.data.tasks.sort import Sort
from ssm.data.tasks.stack_copy import StackCopy
from ssm.specs.registry import check_modules
from ssm.specs.tasks import KEY, SPECS, TaskSpec

GENERATORS: dict[str, type[Generator]] = {
    "copy": Copy,
    "stack_copy": StackCopy,
    "sort": Sort,
    "passkey": Passkey,
    "needle": Needle,
    "facts": Facts,
    "pixels": Pixels,
    "recall": Recall,
    "ruler": Ruler,
}
check_modules(__name__, GENERATORS, SPECS, key=KEY)


def build_generator(spec: TaskSpec, split: Split, seed: int, store: TokenStore) -> Generator:
    """The generator of a task's examples in one split; `store` is the task's own."""
    return GENERATORS[spec.task](spec, split, seed, store)

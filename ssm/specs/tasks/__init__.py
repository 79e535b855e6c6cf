"""The tasks, one file each: what a run may read instead of text.

A new one: its spec here, its module in ssm/data/tasks/, a line in both registries.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Discriminator, Field, Tag

from ssm.base.errors import ConfigError
from ssm.base.outside import read_json, shaped
from ssm.specs.data import Data, DataSpec
from ssm.specs.registry import check_specs, kind_of
from ssm.specs.tasks.base import Task
from ssm.specs.tasks.copy import CopyTask
from ssm.specs.tasks.facts import FactsTask
from ssm.specs.tasks.needle import NeedleTask
from ssm.specs.tasks.passkey import PasskeyTask
from ssm.specs.tasks.pixels import PixelsTask
from ssm.specs.tasks.recall import RecallTask
from ssm.specs.tasks.ruler import RulerTask
from ssm.specs.tasks.sort import SortTask
from ssm.specs.tasks.stack_copy import StackCopyTask

SPECS: tuple[type[Task], ...] = (
    CopyTask,
    StackCopyTask,
    SortTask,
    PasskeyTask,
    NeedleTask,
    FactsTask,
    PixelsTask,
    RecallTask,
    RulerTask,
)
KEY = "task"  # by which config files name one
check_specs(__name__, SPECS, modules="ssm.data.tasks", key=KEY)


def _kind(value: Any) -> str:
    """The name of the task that plain data, or a spec, is of; without one it is text."""
    return str(value.get(KEY, "text") if isinstance(value, dict) else getattr(value, KEY, "text"))


if TYPE_CHECKING:
    TaskSpec = Task
    AnyData = Data
else:  # unions over a tuple: the registry above is the only list
    TaskSpec = Annotated[Union[SPECS], Field(discriminator=KEY)]  # noqa: UP007
    _TAGGED = [Annotated[spec, Tag(kind_of(spec, KEY))] for spec in SPECS]
    AnyData = Annotated[Union[(Annotated[DataSpec, Tag("text")], *_TAGGED)], Discriminator(_kind)]


def parse_data(value: Any, source: str) -> Data:
    """Plain data as a text or a task. Raises as `Spec.parse`."""
    kind: Any = AnyData
    found: Data = shaped(value, kind, source, ConfigError)
    return found


def load_data(path: str | Path) -> Data:
    """A text or a task that `ssm plan` wrote as JSON. Raises as `Spec.load`."""
    missing = f"{path}: no such spec; `ssm plan --write` makes them"
    return parse_data(read_json(path, ConfigError, "JSON spec", missing), str(path))

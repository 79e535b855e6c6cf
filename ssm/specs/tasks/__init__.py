"""Specs of the tasks, one file for each. The generator of examples is in ssm/data/tasks/."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Discriminator, Tag

from ssm.base.errors import ConfigError
from ssm.base.strict_parsing import shaped
from ssm.specs.base import plugin_union, read_spec
from ssm.specs.data import Data, DataSpec
from ssm.specs.tasks.base import KEY, SPECS, Task


def _kind(value: Any) -> str:
    """The name of the task of plain data or of a spec; "text" without a task."""
    return str(value.get(KEY, "text") if isinstance(value, dict) else getattr(value, KEY, "text"))


if TYPE_CHECKING:
    TaskSpec = Task
    AnyData = Data
else:
    TaskSpec = plugin_union(SPECS, "ssm.data.tasks", KEY)
    _TAGGED = [Annotated[spec, Tag(name)] for name, spec in SPECS.items()]
    AnyData = Annotated[Union[(Annotated[DataSpec, Tag("text")], *_TAGGED)], Discriminator(_kind)]


def parse_data(value: Any, source: str) -> Data:
    """Validate plain data as a text or a task. Raises as `Spec.parse`."""
    kind: Any = AnyData
    data: Data = shaped(value, kind, source, ConfigError)
    return data


def load_data(path: str | Path) -> Data:
    """Read a text or a task that `ssm plan` wrote as JSON. Raises as `Spec.load`."""
    return parse_data(read_spec(path, Data), str(path))

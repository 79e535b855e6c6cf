"""The tasks, one file each: what a run may read instead of text.

A new one: its spec here, and its generator in ssm/data/tasks/.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Discriminator, Field, Tag

from ssm.base.errors import ConfigError
from ssm.base.plugin_modules import check_files
from ssm.base.strict_parsing import read_json, shaped
from ssm.specs.data import Data, DataSpec
from ssm.specs.tasks.base import KEY, SPECS, Task

SPECS.discover()
check_files(SPECS, "ssm.data.tasks")


def _kind(value: Any) -> str:
    """The name of the task that plain data, or a spec, is of; without one it is text."""
    return str(value.get(KEY, "text") if isinstance(value, dict) else getattr(value, KEY, "text"))


if TYPE_CHECKING:
    TaskSpec = Task
    AnyData = Data
else:  # unions over what the folder holds
    TaskSpec = Annotated[Union[tuple(SPECS.values())], Field(discriminator=KEY)]  # noqa: UP007
    _TAGGED = [Annotated[spec, Tag(name)] for name, spec in SPECS.items()]
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

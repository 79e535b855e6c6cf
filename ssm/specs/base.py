"""What every spec shares: frozen, strict, unknown keys refused with the nearest valid name, a content id."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ssm.base.errors import ConfigError, nearest, shown
from ssm.base.prose import checked
from ssm.base.strict_parsing import first_problem, read_json

SCALES = ("smoke", "gpu", "paper")
T = TypeVar("T")


class Spec(BaseModel):
    """A frozen description. Equal content means equal id; unknown keys and wrong types are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    not_hashed: ClassVar[frozenset[str]] = frozenset()  # fields excluded from the hash: names and speed settings
    later: ClassVar[frozenset[str]] = frozenset()  # fields added after the first ids of this class were computed

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, value: Any) -> Any:
        if isinstance(value, dict):
            names = [field.alias or name for name, field in cls.model_fields.items()]
            for key in value:
                if key not in names:
                    told = {"key": shown(key), "hint": nearest(str(key), names)}
                    raise PydanticCustomError("unknown_key", "unknown key {key}; {hint}", told)
        return value

    @classmethod
    def later_fields(cls) -> frozenset[str]:
        """All `later` fields, those of the base classes included."""
        return _later_fields(cls)

    @model_serializer(mode="wrap")
    def _leave_out_later_fields(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The content without the later fields that hold their default, so that ids stay as they were before them."""
        fields = type(self).model_fields
        unset = {name for name in self.later_fields() if getattr(self, name) == fields[name].default}
        return {key: value for key, value in plain(self).items() if key not in unset}

    def content(self) -> dict[str, Any]:
        """The spec as plain data, ready for JSON."""
        return self.model_dump(mode="json", by_alias=True)

    def canonical_content(self) -> Any:
        """The content without fields that are `not_hashed`, at any depth: what a preregistration hashes."""
        return _canonical(self, self.content())

    @property
    def content_hash(self) -> str:
        """Eight hex digits of the SHA-256 of the canonical JSON content."""
        return short_hash(self.content())

    @classmethod
    def parse(cls, value: Any, source: str) -> Self:
        """Validate plain data (from YAML or JSON).

        Args:
            value: what the file holds.
            source: the file and, where there is one, the key's path inside it: the error's first word.

        Raises:
            ConfigError: one line, naming file, key, what was expected and the nearest valid name.
        """
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise ConfigError(f"{source}: {first_problem(error, value)}") from error

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a spec that `ssm plan` wrote as JSON.

        Raises:
            ConfigError: the file is missing, not JSON, or not such a spec.
        """
        missing = f"{path}: no such spec; `ssm plan --write` makes them"
        value = read_json(path, ConfigError, "JSON spec", missing)
        return cls.parse(value, str(path))


@cache
def _later_fields(spec: type[Spec]) -> frozenset[str]:
    return frozenset().union(*(vars(base).get("later", ()) for base in spec.__mro__))


def _canonical(value: Any, content: Any) -> Any:
    """`Spec.canonical_content` of a spec, or of what a field of one holds, whose plain content is `content`."""
    if isinstance(value, Spec):
        return {
            key: _canonical(getattr(value, key, None), item)
            for key, item in content.items()
            if key not in value.not_hashed
        }
    if isinstance(value, dict):
        return {key: _canonical(*pair) for key, *pair in zip(content, value.values(), content.values(), strict=True)}
    if isinstance(value, list | tuple):
        return [_canonical(*pair) for pair in zip(value, content, strict=True)]
    return content


def short_hash(content: Any, digits: int = 8) -> str:
    """The first hex digits of the SHA-256 of plain data, as canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def _no_twice(values: tuple[T, ...]) -> tuple[T, ...]:
    twice = next((value for place, value in enumerate(values) if value in values[:place]), None)
    if twice is not None:
        raise ValueError(f"{shown(twice)} is given twice")
    return values


Distinct = AfterValidator(_no_twice)  # for a tuple in which nothing may count twice
Prose = Annotated[str, AfterValidator(checked)]  # may hold formulas (ssm/base/prose.py)
Setting = str | bool | int | float  # what a column of a table holds
# Windows or examples that a measurement reads. The bound refuses a slip that would be read for days.
ReadCount = Annotated[PositiveInt, Field(le=100_000)]
LONGEST_NAME = 80
Name = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]  # becomes a part of the names of files


def slug(*parts: object) -> str:
    """Readable file-name pieces joined by '_': letters, digits, '.', '-' only.

    >>> slug("mamba2 45m", "T=1024", "", "s1")
    'mamba2-45m_T-1024_s1'
    """
    cleaned = (re.sub(r"[^A-Za-z0-9.]+", "-", str(part)).strip("-") for part in parts)
    return "_".join(part for part in cleaned if part)

"""The base class of all specs: frozen, strict about keys and types, with an id made from the content."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, Union, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ssm.base.discovery import Registry
from ssm.base.errors import ConfigError, nearest, shown
from ssm.base.plugin_modules import check_files
from ssm.base.prose import checked
from ssm.base.strict_parsing import first_problem, option_problem, read_json

Scale = Literal["smoke", "desk", "gpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
# The key that only specs of a kind have -> the kind, for the files that `ssm plan --write` makes
KINDS = {"training": "a run", "measurement": "a measurement", "figure": "a figure", "name": "a data set"}
INHERITED: dict[str, Scale] = {"desk": "smoke"}  # scale -> the scale whose values it takes where it has none of its own
LONGEST_NAME = 80
T = TypeVar("T")


class Spec(BaseModel):
    """A frozen description. Equal content gives an equal id. Unknown keys and wrong types are errors.

    The comment at a field is its text in docs/reference.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    __slots__ = ("_hash",)  # `content_hash`: not in __dict__, which a copy takes over and a serializer takes for fields
    _hash: str

    # fields that a preregistration leaves out (`canonical_content`), such as names and speed settings; ids have them
    not_hashed: ClassVar[frozenset[str]] = frozenset()
    later: ClassVar[frozenset[str]] = frozenset()  # fields added after the first ids of this class were computed

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, value: Any) -> Any:
        if isinstance(value, dict):
            names = [field.alias or name for name, field in cls.model_fields.items()]
            for key in value:
                if key not in names:
                    context = {"key": shown(key), "hint": nearest(str(key), names)}
                    raise PydanticCustomError("unknown_key", "unknown key {key}; {hint}", context)
        return value

    @classmethod
    def later_fields(cls) -> frozenset[str]:
        """The `later` fields of this class and of its base classes."""
        return _later_fields(cls)

    @model_serializer(mode="wrap")
    def _leave_out_later_fields(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out later fields with their default value: the id stays what it was before the field was added."""
        content: dict[str, Any] = plain(self)
        for name in self.later_fields():
            if getattr(self, name) == type(self).model_fields[name].default:
                content.pop(name, None)
        return content

    def content(self) -> dict[str, Any]:
        """The spec as plain data, ready for JSON."""
        return self.model_dump(mode="json", by_alias=True)

    def canonical_content(self) -> Any:
        """The content without the `not_hashed` fields, at any depth. A preregistration hashes this."""
        return _canonical(self, self.content())

    @property
    def content_hash(self) -> str:
        """Eight hex digits of the SHA-256 of the content as canonical JSON."""
        try:
            return self._hash
        except AttributeError:  # a plan reads it tens of thousands of times
            object.__setattr__(self, "_hash", short_hash(self.content()))
            return self._hash

    @classmethod
    def parse(cls, value: Any, source: str) -> Self:
        """Validate plain data (from YAML or JSON).

        Args:
            value: the content of the file.
            source: the file, and the path of the key inside it if there is one. The error begins with it.

        Raises:
            ConfigError: one line with the file, the key, the expected value and the nearest valid name.
        """
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise ConfigError(f"{source}: {first_problem(error, value)}") from error

    @classmethod
    def of_options(
        cls, given: dict[str, Any], options: Collection[str], others: Mapping[str, str], source: str
    ) -> Self:
        """Validate values that come from a command line.

        Args:
            given: field -> value.
            options, others: as in `option_problem`.
            source: begins the error; empty: nothing does.

        Raises:
            ConfigError: one line with the option and the expected value.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            begin = f"{source}: " if source else ""
            raise ConfigError(begin + option_problem(error, options, others)) from error

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a spec that `ssm plan` wrote as JSON.

        Raises:
            ConfigError: the file is missing, is not JSON, or holds another kind of spec.
        """
        return cls.parse(read_spec(path, cls), str(path))


def read_spec(path: str | Path, expected: type[Spec]) -> Any:
    """The content of a spec that `ssm plan` wrote as JSON.

    Raises:
        ConfigError: the file is missing, is not JSON, or holds another kind of spec than `expected`.
    """
    content = read_json(path, ConfigError, "JSON spec", f"{path}: no such spec; `ssm plan --write` makes them")
    keys = content if isinstance(content, dict) else ()
    found, wanted = ([kind for key, kind in KINDS.items() if key in of] for of in (keys, expected.model_fields))
    if found and wanted and wanted[0] not in found:
        raise ConfigError(f"{path}: the spec of {found[0]}; expected the spec of {wanted[0]}")
    return content


@cache
def _later_fields(spec: type[Spec]) -> frozenset[str]:
    return frozenset().union(*(vars(base).get("later", ()) for base in spec.__mro__))


class PluginSpec(Spec, ABC):
    """A spec that registers itself under its name: the default of its field `registry_key`."""

    registry: ClassVar[Registry[Any]]
    registry_key: ClassVar[str] = "kind"

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.registry.add_spec(cls, cls.registry_key)


def plugin_union(specs: Registry[Any], modules: str | None = None, key: str = "kind") -> Any:
    """The type of a field that takes any spec of a folder. A file chooses the spec by `key`.

    Args:
        specs: the registry of the folder, which is read here.
        modules: the package in which every spec has a module of the same name; None if a spec needs no module.

    Raises:
        RegistryError: a spec has a wrong name, lacks something, or has no module.
    """
    specs.discover()
    if modules is not None:
        check_files(specs, modules)
    return Annotated[Union[tuple(specs.values())], Field(discriminator=key)]  # noqa: UP007


def _canonical(value: Any, content: Any) -> Any:
    """`Spec.canonical_content` of a spec or of the value of a field; `content` is the same as plain data."""
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


def given_twice(values: Sequence[T]) -> T | None:
    """The first value that an earlier one equals; None: all differ."""
    return next((value for place, value in enumerate(values) if value in values[:place]), None)


def _distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    twice = given_twice(values)
    if twice is not None:
        raise ValueError(f"{shown(twice)} is given twice")
    return values


def _ascending(values: tuple[float, ...]) -> tuple[float, ...]:
    if list(values) != sorted(set(values)):
        raise ValueError(f"must ascend, got {list(values)}")
    return values


Distinct = AfterValidator(_distinct)  # for a tuple without duplicates
Ascending = AfterValidator(_ascending)  # for a tuple of numbers, each above the one before it
Names = Annotated[tuple[str, ...], Field(strict=False), Distinct]
PositiveInts = Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1), Distinct]
PositiveFloats = Annotated[tuple[PositiveFloat, ...], Field(strict=False, min_length=1), Distinct]
Prose = Annotated[str, AfterValidator(checked)]  # text for readers, which may contain formulas (ssm/base/prose.py)
Setting = str | bool | int | float  # a value in a column of a table
# Number of windows or examples that a measurement reads. The limit catches typing errors that would cost days.
ReadCount = Annotated[PositiveInt, Field(le=100_000)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]  # becomes part of file names


def slug(*parts: object) -> str:
    """Join the parts by '_' for a file name. Other characters than letters, digits and '.' become '-'.

    >>> slug("mamba2 45m", "T=1024", "", "s1")
    'mamba2-45m_T-1024_s1'
    """
    cleaned = (re.sub(r"[^A-Za-z0-9.]+", "-", str(part)).strip("-") for part in parts)
    return "_".join(part for part in cleaned if part)

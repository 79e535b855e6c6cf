"""What every spec shares: frozen, strict, unknown keys refused with the nearest valid name, a content id."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from ssm.base.errors import ConfigError, nearest

SCALES = ("smoke", "gpu", "paper")


class Spec(BaseModel):
    """A frozen description. Equal content means equal id; unknown keys and wrong types are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    beside: ClassVar[frozenset[str]] = frozenset()  # fields that say what it is called or how fast it is made

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, value: Any) -> Any:
        if isinstance(value, dict):
            names = [field.alias or name for name, field in cls.model_fields.items()]
            for key in value:
                if key not in names:
                    hint = nearest(str(key), names)
                    raise PydanticCustomError("unknown_key", "unknown key '{key}'; {hint}", {"key": key, "hint": hint})
        return value

    def content(self) -> dict[str, Any]:
        """The spec as plain data, ready for JSON."""
        return self.model_dump(mode="json", by_alias=True)

    def deciding(self) -> Any:
        """The content without what stands `beside` it, at any depth: what decides the numbers that come of it."""
        return _deciding(self, self.content())

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
            raise ConfigError(f"{source}: {_first_problem(error, value)}") from error

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a spec that `ssm plan` wrote as JSON.

        Raises:
            ConfigError: the file is missing, not JSON, or not such a spec.
        """
        path = Path(path)
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ConfigError(f"{path}: no such spec; `ssm plan --write` makes them") from error
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ConfigError(f"{path}: not a readable JSON spec ({error})") from error
        return cls.parse(value, str(path))


def without(content: dict[str, Any], **defaults: object) -> dict[str, Any]:
    """Content that leaves fields out at these defaults: ids that are older than a field stay what they were."""
    return {name: value for name, value in content.items() if name not in defaults or value != defaults[name]}


def _deciding(value: Any, content: Any) -> Any:
    """`Spec.deciding` of a spec, or of what a field of one holds, whose plain content is `content`."""
    if isinstance(value, Spec):
        return {
            key: _deciding(getattr(value, key, None), item) for key, item in content.items() if key not in value.beside
        }
    if isinstance(value, dict):
        return {key: _deciding(*pair) for key, *pair in zip(content, value.values(), content.values(), strict=True)}
    if isinstance(value, list | tuple):
        return [_deciding(*pair) for pair in zip(value, content, strict=True)]
    return content


def short_hash(content: Any, digits: int = 8) -> str:
    """The first hex digits of the SHA-256 of plain data, as canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def slug(*parts: object) -> str:
    """Readable file-name pieces joined by '_': letters, digits, '.', '-' only.

    >>> slug("mamba2 45m", "T=1024", "", "s1")
    'mamba2-45m_T-1024_s1'
    """
    cleaned = (re.sub(r"[^A-Za-z0-9.]+", "-", str(part)).strip("-") for part in parts)
    return "_".join(part for part in cleaned if part)


def _first_problem(error: ValidationError, value: Any) -> str:
    """The first problem of `value`, and how many more there are, as one line."""
    problems = error.errors(include_url=False)
    problem = problems[0]
    where = ".".join(_path(problem["loc"], value, problem["type"] == "missing"))
    text = problem["msg"].removeprefix("Value error, ").replace("\n", " ")
    if problem["type"] in ("union_tag_invalid", "literal_error"):
        expected = str(problem.get("ctx", {}).get("expected_tags") or problem.get("ctx", {}).get("expected", ""))
        given = problem.get("ctx", {}).get("tag", problem["input"])
        names = re.findall(r"'([^']*)'", expected)
        text = f"unknown name '{given}'; {nearest(str(given), names)}"
    elif problem["type"] == "missing":
        text = "this key is required and is missing"
    elif problem["type"] == "union_tag_not_found":
        text = f"the key {problem['ctx']['discriminator']}, which says what kind of thing this is, is missing"
    elif problem["type"] != "unknown_key" and not isinstance(problem["input"], dict | list):
        text = f"{text[0].lower()}{text[1:]}, got {problem['input']!r}"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{where + ': ' if where else ''}{text}{more}"


def _path(places: tuple[int | str, ...], value: Any, missing: bool) -> list[str]:
    """The keys of a problem's place as the file has them: without the names that pydantic gives a union's members.

    Args:
        missing: the last place is a key that the file lacks.
    """
    keys = []
    for number, place in enumerate(places):
        try:
            value = value[place]
        except (KeyError, IndexError, TypeError):
            if not (missing and number == len(places) - 1):
                continue
        keys.append(str(place))
    return keys

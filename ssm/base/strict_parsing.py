"""What comes from outside: JSON and YAML, read without surprises, and checked against the shape that they should have.

A file is bounded before it is read (bytes) and afterwards (nesting, digits). A key that is given twice, a number that
is none, a text that is none and whatever else a reader could take in two ways is refused. Every error is one line with
the file and, where there is one, the key's path inside it. JSON may come from strangers, with a checkpoint; YAML is the
user's own, and what its aliases stand for is not bounded.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from ssm.base.errors import UserError, nearest, printable, shortened, shown

T = TypeVar("T")

JSON_BYTES = 64 * 2**20  # an index of shards and a manifest of thousands of files have some MB
YAML_BYTES = 2**18  # what is written by hand; Python reads 100 kB of YAML in a second
DEPTH = 48  # lists and mappings inside each other
WHOLE = 2**63  # whole numbers are below


class _RefusedError(ValueError):
    """What a reader does not take, in words."""


# --- Files ------------------------------------------------------------------------------------------------------------


def read_json(
    path: str | Path,
    error: type[UserError],
    what: str,
    missing: str | None = None,
    finite: bool = True,
) -> Any:
    """The value in a JSON file.

    Args:
        error: what is raised.
        what: the file is, in words ("JSON spec").
        missing: what is said where it is not there, the path included.
        finite: refuse NaN and Infinity, which are no JSON and which Python writes all the same.

    Raises:
        UserError: of the kind `error`, one line: missing, too large, not UTF-8, not JSON, too deep.
    """
    return _read(path, lambda content: _json(content, finite), JSON_BYTES, error, what, missing)


def parse_json(text: str | bytes, source: str, error: type[UserError], what: str) -> Any:
    """The value of a JSON text that stands in something else. Raises as `read_json`, `source` being its place."""
    try:
        return _json(text, finite=True)
    except ValueError as problem:
        raise error(f"{source}: not {_a(what)} ({_words(problem)})") from problem


def read_yaml(path: str | Path, error: type[UserError], what: str, missing: str | None = None) -> Any:
    """The value in a YAML file: text, numbers, true and false, null, lists and mappings.

    Raises:
        UserError: of the kind `error`, one line: as `read_json`, and where what stands in it is no plain data.
    """
    return _read(path, _yaml, YAML_BYTES, error, what, missing)


def parse_yaml(text: str, source: str, error: type[UserError]) -> Any:
    """The value of a YAML text, say of an argument. Raises as `read_yaml`, `source` being its place."""
    try:
        return _yaml(text)
    except (yaml.YAMLError, ValueError) as problem:
        raise error(f"{source}: the value is not valid YAML ({_words(problem)})") from problem


def _read(
    path: str | Path,
    parse: Callable[[bytes], Any],
    most: int,
    error: type[UserError],
    what: str,
    missing: str | None,
) -> Any:
    try:
        with Path(path).open("rb") as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise _RefusedError(f"it has more than {most:,} bytes")
        return parse(content)
    except (FileNotFoundError, NotADirectoryError) as problem:
        raise error(missing or f"{path}: no such file") from problem
    except yaml.MarkedYAMLError as problem:
        line = f":{problem.problem_mark.line + 1}" if problem.problem_mark else ""
        raise error(f"{path}{line}: {_words(problem)}") from problem
    except (OSError, yaml.YAMLError, ValueError) as problem:
        raise error(f"{path}: not a readable {what} ({_words(problem)})") from problem


def _words(problem: Exception) -> str:
    """What an error says, without the value that it is about."""
    if isinstance(problem, yaml.MarkedYAMLError):
        return shortened(problem.problem or "not valid YAML", 300)
    if isinstance(problem, UnicodeDecodeError):
        return f"no UTF-8: byte {problem.object[problem.start]:#04x} at {problem.start}"
    if isinstance(problem, OSError):
        return problem.strerror or type(problem).__name__
    return shortened((str(problem).strip().splitlines() or [type(problem).__name__])[0], 300)


# --- JSON -------------------------------------------------------------------------------------------------------------


_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")  # or a whole one


def _json(content: str | bytes, finite: bool) -> Any:
    """Raises ValueError."""
    text = content.decode("utf-8") if isinstance(content, bytes) else content
    try:
        value = json.loads(
            text,
            object_pairs_hook=_once,
            parse_int=_whole,
            parse_float=_finite if finite else float,
            parse_constant=_no_number if finite else float,
        )
    except RecursionError:
        raise _RefusedError(f"it is nested more than {DEPTH} deep") from None
    _check_depth(value)
    if _HALF_PAIR.search(text):
        _check_unicode(json.dumps(value, ensure_ascii=False))
    return value


def _check_unicode(text: str) -> None:
    """An escape can spell half of a surrogate pair: no file can hold such a text, and no terminal can show it."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise _RefusedError("it holds half of a surrogate pair, which is no character")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _RefusedError(f"the key {shown(name)} is given twice")
        found[name] = value
    return found


def _whole(text: str) -> int:
    if len(text) > len(str(WHOLE)) or not -WHOLE < int(text) < WHOLE:
        raise _RefusedError(f"the number {shortened(text, 24)} is too large")
    return int(text)


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise _RefusedError(f"the number {shortened(text, 24)} is too large")
    return float(text)


def _no_number(name: str) -> NoReturn:
    raise _RefusedError(f"{name} is no number")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH + 1):
        # Each once: an alias may stand for what it is a part of, several times.
        level = [*{id(part): part for part in level if isinstance(part, dict | list)}.values()]
        if not level:
            return
        level = [item for part in level for item in (part.values() if isinstance(part, dict) else part)]
    raise _RefusedError(f"it is nested more than {DEPTH} deep")


# --- YAML -------------------------------------------------------------------------------------------------------------


_BOOL = "tag:yaml.org,2002:bool"


class _Loader(yaml.SafeLoader):
    """The safe loader, strict about keys that stand twice."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Checked here, because construction writes merged keys (<<) into the nodes.
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key must be a single word", problem_mark=key.start_mark)
            if key.value in seen:  # 1 and "1" are one key as well
                problem = f"the key {shown(key.value)} is given twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            if key.tag == _BOOL and key.value.lower() not in ("true", "false"):  # to YAML 1.1 on and off are no words
                key.tag = yaml.resolver.BaseResolver.DEFAULT_SCALAR_TAG
            seen.add(key.value)
        return node


# YAML 1.1 takes 4e-3 for text, because it has no point; every reader of a config file takes it for a number.
_POINTLESS = re.compile(r"^[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _POINTLESS, list("-+0123456789"))


def pointless_numbers(value: Any) -> Any:
    """The same plain data, with numbers for texts such as "4e-3": of a reader that keeps to the letter of YAML 1.1."""
    if isinstance(value, dict):
        return {key: pointless_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [pointless_numbers(item) for item in value]
    return float(value) if isinstance(value, str) and _POINTLESS.match(value) else value


def _yaml(content: str | bytes) -> Any:
    """Raises yaml.YAMLError or ValueError."""
    text = content.decode("utf-8") if isinstance(content, bytes) else content
    try:
        value = yaml.load(text, Loader=_Loader)
    except RecursionError:
        raise _RefusedError(f"it is nested more than {DEPTH} deep") from None
    except (TypeError, AttributeError) as problem:  # of the package, on tags that do not fit
        raise _RefusedError("its tags do not fit its values") from problem
    _check_depth(value)  # without end where an alias stands for what it is a part of
    _check_plain(value, "")
    return value


def _check_plain(value: Any, key: str) -> None:
    where = f"{shortened(key)}: " if key else ""
    if isinstance(value, dict):
        for name, item in value.items():
            if type(name) not in (str, int):
                raise _RefusedError(f"{where}the key {shown(name)} is no text")
            _check_unicode(str(name))
            _check_plain(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            _check_plain(item, f"{key}.{place}")
    elif isinstance(value, str):
        _check_unicode(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _RefusedError(f"{where}{'not a number' if value != value else 'infinity'} stands for no setting")
    elif isinstance(value, int) and not -WHOLE < value < WHOLE:
        raise _RefusedError(f"{where}the number is too large")
    elif value is not None and not isinstance(value, int | float):
        raise _RefusedError(f"{where}expected text or a number, got a {type(value).__name__}")


# --- Shapes -----------------------------------------------------------------------------------------------------------


@lru_cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def shaped(value: Any, kind: type[T], source: str, error: type[UserError]) -> T:
    """Plain data as a `kind` (a model of pydantic, a dataclass, a type).

    Raises:
        UserError: of the kind `error`, one line: where the value is not of this shape.
    """
    try:
        # mypy does not take a class for hashable, which lru_cache asks for.
        return _adapter(kind).validate_python(value)  # type: ignore[arg-type]
    except ValidationError as problem:
        raise error(f"{source}: {first_problem(problem, value)}") from problem


# What pydantic calls a problem, and what we call what it expected.
EXPECTED = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("tuple_type", "list_type", "iterable_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "dataclass_type"), "a mapping"),
    "string_type": "text",
    "none_required": "null",
    "finite_number": "a finite number",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number from {ge} on",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number up to {le}",
    "string_too_short": "at least {min_length} character",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
    "too_short": "at least {min_length} entry",
    "too_long": "at most {max_length} entries",
}


def first_problem(error: ValidationError, value: Any) -> str:
    """The first problem of `value`, and how many more there are, as one line."""
    problems = error.errors(include_url=False)
    where = ".".join(_path(problems[0]["loc"], value, problems[0]["type"] == "missing"))
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{shortened(printable(where)) + ': ' if where else ''}{problem_words(problems[0])}{more}"


def problem_words(problem: ErrorDetails) -> str:
    """What one problem is, without its place."""
    kind, given, told = problem["type"], problem["input"], problem.get("ctx", {})
    if kind in ("union_tag_invalid", "literal_error"):
        names = re.findall(r"'([^']*)'", str(told.get("expected_tags") or told.get("expected", "")))
        given = told.get("tag", given)
        return f"unknown name {_quoted(given)}; {nearest(str(given), names)}"
    if kind == "missing":
        return "this key is required and is missing"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return "unknown key"
    if kind == "union_tag_not_found":
        return f"the key {told['discriminator']}, which says what kind of thing this is, is missing"
    if kind in EXPECTED:
        bounds = {name: f"{bound:g}" if isinstance(bound, float) else bound for name, bound in told.items()}
        return f"expected {EXPECTED[kind].format(**bounds)}, got {_got(given)}"
    text = problem["msg"].removeprefix("Value error, ").replace("\n", " ")
    if kind == "unknown_key" or isinstance(given, dict | list | tuple):
        return text
    return f"{text[:1].lower()}{text[1:]}, got {_got(given)}"


def _got(value: Any) -> str:
    if isinstance(value, dict | list | tuple):
        return shown(value) if len(value) == 0 else "a mapping" if isinstance(value, dict) else "a list"
    return shown(value)


def _quoted(value: Any) -> str:
    return f"'{shortened(printable(value))}'" if isinstance(value, str) else shown(value)


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


def _a(what: str) -> str:
    return f"{'an' if what[0] in 'aeio' else 'a'} {what}"

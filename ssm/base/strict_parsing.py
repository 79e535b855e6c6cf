"""Strict reading of JSON and YAML, and checks of their types.

The size of a file is limited before it is read, and its nesting and digits are limited afterwards. Ambiguous content is
an error: duplicate keys, values that are neither text nor finite numbers, invalid characters. Every error is one line
with the file and the path of the key, if there is one. JSON may come from strangers, together with a checkpoint. YAML
is the user's own, so the expansion of aliases is not limited.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from ssm.base.counting import counted
from ssm.base.errors import UserError, first_line, nearest, printable, shortened, shown

T = TypeVar("T")

JSON_BYTES = 64 * 2**20  # index files of shards and manifests of thousands of files have a few MB
YAML_BYTES = 2**18  # enough for files written by hand; Python reads 100 kB of YAML per second
DEPTH = 48  # deepest nesting of lists and mappings
WHOLE = 2**63  # whole numbers must be smaller


class _RefusedError(ValueError):
    """The reason why a content is refused."""


# --- Files ------------------------------------------------------------------------------------------------------------


def read_json(
    path: str | Path,
    error: type[UserError],
    what: str,
    missing: str | None = None,
    finite: bool = True,
    large: bool = False,
) -> Any:
    """The value in a JSON file.

    Args:
        error: class of the error that is raised.
        what: description of the file ("JSON spec").
        missing: message if the file does not exist, including the path.
        finite: refuse NaN and Infinity. They are not valid JSON, but Python writes them.
        large: accept whole numbers from 2^63 on. transformers writes 10^30 where a length has no limit.

    Raises:
        UserError: an `error` of one line: the file is missing, too large, not UTF-8, not JSON, or nested too deep.
    """
    return _read(path, lambda content: _json(content, finite, large), JSON_BYTES, error, what, missing)


def parse_json(text: str | bytes, source: str, error: type[UserError]) -> Any:
    """The value of a JSON text from `source`. Raises like `read_json`."""
    try:
        return _json(text, finite=True)
    except ValueError as problem:
        raise error(f"{source}: not a JSON object ({_words(problem)})") from problem


def read_yaml(path: str | Path, error: type[UserError], missing: str | None = None) -> Any:
    """The value in a YAML file: text, numbers, true and false, null, lists and mappings.

    Raises:
        UserError: an `error` of one line, as in `read_json`, or because the content is not plain data.
    """
    return _read(path, _yaml, YAML_BYTES, error, "YAML file", missing)


def parse_yaml(text: str, source: str, error: type[UserError]) -> Any:
    """The value of a YAML text from `source`, such as an argument. Raises like `read_yaml`."""
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
    """The message of an error, without the value that caused it."""
    if isinstance(problem, yaml.MarkedYAMLError):
        return shortened(_yaml_words(problem), 300)
    if isinstance(problem, UnicodeDecodeError):
        return f"not UTF-8: byte {problem.object[problem.start]:#04x} at {problem.start}"
    if isinstance(problem, OSError):
        return problem.strerror or type(problem).__name__
    return shortened(first_line(problem), 300)


# --- JSON -------------------------------------------------------------------------------------------------------------


_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")  # also matches whole pairs


def _json(content: str | bytes, finite: bool, large: bool = False) -> Any:
    """Raises ValueError."""
    text = content.decode("utf-8") if isinstance(content, bytes) else content
    try:
        value = json.loads(
            text,
            object_pairs_hook=_once,
            parse_int=int if large else _whole,
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
    """Refuse half of a surrogate pair, which an escape can produce. No file or terminal can represent it."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise _RefusedError("it contains half of a surrogate pair, which is not a character")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for name, value in pairs:
        if name in mapping:
            raise _RefusedError(f"the key {shown(name)} is given twice")
        mapping[name] = value
    return mapping


def can_be_stored(number: int) -> bool:
    """Whether a file with this whole number is read again."""
    return -WHOLE < number < WHOLE


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > len(str(WHOLE)) or not can_be_stored(int(text)):
        raise _RefusedError(f"the number {shortened(text, 24)} is too large")
    return int(text)


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise _RefusedError(f"the number {shortened(text, 24)} is too large")
    return float(text)


def _no_number(name: str) -> NoReturn:
    raise _RefusedError(f"{name} is not a number")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH + 1):
        # Each object once: an alias can refer to an object that contains it.
        level = [*{id(part): part for part in level if isinstance(part, dict | list)}.values()]
        if not level:
            return
        level = [item for part in level for item in (part.values() if isinstance(part, dict) else part)]
    raise _RefusedError(f"it is nested more than {DEPTH} deep")


# --- YAML -------------------------------------------------------------------------------------------------------------


_BOOL = "tag:yaml.org,2002:bool"


# The beginning of PyYAML's message -> our words. {line}: where the part begins that PyYAML was reading.
YAML_PROBLEMS = {
    "mapping values are not allowed here": "a text with ': ' needs quotes, or this line is indented too far",
    "could not find expected ':'": "expected ':' after the key in line {line}",
    "found character '\\t'": "expected spaces, got a tab",
    "found unexpected end of stream": "the quotes that begin in line {line} do not end",
    "expected <block end>": "this does not continue what begins in line {line}: check the indentation and the quotes",
}


def _yaml_words(problem: yaml.MarkedYAMLError) -> str:
    """The message of PyYAML in our words, or its own words with what it was reading."""
    said = problem.problem or "not valid YAML"
    mark = problem.context_mark
    line = mark.line + 1 if mark else 0
    for beginning, words in YAML_PROBLEMS.items():
        if said.startswith(beginning):
            return words.format(line=line)
    return f"{problem.context} (line {line}), {said}" if problem.context and line else said


class _Loader(yaml.SafeLoader):
    """The safe loader, which also refuses duplicate keys, and says which anchors are wrong."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        name, first = event.anchor, self.anchors.get(event.anchor)
        problem = ""
        if isinstance(event, yaml.AliasEvent) and first is None:
            problem = f"no anchor '&{name}' is above this alias; {nearest(name, self.anchors, 'define it first')}"
        elif not isinstance(event, yaml.AliasEvent) and first is not None:
            problem = f"the anchor '&{name}' is given twice; the first is in line {first.start_mark.line + 1}"
        if problem:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Checked here, because construction adds merged keys (<<) to the nodes.
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key must be a single word", problem_mark=key.start_mark)
            if key.value in seen:  # 1 and "1" are the same key
                problem = f"the key {shown(key.value)} is given twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            if key.tag == _BOOL and key.value.lower() not in ("true", "false"):  # YAML 1.1 reads on and off as booleans
                key.tag = yaml.resolver.BaseResolver.DEFAULT_SCALAR_TAG
            seen.add(key.value)
        return node


# YAML 1.1 reads 4e-3 as text, because it has no decimal point. People mean a number.
_POINTLESS = re.compile(r"^[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _POINTLESS, list("-+0123456789"))


def _yaml(content: str | bytes) -> Any:
    """Raises yaml.YAMLError or ValueError."""
    text = content.decode("utf-8") if isinstance(content, bytes) else content
    try:
        value = yaml.load(text, Loader=_Loader)
    except RecursionError:
        raise _RefusedError(f"it is nested more than {DEPTH} deep") from None
    except (TypeError, AttributeError) as problem:  # raised by yaml if tags do not match
        raise _RefusedError("its tags do not match its values") from problem
    _check_depth(value)  # first, because an alias that contains itself has no end
    _check_plain(value, "")
    return value


def _check_plain(value: Any, key: str) -> None:
    where = f"{shortened(key)}: " if key else ""
    if isinstance(value, dict):
        for name, item in value.items():
            if type(name) not in (str, int):
                raise _RefusedError(f"{where}the key {shown(name)} is not text")
            _check_unicode(str(name))
            _check_plain(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            _check_plain(item, f"{key}.{place}")
    elif isinstance(value, str):
        _check_unicode(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _RefusedError(f"{where}{'not a number' if value != value else 'infinity'} is not a valid value")
    elif isinstance(value, int) and not can_be_stored(value):
        raise _RefusedError(f"{where}the number is too large")
    elif value is not None and not isinstance(value, int | float):
        raise _RefusedError(f"{where}expected text or a number, got a {type(value).__name__}")


# --- Shapes -----------------------------------------------------------------------------------------------------------


@lru_cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def shaped(value: Any, kind: type[T], source: str, error: type[UserError]) -> T:
    """Convert plain data to a `kind` (a pydantic model, a dataclass or a type).

    Raises:
        UserError: an `error` of one line: the value does not match.
    """
    try:
        # mypy does not infer that a class is hashable, which lru_cache needs.
        return _adapter(kind).validate_python(value)  # type: ignore[arg-type]
    except ValidationError as problem:
        raise error(f"{source}: {first_problem(problem, value)}") from problem


# pydantic's name of a problem -> what was expected, in our words.
EXPECTED = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("tuple_type", "list_type", "iterable_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "dataclass_type"), "a mapping"),
    "string_type": "text",
    "none_required": "null",
    "finite_number": "a finite number",
    "multiple_of": "a multiple of {multiple_of}",
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
    """One line with the first problem of `value` and the number of further problems."""
    problems = error.errors(include_url=False)
    where = ".".join(_path(problems[0]["loc"], value, problems[0]["type"] == "missing"))
    more = f" (and {counted(len(problems) - 1, 'more problem')})" if len(problems) > 1 else ""
    return f"{shortened(printable(where)) + ': ' if where else ''}{problem_words(problems[0])}{more}"


def option(key: str) -> str:
    """The command-line option of a key.

    >>> option("batch_tokens")
    '--batch-tokens'
    """
    return f"--{key.replace('_', '-')}"


def option_problem(error: ValidationError, options: Collection[str], others: Mapping[str, str]) -> str:
    """One line with the first problem of values that come from a command line: it names the options.

    Args:
        options: keys that have options of the same name.
        others: keys whose option has another name -> that name.
    """
    problem = error.errors(include_url=False)[0]
    names = {key: option(key) for key in options} | {key: option(name) for key, name in others.items()}
    words = re.sub(r"\b(\w+) (?=\d)", lambda found: f"{names.get(found[1], found[1])} ", problem_words(problem))
    named = [names[str(key)] for key in problem["loc"] if str(key) in names]
    return f"{named[-1]}: {words}" if named else words


def problem_words(problem: ErrorDetails) -> str:
    """Description of one problem, without its place."""
    kind, given, told = problem["type"], problem["input"], problem.get("ctx", {})
    if kind in ("union_tag_invalid", "literal_error"):
        names = re.findall(r"'([^']*)'", str(told.get("expected_tags") or told.get("expected", "")))
        given = told.get("tag", given)
        return f"unknown name {shown(given)}; {nearest(str(given), names)}"
    if kind == "missing":
        return "this key is required and is missing"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return "unknown key"
    if kind == "union_tag_not_found":
        return f"the key {told['discriminator']} is missing; it selects the kind of this entry"
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


def _path(places: tuple[int | str, ...], value: Any, missing: bool) -> list[str]:
    """Path of a problem as keys of the file, without pydantic's names for union members.

    Args:
        missing: whether the last place is a missing key.
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

"""The tables of config keys in the reference: key, type, default, and meaning (the comment at the field)."""

from __future__ import annotations

import ast
import inspect
import io
import json
import re
import textwrap
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from ssm.specs.base import Spec
from ssm.specs.measurements.base import ArmsEntry

KINDS = frozenset({"kind", "task", "policy"})  # keys that are in the heading of a section
GIVEN = frozenset({"member", "target"})  # fields that no file sets


def escaped(text: str) -> str:
    """Escape the special characters of Markdown outside backticks."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*$<|])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def tables_of_keys(spec: type[Spec], keys: type[Spec], links: Mapping[str, str]) -> Iterator[str]:
    """The lines of a table of keys, and of a table for each nested spec that has no section.

    Args:
        spec: the spec with the comments.
        keys: the spec with the fields that a file can set.
        links: name of a spec -> the link to its section.
    """
    schema = keys.model_json_schema(by_alias=True)
    yield from _table(keys, spec, schema, schema.get("$defs", {}), links, "")


def _table(
    keys: type[Spec],
    spec: type[Spec],
    schema: dict[str, Any],
    definitions: dict[str, Any],
    links: Mapping[str, str],
    inside: str,
) -> Iterator[str]:
    words, rows, deeper = _words(spec), [], []
    common = ArmsEntry.model_fields if keys is not ArmsEntry and issubclass(keys, ArmsEntry) else {}
    # first what is read, then what it is compared with
    for name, field in sorted(keys.model_fields.items(), key=lambda field: field[0].startswith("against")):
        key = field.alias or name
        about, given = schema["properties"][key], spec.model_fields.get(name, field)
        of_the_entry = name == "name" and given.is_required()  # the file has it as the key of the entry
        if name in GIVEN or name in common or of_the_entry or (name in KINDS and "const" in about and not inside):
            continue
        default = "none" if given.is_required() else _default(given.get_default(call_default_factory=True))
        if field.is_required():
            default = "required"
        elif name == getattr(spec, "in_contexts", None):
            default = "or `times_context`"
        meaning = words.get(name, "")
        if name == "times_context" and name not in spec.model_fields:
            meaning, default = "the lengths in training contexts of the arm, instead of tokens", "none"
        rows.append(f"| `{key}` | {_type(about, definitions, links)} | {default} | {escaped(meaning)} |")
        deeper += [(key, name) for name in _names(about) if name not in links]
    if rows:
        yield from ((f"Keys of {inside}:", "") if inside else ())
        yield from ("| key | takes | default | meaning |", "|---|---|---|---|", *rows, "")
    classes = _classes()
    for key, name in dict.fromkeys(deeper):
        if "properties" in definitions[name]:
            own = classes[name]
            kind = own.model_fields["kind"].default if "kind" in own.model_fields else None
            title = f"`{key}`, kind `{kind}`" if kind else f"`{key}`"
            yield from _table(own, own, definitions[name], definitions, links, title)


def _default(value: Any) -> str:
    if value is None or value in ({}, ()):
        return "none"
    if isinstance(value, Spec) and len(value.content()) > 1:
        return "those below"
    return f"`{json.dumps(value, default=Spec.content)}`"


def _names(about: dict[str, Any]) -> list[str]:
    """The definitions that a schema refers to, also inside lists and choices."""
    if "$ref" in about:
        return [about["$ref"].rpartition("/")[2]]
    inner = [*about.get("anyOf", []), *about.get("oneOf", []), about.get("items"), about.get("additionalProperties")]
    return [name for part in inner if isinstance(part, dict) for name in _names(part)]


def _type(about: dict[str, Any], definitions: dict[str, Any], links: Mapping[str, str]) -> str:
    """The type of a value, in words."""
    if "const" in about or "enum" in about:
        return " or ".join(f"`{value}`" for value in about.get("enum", [about.get("const")]))
    options = [option for option in (*about.get("anyOf", []), *about.get("oneOf", [])) if option.get("type") != "null"]
    if options:
        names = [name for option in options for name in _names(option) if "$ref" in option]
        if len(names) == len(options) > 2 and names[0] in links:
            page = links[names[0]].partition("#")[0]
            return f"[one of these]({page})"
        return " or ".join(dict.fromkeys(_type(option, definitions, links) for option in options))
    if "$ref" in about:
        (name,) = _names(about)
        if name in links:
            return f"[keys]({links[name]})"
        return "keys" if "properties" in definitions[name] else _type(definitions[name], definitions, links)
    kind = about.get("type")
    if kind == "array" and "prefixItems" in about:
        return f"list of {len(about['prefixItems'])}"
    if kind == "array":
        return f"list: {_type(about.get('items', {}), definitions, links)}"
    if kind == "object":
        inner = about.get("additionalProperties")
        return f"name: {_type(inner, definitions, links)}" if isinstance(inner, dict) else "keys"
    plain = {"integer": "whole number", "number": "number", "string": "text", "boolean": "`true` or `false`"}
    return plain.get(str(kind), "any value") + _range(about)


def _range(about: dict[str, Any]) -> str:
    low, high = about.get("minimum"), about.get("maximum")
    above, below = about.get("exclusiveMinimum"), about.get("exclusiveMaximum")
    bounds = [f"at least {low:,}"] if low is not None else [f"above {above:,}"] if above is not None else []
    bounds += [f"at most {high:,}"] if high is not None else [f"below {below:,}"] if below is not None else []
    return "".join(f", {bound}" for bound in bounds)


@cache
def _classes() -> dict[str, type[Spec]]:
    """Name -> class of all specs."""
    waiting, classes = [Spec], dict[str, type[Spec]]()
    while waiting:
        spec = waiting.pop()
        classes[spec.__name__] = spec
        waiting += spec.__subclasses__()
    return classes


def _words(spec: type[Spec]) -> dict[str, str]:
    """Field -> its comment, also for fields of base classes."""
    meanings: dict[str, str] = {}
    for base in reversed(spec.__mro__):
        if issubclass(base, Spec):
            meanings |= _comments(base)
    return meanings


@cache
def _comments(spec: type[Spec]) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(spec))
    except (OSError, TypeError):  # made at run time
        return {}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token for token in tokens if token.type == tokenize.COMMENT}
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    meanings = {}
    for node in body.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        lines: list[int] = []
        above = node.lineno - 1
        while above in comments and not comments[above].line[: comments[above].start[1]].strip():
            lines.insert(0, above)
            above -= 1
        lines += [line for line in range(node.lineno, (node.end_lineno or node.lineno) + 1) if line in comments]
        meanings[node.target.id] = " ".join(comments[line].string.lstrip("# ") for line in lines)
    return {name: meaning for name, meaning in meanings.items() if meaning}

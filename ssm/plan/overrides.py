"""Set the values of a grid in the specs of an arm.

A key of a grid is the path of a field: `model.mixer.d_state`, `training.lr_scale`, `initial_state.p_zero`,
`data.held_out` of a text or `task.alphabet` of a task. If no other path has the same end, the end is enough: `d_state`,
`mimetic.conv`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ssm.base.errors import ConfigError, nearest
from ssm.claims.families import value_text
from ssm.figures.grid import OF_ARMS
from ssm.specs.base import LONGEST_NAME, Spec, short_hash

Path = tuple[Any, ...]
# A grid cannot set these. Names and kinds decide which fields a spec has. An arm has other keys for the rest.
NOT_SET = ("name", "kind", "policy", "task", "initial_state", "snapshots")


def with_overrides(specs: Mapping[str, Spec], sets: Mapping[str, Any], where: str) -> dict[str, Spec]:
    """The specs of an arm with some of their fields set.

    The name of a changed spec shows the change, such as `tiny[d_state=16]`. The same change has the same name in every
    figure. A spec that does not change keeps its name.

    Args:
        specs: first part of a key -> the spec.
        sets: axis -> value. If the axis is not a key, the value is a mapping of keys to values.
        where: the file and the arm, for errors.

    Raises:
        ConfigError: an unknown key (with the nearest name), an ambiguous key, or an impossible value.
    """
    if not sets:
        return dict(specs)
    paths = [(root, *inner) for root, spec in specs.items() for inner in _paths(spec)]
    contents: dict[str, Any] = {}
    for axis, value in sets.items():
        bundle = isinstance(value, dict) and not _found(axis, paths)
        for key, item in value.items() if bundle else [(axis, value)]:
            root, *inner, last = _path(key, paths, f"{where}.grid.{axis}" if bundle else f"{where}.grid")
            place = contents.setdefault(root, specs[root].content())
            for part in inner:
                place = place[part]
            place[last] = item
    changed = {root: type(specs[root]).parse(content, f"{where}.grid") for root, content in contents.items()}
    return dict(specs) | {root: _named(specs[root], spec) for root, spec in changed.items()}


def _paths(spec: Spec) -> Iterator[Path]:
    """The paths of all fields of a spec, and of the specs in it, as in its plain content."""
    for name in type(spec).model_fields:
        if name in NOT_SET:
            continue
        yield (name,)
        for inner, item in _inside(getattr(spec, name)):
            if inner:
                yield (name, *inner)
            yield from ((name, *inner, *rest) for rest in _paths(item))


def _inside(value: Any) -> Iterator[tuple[Path, Spec]]:
    """The specs that a field holds, each with its path in the field."""
    if isinstance(value, Spec):
        yield (), value
    elif isinstance(value, dict):
        yield from (((str(key),), item) for key, item in value.items() if isinstance(item, Spec))
    elif isinstance(value, tuple):
        yield from (((place,), item) for place, item in enumerate(value) if isinstance(item, Spec))


def _text(path: Path) -> str:
    return ".".join(map(str, path))


def _found(key: str, paths: list[Path]) -> list[Path]:
    """The paths that a key can mean: the equal path, or else all paths that end in it."""
    parts = key.split(".")
    texts = [(path, _text(path).split(".")) for path in paths]
    whole = [path for path, text in texts if text == parts]
    return whole or [path for path, text in texts if text[-len(parts) :] == parts]


def _path(key: str, paths: list[Path], where: str) -> Path:
    matches = _found(key, paths)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ConfigError(f"{where}.{key}: ambiguous; write {' or '.join(map(_text, matches))}")
    ends = [_text(path[-1:]) for path in paths]
    names = map(_text, paths) if "." in key else (*(end for end in ends if ends.count(end) == 1), *OF_ARMS)
    raise ConfigError(f"{where}.{key}: unknown key; {nearest(key, names)}")


def _named(before: Spec, after: Spec) -> Spec:
    """The spec with the changes in its name, if it has a name."""
    name = getattr(before, "name", None)
    if name is None or before == after:
        return after
    changes = sorted(_changes(before.content(), after.content()))
    words = f"{name}[{','.join(changes)}]"
    if len(words) > LONGEST_NAME:
        words = f"{name[: LONGEST_NAME - 10]}[{short_hash(changes)}]"
    return after.model_copy(update={"name": words})


def _changes(before: Any, after: Any, key: str = "") -> Iterator[str]:
    """`d_state=16` for every value that differs."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before.keys() | after.keys():
            yield from _changes(before.get(name), after.get(name), str(name))
    elif isinstance(after, list) and all(isinstance(item, str | int | float) for item in after):
        yield f"{key}={':'.join(map(value_text, after))}"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for one, other in zip(before, after, strict=True):
            yield from _changes(one, other, key)
    elif isinstance(after, str | int | float | None):
        yield f"{key}={'none' if after is None else value_text(after)}"
    else:
        yield f"{key}={short_hash(after)}"

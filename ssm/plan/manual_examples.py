"""The examples in the reference: the shortest mapping of each kind in the config files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ssm.plan.read import read_config
from ssm.specs.base import SCALES

NAMED = frozenset({"data.yaml", "initial_states"})  # places with named entries


@dataclass(frozen=True)
class Example:
    """A mapping in a config file."""

    file: str
    keys: tuple[str, ...]  # the path to it: the file's name, then keys
    mapping: dict[str, Any]


@dataclass(frozen=True)
class Wanted:
    """Which example is wanted."""

    places: frozenset[str]  # the last key of its path
    key: str  # that names the kind: kind, task or policy
    kind: str


def all_examples(config: Path) -> list[Example]:
    """All mappings in all config files.

    Raises:
        ConfigError: a file cannot be read.
    """
    named = [config / name for name in ("models.yaml", "data.yaml", "training.yaml")]
    return [
        Example(f"config/{path.relative_to(config)}", keys, mapping)
        for path in [*named, *sorted(config.glob("figures/*.yaml"))]
        for keys, mapping in _mappings(read_config(path), (path.name,))
    ]


def shortest_example(wanted: Wanted, examples: list[Example]) -> list[str]:
    """The lines of the shortest example, as YAML with its file; none if there is no example.

    Figures of the papers come before added ones, which a user may have made or left out.
    """
    found = [
        example
        for example in examples
        if example.mapping.get(wanted.key) == wanted.kind and _is_at(example.keys, wanted.places)
    ]
    if not found:
        return []
    shortest = min(found, key=lambda example: ("/x_" in example.file, len(json.dumps(example.mapping)), example.file))
    text = yaml.dump(shortest.mapping, Dumper=_NoAnchors, sort_keys=False, default_flow_style=True, width=110)
    return [f"Example, from `{shortest.file}`:", "", "```yaml", *text.strip().splitlines(), "```", ""]


def _mappings(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """The mappings in a value, each with its path. Scales and layer numbers are no part of the path."""
    if isinstance(value, list):
        for item in value:
            yield from _mappings(item, keys)
    elif isinstance(value, dict):
        yield keys, value
        for name, item in value.items():
            yield from _mappings(item, keys if name in SCALES or not isinstance(name, str) else (*keys, name))


def _is_at(keys: tuple[str, ...], places: frozenset[str]) -> bool:
    """Whether the path ends in one of the places, or in the name of an entry of one."""
    return keys[-1] in places or (len(keys) > 1 and keys[-2] in places & NAMED)


class _NoAnchors(yaml.SafeDumper):
    """Writes a repeated value in full every time."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

"""YAML config files: read without surprises, and every value resolved to one scale."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from ssm.base.errors import ConfigError
from ssm.specs.base import SCALES


class _Loader(yaml.SafeLoader):
    """The safe loader, strict about keys that stand twice."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Checked here, because construction writes merged keys (<<) into the nodes.
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key must be a single word", problem_mark=key.start_mark)
            if (key.tag, key.value) in seen:
                raise yaml.MarkedYAMLError(problem=f"the key '{key.value}' stands twice", problem_mark=key.start_mark)
            seen.add((key.tag, key.value))
        return node


# YAML 1.1 takes 4e-3 for text, because it has no point; every reader of a config file takes it for a number.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file that holds a mapping; an empty file is an empty mapping.

    Raises:
        ConfigError: the file is missing, not UTF-8 YAML (with its line), has a key twice, or is no mapping.
    """
    try:
        value = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such config file") from error
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: {error.problem or 'not valid YAML'}") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}: not a readable YAML file ({str(error).splitlines()[0]})") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: expected a mapping of keys to values, got {type(value).__name__}")
    return value


def choose_scale(value: Any, scale: str, source: str, key: str = "") -> Any:
    """`value` with every choice by scale replaced by what it holds for `scale`.

    A choice by scale is a mapping whose keys are one or more of the scales' names and nothing else, at any depth.

    Args:
        value: plain data from a config file.
        scale: smoke, gpu or paper.
        source: the file, and key: the path of `value` inside it; both for the error alone.

    Raises:
        ConfigError: a choice has no value for this scale.
    """
    if isinstance(value, dict):
        if value and all(name in SCALES for name in value):
            if scale not in value:
                where = f"{source}: {key}" if key else source
                has = ", ".join(name for name in SCALES if name in value)
                raise ConfigError(f"{where}: no value for the scale '{scale}'; it has: {has}")
            return choose_scale(value[scale], scale, source, key)
        return {
            name: choose_scale(item, scale, source, f"{key}.{name}" if key else str(name))
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [choose_scale(item, scale, source, f"{key}.{i}" if key else str(i)) for i, item in enumerate(value)]
    return value

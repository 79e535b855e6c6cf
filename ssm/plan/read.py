"""Read YAML config files, and choose the values of one scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ssm.base.errors import ConfigError, nearest
from ssm.base.strict_parsing import read_yaml
from ssm.specs.base import INHERITED, SCALES


def read_config(path: Path) -> dict[str, Any]:
    """Read a config file: YAML that holds a mapping. An empty file is an empty mapping.

    Raises:
        ConfigError: the file is missing, is not a mapping in UTF-8 YAML (with the line), or has a key twice.
    """
    value = read_yaml(path, ConfigError, f"{path}: no such config file")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: expected a mapping of keys to values, got {type(value).__name__}")
    return {str(key): item for key, item in value.items()}


def choose_scale(value: Any, scale: str, source: str, key: str = "") -> Any:
    """Replace every choice by scale, at any depth, by its value for `scale`.

    A choice by scale is a mapping whose keys are all names of scales. A scale without a value takes the value of the
    scale from which it inherits.

    Args:
        value: plain data from a config file.
        scale: smoke, desk, gpu or paper.
        source, key: the file, and the path of `value` in it, for the error message.

    Raises:
        ConfigError: a choice has no value for this scale, and none that it inherits; or one of its keys is mistyped.
    """
    if isinstance(value, dict):
        others = [name for name in value if name not in SCALES]
        if key and others and any(name in value for name in SCALES if name != "paper"):  # a claim has a key `paper`
            raise ConfigError(f"{source}: {key}: unknown scale '{others[0]}'; {nearest(str(others[0]), SCALES)}")
        if value and not others:
            chosen = scale if scale in value else INHERITED.get(scale, scale)
            if chosen not in value:
                where = f"{source}: {key}" if key else source
                has = ", ".join(name for name in SCALES if name in value)
                raise ConfigError(f"{where}: no value for the scale '{scale}'; it has: {has}")
            return choose_scale(value[chosen], scale, source, key)
        return {
            name: choose_scale(item, scale, source, f"{key}.{name}" if key else str(name))
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [choose_scale(item, scale, source, f"{key}.{i}" if key else str(i)) for i, item in enumerate(value)]
    return value

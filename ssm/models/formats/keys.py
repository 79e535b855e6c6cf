"""Translate between a config.json and our spec: a table with one row for each key, used in both directions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

HELPER = True

Config = Mapping[str, Any]  # a config.json, completed with defaults
Fields = dict[str, Any]  # of a ModelSpec, of a mixer or of an ffn

NOTHING: Any = object()  # no value: a key without default; or a key that is not written

# Fields with the default None, which is derived from other fields: its value for a mixer in a model of width D.
DERIVED: dict[str, Callable[[Any, int], Any]] = {
    "key_dim": lambda mixer, D: mixer.state_shape(D)[1],
    "value_dim": lambda mixer, D: mixer.state_shape(D)[2],
    "gate_rank": lambda mixer, D: mixer.rank(D),
    "n_kv_heads": lambda mixer, D: mixer.heads(D),
    "n_key_heads": lambda mixer, D: mixer.key_heads,
    "head_dim": lambda mixer, D: mixer.key_dim(D),
    "width": lambda mixer, D: mixer.channels(D),
    "dt_rank": lambda mixer, D: mixer.rank(D),
    "out_bias": lambda mixer, D: mixer.output_bias,
}


@dataclass(frozen=True)
class Key:
    """One key of a config.json.

    Args:
        theirs: name of the key.
        ours: our field for it: of the ModelSpec ("d_model"), or of a part ("mixer.n_heads"). Several fields get the
            same value, and the first is written. With only a part ("mixer"; "" is the ModelSpec), `read` returns
            several of its fields. None: no field. The key then has one supported value, or other keys read it.
        default: value if config.json does not have the key. Without a default, it is the first value of `only`.
        only: the values that ssm supports. A mapping translates each into our value.
        read: (value, config) -> our value. Needed if the two differ.
        write: (part, width of the model) -> their value. Needed if it is not the field's value.
        given: None is an error.
        also: other names that the library reads, if config.json does not have `theirs`.
    """

    theirs: str
    ours: str | tuple[str, ...] | None = None
    default: Any = NOTHING
    only: Collection[Any] = ()
    read: Callable[[Any, Config], Any] | None = None
    write: Callable[[Any, int], Any] | None = None
    given: bool = False
    also: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """Our fields for this key."""
        return (self.ours,) if isinstance(self.ours, str) else self.ours or ()

    @property
    def usual(self) -> Any:
        """Its value if config.json does not have it; NOTHING: config.json must have it."""
        return next(iter(self.only), NOTHING) if self.default is NOTHING else self.default

    def value(self, config: Config) -> Any:
        """Our value, read from a config.

        Raises:
            KeyError: the key is missing.
            ValueError, TypeError: ssm does not support its value.
        """
        value = config[self.theirs]
        if self.given and value is None:
            raise ValueError(f"{self.theirs} is None")
        if isinstance(self.only, Mapping):
            return self.only[value]
        return value if self.read is None else self.read(value, config)

    def written(self, part: Any, d_model: int) -> Any:
        """Their value, from a part of our spec; NOTHING: the key is not written.

        Raises:
            ValueError: no value of this key describes the part.
        """
        if self.write is not None:
            return self.write(part, d_model)
        if not self.fields:  # defaults are not written
            return NOTHING if not self.only or self.usual in self.only else next(iter(self.only))
        field = self.fields[0].rpartition(".")[2]
        value = getattr(part, field)
        if value is None and field in DERIVED:
            value = DERIVED[field](part, d_model)
        if self.given and value is None:
            raise ValueError(f"{field} is None")
        if not isinstance(self.only, Mapping):
            return value
        theirs = [name for name, ours in self.only.items() if ours == value]
        if not theirs:
            raise ValueError(f"{field} is {value!r}")
        return theirs[0]


def complete(keys: Iterable[Key], config: Config) -> dict[str, Any]:
    """The config, completed with the values that missing keys have under other names, or else their defaults."""
    keys = tuple(keys)
    defaults = {key.theirs: key.usual for key in keys if key.usual is not NOTHING}
    return defaults | {key.theirs: config[name] for key in keys for name in key.also if name in config} | dict(config)


def refused(keys: Iterable[Key], config: Config) -> str | None:
    """A message about the first key with an unsupported value; None: all values are supported.

    Args:
        config: completed with defaults.
    """
    for key in keys:
        if key.only and (value := config[key.theirs]) not in tuple(key.only):
            return f"{key.theirs} is {value!r}; ssm supports only {' or '.join(map(repr, key.only))}"
    return None


def read_keys(keys: Iterable[Key], config: Config, ours: Fields) -> None:
    """Add the values of a config to our fields. The fields of a part are a dictionary under its name.

    Args:
        config: completed with defaults.

    Raises:
        KeyError: a key is missing.
        ValueError, TypeError: ssm does not support a value.
    """
    for key in keys:
        if not key.fields or (key.read is None and isinstance(ours.get(key.fields[0]), dict)):
            continue  # the key has one supported value, or is only written
        value = key.value(config)
        for path in key.fields:
            part, _, field = path.rpartition(".")
            place = ours[part] if part else ours
            if isinstance(value, dict):
                place = place.setdefault(field, {}) if field else place
                place.update(value)
            else:
                place[field] = value


def write_keys(keys: Iterable[Key], part_of: Callable[[str], Any], d_model: int) -> dict[str, Any]:
    """The values of all keys for a model.

    Args:
        part_of: first field of a key -> the part of the spec that it belongs to; None: the model lacks this part.

    Raises:
        ValueError: the keys cannot describe the model.
    """
    config: dict[str, Any] = {}
    for key in keys:
        part = part_of(key.fields[0] if key.fields else "")
        value = NOTHING if part is None else key.written(part, d_model)
        if value is not NOTHING:
            config[key.theirs] = value
    return config

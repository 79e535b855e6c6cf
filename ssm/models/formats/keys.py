"""How a config.json and our spec say the same: a table with a row for every key, read in both directions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

HELPER = True

Config = Mapping[str, Any]  # a config.json, with what it may leave out
Fields = dict[str, Any]  # of a ModelSpec, or of a mixer or an ffn

NOTHING: Any = object()  # no value: the default of a key that must be there, and what is left out of a config.json

# Fields that None leaves to other fields: what they are then, of a mixer in a model of width D.
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
        theirs: its name.
        ours: the field that it is: of the ModelSpec ("d_model"), or of a part of it ("mixer.n_heads"). With several,
            the first is written. With a part alone ("mixer"; "" is the ModelSpec), `read` gives several of its fields.
            None: no field; the key has one value, or others read it.
        default: what a config.json means that leaves it out; by default the first of `only`.
        only: the values that ours can have; a mapping says what each is in ours.
        read: (its value, the config) -> ours, where they differ.
        write: (the part, the model's width) -> theirs, where it is not the field, or what None stands for.
        given: None is refused.
    """

    theirs: str
    ours: str | tuple[str, ...] | None = None
    default: Any = NOTHING
    only: Collection[Any] = ()
    read: Callable[[Any, Config], Any] | None = None
    write: Callable[[Any, int], Any] | None = None
    given: bool = False

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that it is, with the parts that they belong to."""
        return (self.ours,) if isinstance(self.ours, str) else self.ours or ()

    @property
    def usual(self) -> Any:
        """Its value where a config.json leaves it out; NOTHING: it must not."""
        return next(iter(self.only), NOTHING) if self.default is NOTHING else self.default

    def value(self, config: Config) -> Any:
        """What it is in ours.

        Raises:
            KeyError: it is not there.
            ValueError, TypeError: it is nothing that ours can have.
        """
        value = config[self.theirs]
        if self.given and value is None:
            raise ValueError(f"{self.theirs} is None")
        if isinstance(self.only, Mapping):
            return self.only[value]
        return value if self.read is None else self.read(value, config)

    def written(self, part: Any, d_model: int) -> Any:
        """The other way round, of the part that it belongs to; NOTHING: it is not written.

        Raises:
            ValueError: there is no value that says it.
        """
        if self.write is not None:
            return self.write(part, d_model)
        if not self.fields:  # what goes without saying is left out
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
    """The config, with what it leaves out."""
    return {key.theirs: key.usual for key in keys if key.usual is not NOTHING} | dict(config)


def refused(keys: Iterable[Key], config: Config) -> tuple[str, Any, str] | None:
    """The first key whose value ours cannot have: its name, its value, and those that it may have; None: there is none.

    Args:
        config: a complete one.
    """
    for key in keys:
        if key.only and config[key.theirs] not in tuple(key.only):
            return key.theirs, config[key.theirs], " or ".join(repr(value) for value in key.only)
    return None


def read_keys(keys: Iterable[Key], config: Config, ours: Fields) -> None:
    """Put what a complete config says into our fields; those of a part are a dictionary under its name.

    Raises:
        KeyError: a key is missing.
        ValueError, TypeError: a value is nothing that ours can have.
    """
    for key in keys:
        if not key.fields or (key.read is None and isinstance(ours.get(key.fields[0]), dict)):
            continue  # it has one value, or is written alone
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
    """What the keys say of a model.

    Args:
        part_of: what a key belongs to, by its first field; None: the model does not have that.

    Raises:
        ValueError: it cannot be said.
    """
    config: dict[str, Any] = {}
    for key in keys:
        part = part_of(key.fields[0] if key.fields else "")
        value = NOTHING if part is None else key.written(part, d_model)
        if value is not NOTHING:
            config[key.theirs] = value
    return config

"""What a format is: a table of the keys of its config.json, and one of its tensors' names with their layouts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import product
from math import log
from typing import Any, Literal

from torch import Tensor

from ssm.base.discovery import Registry
from ssm.base.errors import CheckpointError
from ssm.models.formats.keys import (
    DERIVED,
    NOTHING,
    Config,
    Fields,
    Key,
    complete,
    read_keys,
    refused,
    write_keys,
)
from ssm.models.formats.layout import Layout, Picks, Sizes
from ssm.specs.model import ModelSpec
from ssm.specs.sublayer import SublayerSpec

HELPER = True

Container = Literal["safetensors", "bin"]
Rows = Mapping[str, list[int]]  # by a part's name, where its rows lie in ours

# lg Table 2: parameters (in millions) and peak learning rate. A checkpoint's own is not in its config.
PEAK_LR = {45: 1e-3, 85: 1e-3, 130: 6e-4, 370: 3e-4, 780: 2.5e-4, 1300: 2e-4}

# Fields of a spec that change the initialization or the speed of a model, never what its weights compute; and the
# rounding of the vocabulary, which the weights' shapes tell.
SILENT = (
    *("name", "peak_lr", "published_parameters", "a_range", "dt_range", "chunk", "segment", "dt", "bc", "conv"),
    *("conv_bias", "slow_heads", "vocab_multiple"),
)
NOT_QUANTIZED = Key("quantization_config", only=(None,))


@dataclass(frozen=True)
class Row:
    """One of our tensors and those of theirs that make it up.

    Args:
        ours: its name; {i} is the layer's number.
        theirs: their name, or names whose tensors lie one after the other along our first axis. A name may have
            alternatives, as in "head.weight|lm_head.weight": the first one is written where none was read. With {e},
            an expert's number, all names are there for the first expert, then for the second, ...
        layout: of each of them; None: as ours.
        parts: with several names, the length of each along our first axis, by its name among the sizes; or its name
            among the format's `places`, where it is not in one piece.
        mixer: the kind of mixer of the layers it is about; None: all.
        fused: the name and the layout of one tensor that holds all experts', where a file has it instead.
    """

    ours: str
    theirs: str | tuple[str, ...]
    layout: str | None = None
    parts: tuple[str, ...] = ()
    mixer: str | None = None
    fused: tuple[str, str] | None = None

    def in_one(self) -> Row:
        """The row where its experts are fused."""
        assert self.fused is not None
        return replace(self, theirs=self.fused[0], layout=self.fused[1], parts=())


@dataclass(frozen=True)
class Piece:
    """A row for one layer and one of its names: rows of our tensor, and theirs."""

    ours: str
    names: tuple[str, ...]  # alternatives
    at: slice | list[int]  # along our first axis
    shape: tuple[int, ...]  # of theirs
    layout: Layout | None
    sizes: Sizes
    picks: Picks

    def put(self, tensor: Tensor, theirs: Tensor) -> None:
        """Write their tensor into its place in ours."""
        if self.layout is None:
            tensor[self.at] = theirs
        else:
            self.layout.put(tensor[self.at], theirs, self.sizes, self.picks)

    def take(self, tensor: Tensor) -> Tensor:
        """Their tensor, from ours."""
        part = tensor[self.at]
        return part if self.layout is None else self.layout.take(part, self.sizes, self.picks)


@dataclass(frozen=True)
class Format:
    """A kind of checkpoint of another library.

    Args:
        key: its name in the registry, which its file has too.
        title: what it is called.
        model_type: of its config.json; None: it has none, and the keys that have no default tell it.
        architecture: the class that config.json names.
        rows: every name there can be; a row whose tensor a model does not have is passed over.
        ours: what every model of it has: fields of a ModelSpec, and its parts, mixers and ffns. A part that is not in
            every layer has a name of its own: keys read its place, as {2: "attention"} for mixer_at, or as "experts"
            for ffn.
        keys: of config.json, all but vocab_size, each with what it is in ours.
        sizes: of the axes named in layouts and parts.
        tied: their embedding and their head (with alternatives).
        picks: of axes named in layouts.
        places: where parts lie that are not in one piece of ours.
        ignored: names of what our model does not read, which is copied on export (a regular expression).
        writes_tied: a tied head is in the file too.
        container: what it is written as where it was not read.
        dt_limit: where config.json has the limits of dt, its keys from the outside in; (): nowhere.
    """

    key: str
    title: str
    model_type: str | None
    architecture: str
    rows: tuple[Row, ...]
    ours: Fields
    keys: tuple[Key, ...]
    tied: tuple[str, str]
    sizes: Callable[[ModelSpec], Sizes] = field(default=lambda spec: {})
    picks: Picks = field(default_factory=dict)
    places: Callable[[ModelSpec], Rows] = field(default=lambda spec: {})
    ignored: str = r"(?!)"
    writes_tied: bool = False
    container: Container = "safetensors"
    dt_limit: tuple[str, ...] = ()

    @property
    def library(self) -> str:
        """Who loads it: transformers, fla (a key "fla_..."), or mamba_ssm, whose config.json names no model_type."""
        if self.model_type is None:
            return "mamba_ssm"
        return "fla" if self.key.startswith("fla_") else "transformers"

    @property
    def required(self) -> tuple[str, ...]:
        """The keys that its config.json must have."""
        return (*(key.theirs for key in self.keys if key.usual is NOTHING), "vocab_size")

    def recognizes(self, config: Config) -> bool:
        """Whether a config.json is one of this format."""
        if self.model_type is None:
            return "model_type" not in config and all(key in config for key in self.required)
        return config.get("model_type") == self.model_type

    def spec(self, config: Config, name: str, source: str) -> tuple[ModelSpec, int]:
        """Our spec of the model, and the size of its vocabulary.

        Raises:
            CheckpointError: config.json says something that our model does not have, or lacks what it needs.
            ConfigError: its sizes do not fit together.
        """
        keys = (*self.keys, NOT_QUANTIZED)
        known = complete(keys, config)
        problem = refused(keys, known)
        if problem is not None:
            key, value, only = problem
            raise CheckpointError(f"{source}: {key} is {value!r}; ssm supports only {only} for {self.title}")
        ours = {"name": name, "peak_lr": 1e-3} | deepcopy(self.ours)
        try:
            read_keys(self.keys, known, ours)
            vocab_size = known["vocab_size"]
        except KeyError as error:
            raise CheckpointError(f"{source}: has no {error.args[0]}") from error
        except (AttributeError, TypeError, ValueError, ZeroDivisionError) as error:
            raise CheckpointError(f"{source}: is no config of {self.title} ({error})") from error
        if not isinstance(vocab_size, int) or vocab_size < 1:
            raise CheckpointError(f"{source}: vocab_size is {vocab_size!r}")
        return ModelSpec.parse(_in_place(ours), source), vocab_size

    def config_of(self, spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
        """A config.json for a model of ours.

        Raises:
            CheckpointError: the format cannot say what the model is.
        """
        refusal = f"{spec.name}: cannot be written as {self.title}"
        rounded = any("vocab_multiple" in key.fields for key in self.keys)  # by whoever reads it
        config = {"vocab_size": vocab_size if rounded else spec.embedding_rows(vocab_size)}
        try:
            parts = {name: self._part(spec, name) for name, part in self.ours.items() if isinstance(part, dict)}
            config |= write_keys(self.keys, lambda field: parts.get(field.partition(".")[0], spec), spec.d_model)
        except ValueError as error:
            raise CheckpointError(f"{refusal}, whose layers are others ({error})") from error
        said, _ = self.spec(config, spec.name, refusal)
        differ = [f"{key} is {ours!r}, there {theirs!r}" for key, ours, theirs in differences(spec, said)]
        if differ:
            raise CheckpointError(f"{refusal}: {'; '.join(differ)}")
        return config

    def _part(self, spec: ModelSpec, name: str) -> SublayerSpec | None:
        """The first part of the model that is of its kind; None: a part that not every model has."""
        kind = self.ours[name]["kind"]
        parts = (spec.mixer, *spec.mixers(), spec.ffn, *spec.ffns())
        found = next((part for part in parts if part is not None and part.kind == kind), None)
        if found is None and name in ModelSpec.model_fields:
            raise ValueError(f"it has no {kind}")
        return found

    def pieces(
        self, spec: ModelSpec, shapes: Mapping[str, tuple[int, ...]], stored: Collection[str] = ()
    ) -> list[Piece]:
        """The table for one model, whose tensors have these shapes; it names each of them.

        Args:
            stored: the names in the files that are read or followed.

        Raises:
            CheckpointError: the format has no name for a tensor of the model.
        """
        sizes, places, mixers = self.sizes(spec), self.places(spec), spec.mixers()
        found: list[Piece] = []
        for row in self.rows:
            for i in range(spec.n_layers) if "{i}" in row.ours else [None]:
                name = row.ours.format(i=i)
                wanted = row.mixer is None or (i is not None and mixers[i].kind == row.mixer)
                if wanted and name in shapes:
                    fused = row.fused is not None and row.fused[0].format(i=i) in stored
                    found += self._pieces(row.in_one() if fused else row, name, i, shapes[name], sizes, places)
        nameless = sorted(set(shapes) - {piece.ours for piece in found})
        if nameless:
            raise CheckpointError(f"{spec.name}: {self.title} has no name for {', '.join(nameless)}")
        return found

    def _pieces(
        self, row: Row, ours: str, i: int | None, shape: tuple[int, ...], sizes: Sizes, places: Rows
    ) -> Iterator[Piece]:
        layout = None if row.layout is None else Layout(row.layout)
        listed = (row.theirs,) if isinstance(row.theirs, str) else row.theirs
        experts = shape[0] // len(listed) if "{e}" in listed[0] else 1
        start = 0
        for e, (number, theirs) in product(range(experts), enumerate(listed)):
            name = row.parts[number] if row.parts else ""
            length = len(places[name]) if name in places else sizes[name] if name else shape[0]
            if length == 0:
                continue  # a part that this model does not have: a gate
            at = places.get(name, slice(start, start + length))
            start += length
            part = (length, *shape[1:])
            their_shape = part if layout is None else layout.their_shape(part, sizes)
            names = tuple(theirs.format(i=i, e=e).split("|"))
            yield Piece(ours, names, at, their_shape, layout, sizes, self.picks)

    @property
    def tied_heads(self) -> tuple[str, ...]:
        """The names that a tied head may have in a file."""
        return tuple(self.tied[1].split("|"))

    def is_ignored(self, name: str) -> bool:
        return re.fullmatch(self.ignored, name) is not None


FORMATS: Registry[Format] = Registry("ssm.models.formats")


def register(form: Format) -> None:
    """Called by the file of a format. Raises `RegistryError`: another one has its key."""
    FORMATS.put(form.key, form)


def _in_place(ours: Fields) -> Fields:
    """The fields of a ModelSpec, with parts where their names are."""
    parts = {name: ours[name] for name in ours if name not in ModelSpec.model_fields}
    fields = {name: value for name, value in ours.items() if name not in parts}
    for name in ("mixer", "ffn"):
        if isinstance(fields.get(name), str):
            fields[name] = parts[fields[name]]
        if f"{name}_at" in fields:
            fields[f"{name}_at"] = {layer: parts[part] for layer, part in fields[f"{name}_at"].items()}
    return fields


def usual_peak_lr(parameters: int) -> float:
    """The peak learning rate of lg's size that is nearest to so many parameters."""
    nearest = min(PEAK_LR, key=lambda millions: abs(log(millions * 1e6 / parameters)))
    return PEAK_LR[nearest]


def check_same(spec: ModelSpec, other: ModelSpec, source: str) -> None:
    """Whether two specs describe the same computation.

    Raises:
        CheckpointError: what differs.
    """
    differ = [f"{key} was {theirs!r} and is {ours!r}" for key, ours, theirs in differences(spec, other)]
    if differ:
        raise CheckpointError(f"{source}: the model is not the one that was read: {'; '.join(differ)}")


def _plain(spec: ModelSpec) -> dict[str, Any]:
    """What the spec says of the computation, by dotted key and layer by layer."""
    parts = ("mixer", "mixer_at", "ffn", "ffn_at")
    content = {key: value for key, value in spec.content().items() if key not in parts}
    layers = {
        str(i): mixer.content()
        | {"state_shape": list(mixer.state_shape(spec.d_model)), "ffn": {} if ffn is None else ffn.content()}
        for i, (mixer, ffn) in enumerate(zip(spec.mixers(), spec.ffns(), strict=True))
    }
    return dict(_flat(content | {"layers": layers}))


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if key in SILENT:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differences(one: ModelSpec, other: ModelSpec) -> list[tuple[str, Any, Any]]:
    """(key, its value in the one, in the other), for every key that changes what is computed."""
    ours, theirs = _plain(one), _plain(other)
    pairs = [(key, ours.get(key), theirs.get(key)) for key in ours | theirs]
    return [
        (key, a, b)
        for key, a, b in pairs
        if a != b and not (key.rpartition(".")[2] in DERIVED and (a is None or b is None))
    ]

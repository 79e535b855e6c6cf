"""A checkpoint format: a table of the keys of config.json, and a table of tensor names with their layouts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import product
from math import log
from typing import Any

from torch import Tensor

from ssm.base.discovery import Registry
from ssm.base.errors import CheckpointError
from ssm.models.formats.keys import DERIVED, NOTHING, Config, Fields, Key, complete, read_keys, refused, write_keys
from ssm.models.formats.layout import Layout, Picks, Sizes
from ssm.specs.model import ModelSpec
from ssm.specs.sublayer import SublayerSpec

HELPER = True

Rows = Mapping[str, list[int]]  # name of a part -> the indices of its rows in our tensor

# lg Table 2: parameters (in millions) and peak learning rate. A checkpoint does not store its own rate.
PEAK_LR = {45: 1e-3, 85: 1e-3, 130: 6e-4, 370: 3e-4, 780: 2.5e-4, 1300: 2e-4}

# Fields of a spec that change only the initialization or the speed of a model, not the function of its weights. The
# rounding of the vocabulary is also here, because the shapes of the weights show it.
SILENT = (
    *("name", "peak_lr", "published_parameters", "a_range", "dt_range", "chunk", "segment", "dt", "bc", "conv"),
    *("conv_bias", "slow_heads", "decay_range", "vocab_multiple"),
)
NOT_QUANTIZED = Key("quantization_config", only=(None,))


@dataclass(frozen=True)
class Row:
    """One of our tensors, and the tensors of the other library that it consists of.

    Args:
        ours: our name; {i} is the index of the layer.
        theirs: their name, or several names: these tensors follow each other along our first axis. A name can have
            alternatives, as in "head.weight|lm_head.weight". The library writes the first. {e} is the index of an
            expert. All names of the first expert come first, then all names of the second, and so on.
        layout: the layout of each of their tensors; None: the same as ours.
        parts: for several names, the length of each along our first axis: a key of the format's `sizes`, or of its
            `places` if the rows are not contiguous.
        mixer: the row applies only to layers with this kind of mixer; None: to all layers.
        fused: name and layout of the one tensor that some files have for all experts together.
    """

    ours: str
    theirs: str | tuple[str, ...]
    layout: str | None = None
    parts: tuple[str, ...] = ()
    mixer: str | None = None
    fused: tuple[str, str] | None = None

    def with_fused_experts(self) -> Row:
        """The row for a file in which the experts are fused."""
        assert self.fused is not None
        return replace(self, theirs=self.fused[0], layout=self.fused[1], parts=())


@dataclass(frozen=True)
class Piece:
    """One of their tensors, and the rows of our tensor that it fills."""

    ours: str
    names: tuple[str, ...]  # their name, with its alternatives
    at: slice | list[int]  # rows along our first axis
    shape: tuple[int, ...]  # of their tensor
    layout: Layout | None
    sizes: Sizes
    picks: Picks

    def put(self, tensor: Tensor, theirs: Tensor) -> None:
        """Copy their tensor into its rows of our tensor."""
        if self.layout is None:
            tensor[self.at] = theirs
        else:
            self.layout.put(tensor[self.at], theirs, self.sizes, self.picks)

    def take(self, tensor: Tensor) -> Tensor:
        """Their tensor, made from ours."""
        part = tensor[self.at]
        return part if self.layout is None else self.layout.take(part, self.sizes, self.picks)


@dataclass(frozen=True)
class Format:
    """A checkpoint format of another library.

    Args:
        key: name in the registry, and name of the file.
        title: name for readers.
        model_type: value in config.json. None: config.json has no model_type. The format is then recognized by the
            keys without default.
        mark: a key that only this format has among those with its model_type; None: the format without such a key.
        architecture: the class that config.json names.
        rows: all tensor names of the format. Rows of tensors that a model does not have are skipped.
        ours: fields that all models of the format share: fields of a ModelSpec, and its mixers and ffns. A part that
            only some layers have gets a name. Keys refer to that name: {2: "attention"} in mixer_at, or "experts" in
            ffn.
        keys: the keys of config.json, except vocab_size, with our fields for them.
        sizes: sizes of the named axes in layouts and parts.
        picks: orders of the entries along named axes.
        places: row indices of parts that are not contiguous in our tensor.
        ignored: a regular expression for tensors that our model does not use. An export copies them.
    """

    key: str
    title: str
    model_type: str | None
    architecture: str
    rows: tuple[Row, ...]
    ours: Fields
    keys: tuple[Key, ...]
    sizes: Callable[[ModelSpec], Sizes] = field(default=lambda spec: {})
    picks: Picks = field(default_factory=dict)
    places: Callable[[ModelSpec], Rows] = field(default=lambda spec: {})
    ignored: str = r"(?!)"
    mark: str | None = None

    @property
    def library(self) -> str:
        """The library that loads it: transformers, fla (keys "fla_..."), or mamba_ssm (no model_type)."""
        if self.model_type is None:
            return "mamba_ssm"
        return "fla" if self.key.startswith("fla_") else "transformers"

    @property
    def required(self) -> tuple[str, ...]:
        """The keys that config.json must have."""
        return (*(key.theirs for key in self.keys if key.usual is NOTHING), "vocab_size")

    def recognizes(self, config: Config) -> bool:
        """Whether a config.json belongs to this format."""
        if self.model_type is None:
            return "model_type" not in config and all(key in config for key in self.required)
        return config.get("model_type") == self.model_type and (self.mark is None or self.mark in config)

    def spec(self, config: Config, name: str, source: str) -> tuple[ModelSpec, int]:
        """Translate a config.json: our spec of the model, and the size of its vocabulary.

        Raises:
            CheckpointError: config.json has a value that our model does not support, or a key is missing.
            ConfigError: its sizes do not fit together.
        """
        keys = (*self.keys, NOT_QUANTIZED)
        known = complete(keys, config)
        problem = refused(keys, known)
        if problem is not None:
            raise CheckpointError(f"{source}: {problem} for {self.title}")
        ours = {"name": name, "peak_lr": 1e-3} | deepcopy(self.ours)
        try:
            read_keys(self.keys, known, ours)
            vocab_size = known["vocab_size"]
        except KeyError as error:
            raise CheckpointError(f"{source}: has no {error.args[0]}") from error
        except (AttributeError, TypeError, ValueError, ZeroDivisionError) as error:
            raise CheckpointError(f"{source}: is not a valid config of {self.title} ({error})") from error
        if not isinstance(vocab_size, int) or vocab_size < 1:
            raise CheckpointError(f"{source}: vocab_size is {vocab_size!r}, expected a positive integer")
        return ModelSpec.parse(_in_place(ours), source), vocab_size

    def config_of(self, spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
        """A config.json for one of our models.

        Raises:
            CheckpointError: the format cannot describe the model.
        """
        refusal = f"{spec.name}: cannot be written as {self.title}"
        rounded = any("vocab_multiple" in key.fields for key in self.keys)  # the library rounds it when it reads
        config = {"vocab_size": vocab_size if rounded else spec.embedding_rows(vocab_size)}
        try:
            parts = {name: self._part(spec, name) for name, part in self.ours.items() if isinstance(part, dict)}
            config |= write_keys(self.keys, lambda field: parts.get(field.partition(".")[0], spec), spec.d_model)
        except ValueError as error:
            raise CheckpointError(f"{refusal}, which has other layers ({error})") from error
        read_back, _ = self.spec(config, spec.name, refusal)
        differ = [f"{key} is {ours!r}, there {theirs!r}" for key, ours, theirs in differences(spec, read_back)]
        if differ:
            raise CheckpointError(f"{refusal}: {'; '.join(differ)}")
        return config

    def _part(self, spec: ModelSpec, name: str) -> SublayerSpec | None:
        """The model's first mixer or ffn of the kind of a named part; None: the part is optional, and missing."""
        kind = self.ours[name]["kind"]
        parts = (spec.mixer, *spec.mixers(), spec.ffn, *spec.ffns())
        part = next((part for part in parts if part is not None and part.kind == kind), None)
        if part is None and name in ModelSpec.model_fields:
            raise ValueError(f"the model has no {kind}")
        return part

    def pieces(
        self, spec: ModelSpec, shapes: Mapping[str, tuple[int, ...]], stored: Collection[str] = ()
    ) -> list[Piece]:
        """All tensors of one model in this format.

        Args:
            shapes: the shapes of our tensors by name.
            stored: the tensor names of the files that are read, or that an export imitates.

        Raises:
            CheckpointError: the format has no name for a tensor of the model.
        """
        sizes, places, mixers = self.sizes(spec), self.places(spec), spec.mixers()
        pieces: list[Piece] = []
        for row in self.rows:
            for i in range(spec.n_layers) if "{i}" in row.ours else [None]:
                name = row.ours.format(i=i)
                wanted = row.mixer is None or (i is not None and mixers[i].kind == row.mixer)
                if wanted and name in shapes:
                    if row.fused is not None and row.fused[0].format(i=i) in stored:
                        pieces += self._pieces(row.with_fused_experts(), name, i, shapes[name], sizes, places)
                    else:
                        pieces += self._pieces(row, name, i, shapes[name], sizes, places)
        nameless = sorted(set(shapes) - {piece.ours for piece in pieces})
        if nameless:
            raise CheckpointError(f"{spec.name}: {self.title} has no name for {', '.join(nameless)}")
        return pieces

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
                continue  # this model does not have the part (a gate)
            at = places.get(name, slice(start, start + length))
            start += length
            part = (length, *shape[1:])
            their_shape = part if layout is None else layout.their_shape(part, sizes)
            names = tuple(theirs.format(i=i, e=e).split("|"))
            yield Piece(ours, names, at, their_shape, layout, sizes, self.picks)

    def names_of(self, ours: str) -> tuple[str, ...]:
        """The names that one of our tensors outside the layers can have in a file."""
        (theirs,) = (row.theirs for row in self.rows if row.ours == ours)
        assert isinstance(theirs, str)
        return tuple(theirs.split("|"))

    @property
    def tied_heads(self) -> tuple[str, ...]:
        """The names that a tied head can have in a file."""
        return self.names_of("head.weight")

    def is_ignored(self, name: str) -> bool:
        return re.fullmatch(self.ignored, name) is not None


FORMATS: Registry[Format] = Registry("ssm.models.formats")


def register(form: Format) -> None:
    """Register a format. Raises `RegistryError`: another format has its key."""
    FORMATS.put(form.key, form)


def _in_place(ours: Fields) -> Fields:
    """The fields of a ModelSpec: names of parts are replaced by the parts."""
    parts = {name: ours[name] for name in ours if name not in ModelSpec.model_fields}
    fields = {name: value for name, value in ours.items() if name not in parts}
    for name in ("mixer", "ffn"):
        if isinstance(fields.get(name), str):
            fields[name] = parts[fields[name]]
        if f"{name}_at" in fields:
            fields[f"{name}_at"] = {layer: parts[part] for layer, part in fields[f"{name}_at"].items()}
    return fields


def usual_peak_lr(parameters: int) -> float:
    """The peak learning rate of the model in lg Table 2 with the nearest number of parameters."""
    nearest = min(PEAK_LR, key=lambda millions: abs(log(millions * 1e6 / parameters)))
    return PEAK_LR[nearest]


def check_same(spec: ModelSpec, other: ModelSpec, source: str) -> None:
    """Check that two specs describe the same computation.

    Raises:
        CheckpointError: they do not. The message lists the differences.
    """
    differ = [f"{key} was {theirs!r} and is {ours!r}" for key, ours, theirs in differences(spec, other)]
    if differ:
        raise CheckpointError(f"{source}: the model is not the model that was read: {'; '.join(differ)}")


def _plain(spec: ModelSpec) -> dict[str, Any]:
    """The fields that change the computation, layer by layer, with dotted keys."""
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
    """(key, first value, second value) for each field in which two specs compute something different."""
    ours, theirs = _plain(one), _plain(other)
    pairs = [(key, ours.get(key), theirs.get(key)) for key in ours | theirs]
    return [
        (key, a, b)
        for key, a, b in pairs
        if a != b and not (key.rpartition(".")[2] in DERIVED and (a is None or b is None))
    ]

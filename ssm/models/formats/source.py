"""Find a checkpoint of another library, and read its tensors in groups. Pickled code is never run."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ssm.base.counting import first_of
from ssm.base.errors import CheckpointError, first_line, is_lack_of_memory
from ssm.base.files import reading
from ssm.base.hub import near, require_model
from ssm.base.safetensors_header import refuse_pointer, safetensors_header
from ssm.base.strict_parsing import read_json
from ssm.specs.base import LONGEST_NAME

HELPER = True

CONFIG = "config.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # in order of preference
INDEX = ".index.json"  # added to one of these names: the index of shards
# Files that an export copies next to the weights.
COMPANIONS = (
    "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model", "chat_template.jinja",
    "chat_template.json", "LICENSE",
)  # fmt: skip
OWN_CODE = ("*.py", "*vocab*.txt")  # files that `auto_map` names, for trust_remote_code, and those that they read
CARD = "README.md"
NAMED = 5  # tensors in an error of each kind
GROUP = 0.05  # share of all bytes: after reading so many, a file is closed and opened again, which frees mapped memory

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class Stored:
    """A tensor on disk."""

    file: Path
    shape: tuple[int, ...]
    dtype: torch.dtype | None  # None: no floating-point type

    @property
    def bytes(self) -> int:
        return torch.Size(self.shape).numel() * (self.dtype.itemsize if self.dtype else 1)


@dataclass(frozen=True)
class Source:
    """A checkpoint on disk."""

    name: str  # given by the user
    folder: Path
    config: dict[str, Any]
    files: tuple[Path, ...]  # with weights; several files are shards
    stored: dict[str, Stored]  # by tensor name

    @property
    def config_path(self) -> Path:
        return self.folder / CONFIG

    @property
    def title(self) -> str:
        """A name for the model: from the hub, or from the folder. Longer names than a spec has are cut."""
        path, on_hub = Path(self.name), self.name.partition("@")[0].rpartition("/")[2]
        return (self.folder.resolve().name if path.exists() else on_hub)[:LONGEST_NAME]

    @property
    def companions(self) -> tuple[Path, ...]:
        """The tokenizer's files, the generation config, the license and the model's own code.

        Links to files outside the folder are left out. Code is copied, and never run.
        """
        return tuple(self.folder / name for name in self._companion_names() if self._is_inside(name))

    @property
    def card(self) -> Path | None:
        """The model card; None: there is none, or it is a link to a file outside the folder."""
        return self.folder / CARD if self._is_inside(CARD) else None

    @property
    def outside(self) -> tuple[str, ...]:
        """Names of links to files outside the folder. Their content does not belong to the model."""
        names = (name for name in (*self._companion_names(), CARD) if (self.folder / name).is_file())
        return tuple(name for name in names if not self._is_inside(name))

    def _companion_names(self) -> tuple[str, ...]:
        configs = [self.folder / name for name in (CONFIG, "tokenizer_config.json")]
        if not any(b'"auto_map"' in path.read_bytes() for path in configs if path.is_file()):
            return COMPANIONS
        own = sorted(path.name for pattern in OWN_CODE for path in self.folder.glob(pattern))
        return tuple(dict.fromkeys((*COMPANIONS, *own)))

    def _is_inside(self, name: str) -> bool:
        """Whether this is a file of the folder, or a link in the hub's cache: snapshots/<revision>/x to blobs/y."""
        path, folder = self.folder / name, self.folder.resolve()
        if not path.is_file():
            return False
        allowed = [folder, *([folder.parents[1] / "blobs"] if folder.parent.name == "snapshots" else [])]
        return any(parent in path.resolve().parents for parent in allowed)

    def tensors(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Each of these tensors in turn, in each file the largest first.

        A tensor is valid until the next one is read: copy what you keep.

        Raises:
            CheckpointError: a file is truncated or corrupted.
        """
        wanted = sorted(names, key=lambda name: (self.stored[name].file.name, -self.stored[name].bytes, name))
        limit = GROUP * sum(stored.bytes for stored in self.stored.values())
        start = 0
        while start < len(wanted):
            file, end, total = self.stored[wanted[start]].file, start, 0
            while end < len(wanted) and self.stored[wanted[end]].file == file:
                total += self.stored[wanted[end]].bytes
                if end > start and total > limit:
                    break
                end += 1
            with _opened(file) as (_, get):
                for name in wanted[start:end]:
                    yield name, get(name)
            start = end


def find_source(name: str | Path) -> Source:
    """Open a folder, a file of weights, or a model of the hub ("owner/model", or "owner/model@revision").

    Raises:
        CheckpointError: `name` is none of these, or one of several shards; config.json, weights or a shard are missing
            or unreadable.
    """
    require_model(name)
    path = Path(name)
    if path.is_dir():
        folder, weights = path, _weights_of(path)
    elif path.is_file():
        _require_no_shard(path)
        folder, weights = path.parent, path
    else:
        folder = _downloaded(str(name))
        weights = _weights_of(folder)
    config = _config_in(folder, path)
    files, listed = _files(weights)
    stored = {tensor: entry for file in files for tensor, entry in _contents(file).items()}
    absent = [tensor for tensor, file in listed.items() if tensor not in stored or stored[tensor].file.name != file]
    if absent:
        raise CheckpointError(f"{weights}: lists tensors that are not in their shards: {', '.join(absent)}")
    return Source(str(name), folder, config, files, stored)


def find_config(name: str | Path) -> dict[str, Any]:
    """The config.json of a model that `find_source` opens. Of a model of the hub, only this file is downloaded.

    Raises:
        CheckpointError: as in `find_source`, but nothing is said of weights.
    """
    require_model(name)
    path = Path(name)
    folder = path if path.is_dir() else path.parent if path.is_file() else _downloaded(str(name), [CONFIG])
    return _config_in(folder, path)


def _config_in(folder: Path, path: Path) -> dict[str, Any]:
    """The config.json in a folder; `path` is what the user named."""
    place = f"{path}: its folder" if path.is_file() else f"{folder}:"
    return _json(folder / CONFIG, f"{place} has no {CONFIG}, which describes the model")


def _weights_of(folder: Path) -> Path:
    """The file of the weights, or the index of their shards.

    Like transformers, read a single file if there is one: the index may be of earlier shards. But an index that lists
    the single file names more files beside it.
    """
    for name in WEIGHTS:
        single, index = folder / name, folder / (name + INDEX)
        if single.is_file() and not (index.is_file() and name in listed_in(index).values()):
            return single
        if index.is_file():
            return index
    raise CheckpointError(f"{folder}: has no weights ({' or '.join(WEIGHTS)}, or an index of shards)")


def _require_no_shard(file: Path) -> None:
    """Raise CheckpointError if the index next to a file lists it as one of several shards."""
    index = file.with_name(index_of(file.name))
    shards = set(listed_in(index).values()) if index.is_file() else set()
    if file.name in shards and len(shards) > 1:
        raise CheckpointError(f"{file}: is one of {len(shards)} shards of a model; give its folder, {file.parent}")


def index_of(shard: str) -> str:
    """The name of the index that lists a shard. Pickled shards can have any suffix."""
    return (WEIGHTS[0] if shard.endswith(".safetensors") else WEIGHTS[1]) + INDEX


def listed_in(index: Path) -> dict[str, str]:
    """Tensor name -> file name, from an index of shards.

    Raises:
        CheckpointError: the file is missing or is no such index.
    """
    listed = _json(index, f"{index}: no such file").get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed.values()):
        raise CheckpointError(f"{index}: is not an index of shards (it has no valid weight_map)")
    return listed


def _files(weights: Path) -> tuple[tuple[Path, ...], dict[str, str]]:
    """The files with weights, and the index: tensor name -> file name."""
    if not weights.name.endswith(INDEX):
        return (weights,), {}
    listed = listed_in(weights)
    names = sorted(set(listed.values()))
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise CheckpointError(f"{weights}: lists files outside its folder: {', '.join(outside)}")
    missing = [name for name in names if not (weights.parent / name).is_file()]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise CheckpointError(f"{weights}: {len(missing)} of {len(names)} shards {are} missing: {', '.join(missing)}")
    return tuple(weights.parent / name for name in names), listed


def _contents(file: Path) -> dict[str, Stored]:
    with _opened(file) as (contents, _):
        return contents


@contextmanager
def _opened(file: Path) -> Iterator[tuple[dict[str, Stored], Callable[[str], Tensor]]]:
    """The tensors of a file, and a function that maps one of them into memory. Its numbers are read at first use."""
    try:
        if file.suffix == ".safetensors":
            safetensors_header(file, CheckpointError)
            with reading(CheckpointError, file), safe_open(file, framework="pt") as opened:
                slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
                yield (
                    {
                        name: Stored(file, tuple(part.get_shape()), DTYPES.get(part.get_dtype()))
                        for name, part in slices.items()
                    },
                    opened.get_tensor,
                )
            return
        tensors = _unpickled(file)
        yield (
            {
                name: Stored(file, tuple(tensor.shape), tensor.dtype if tensor.is_floating_point() else None)
                for name, tensor in tensors.items()
            },
            tensors.__getitem__,
        )
    except SafetensorError as error:
        raise CheckpointError(f"{file}: truncated or corrupted ({first_line(error)})") from error


def _unpickled(file: Path) -> dict[str, Tensor]:
    """The tensors that torch.save wrote, mapped into memory."""
    convert = (
        "if you trust it, load it with torch.load(..., weights_only=False) and write its state dict with "
        "safetensors.torch.save_file as model.safetensors"
    )
    with reading(CheckpointError, file), file.open("rb") as stream:
        start = stream.read(8)
    refuse_pointer(file, start, CheckpointError)
    if start.lstrip().startswith(b"{"):
        raise CheckpointError(f"{file}: is a JSON file, which holds no weights; give the folder of the model")
    try:
        with warnings.catch_warnings(action="ignore"):  # about unusual pickles, which are read or refused all the same
            tensors = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(f"{file}: contains pickled code, which ssm never runs; {convert}") from error
    except Exception as error:  # a damaged pickle can raise anything
        if is_lack_of_memory(error):
            raise
        text = first_line(error)
        old = "mmap" in text and f"has torch.save's old format, which cannot be read in parts; {convert}"
        raise CheckpointError(f"{file}: {old or f'truncated or corrupted ({text})'}") from error
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise CheckpointError(f"{file}: is not a dictionary of tensors; {convert}")
    return tensors


def _downloaded(name: str, only: list[str] | None = None) -> Path:
    """The local folder of a model of the hub, which is downloaded if needed: these files `only`, or all of them."""
    by_hand = f"without a network, copy its {CONFIG} and weights to {Path(name).absolute()}"
    try:
        import huggingface_hub
    except ImportError as error:
        raise CheckpointError(
            f"{name}: models of the hub need `pip install '.[hub]'` in the clone; {by_hand}"
        ) from error
    repository, _, revision = name.partition("@")
    patterns = [CONFIG, CARD, *COMPANIONS, "*.safetensors", "*.safetensors" + INDEX]

    def fetched(patterns: list[str]) -> Path:
        return Path(huggingface_hub.snapshot_download(repository, revision=revision or None, allow_patterns=patterns))

    try:
        folder = fetched(only or patterns)
        if only is None and not any(folder.glob("*.safetensors")):
            folder = fetched([*patterns, WEIGHTS[1], "pytorch_model-*.bin", WEIGHTS[1] + INDEX])
    except Exception as error:  # the package raises many types, also those of its network libraries
        cache = huggingface_hub.constants.HF_HUB_CACHE
        raise CheckpointError(
            f"{name}: no such folder, and the hub does not provide it ({first_line(error)}); {by_hand}, or the hub's "
            f"cache of another machine to {cache}{near(name)}"
        ) from error
    return folder


def _json(path: Path, absent: str) -> dict[str, Any]:
    value = _numbers(read_json(path, CheckpointError, "JSON file", absent, finite=False))
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: is not a JSON object")
    return value


def _numbers(value: Any) -> Any:
    """transformers writes infinity as {"__float__": "Infinity"}."""
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"__float__"} and value["__float__"] in ("Infinity", "-Infinity", "NaN"):
        return float(value["__float__"])
    return {key: _numbers(item) for key, item in value.items()}


def about_tensors(what: str, names: Sequence[str], between: str = ", ") -> list[str]:
    """The part of a message about these tensors: the first NAMED, and how many more. Empty without tensors."""
    return [f"{what}{first_of(names, NAMED, between)}"] if names else []

"""Types of the JSON files that ssm writes for itself. They are checked when a file is read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic needs it below Python 3.12

from ssm.base.errors import UserError
from ssm.base.strict_parsing import read_json, shaped

RUN_WEIGHTS = "model.safetensors"  # in the folder of a run
RUN_RECORD = "run.json"  # of a finished run, with the digests of its weights
RUN_METRICS = "metrics.parquet"  # of a finished run
CHECKPOINT_METRICS = "checkpoint.metrics.parquet"  # the rows up to the last checkpoint, and perhaps some later ones
PICTURES = ("svg", "png", "pdf")  # formats of the picture of a figure; the report shows the first one

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=False)]


@with_config(ConfigDict(strict=True, extra="allow"))
class Published(TypedDict):
    """Imported weights, described when they were imported."""

    name: str
    revision: str | None  # revision on the hub
    fingerprint: str  # hash of config.json and the weights


def _time(text: str) -> str:
    try:
        zone = datetime.fromisoformat(text).utcoffset()
    except ValueError:
        zone = None
    if zone is None or zone:
        raise ValueError("must be a time in UTC, such as 2026-01-31T12:00:00+00:00")
    return text


Time = Annotated[str, AfterValidator(_time)]  # UTC, in the format of `datetime.isoformat`


@with_config(ConfigDict(strict=True, extra="allow"))
class Code(TypedDict):
    """The code that made a result."""

    ssm: NotRequired[str]
    commit: NotRequired[str]


@with_config(ConfigDict(strict=True, extra="allow"))
class Machine(TypedDict):
    """The machine that made a result."""

    python: NotRequired[str]
    system: NotRequired[str]
    processor: NotRequired[str]
    cores: NotRequired[Count | None]


@with_config(ConfigDict(strict=True, extra="allow"))
class Provenance(TypedDict):
    """Provenance of a result (`ssm.base.provenance`), with the fields that its writer added."""

    code: NotRequired[Code]
    packages: NotRequired[dict[str, str]]  # name -> version
    machine: NotRequired[Machine]
    written: NotRequired[Time]
    seconds: NotRequired[Seconds]


@with_config(ConfigDict(strict=True, extra="allow"))
class RunRecord(TypedDict):
    """run.json of a finished run (`ssm.training.run_record`)."""

    status: Literal["finished", "diverged"]
    message: NotRequired[str]
    diverged: NotRequired[str | None]  # how it diverged, or else how its parent did
    parent_diverged: NotRequired[str | None]  # how its parent diverged, if the run diverged as well
    steps: NotRequired[Count]
    budget_steps: NotRequired[Count]
    tokens: NotRequired[Count]
    parameters: NotRequired[Count]
    seconds: NotRequired[Seconds]
    tokens_per_second: NotRequired[Seconds]
    device: NotRequired[str]
    origin: NotRequired[str]
    published: NotRequired[Published]  # the imported weights from which it descends
    weights: NotRequired[dict[str, str]]  # file -> digest
    spec: NotRequired[dict[str, Any]]
    provenance: NotRequired[Provenance]


def _beside(name: str) -> str:
    if Path(name).name != name or not name.isprintable():
        raise ValueError("expected the name of a file in the same folder")
    return name


FileName = Annotated[str, AfterValidator(_beside)]


@with_config(ConfigDict(strict=True, extra="allow"))
class FileState(TypedDict):
    """A file of a token store."""

    bytes: Count
    sha256: str


@with_config(ConfigDict(strict=True, extra="allow"))
class Split(TypedDict):
    """A split of a token store."""

    shards: list[FileName]
    boundaries: FileName


@with_config(ConfigDict(strict=True, extra="allow"))
class Corpus(TypedDict):
    """The corpus of a token store."""

    sha256: NotRequired[str]
    documents: NotRequired[Count]


@with_config(ConfigDict(strict=True, extra="allow"))
class Described(TypedDict):
    """The part of manifest.json that a report shows."""

    corpus: NotRequired[Corpus]


@with_config(ConfigDict(strict=True, extra="allow"))
class Manifest(TypedDict):
    """manifest.json of a token store (`ssm.data.build`)."""

    format: str
    version: int
    spec: dict[str, Any]
    vocab_size: Annotated[int, Field(gt=0, lt=2**32)]
    corpus: Corpus
    splits: dict[str, Split]
    files: dict[FileName, FileState]
    sizes: NotRequired[str]  # a hash of the names and sizes of the user's files; earlier versions did not write it


def read_run_record(path: Path, error: type[UserError], missing: str, needed: Iterable[str] = ()) -> dict[str, Any]:
    """The content of run.json of a finished run.

    Args:
        needed: keys that must be in it.

    Raises:
        UserError: an `error`: the file is missing, unreadable, or not the record of a run.
    """
    value = read_json(path, error, "record of a run", missing)
    record = dict(shaped(value, RunRecord, f"{path}: not the record of a run", error))
    lacking = sorted({*needed} - record.keys())
    if lacking:
        raise error(f"{path}: not the record of a run: lacks '{lacking[0]}'; delete it and make it again")
    return record

"""The JSON files that ssm writes for itself: what stands in them, checked when they are read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, Field
from typing_extensions import TypedDict  # what pydantic asks for below Python 3.12

from ssm.base.errors import UserError
from ssm.base.outside import read_json, shaped

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=False)]


class Published(TypedDict):
    """Weights from elsewhere, as an import found them."""

    __pydantic_config__ = ConfigDict(strict=True, extra="allow")  # type: ignore[misc]
    name: str
    revision: str | None  # of the hub
    fingerprint: str  # of config.json and the weights


class RunRecord(TypedDict):
    """run.json of a finished run (`ssm.training.loop`): what stands in it has this type, whoever needs it."""

    __pydantic_config__ = ConfigDict(strict=True, extra="allow")  # type: ignore[misc]
    status: Literal["finished", "diverged"]
    message: NotRequired[str]
    diverged: NotRequired[str | None]
    steps: NotRequired[Count]
    budget_steps: NotRequired[Count]
    tokens: NotRequired[Count]
    parameters: NotRequired[Count]
    seconds: NotRequired[Seconds]
    tokens_per_second: NotRequired[Seconds]
    device: NotRequired[str]
    origin: NotRequired[str]
    published: NotRequired[Published]  # the weights from elsewhere that it goes back to
    weights: NotRequired[dict[str, str]]  # file -> its digest
    spec: NotRequired[dict[str, Any]]
    provenance: NotRequired[dict[str, Any]]


def _beside(name: str) -> str:
    if Path(name).name != name:
        raise ValueError("expected the name of a file beside it")
    return name


FileName = Annotated[str, AfterValidator(_beside)]


class FileState(TypedDict):
    """A file of a token store."""

    __pydantic_config__ = ConfigDict(strict=True, extra="allow")  # type: ignore[misc]
    bytes: Count
    sha256: str


class Split(TypedDict):
    """A split of a token store."""

    __pydantic_config__ = ConfigDict(strict=True, extra="allow")  # type: ignore[misc]
    shards: list[FileName]
    boundaries: FileName


class Corpus(TypedDict):
    """What was read."""

    __pydantic_config__ = ConfigDict(strict=True, extra="allow")  # type: ignore[misc]
    sha256: NotRequired[str]
    documents: NotRequired[Count]


class Described(TypedDict):
    """Of manifest.json, what a report says of the text."""

    __pydantic_config__ = ConfigDict(strict=True, extra="allow")  # type: ignore[misc]
    corpus: NotRequired[Corpus]


class Manifest(TypedDict):
    """manifest.json of a token store (`ssm.data.build`)."""

    __pydantic_config__ = ConfigDict(strict=True, extra="allow")  # type: ignore[misc]
    format: str
    version: int
    spec: dict[str, Any]
    vocab_size: Annotated[int, Field(gt=0, lt=2**32)]
    corpus: Corpus
    splits: dict[str, Split]
    files: dict[FileName, FileState]


class CandidateRecord(TypedDict):
    """An entry of choice.json (`ssm.extension.choice`)."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")  # type: ignore[misc]
    name: str
    step: Count
    snapshot: float | None
    in_context: float | None
    far_perplexity: float | None
    paired_ratio: float | None


class Repaired(TypedDict):
    """repair.json of an extension that trains nothing (`ssm.extension.repairing`)."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")  # type: ignore[misc]
    rules: list[Any]  # of the choice
    chosen: list[Annotated[float, Field(gt=0)] | None]
    trials: Count
    candidates: list[CandidateRecord]


class Settings(TypedDict):
    """extension.json (`ssm.extension.folder`)."""

    __pydantic_config__ = ConfigDict(strict=True, extra="allow")  # type: ignore[misc]
    spec: dict[str, Any]
    held_out: list[str]
    held_out_files: str
    divided: bool
    share: float | None


class Result(TypedDict):
    """result.json of an extension: what its caller is told."""

    __pydantic_config__ = ConfigDict(strict=True, extra="allow")  # type: ignore[misc]
    outcome: str
    reason: str
    model: str | None
    candidate: str | None


def read_run_record(path: Path, error: type[UserError], missing: str, needed: Iterable[str] = ()) -> dict[str, Any]:
    """What run.json says of a finished run.

    Args:
        needed: keys that it must have.

    Raises:
        UserError: of the kind `error`: missing, unreadable, or not the record of a run.
    """
    value = read_json(path, error, "record of a run", missing)
    record = dict(shaped(value, RunRecord, f"{path}: not the record of a run", error))
    lacking = sorted({*needed} - record.keys())
    if lacking:
        raise error(f"{path}: not the record of a run: lacks '{lacking[0]}'; delete it and make it again")
    return record

"""Types of the JSON files of an extension. They are checked when a file is read."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic needs it below Python 3.12

from ssm.base.records import Count, FileName


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("expected one line of printable characters")
    return text


Line = Annotated[str, AfterValidator(_printable)]


@with_config(ConfigDict(strict=True, extra="forbid"))
class CandidateRecord(TypedDict):
    """An entry of choice.json (`ssm.extension.choice`)."""

    name: str
    step: Count
    snapshot: float | None
    in_context: float | None
    far_perplexity: float | None
    paired_ratio: float | None


@with_config(ConfigDict(strict=True, extra="forbid"))
class TriedRecord(TypedDict):
    """An entry of trials.json (`ssm.extension.repairing`)."""

    at: list[Annotated[float, Field(gt=0)] | None]
    candidate: CandidateRecord


@with_config(ConfigDict(strict=True, extra="forbid"))
class Repaired(TypedDict):
    """repair.json of an extension without training (`ssm.extension.repairing`)."""

    rules: list[Any]  # rules by which the factor was chosen
    chosen: list[Annotated[float, Field(gt=0)] | None]
    trials: Count
    candidates: list[CandidateRecord]


@with_config(ConfigDict(strict=True, extra="allow"))
class Request(TypedDict):
    """The request to `ssm extend`."""

    diagnosis: dict[str, Any]


@with_config(ConfigDict(strict=True, extra="allow"))
class Settings(TypedDict):
    """extension.json (`ssm.extension.folder`)."""

    spec: Request
    text: list[str]
    text_files: str
    held_out: list[str]
    held_out_files: str
    divided: bool
    share: float | None


@with_config(ConfigDict(strict=True, extra="allow"))
class Result(TypedDict):
    """result.json of an extension: the outcome for its caller."""

    outcome: Line
    reason: Line
    model: FileName | None
    candidate: FileName | None
    library: NotRequired[Literal["transformers", "fla", "mamba_ssm"] | None]  # that reads the model

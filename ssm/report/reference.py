"""Reference results, which are committed: a folder such as reports/smoke, with an image and a JSON file a figure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar

from PIL import Image
from pydantic import Field

from ssm.base.errors import TableError
from ssm.base.files import whole_file, write_text
from ssm.base.names import natural
from ssm.base.tables import read_provenance
from ssm.claims.claim import ClaimSpec
from ssm.claims.quantity import ROUNDING
from ssm.report.gather import Gatherer
from ssm.report.papers import GROUPS
from ssm.specs.base import Spec

COLORS = 128  # of a committed image: a third of the bytes


class Judged(Spec):
    """A claim's verdict: a row of the verdicts table, of its explanations with that of a missing number alone."""

    later: ClassVar[frozenset[str]] = frozenset({"timed", "rounding", "reason"})
    claim: str
    says: str
    estimate: float | None
    low: float | None
    high: float | None
    interval: str
    expected: str
    verdict: str
    sort: str
    number: str  # the same as long as the same seeds, arms and measurements decide it
    registered: bool
    timed: bool = False  # made of times, so that the next run has another estimate
    rounding: float = ROUNDING  # how far rounding alone may move a number of its quantity
    reason: str = ""  # why there is no estimate

    @property
    def numbers(self) -> tuple[float | None, ...]:
        return self.estimate, self.low, self.high


class Reference(Spec):
    """A figure's reference results."""

    target: str
    scale: str
    made: dict[str, str]  # on what, when and with what
    claims: Annotated[tuple[Judged, ...], Field(strict=False)]


def write_reference(results: Path, out: Path) -> list[str]:
    """Take the finished figures of a results folder as the reference: `out`/<target>.png and .json, each a whole file.

    Returns:
        Their targets.

    Raises:
        TableError: nothing is finished, it is a dry run, or an image is none.
        OutputError: `out` cannot be written.
    """
    gathered = Gatherer(results, out).gather()
    if gathered.dry_run:
        raise TableError(f"{results}: a dry run, whose numbers mean nothing: no reference")
    for figure in gathered.figures:
        verdicts = results / "verdicts" / f"{figure.target}.parquet"
        made = made_with(read_provenance(verdicts))
        claims = tuple(judged(claim.row, claim.spec) for claim in figure.claims)
        reference = Reference(target=figure.target, scale=gathered.scale, made=made, claims=claims)
        write_text(out / f"{figure.target}.json", _layout(reference))
        image = _small(results / "figures" / f"{figure.target}.png")
        with whole_file(out / f"{figure.target}.png") as temporary:
            image.save(temporary, format="png", optimize=True)
    return [figure.target for figure in gathered.figures]


def read_references(folder: Path) -> dict[str, Reference]:
    """Target -> its reference, in the order of the papers.

    Raises:
        ConfigError: a file is none.
    """
    found = {path.stem: Reference.load(path) for path in folder.glob("*.json")}
    order = [target for paper in GROUPS.values() for target in paper.shows]
    known = [target for target in order if target in found]
    return {target: found[target] for target in [*known, *sorted(set(found) - set(known), key=natural)]}


def judged(row: Mapping[str, Any], claim: ClaimSpec | None = None) -> Judged:
    """A row of the verdicts table; a number that is not finite is none.

    Args:
        claim: that is judged, of which a reference says what a comparison needs to know.
    """
    content = {name: row[name] for name in Judged.model_fields if name not in ("timed", "rounding")}
    for name in ("estimate", "low", "high"):
        content[name] = content[name] if content[name] is not None and math.isfinite(content[name]) else None
    content["reason"] = content["reason"] if content["estimate"] is None else ""
    known = {}
    if claim is not None:
        known = {"timed": claim.quantity.timed, "rounding": claim.rounding or claim.quantity.rounding}
    return Judged(**content | {"registered": content["registered"] is not False} | known)


def _small(path: Path) -> Image.Image:
    """An image with few colours."""
    with open_png(path) as image:
        return image.convert("RGB").quantize(COLORS)


@contextmanager
def open_png(path: Path) -> Iterator[Image.Image]:
    """A PNG image.

    Raises:
        TableError: it is none.
    """
    try:
        with Image.open(path, formats=["PNG"]) as image:
            yield image
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise TableError(f"{path}: not a readable image ({error})") from error


def made_with(origin: Mapping[str, Any]) -> dict[str, str]:
    """Of a table's provenance, what a reader asks for: when, on what and with what it was made."""
    machine, code, packages = (origin.get(key, {}) for key in ("machine", "code", "packages"))
    found = {
        "written": origin.get("written"),
        "processor": machine.get("processor"),
        "python": machine.get("python"),
        "torch": packages.get("torch"),
        "commit": code.get("commit"),
    }
    return {name: str(value) for name, value in found.items() if value}


def _layout(reference: Reference) -> str:
    """JSON with one line for each claim, so that a diff shows which claim changed."""
    content = reference.content()
    claims = ",\n".join(f"    {json.dumps(claim, ensure_ascii=False)}" for claim in content.pop("claims"))
    head = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    return f'{{\n{head},\n  "claims": [\n{claims}\n  ]\n}}\n' if claims else f'{{\n{head},\n  "claims": []\n}}\n'

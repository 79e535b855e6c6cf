"""Reference results: a committed folder such as reports/smoke, with a picture and a JSON file for each figure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar

from PIL import Image
from pydantic import Field

from ssm.base.errors import ConfigError, TableError, nearest
from ssm.base.files import atomic_file, write_text
from ssm.base.tables import read_provenance
from ssm.claims.claim import ClaimSpec
from ssm.claims.quantity import ROUNDING
from ssm.claims.statements import model_of
from ssm.claims.words import by_seed
from ssm.figures.figure import TARGET, FigureTask
from ssm.report.gather import AGAIN, Gatherer
from ssm.report.papers import in_order
from ssm.report.shared_models import bases_of
from ssm.specs.base import Spec

COLORS = 128  # of a committed picture: this saves two thirds of the bytes


class Judged(Spec):
    """The verdict on a claim: a row of the verdicts table, without most of its explanations."""

    later: ClassVar[frozenset[str]] = frozenset(
        {"timed", "rounding", "reason", "model", "by_seed", "p", "base_models", "base_group", "paper_number"}
    )
    claim: str
    says: str
    estimate: float | None
    low: float | None
    high: float | None
    interval: str
    expected: str
    verdict: str
    sort: str
    number: str  # a hash of the seeds, arms and measurements that decide the number
    registered: bool
    timed: bool = False  # True: made of times, so that every run has another estimate
    rounding: float = ROUNDING  # by how much rounding can move the estimate and its interval
    reason: str = ""  # why there is no estimate
    model: str = ""  # title of the judged model; empty if the figure has only one
    # seed -> the number that the interval is computed from, several, or its named parts; null: not finite; empty: not
    # from seeds
    by_seed: dict[
        str, float | Annotated[tuple[float | None, ...], Field(strict=False)] | dict[str, float | None] | None
    ] = {}
    p: float | None = None  # p-value against the nearest bound
    base_models: int = 0  # how many models it rests on, as they were trained first
    base_group: str = ""  # equal for verdicts on the same base models
    paper_number: float | None = None  # the paper's value of the quantity

    @property
    def numbers(self) -> tuple[float | None, ...]:
        return self.estimate, self.low, self.high


class Reference(Spec):
    """The reference results of a figure."""

    target: str
    scale: str
    made: dict[str, str]  # on which machine, when, and with which software
    claims: Annotated[tuple[Judged, ...], Field(strict=False)]

    def rows(self) -> list[dict[str, Any]]:
        """Its verdicts as rows of a verdicts table."""
        return [
            {name: getattr(claim, name) for name in Judged.model_fields} | {"target": self.target}
            for claim in self.claims
        ]


def write_reference(results: Path, out: Path) -> tuple[list[str], list[str]]:
    """Write the finished figures of a results folder as reference results: `out`/<target>.png and .json.

    Returns:
        Their targets, and one line for each figure that is left out because a result of it is out of date or broken.

    Raises:
        TableError: no figure is finished, the results are of a dry run, or a picture cannot be read.
        OutputError: `out` cannot be written.
    """
    gathered = Gatherer(results, out).gather()
    if gathered.dry_run:
        raise TableError(f"{results}: a dry run, whose numbers mean nothing; give results of a full run")
    for figure in gathered.figures:
        verdicts = results / "verdicts" / f"{figure.target}.parquet"
        made = made_with(read_provenance(verdicts))
        claims = tuple(judged(claim.row, claim.spec, claim.title) for claim in figure.claims)
        save_reference(Reference(target=figure.target, scale=gathered.scale, made=made, claims=claims), out)
        with open_png(results / "figures" / f"{figure.target}.png") as image:
            small = image.convert("RGB").quantize(COLORS)
        with atomic_file(out / f"{figure.target}.png") as temporary:
            small.save(temporary, format="png", optimize=True)
    left_out = [
        f"{target} is left out: {absent.state}, {absent.why}"
        for target, absent in gathered.unfinished.items()
        if absent.state == AGAIN
    ]
    return [figure.target for figure in gathered.figures], left_out


def save_reference(reference: Reference, folder: Path) -> None:
    """Write the JSON file, with one line for each claim, so that a diff shows which claim changed."""
    content = reference.content()
    claims = ",\n".join(f"    {json.dumps(claim, ensure_ascii=False)}" for claim in content.pop("claims"))
    head = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    listed = f"[\n{claims}\n  ]" if claims else "[]"
    write_text(folder / f"{reference.target}.json", f'{{\n{head},\n  "claims": {listed}\n}}\n')


def reworded(reference: Reference, task: FigureTask) -> Reference:
    """The reference with the statements and titles of the planned figure, and what its plan says about base models.

    The verdicts and their numbers do not change.

    Raises:
        ConfigError: the figure has other claims than the reference.
    """
    planned = {name: claim for name, claim, _ in task.verdicts}
    titles = {name: task.title_of(model_of(name)) for name in planned}
    bases = {name: bases_of(task.base_models(claim, panel)) for name, claim, panel in task.verdicts}
    judged_here = {claim.claim: claim for claim in reference.claims}
    for name in dict.fromkeys([*judged_here, *planned]):
        problem = ""
        if name not in planned:
            problem = f"its figure file has no claim '{name}'; {nearest(name, planned)}"
        elif name not in judged_here:
            problem = f"it has no verdict on '{name}', a claim of its figure file"
        elif judged_here[name].expected != planned[name].expected.words():
            problem = f"{name}: another region is expected in its figure file"
        elif judged_here[name].number != task.numbers[name]:
            problem = f"{name}: other seeds, arms or measurements decide it in its figure file"
        if problem:
            again = f"make {reference.target}, then take its results with `ssm reference results/{reference.scale}`"
            raise ConfigError(f"reference results of {reference.target}: {problem}: {again}")
    claims = tuple(
        claim.model_copy(update=_words(planned[claim.claim]) | {"model": titles[claim.claim]} | bases[claim.claim])
        for claim in reference.claims
    )
    return reference.model_copy(update={"claims": claims})


def read_references(folder: Path) -> dict[str, Reference]:
    """Target -> its reference, in the order of the papers.

    Only files with the name of a figure count: reports/gpu also holds the results of `make gpu`.

    Raises:
        ConfigError: a file is not a reference.
    """
    files = [path for path in folder.glob("*.json") if re.match(TARGET, path.stem)]
    references = {path.stem: Reference.load(path) for path in files}
    return {target: references[target] for target in in_order(references)}


def _words(claim: ClaimSpec) -> dict[str, Any]:
    return {"says": claim.says, "paper_number": claim.paper_number}


def judged(row: Mapping[str, Any], claim: ClaimSpec | None = None, model: str = "") -> Judged:
    """A row of the verdicts table. Numbers that are not finite become None.

    Args:
        claim: the claim that was judged. A reference needs it for `timed`, `rounding` and `paper_number`.
        model: the title of the judged model; empty if the figure has only one.
    """
    optional = Judged.later - {"reason", "p"}
    content = {name: row[name] for name in Judged.model_fields if name not in optional}
    for name in ("estimate", "low", "high"):
        content[name] = content[name] if content[name] is not None and math.isfinite(content[name]) else None
    content["reason"] = content["reason"] if content["estimate"] is None else ""
    content["registered"] = content["registered"] is not False
    content["by_seed"] = by_seed(row)
    content |= {name: row[name] for name in ("base_models", "base_group") if name in row}
    if claim is not None:
        content["timed"] = claim.quantity.timed
        content["rounding"] = claim.rounding or claim.quantity.rounding
        content |= _words(claim)
    return Judged(**content, model=model)


@contextmanager
def open_png(path: Path) -> Iterator[Image.Image]:
    """Open a PNG image.

    Raises:
        TableError: the file is missing, broken, or not a PNG image.
    """
    try:
        with Image.open(path, formats=["PNG"]) as image:
            yield image
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise TableError(f"{path}: not a readable image ({error})") from error


def made_with(origin: Mapping[str, Any]) -> dict[str, str]:
    """The part of a table's provenance that readers ask for: date, processor, versions, commit."""
    machine, code, packages = (origin.get(key, {}) for key in ("machine", "code", "packages"))
    made = {
        "written": origin.get("written"),
        "processor": machine.get("processor"),
        "python": machine.get("python"),
        "torch": packages.get("torch"),
        "commit": code.get("commit"),
    }
    return {name: str(value) for name, value in made.items() if value}

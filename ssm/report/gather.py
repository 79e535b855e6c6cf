"""Read and check everything that the report shows: figures, claims, runs, and links to their files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from ssm.base.errors import TableError, UserError
from ssm.base.names import natural
from ssm.base.prose import plain
from ssm.base.records import PICTURES, RUN_RECORD, Described, read_run_record
from ssm.base.strict_parsing import read_json, shaped
from ssm.base.tables import read_provenance
from ssm.claims.claim import ClaimSpec, Expected
from ssm.claims.seeds_needed import needed_words
from ssm.claims.series import Series
from ssm.claims.snakemake_command import snakemake_command
from ssm.claims.statements import ALL, CONFIRMED, ELSEWHERE, OPEN, REFUTED, figures_named, model_of
from ssm.claims.verdict import DRY_RUN, number_of, read_verdicts
from ssm.claims.words import by_seed, measured, seed_words
from ssm.figures.figure import FigureTask
from ssm.report.image import Image, svg_image
from ssm.report.papers import GROUPS, spoken
from ssm.report.shared_models import bases_of
from ssm.report.strip import strip
from ssm.specs.base import slug
from ssm.specs.training import RunSpec

SYMBOLS = {CONFIRMED: "✓", REFUTED: "✗", OPEN: "?"}
MARKS = {  # a claim's mark in the overview -> its words, in the order of the legend
    **{CONFIRMED: "confirmed", REFUTED: "refuted", "not-decided": OPEN},
    **{"unregistered": "not registered", "elsewhere": "about models that this scale lacks", "dry-run": "dry run"},
}
RUN_KEYS = ("status", "message", "steps", "tokens", "parameters", "seconds", "device", "spec", "provenance")


@dataclass(frozen=True)
class Link:
    """A link from a page to a file of the results folder."""

    text: str
    href: str


@dataclass(frozen=True)
class Run:
    """A training run: its spec and its run.json."""

    id: str
    spec: RunSpec
    record: dict[str, Any]
    link: Link  # to its run.json, which has the spec

    @property
    def diverged(self) -> bool:
        return bool(self.record["status"] == "diverged")


@dataclass(frozen=True)
class Verdict:
    """A row of the verdicts table, as a page shows it."""

    row: dict[str, Any]

    @property
    def expected(self) -> Expected:
        return Expected.of_words(self.row["expected"])

    @property
    def strip(self) -> Markup:
        return strip(self.row, self.expected)

    @property
    def seeds(self) -> str:
        """The number of every seed as text; empty: not from seeds."""
        return seed_words(self.row) if by_seed(self.row) else ""

    @property
    def title(self) -> str:
        """The title of the judged model, if the figure has several models."""
        return str(self.row.get("model", ""))

    @property
    def sort(self) -> str:
        """Who makes the statement: a key of `ssm.claims.statements.SORTS`."""
        return str(self.row["sort"])

    @property
    def unregistered(self) -> bool:
        """True: the claim was not registered before its seeds were read. It is not counted."""
        return self.row["registered"] is False

    @property
    def anchor(self) -> str:
        return slug(self.row["target"], self.row["claim"])

    @property
    def verdict(self) -> str:
        return str(self.row["verdict"])

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.verdict]

    @property
    def needed(self) -> str:
        """How many seeds would decide the claim, as text; empty: no number of seeds is known to decide it."""
        return needed_words(self.row)

    @property
    def style(self) -> str:
        return self.verdict.replace(" ", "-")

    @property
    def mark(self) -> str:
        """A key of MARKS: the verdict, or the reason why it is not counted."""
        if self.row["reason"] == DRY_RUN:
            return "dry-run"
        if self.sort == ELSEWHERE:
            return "elsewhere"
        return "unregistered" if self.unregistered else self.style

    @property
    def words(self) -> str:
        """The text of a mark, for tooltips and screen readers."""
        number = "" if self.mark in ("dry-run", "elsewhere") else f": {measured(self.row)}"
        return f"{plain(self.row['says'])} {MARKS[self.mark].capitalize()}{number}"


@dataclass(frozen=True)
class Claim(Verdict):
    """A verdict of this results folder, with its claim."""

    spec: ClaimSpec
    model_title: str  # of the judged model; empty if the figure has only one

    @property
    def title(self) -> str:
        return self.model_title


@dataclass(frozen=True)
class TableFile:
    """A result table that a figure is made from."""

    link: Link
    provenance: dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A rebuilt figure or table of a paper."""

    task: FigureTask
    image: Image
    claims: tuple[Claim, ...]
    runs: tuple[str, ...]  # ids
    files: tuple[Link, ...]  # the picture in every format
    specs: tuple[Link, ...]
    tables: tuple[TableFile, ...]

    @property
    def target(self) -> str:
        return self.task.target

    @property
    def paper(self) -> str:
        return self.task.figure.paper

    @property
    def citation(self) -> str:
        return GROUPS[self.paper].citation

    @property
    def spoken(self) -> str:
        return spoken(self.target)

    @property
    def alternative(self) -> str:
        """The alternative text of the image."""
        return plain(f"{self.task.figure.title}. {self.task.figure.caption}")


AGAIN = "to be made again"  # the state of a figure with a result that cannot be used


@dataclass(frozen=True)
class Absent:
    """Why a figure is missing."""

    state: str  # in two or three words
    why: str  # the command that makes it, or the reason


@dataclass(frozen=True)
class Results:
    """The content of a results folder."""

    scale: str
    figures: tuple[Figure, ...]  # finished figures
    runs: dict[str, Run]
    manifests: dict[str, dict[str, Any]]  # data id -> the token store's manifest
    unfinished: dict[str, Absent]  # target -> why this planned figure is missing

    @property
    def dry_run(self) -> bool:
        """Whether a figure comes from a dry run. Then no number on the pages is a result."""
        return any(figure.task.dry_run for figure in self.figures)

    @property
    def claims(self) -> tuple[Claim, ...]:
        return tuple(claim for figure in self.figures for claim in figure.claims)

    def of(self, targets: Iterable[str]) -> Results:
        """Only these figures, with their runs and token stores."""
        wanted = set(targets)
        figures = tuple(figure for figure in self.figures if figure.target in wanted)
        runs = {id: self.runs[id] for figure in figures for id in figure.runs}
        manifests = {run.spec.data.id: self.manifests[run.spec.data.id] for run in runs.values()}
        unfinished = {target: why for target, why in self.unfinished.items() if target in wanted}
        return replace(self, figures=figures, runs=runs, manifests=manifests, unfinished=unfinished)


class Gatherer:
    """Reads a results folder for pages in the folder `out`."""

    def __init__(self, results: Path, out: Path):
        self.results, self.out = results, out
        self.runs: dict[str, Run] = {}
        self.manifests: dict[str, dict[str, Any]] = {}

    def planned(self, names: Sequence[str] = (ALL,)) -> tuple[str, ...]:
        """The planned figures that names mean: targets, papers such as `lg`, or `all`.

        Raises:
            TableError: no figure is planned.
            ConfigError: a name is unknown.
        """
        folder = self.results / "specs" / "figures"
        planned = sorted((path.stem for path in folder.glob("*.json")), key=natural)
        if not planned:
            raise TableError(f"{folder}: no planned figures; `{self._plan()}` makes them")
        return figures_named(names, planned, str(folder))

    def gather(self, needed: Sequence[str] = ()) -> Results:
        """Read everything that the pages show.

        Args:
            needed: figures that must be finished. Other figures are left out if they are unfinished or out of date.

        Raises:
            TableError: a needed file is missing or broken: the message names it and the command that makes it. Or no
                figure is finished.
            ConfigError: the spec of a needed figure or run cannot be read.
        """
        planned, figures = self.planned(), []
        missing: dict[str, UserError | None] = {}  # target -> why it must be made again; None: it is not made yet
        for target in planned:
            if target not in needed and not self._finished(target):
                missing[target] = None
                continue
            try:
                figures.append(self._figure(FigureTask.load(self._spec(target))))
            except UserError as problem:
                if target in needed:
                    raise
                missing[target] = problem
        if not figures:
            first, reason = next((one for one in missing.items() if one[1]), (planned[0], None))
            why = f"to be made again; {reason}" if reason else "not made yet; the workflow makes it"
            raise TableError(f"{self.results}: none of {len(planned)} planned figures is finished: {first} is {why}")
        scales = sorted({figure.task.scale for figure in figures})
        if len(scales) > 1:
            raise TableError(
                f"{self.results}: holds figures of several scales ({', '.join(scales)}); use one folder for each scale"
            )
        unfinished = {}
        for target, reason in missing.items():
            makes = f"`{snakemake_command(target, scales[0])}` makes it"
            unfinished[target] = Absent(AGAIN, f"{makes}; {reason}") if reason else Absent("not made yet", makes)
        return Results(scales[0], tuple(figures), self.runs, self.manifests, unfinished).of(planned)

    def _finished(self, target: str) -> bool:
        return all(path.is_file() for path in (*self._images(target), self._verdicts(target)))

    def _spec(self, target: str) -> Path:
        return self.results / "specs" / "figures" / f"{target}.json"

    def _images(self, target: str) -> list[Path]:
        return [self.results / "figures" / f"{target}.{ending}" for ending in PICTURES]

    def _verdicts(self, target: str) -> Path:
        return self.results / "verdicts" / f"{target}.parquet"

    def _figure(self, task: FigureTask) -> Figure:
        target = task.target
        spec = self._spec(target)
        plot = f"ssm plot {spec} --tables {self.results / 'tables'} --out {self.results / 'figures'}"
        images = [self._need(path, plot) for path in self._images(target)]
        again = snakemake_command(target, task.scale)
        return Figure(
            task=task,
            image=svg_image(images[0].read_bytes(), str(images[0])),
            claims=self._claims(task, spec),
            runs=tuple(dict.fromkeys(run for series in task.series for run in self._run(series, again))),
            files=tuple(self._link(path, path.suffix[1:].upper()) for path in images),
            specs=(
                self._link(spec, "the planned figure"),
                self._link(self._verdicts(target), "the table of verdicts"),
            ),
            tables=tuple(self._table(name, again) for name in task.table_ids),
        )

    def _claims(self, task: FigureTask, spec: Path) -> tuple[Claim, ...]:
        path = self._verdicts(task.target)
        judge = f"ssm judge {spec} --tables {self.results / 'tables'} --out {path}"
        planned = {name: (claim, panel) for name, claim, panel in task.verdicts}
        claims = {}
        for row in read_verdicts(self._need(path, judge)):
            name = row["claim"]
            claim, panel = planned.get(name, (None, ""))
            judged = (row["says"], row["expected"], row["number"], row["reason"] == DRY_RUN)
            stated = claim and (claim.says, claim.expected.words(), number_of(task, name), task.dry_run)
            if claim is None or judged != stated:
                raise TableError(f"{path}: '{name}' is not what {spec} claims now; `{judge}` judges again")
            bases = bases_of(task.base_models(claim, panel))
            claims[name] = Claim(row | bases, claim, task.title_of(model_of(name)))
        for name in planned:
            if name not in claims:
                raise TableError(f"{path}: has no verdict on '{name}'; `{judge}` judges again")
        return tuple(claims.values())

    def _run(self, series: Series, command: str) -> list[str]:
        """The ids of a series' run and its parents, oldest first. Each run is read once."""
        ids = []
        run: str | None = series.run
        while run is not None:
            ids.append(run)
            if run not in self.runs:
                self.runs[run] = self._read_run(run, command)
            parent = self.runs[run].spec.parent
            run = parent.id if parent else None
        return ids[::-1]

    def _read_run(self, run: str, command: str) -> Run:
        path = self._need(self.results / "runs" / run / RUN_RECORD, command)
        record = read_run_record(path, TableError, f"{path}: missing")
        missing = [key for key in RUN_KEYS if key not in record]
        if missing:
            raise TableError(f"{path}: lacks '{missing[0]}'; delete it and make it again with `{command}`")
        spec = RunSpec.parse(record["spec"], str(path))
        manifest = self.results / "tokens" / spec.data.id / "manifest.json"
        if spec.data.id not in self.manifests:
            found = read_json(self._need(manifest, command), TableError, "manifest")
            self.manifests[spec.data.id] = dict(shaped(found, Described, str(manifest), TableError))
        return Run(run, spec, record, self._link(path, RUN_RECORD))

    def _table(self, name: str, command: str) -> TableFile:
        path = self._need(self.results / "tables" / f"{name}.parquet", command)
        return TableFile(self._link(path, name), read_provenance(path))

    def _plan(self) -> str:
        return f"ssm plan --write {self.results / 'specs'}"

    def _link(self, path: Path, text: str) -> Link:
        relative = Path(os.path.relpath(path, self.out)).as_posix()
        return Link(text, quote(os.fsencode(relative)))  # also quotes a colon, which would start a URL scheme

    def _need(self, path: Path, command: str) -> Path:
        if not path.is_file():
            raise TableError(f"{path}: missing; `{command}` makes it")
        return path

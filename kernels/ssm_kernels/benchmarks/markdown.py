"""Write the README's table of scan speeds from three runs of the benchmark: one thread, two threads, and AVX2.

    ssm bench scans --threads 1 --out one.parquet
    ssm bench scans --threads 2 --out two.parquet
    ssm bench scans --threads 1 --instructions avx2 --out avx2.parquet
    python -m ssm_kernels.benchmarks.markdown one.parquet two.parquet avx2.parquet kernels/README.md

The new table replaces the text between the two marks of the README.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ssm.base.errors import UserError
from ssm.base.files import write_text
from ssm.base.marked_table import with_table
from ssm.base.tables import SCAN_SPEED, read_provenance, read_table
from ssm_kernels.benchmarks.limits import Limits

START, END = "<!-- scans: written by `python -m ssm_kernels.benchmarks.markdown` -->", "<!-- end of scans -->"
CASE = ("operation", "system", "shape", "state", "direction")
COLUMNS = (
    "operation",
    "B×T×...",
    "",
    "cpp, ms",
    "limit/t",
    "torch, ms",
    "fastest of transformers, ms",
    "fla, plain, ms",
    "2 threads",
    "limit/t",
    "AVX2, limit/t",
)
MISSING = "–"


@dataclass(frozen=True)
class Run:
    """One run of `ssm bench scans` on a CPU."""

    frame: pl.DataFrame  # of the schema SCAN_SPEED
    provenance: dict[str, Any]
    limits: Limits


def read_run(path: str, threads: int, instructions: str | None = None) -> Run:
    """Read a table that `ssm bench scans --out` wrote.

    Raises:
        UserError: there is no such table, or it is not from a CPU with this number of threads and these instructions.
    """
    frame, made = read_table(path, SCAN_SPEED), read_provenance(path)
    try:
        limits = Limits(**made["limits"])
    except (KeyError, TypeError):
        raise UserError(f"{path}: the limits of the machine are missing; run `ssm bench scans` again") from None
    if (limits.device, limits.threads) != ("cpu", threads):
        raise UserError(f"{path}: expected a run with --device cpu --threads {threads}")
    if instructions not in (None, limits.instructions):
        raise UserError(f"{path}: expected a run with --instructions {instructions}, not {limits.instructions}")
    return Run(frame, made, limits)


def markdown(one: Run, two: Run, avx2: Run) -> str:
    """The results with one thread, with two, and of one thread with AVX2, as a paragraph and a table.

    Raises:
        UserError: the runs are from different processors, the first two used different instruction sets, or a case was
            not timed in all of them.
    """
    first, second, third = ((run.limits.processor, run.limits.instructions) for run in (one, two, avx2))
    if first != second or first[0] != third[0]:
        raise UserError(f"the runs are from different machines: {first}, {second} and {third}")
    made = one.provenance
    packages = {"torch": made["packages"]["torch"]} | made["peers"]
    lines = [
        f"Processor: {one.limits.processor} (machine, vendor, family, model, name). C++ compiled for "
        f"`{one.limits.instructions}`.",
        f"{', '.join(f'{name} {version}' for name, version in packages.items())}.",
        *(f"{run.limits.text()}." for run in (one, two)),
        "",
        _line(COLUMNS),
        _line(["---"] * len(COLUMNS)),
    ]
    alone, together, narrow = (_medians(run.frame) for run in (one, two, avx2))
    for case, medians in alone.items():
        *_, state, direction = case
        if state and direction == "forward":  # takes as long as without a state
            continue
        if any("cpp" not in run.get(case, {}) for run in (alone, together, narrow)):
            raise UserError(f"the backend cpp was not timed in all runs: {', '.join(map(str, case))}")
        lines.append(_line(_cells(case, medians, together[case], narrow[case])))
    return "\n".join(lines)


Medians = dict[str, float]  # contestant -> milliseconds; "limit" -> the limit in milliseconds


def _medians(frame: pl.DataFrame) -> dict[tuple[Any, ...], Medians]:
    """Case -> medians of the contestants that were timed."""
    found: dict[tuple[Any, ...], Medians] = {}
    timed = frame.filter(pl.col("milliseconds").is_not_null()).group_by(*CASE, "contestant", maintain_order=True)
    for row in timed.agg(pl.col("milliseconds").median(), pl.col("limit_ms").first()).iter_rows(named=True):
        medians = found.setdefault(tuple(row[key] for key in CASE), {"limit": row["limit_ms"]})
        medians[row["contestant"]] = row["milliseconds"]
    return found


def _cells(case: tuple[Any, ...], one: Medians, two: Medians, avx2: Medians) -> list[str]:
    operation, system, shape, state, direction = case
    ways = {"forward": "forward", "forward+backward": "f + b, state" if state else "f + b"}
    ours = one["cpp"]
    transformers = [ms for name, ms in one.items() if name.startswith("transformers")]
    others = [one.get("torch"), min(transformers, default=None), one.get("fla, plain")]
    return [
        f"`{operation}`, {system}",
        shape.replace("x", "×"),
        ways[direction],
        f"{ours:.3g}",
        f"{one['limit'] / ours:.2f}",
        *(MISSING if ms is None else f"{ms:.3g} ({ms / ours:.1f}x)" for ms in others),
        f"{ours / two['cpp']:.2f}",
        f"{two['limit'] / two['cpp']:.2f}",
        f"{avx2['limit'] / avx2['cpp']:.2f}",
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(words: Sequence[str]) -> int:
    """Write the table. Bad input: one line on stderr and exit code 2."""
    if len(words) != 4:
        usage = "python -m ssm_kernels.benchmarks.markdown ONE.parquet TWO.parquet AVX2.parquet README.md"
        print(f"usage: {usage}", file=sys.stderr)
        return 2
    try:
        table = markdown(read_run(words[0], 1), read_run(words[1], 2), read_run(words[2], 1, "avx2"))
        readme = Path(words[3])
        write_text(readme, with_table(readme.read_text(), table, START, END, words[3]))
    except (UserError, OSError) as error:
        print(f"ssm_kernels.benchmarks.markdown: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

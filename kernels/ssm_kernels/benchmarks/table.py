"""The table of the scan benchmark, and its text: one block per case, one line per contestant."""

from __future__ import annotations

import polars as pl

from ssm.base.tables import SCAN_SPEED
from ssm_kernels.benchmarks.cases import Case
from ssm_kernels.benchmarks.limits import DISTURBED, EXCEEDED
from ssm_kernels.benchmarks.scans import Speed


def speed_frame(case: Case, speeds: list[Speed], limit: float) -> pl.DataFrame:
    """The speeds of a case in the schema SCAN_SPEED; `limit` in milliseconds."""
    dtype = str(case.dtype).removeprefix("torch.")
    about = (case.operation, case.system, case.shape, dtype, case.state, case.direction)
    rows: list[tuple[object, ...]] = []
    for speed in speeds:
        times = enumerate(speed.milliseconds, 1) if speed.milliseconds else [(None, None)]
        rows += [(*about, speed.contestant, turn, ms, speed.error, speed.reason, limit) for turn, ms in times]
    return pl.DataFrame(rows, schema=SCAN_SPEED.columns, orient="row")


def block(frame: pl.DataFrame) -> str:
    """Text of one case: medians, ratios to the fastest, ratios of the limit to the time, and errors.

    Args:
        frame: rows of one case, with the schema SCAN_SPEED.
    """
    about = frame.row(0, named=True)
    lines = [_title(about), f"  {'':<26}{'ms':>11}{'x fastest':>11}{'limit/t':>9}{'error':>10}"]
    contestants = _contestants(frame)
    timed = contestants.filter(pl.col("milliseconds").is_not_null()).sort("milliseconds")
    for row in timed.iter_rows(named=True):
        ratio = row["milliseconds"] / timed["milliseconds"][0]
        numbers = f"{row['milliseconds']:>11.3f}{ratio:>11.2f}{row['share']:>9.2f}{row['error']:>10.0e}"
        lines.append(f"  {row['contestant']:<26}{numbers}")
    for row in contestants.filter(pl.col("milliseconds").is_null()).iter_rows(named=True):
        lines.append(f"  {row['contestant']:<26}    - {row['reason']}")
    return "\n".join(lines)


def warnings(frame: pl.DataFrame) -> list[str]:
    """One line for every contestant that was faster than the limit. Then the limit's measurement was disturbed.

    Args:
        frame: rows of one case, with the schema SCAN_SPEED.
    """
    return [
        f"{row['contestant']}, {_title(frame.row(0, named=True))}: limit/t is {row['share']:.2f}; {DISTURBED}"
        for row in _contestants(frame).filter(pl.col("share") > EXCEEDED).iter_rows(named=True)
    ]


def _title(about: dict[str, object]) -> str:
    state = "with a state in and out" if about["state"] else "from the zero state"
    return f"{about['operation']}, {about['system']}, {about['shape']} {about['dtype']}, {state}, {about['direction']}"


def _contestants(frame: pl.DataFrame) -> pl.DataFrame:
    """Per contestant: median time, ratio of the limit to it (`share`), error, and the reason for a missing time."""
    return (
        frame.group_by("contestant", maintain_order=True)
        .agg(pl.col("milliseconds").median(), pl.col("error", "reason", "limit_ms").first())
        .with_columns(share=pl.col("limit_ms") / pl.col("milliseconds"))
    )

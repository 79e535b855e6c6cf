"""The scan benchmark as text: a block per case, a line per contestant."""

from __future__ import annotations

import polars as pl

ABOUT = ("operation", "system", "shape", "dtype", "state", "direction", "limit_ms")


def block(frame: pl.DataFrame) -> str:
    """One case: medians, how much slower than the fastest, the machine's limit over the time, and the error.

    Args:
        frame: of the schema SCAN_SPEED, of one case.
    """
    about = frame.row(0, named=True)
    state = "with a state in and out" if about["state"] else "from the zero state"
    lines = [
        f"{about['operation']}, {about['system']}, {about['shape']} {about['dtype']}, {state}, {about['direction']}",
        f"  {'':<26}{'ms':>11}{'x fastest':>11}{'limit/t':>9}{'error':>10}",
    ]
    grouped = frame.group_by("contestant", maintain_order=True)
    contestants = grouped.agg(pl.col("milliseconds").median(), pl.col("error", "reason").first())
    timed = contestants.filter(pl.col("milliseconds").is_not_null()).sort("milliseconds")
    for row in timed.iter_rows(named=True):
        ratio, part = row["milliseconds"] / timed["milliseconds"][0], about["limit_ms"] / row["milliseconds"]
        numbers = f"{row['milliseconds']:>11.3f}{ratio:>11.2f}{part:>9.2f}{row['error']:>10.0e}"
        lines.append(f"  {row['contestant']:<26}{numbers}")
    for row in contestants.filter(pl.col("milliseconds").is_null()).iter_rows(named=True):
        lines.append(f"  {row['contestant']:<26}    - {row['reason']}")
    return "\n".join(lines)

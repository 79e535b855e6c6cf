"""The scan benchmark as text: a block per case, a line per contestant."""

from __future__ import annotations

import polars as pl

from ssm_kernels.benchmarks.limits import DISTURBED, EXCEEDED


def block(frame: pl.DataFrame) -> str:
    """One case: medians, how much slower than the fastest, the machine's limit over the time, and the error.

    Args:
        frame: of the schema SCAN_SPEED, of one case.
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
    """A line for everybody who was faster than the machine's limit allows: then the limit is wrong, or was disturbed.

    Args:
        frame: of the schema SCAN_SPEED, of one case.
    """
    return [
        f"{row['contestant']}, {_title(frame.row(0, named=True))}: limit/t is {row['share']:.2f}; {DISTURBED}"
        for row in _contestants(frame).filter(pl.col("share") > EXCEEDED).iter_rows(named=True)
    ]


def _title(about: dict[str, object]) -> str:
    state = "with a state in and out" if about["state"] else "from the zero state"
    return f"{about['operation']}, {about['system']}, {about['shape']} {about['dtype']}, {state}, {about['direction']}"


def _contestants(frame: pl.DataFrame) -> pl.DataFrame:
    """Of each one its median time, the limit's `share` of that, its error, and the reason why it was not timed."""
    return (
        frame.group_by("contestant", maintain_order=True)
        .agg(pl.col("milliseconds").median(), pl.col("error", "reason", "limit_ms").first())
        .with_columns(share=pl.col("limit_ms") / pl.col("milliseconds"))
    )

"""The table of verdicts on claims."""

from __future__ import annotations

from ssm.base.schema import Schema

VERDICTS = Schema(
    "verdicts",
    "one claim of one figure, judged",
    {
        "target": str,
        "claim": str,
        "says": str,
        "paper": str,  # what the paper reports
        "quantity": str,  # what is computed here, in words
        "estimate": float,
        "low": float,
        "high": float,
        "interval": str,  # how the interval was made
        "expected": str,  # the region that confirms
        "verdict": str,  # confirmed, refuted, not decided
        "reason": str,
        "sort": str,  # whose statement: paper, definition (a property of what was built), ours; elsewhere
        "number": str,  # the same for verdicts, of whichever figures, that judge the very same number
        "registered": bool,  # before its seeds were read; null: a dry run
        "registration": str,  # that in words
        "by_seed": str,  # JSON: seed -> the number that the interval is computed from; or a list, or {part: number}
        "p": float,  # p-value against the nearest bound of the region; null: the number has no interval
    },
    may_be_empty=True,  # a figure need not claim anything
)

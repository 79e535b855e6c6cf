"""What a plan amounts to, as text: one line a figure."""

from __future__ import annotations

from collections.abc import Mapping

from ssm.plan.plan import Plan
from ssm.specs.base import Spec
from ssm.specs.training import TOKENS_PER_PARAMETER, RunSpec

HEAD = ("figure", "runs", "new", "tables", "new", "claims", "training tokens")


def training_tokens(run: RunSpec) -> int | None:
    """Tokens that a run trains on, its parents not counted.

    A budget in multiples of Chinchilla takes the model's published size; None where it has none, because the exact
    count is known only to who builds the model.
    """
    budget = run.training.budget
    if budget.steps is not None:
        return budget.steps * run.training.batch_tokens
    if budget.tokens is not None:
        return budget.tokens
    if run.model.published_parameters is None or budget.chinchilla is None:
        return None
    return round(budget.chinchilla * TOKENS_PER_PARAMETER * run.model.published_parameters)


def summary(plan: Plan) -> str:
    """A table with a line per figure. A run or table that several figures share is `new` in the first one alone."""
    lines = [HEAD]
    seen_runs: set[str] = set()
    seen_tables: set[str] = set()
    for target, task in plan.figures.items():
        runs, tables = set(plan.runs_of(target)), set(plan.tables_of(target))
        lines.append(
            (
                target,
                str(len(runs)),
                str(len(runs - seen_runs)),
                str(len(tables)),
                str(len(tables - seen_tables)),
                str(len(task.figure.claims)),
                _tokens([plan.runs[run] for run in runs - seen_runs]),
            )
        )
        seen_runs |= runs
        seen_tables |= tables
    claims = sum(len(task.figure.claims) for task in plan.figures.values())
    everything = _tokens(list(plan.runs.values()))
    lines.append(("all", "", str(len(seen_runs)), "", str(len(seen_tables)), str(claims), everything))
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    rows = [
        "  ".join(_padded(cell, width, column) for column, (cell, width) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    ]
    counts: dict[str, Mapping[str, Spec]] = {
        "data sets": plan.data,
        "training runs": plan.runs,
        "tables": plan.measurements,
        "figures": plan.figures,
    }
    title = f"Plan at the scale '{plan.scale}': " + ", ".join(f"{what} {len(found)}" for what, found in counts.items())
    return "\n".join([title, "", *(row.rstrip() for row in rows)])


def _padded(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column == 0 else cell.rjust(width)


def _tokens(runs: list[RunSpec]) -> str:
    """The runs' tokens together; a '+' where the size of a model, and so its budget, is not known."""
    counts = [training_tokens(run) for run in runs]
    if counts and counts == [None] * len(counts):
        return "not known"
    total = float(sum(count for count in counts if count is not None))
    more = "+" if None in counts else ""
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if total >= unit:
            return f"{total / unit:.3g} {letter}{more}"
    return f"{total:g}{more}"

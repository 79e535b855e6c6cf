"""What a user types on one model: `ssm diagnose`, then `ssm extend`, with their defaults; and what the docs promise."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from families import models

from ssm.cli.main import main
from ssm.diagnosis.verdict import BREAKS, HOLDS, NOT_DECIDED
from ssm.extension.outcome import IMPROVED, NOTHING, REPAIRED, UNDECIDED
from ssm.models.families import Family
from ssm.models.load import LoadedModel, load_any_model
from ssm.specs.diagnosis import ENOUGH
from ssm.specs.tasks.ruler import RULER

LENGTH = 1024
HARDLY = "1.000000001"  # a tolerance: no interval of a ratio lies below it
SPENT = "the budget was spent"
TRAINED = 60_000  # characters that the tiny models are trained on; the commands get the others
DIAGNOSED = 240_000  # of these, what `ssm diagnose` reads: about 100 windows, more than the 64 that a verdict needs


@dataclass(frozen=True)
class Travelled:
    """How a family's road ended."""

    family: Family
    diagnosed: str  # the outcome
    extended: str  # the outcome, or why it was refused
    seconds: float
    wrong: tuple[str, ...]  # what is not as the docs say

    def __str__(self) -> str:
        way = "own code" if self.family.format else "transformers' forward pass"
        said = "; ".join(("", *(f"NOT as promised: {one}" for one in self.wrong)))
        return (
            f"{self.family.title} | {way} | diagnose: {self.diagnosed} | extend: {self.extended} | "
            f"{self.seconds:.0f} s{said}"
        )


def texts() -> tuple[str, str]:
    """Documentation that comes with Python, in two parts: one to train on, one for the commands."""
    whole = "\n\n".join(topics[name] for name in sorted(topics))
    return whole[:TRAINED], whole[TRAINED:]


def travel(family: Family, folder: Path, said: Callable[[], str], train: bool = False) -> Travelled:
    """Make a model of a family and type the commands.

    Args:
        train: type `ssm extend` once more where it trained nothing, with a tolerance that no model holds to.
        folder: an empty folder for everything.
        said: what was printed on stderr since it was last asked.

    Raises:
        Exception: whatever a command raises. `ssm` promises one line in place of a traceback.
    """
    started, wrong = time.monotonic(), list[str]()
    trained, read = texts()
    for name, content in (("short.txt", read[:DIAGNOSED]), ("one.txt", read)):
        (folder / name).write_text(content, encoding="utf-8")
    models.save(family.title, trained, folder / "model")
    asked = ["--context", str(models.CONTEXT), "--length", str(LENGTH)]
    said()
    text = ["--text", str(folder / "short.txt")]
    code = main(["diagnose", str(folder / "model"), *text, *asked, "-o", str(folder / "report")])
    diagnosed, extended = f"exit code {code}", ""
    if code:
        wrong.append(f"ssm diagnose ended with exit code {code}: {_last(said())}")
    else:
        found = _json(folder / "report" / "diagnosis.json")
        diagnosed = found["verdict"]["outcome"]
        wrong += _not_read(load_any_model(folder / "model"), family) + _not_diagnosed(found, family)
    said()
    text = ["--text", str(folder / "one.txt")]
    code = main(["extend", str(folder / "model"), *text, *asked, "-o", str(folder / "extended")])
    if family.why_not_extend is not None:
        extended = line = said().strip()
        if code != 2 or "\n" in line or family.why_not_extend not in line:
            wrong.append(f"expected one line with '{family.why_not_extend}' and exit code 2, not {code}: {line}")
    elif code:
        extended = f"exit code {code}"
        wrong.append(f"ssm extend ended with exit code {code}: {_last(said())}")
    else:
        result = _json(folder / "extended" / "result.json")
        extended = result["outcome"]
        wrong += _not_extended(result, folder / "model", folder / "extended")
        if train and not result["candidates"]:
            forced = ["--tolerance", HARDLY, "--steps", "10", "-o", str(folder / "trained")]
            code = main(["extend", str(folder / "model"), *text, *asked, *forced])
            result = _json(folder / "trained" / "result.json") if not code else {"outcome": f"exit code {code}"}
            extended = f"{extended}; trained: {result['outcome']}"
            wrong += _not_extended(result, folder / "model", folder / "trained")
            wrong += [] if result.get("candidates") else ["nothing was trained"]
    return Travelled(family, diagnosed, extended, time.monotonic() - started, tuple(wrong))


def _last(lines: str) -> str:
    return lines.strip().rpartition("\n")[2]


def _not_read(loaded: LoadedModel, family: Family) -> list[str]:
    """Whether a model is read as the list says."""
    assert loaded.source is not None
    form = None if loaded.imported is None else loaded.imported.format.key
    kind = loaded.source.config.get("model_type")
    wrong = {
        f"the format is {form}, not {family.format}": form != family.format,
        f"the model_type is {kind}, not {family.model_type}": family.format is None and kind != family.model_type,
    }
    return [said for said, is_so in wrong.items() if is_so]


def _not_diagnosed(found: dict[str, Any], family: Family) -> list[str]:
    """What a diagnosis with the defaults should have measured, and has not."""
    outcome, readings, facts = found["verdict"]["outcome"], found["readings"], found["facts"]
    tasks = {one["task"] for one in readings["ruler"]}
    # On a busy machine the minutes of a diagnosis may be over before, and it says so.
    left_out = {name for name, _, why in (one.partition(": ") for one in facts["missing"]) if why == SPENT}
    wrong = {
        f"the outcome is '{outcome}'": outcome not in (BREAKS, HOLDS, NOT_DECIDED),
        f"{facts['sequences']} windows were read": facts["sequences"] < ENOUGH and facts["stopped_by"] != "budget",
        "the model is no better than chance": readings["in_context"]["value"] >= models.VOCABULARY,
        "no passkeys were asked for": not readings["passkey"] and "passkey" not in left_out,
        "no needles were asked for": not readings["needle"] and "needles" not in left_out,
        f"RULER's tasks were {sorted(tasks)}": not set(RULER) <= tasks | left_out,
        "no state was measured": family.why_not_extend is None and readings["drift"] is None,
    }
    return [said for said, is_so in wrong.items() if is_so]


def _not_extended(result: dict[str, Any], original: Path, out: Path) -> list[str]:
    """What an extension should have come to, and has not."""
    outcome = result["outcome"]
    if outcome not in (REPAIRED, IMPROVED, UNDECIDED, NOTHING):
        return [f"the outcome is '{outcome}'"]
    if not result["candidates"]:
        return [] if outcome == NOTHING else [f"the outcome is '{outcome}', and nothing was trained"]
    place = out / ("model" if outcome in (REPAIRED, IMPROVED) else "candidate")
    if not place.is_dir():
        return [f"{place.name}/ was not written"]
    read, wanted = load_any_model(place), load_any_model(original)
    return [] if read.kind == wanted.kind else [f"the model that was written is {read.kind}, not {wanted.kind}"]


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))

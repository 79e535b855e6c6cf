"""Type `ssm diagnose` and `ssm extend` with their defaults on a tiny model of one family, and check the results."""

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
from ssm.diagnosis.outcome import BREAKS, HOLDS, NOT_DECIDED
from ssm.diagnosis.verdict import STATE
from ssm.extension.outcome import IMPROVED, NOTHING, REPAIRED
from ssm.models.families import Family
from ssm.models.load import LoadedModel, load_any_model
from ssm.specs.diagnosis import DEFAULT_CONTEXTS, ENOUGH
from ssm.specs.tasks.ruler import RULER

SPENT = "the budget was spent"
TRAINED = 60_000  # characters that the tiny models are trained on; the commands read others
# Characters per token of the length: about 75 windows. These are enough for a diagnosis to say that a model holds.
# `ssm extend` holds half of them out. So it never finds that the model holds, and always trains.
READ = 200
SHORT = DEFAULT_CONTEXTS * models.CONTEXT  # tokens: the default length
LONG = 1024  # tokens: a length that has room for all RULER tasks
CACHES_ONLY = ("Mistral with a sliding window",)  # it can start from other windows of keys, but has no recurrent state


@dataclass(frozen=True)
class Checked:
    """The results of the commands on a model of one family."""

    family: Family
    diagnosed: str  # the outcome
    extended: str  # the outcome, or why the command refused
    seconds: float
    wrong: tuple[str, ...]  # what differs from the documentation

    def __str__(self) -> str:
        way = "own code" if self.family.format else "transformers' forward pass"
        wrong = "; ".join(("", *(f"WRONG: {problem}" for problem in self.wrong)))
        return (
            f"{self.family.title} | {way} | diagnose: {self.diagnosed} | extend: {self.extended} | "
            f"{self.seconds:.0f} s{wrong}"
        )


def check_family(family: Family, folder: Path, stderr: Callable[[], str], length: int = SHORT) -> Checked:
    """Make a model of a family, type the commands, and compare their results with the documentation.

    Args:
        folder: an empty folder for all files.
        stderr: returns what was printed on stderr since its last call.
        length: tokens; another length than the default SHORT is typed.

    Raises:
        Exception: any exception of a command, because `ssm` promises an error message of one line instead.
    """
    started, wrong = time.monotonic(), list[str]()
    text = "\n\n".join(topics[name] for name in sorted(topics))  # documentation that comes with Python
    (folder / "text.txt").write_text(text[TRAINED : TRAINED + READ * length], encoding="utf-8")
    models.save(family.title, text[:TRAINED], folder / "model")
    asked = [str(folder / "model"), "--text", str(folder / "text.txt"), "--context", str(models.CONTEXT)]
    asked += ["--length", str(length)] if length != SHORT else []
    stderr()
    code = main(["diagnose", *asked, "-o", str(folder / "report")])
    if code:
        diagnosed = f"exit code {code}"
        wrong.append(f"ssm diagnose ended with exit code {code}: {_last(stderr())}")
    else:
        diagnosis = _json(folder / "report" / "diagnosis.json")
        diagnosed = diagnosis["verdict"]["outcome"]
        wrong += _wrong_reading(load_any_model(folder / "model"), family)
        wrong += _wrong_diagnosis(diagnosis, family, length)
    stderr()
    code = main(["extend", *asked, "-o", str(folder / "extended")])
    if family.why_not_extend is not None:
        extended = line = stderr().strip()
        if code != 2 or "\n" in line or family.why_not_extend not in line:
            wrong.append(f"expected one line with '{family.why_not_extend}' and exit code 2, not {code}: {line}")
    elif code:
        extended = f"exit code {code}"
        wrong.append(f"ssm extend ended with exit code {code}: {_last(stderr())}")
    else:
        result = _json(folder / "extended" / "result.json")
        extended = result["outcome"]
        wrong += _wrong_extension(result, folder / "model", folder / "extended")
    return Checked(family, diagnosed, extended, time.monotonic() - started, tuple(wrong))


def _last(lines: str) -> str:
    return lines.strip().rpartition("\n")[2]


def _wrong_reading(loaded: LoadedModel, family: Family) -> list[str]:
    """What differs from the list of families in how the model is read."""
    assert loaded.source is not None
    form = None if loaded.imported is None else loaded.imported.format.key
    kind = loaded.source.config.get("model_type")
    problems = {
        f"the format is {form}, not {family.format}": form != family.format,
        f"the model_type is {kind}, not {family.model_type}": family.format is None and kind != family.model_type,
    }
    return [problem for problem, found in problems.items() if found]


def _wrong_diagnosis(diagnosis: dict[str, Any], family: Family, length: int) -> list[str]:
    """What a diagnosis with the defaults should contain, and does not."""
    outcome, readings, facts = diagnosis["verdict"]["outcome"], diagnosis["readings"], diagnosis["facts"]
    tasks = {solved["task"] for solved in readings["ruler"]}
    expected = set(RULER) if length >= LONG else set(RULER) - {"vt"}  # the example of vt takes 500 tokens
    # On a busy machine the budget may end before all tests have run, and the diagnosis says so.
    left_out = {name for name, _, why in (text.partition(": ") for text in facts["missing"]) if why == SPENT}
    problems = {
        f"the outcome is '{outcome}'": outcome not in (BREAKS, HOLDS, NOT_DECIDED),
        f"{facts['sequences']} windows were read": facts["sequences"] < ENOUGH and facts["stopped_by"] != "budget",
        "the model is no better than chance": readings["in_context"]["value"] >= models.VOCABULARY,
        "the passkey test is missing": not readings["passkey"] and "passkey" not in left_out,
        "the needle test is missing": not readings["needle"] and "needles" not in left_out,
        f"the tasks of RULER are {sorted(tasks)}": not expected <= tasks | left_out,
        "the state was not measured": (
            family.why_not_extend is None
            and family.title not in CACHES_ONLY
            and readings["drift"] is None
            and STATE not in left_out
        ),
        "a cache was measured as a state": family.title in CACHES_ONLY and readings["drift"] is not None,
    }
    return [problem for problem, found in problems.items() if found]


def _wrong_extension(result: dict[str, Any], original: Path, out: Path) -> list[str]:
    """What an extension should have written, and has not."""
    outcome = result["outcome"]
    if outcome not in (REPAIRED, IMPROVED, NOT_DECIDED, NOTHING):
        return [f"the outcome is '{outcome}'"]
    if not result["candidates"]:
        return [f"the outcome is '{outcome}', and nothing was trained"]
    place = out / ("model" if outcome in (REPAIRED, IMPROVED) else "candidate")
    if not place.is_dir():
        return [f"{place.name}/ was not written"]
    written, wanted = load_any_model(place), load_any_model(original)
    return [] if written.kind == wanted.kind else [f"the written model is {written.kind}, not {wanted.kind}"]


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))

"""What docs/verdicts.md says about the committed results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ssm.claims.claim import Expected
from ssm.claims.statements import CONFIRMED, REFUTED
from ssm.claims.verdict import decide

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8").split())
LONGER = 1.8


def claims(scale: str) -> dict[tuple[str, str], dict[str, Any]]:
    """(figure, claim) -> a committed verdict."""
    files = (ROOT / "reports" / scale).glob("*.json")
    read = {file.stem: json.loads(file.read_text(encoding="utf-8"))["claims"] for file in files}
    return {(figure, claim["claim"]): claim for figure, found in read.items() for claim in found}


def names_after(words: str) -> set[str]:
    """The names in code style, from these words to the end of the sentence."""
    (sentence,) = re.findall(re.escape(words) + r"[^.]*\.", PAGE)
    return set(re.findall(r"`([^`]+)`", sentence[len(words) :]))


def test_it_names_what_longer_bootstrap_intervals_would_leave_open() -> None:
    opened = set()
    for (_, name), claim in claims("smoke").items():
        if "bootstrap" in claim["interval"]:
            low, high = (claim["estimate"] + LONGER * (claim[end] - claim["estimate"]) for end in ("low", "high"))
            if decide(low, high, Expected.of_words(claim["expected"]))[0] != claim["verdict"]:
                opened.add(name)
    assert names_after(f"With intervals {LONGER} times as long, three claims of `ls_tab1` are open:") == opened


def test_it_names_the_statements_with_opposite_verdicts_at_two_scales() -> None:
    smoke = claims("smoke")
    opposite = {
        name.split("/")[0]
        for (figure, name), claim in claims("desk").items()
        if {claim["verdict"], smoke.get((figure, name), claim)["verdict"]} == {CONFIRMED, REFUTED}
    }
    assert names_after("and may depend on these steps. These are") == opposite

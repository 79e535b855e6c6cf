"""The spec of prompts by RULER's rules: numbers under keys, and variables that are assigned to each other."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ssm.specs.base import Distinct
from ssm.specs.tasks.base import Mix
from ssm.specs.tasks.spelled import PromptPart, SpelledTask

RulerName = Literal["niah_single_1", "niah_multikey_2", "vt"]
RULER: tuple[RulerName, ...] = ("niah_single_1", "niah_multikey_2", "vt")
NUMBER = 7  # digits of a key's number
CHAIN, LETTERS = 5, 5  # variables of a chain: one is given a value, four take it over; letters of each


class RulerPart(PromptPart):
    """Prompts of one length at most, of some of the tasks."""

    tasks: Annotated[tuple[RulerName, ...], Field(strict=False, min_length=1), Distinct] = RULER  # evenly


class RulerTask(SpelledTask):
    """Three tasks of RULER (Hsieh et al. 2024, COLM), made by its rules (NVIDIA/RULER, scripts/data/synthetic).

    niah_single_1: a key's number in a text of repeated sentences. niah_multikey_2: the same in a text that is made of
    such keys and numbers. vt (variable tracking): a chain of assignments in the repeated sentences, behind an example
    with its answer; asked for are all variables that have the value.

    As there, a prompt has as many whole lines as fit into the length. The answer is scored as a whole and at once,
    which is never above RULER's score (scripts/eval/synthetic/constants.py, string_match_all): there a model writes 128
    tokens (30 of vt), and the share of the references counts that stand anywhere in them, in capitals or not. Keys are
    of a word list of our own (ssm/data/tasks/words.py), and no line tells another number for the key that is asked for.
    Lengths are in tokens of the prompt and the answer, at most; the difficulty is the depth in the text of the key's
    line, or of the line that gives a value.
    """

    task: Literal["ruler"] = "ruler"
    mix: Mix[RulerPart]

    @property
    def longest_answer(self) -> int:
        tracked = any("vt" in part.tasks for part in self.mix)
        return CHAIN * (LETTERS + 1) if tracked else NUMBER + 1

    @property
    def groups(self) -> tuple[str, ...]:
        return RULER

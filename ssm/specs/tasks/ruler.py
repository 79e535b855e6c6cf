"""The spec of prompts by the rules of RULER."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ssm.specs.base import Distinct
from ssm.specs.tasks.base import Mix
from ssm.specs.tasks.spelled import PromptPart, SpelledTask

RulerName = Literal["niah_single_1", "niah_multikey_2", "vt"]
RULER: tuple[RulerName, ...] = ("niah_single_1", "niah_multikey_2", "vt")
NUMBER = 7  # digits of the number of a key
CHAIN, LETTERS = 5, 5  # variables in a chain (one gets a value, four copy it), and letters of each


class RulerPart(PromptPart):
    """Prompts of some of the tasks, with a maximum length."""

    # tasks of RULER, all equally likely
    tasks: Annotated[tuple[RulerName, ...], Field(strict=False, min_length=1), Distinct] = RULER


class RulerTask(SpelledTask):
    """Three tasks of RULER (Hsieh et al. 2024, COLM), made by its rules (NVIDIA/RULER, scripts/data/synthetic).

    - `niah_single_1`: find the number of a key in a text of repeated sentences.
    - `niah_multikey_2`: the same in a text of other keys and numbers.
    - `vt` (variable tracking): name all variables with a value. The assignments are hidden in repeated sentences, after
      an example with its answer.

    As in RULER, a prompt has as many whole lines as fit. The score here is never above RULER's
    (scripts/eval/synthetic/constants.py, string_match_all). RULER lets the model write 128 tokens (30 in `vt`) and
    counts the references that occur anywhere in them, in upper or lower case. Here, the whole answer must follow at
    once. Keys come from another word list (ssm/data/tasks/words.py), and the key of the question has only one number.
    Lengths are the maximum tokens of the prompt and the answer. The difficulty is the depth in the text of the line
    with the key, or with the value.
    """

    groups: ClassVar[tuple[str, ...]] = RULER
    task: Literal["ruler"] = "ruler"
    mix: Mix[RulerPart]

    @property
    def longest_answer(self) -> int:
        tracked = any("vt" in part.tasks for part in self.mix)
        return CHAIN * (LETTERS + 1) if tracked else NUMBER + 1

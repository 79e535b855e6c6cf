"""Reads published stories and prompts that the user has: bAbI's text files and BABILong's JSON files.

bAbI (Weston et al. 2015): every line begins with its number in the story; line 1 begins a story. A question's line
continues with a tab, the answer, a tab and the numbers of the supporting lines. BABILong (Kuratov et al. 2024): a list
of mappings with input, question and target, one file per task and length, such as qa1/4k.json.
"""

from __future__ import annotations

from typing_extensions import TypedDict

from ssm.base.errors import DataError
from ssm.base.files import reading
from ssm.base.paths import home_expanded
from ssm.base.strict_parsing import read_json, shaped
from ssm.data.tasks.stories import Story
from ssm.specs.tasks.facts import published_name


class Prompt(TypedDict):
    """An entry of one of BABILong's files."""

    input: str
    question: str
    target: str


def read_babi(folder: str, question: str, split: str) -> list[Story]:
    """The stories of one bAbI file, each with one question and all sentences before it.

    Args:
        folder: holds files such as qa1_single-supporting-fact_train.txt.
        question: qa1 to qa20.
        split: train or test.

    Raises:
        DataError: the file is missing or is not in UTF-8, or a line does not have bAbI's format.
    """
    files = sorted(home_expanded(folder).glob(f"{question}_*_{split}.txt"))
    if not files:
        raise DataError(f"{folder}: holds no file of bAbI named {question}_*_{split}.txt")
    with reading(DataError):
        content = files[0].read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{files[0]}: is not text in UTF-8 (byte {error.start:,}); convert it to UTF-8") from error
    return parse_babi(text, str(files[0]))


def parse_babi(text: str, source: str) -> list[Story]:
    """`read_babi` for the content of a file."""
    stories: list[Story] = []
    facts: list[str] = []
    numbers: dict[int, int] = {}  # line number in the story -> index of the sentence
    for line_number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        number, _, rest = line.strip("\n").partition(" ")
        try:
            if int(number) == 1:
                facts, numbers = [], {}
            if "\t" not in rest:
                numbers[int(number)] = len(facts)
                facts.append(rest.strip())
                continue
            asked, answer, support = rest.split("\t")
            rests_on = tuple(numbers[int(place)] for place in support.split())
        except (ValueError, KeyError) as error:
            raise DataError(f"{source}:{line_number}: not a line in bAbI's format: {line[:60]!r}") from error
        stories.append(Story(tuple(facts), asked.strip(), answer.strip(), rests_on))
    if not stories:
        raise DataError(f"{source}: holds no question")
    return stories


def read_babilong(folder: str, question: str, length: int) -> list[Prompt]:
    """The prompts of one of BABILong's files.

    Args:
        folder: holds folders qa1, qa2 ...
        length: in tokens of GPT-2, as in BABILong's file names.

    Raises:
        ConfigError: BABILong has no prompts of this length.
        DataError: the file is missing, or does not have BABILong's format.
    """
    path = home_expanded(folder) / question / f"{published_name(length)}.json"
    missing = f"{path}: missing; BABILong has one file per task and length, such as qa1/4k.json"
    prompts = shaped(read_json(path, DataError, "JSON file", missing), list[Prompt], str(path), DataError)
    if not prompts:
        raise DataError(f"{path}: holds no prompt")
    return prompts

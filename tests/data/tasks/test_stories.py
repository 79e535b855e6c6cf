"""Stories: a reader who knows only the sentences finds the answer of every question, as in bAbI."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from data.tasks.examples import QUESTIONS

from ssm.base.errors import DataError
from ssm.data.tasks.draws import RandomGenerator
from ssm.data.tasks.published import parse_babi
from ssm.data.tasks.stories import ANSWERS, Story, story
from ssm.specs.tasks.facts import FACTS, FEWEST, LONGEST

PLACE = r"(\w+)\.$"
MOVE = re.compile(r"^(\w+) (?:went|went back|journeyed|travelled|moved) to the " + PLACE)
TAKE = re.compile(r"^(\w+) (?:took|got|grabbed|picked up) the (\w+)(?: there)?\.$")
DROP = re.compile(r"^(\w+) (?:dropped|discarded|left|put down) the (\w+)(?: there)?\.$")
GIVE = re.compile(r"^(\w+) (?:gave|handed|passed) the (\w+) to (\w+)\.$")


class Reader:
    """Reads sentences one by one and answers questions. With `all_told`, no sentence is missing."""

    def __init__(self, facts: tuple[str, ...], all_told: bool = True):
        self.all_told = all_told
        self.where: dict[str, str] = {}
        self.holds: dict[str, list[str]] = {}
        self.path: dict[str, list[str]] = {}
        self.last: dict[str, tuple[str, set[str]]] = {}  # the last sentence about a person
        self.gifts: list[tuple[str, str, str]] = []
        self.relations: dict[tuple[str, str], str] = {}
        for fact in facts:
            self.read(fact)

    def read(self, fact: str) -> None:
        if found := MOVE.match(fact):
            person, place = found.groups()
            self.where[person] = place
            self.last[person] = "in", {place}
            for thing in self.holds.get(person, []):
                self.see(thing, person)
        elif found := TAKE.match(fact):
            person, thing = found.groups()
            assert not any(thing in held for held in self.holds.values()), (
                "nobody takes a thing that another person has"
            )
            self.holds.setdefault(person, []).append(thing)
            self.see(thing, person)
        elif found := DROP.match(fact):
            person, thing = found.groups()
            self.holds[person].remove(thing)
            self.see(thing, person)
        elif found := GIVE.match(fact):
            giver, thing, receiver = found.groups()
            if self.all_told:
                self.holds[giver].remove(thing)
            self.holds.setdefault(receiver, []).append(thing)
            assert self.where.get(giver, 1) == self.where.get(receiver, 1) or not {giver, receiver} <= set(self.where)
            self.gifts.append((giver, thing, receiver))
        elif found := re.match(r"^(\w+) is (in|not in|no longer in) the " + PLACE, fact):
            person, how, place = found.groups()
            if how == "no longer in" and self.all_told:
                assert self.last[person] == ("in", {place})
            self.last[person] = ("in" if how == "in" else "not in"), {place}
        elif found := re.match(r"^(\w+) is either in the (\w+) or the " + PLACE, fact):
            person, *places = found.groups()
            assert len(set(places)) == 2
            self.last[person] = "either", set(places)
        elif found := re.match(r"^The (\w+) is (north|south|east|west) of the " + PLACE, fact):
            self.relations[found[2], found[3]] = found[1]
        else:
            raise AssertionError(fact)

    def see(self, thing: str, person: str) -> None:
        if person in self.where and self.path.get(thing, [""])[-1] != self.where[person]:
            self.path.setdefault(thing, []).append(self.where[person])

    def answer(self, question: str) -> str:
        if found := re.match(r"^Where is (\w+)\?$", question):
            return self.where[found[1]]
        if found := re.match(r"^Where is the (\w+)\?$", question):
            return self.path[found[1]][-1]
        if found := re.match(r"^Where was the (\w+) before the (\w+)\?$", question):
            path = self.path[found[1]]
            assert path.count(found[2]) == 1
            return path[path.index(found[2]) - 1]
        if found := re.match(r"^What is (\w+) of the (\w+)\?$", question):
            return self.relations[found[1], found[2]]
        if found := re.match(r"^What is the (\w+) (\w+) of\?$", question):
            return next(b for (direction, b), a in self.relations.items() if (direction, a) == (found[2], found[1]))
        if found := re.match(r"^Is (\w+) in the (\w+)\?$", question):
            how, places = self.last[found[1]]
            if found[2] not in places:
                assert how != "not in", "the sentences say nothing about another place"
                return "no"
            return {"in": "yes", "not in": "no", "either": "maybe"}[how]
        if found := re.match(r"^How many objects is (\w+) carrying\?$", question):
            return ("none", "one", "two", "three")[len(self.holds[found[1]])]
        if found := re.match(r"^What is (\w+) carrying\?$", question):
            return ",".join(self.holds[found[1]]) or "nothing"
        forms = (
            (r"^Who gave the (\w+) to (\w+)\?$", (1, 2), 0),
            (r"^What did (\w+) give to (\w+)\?$", (0, 2), 1),
            (r"^Who did (\w+) give the (\w+) to\?$", (0, 1), 2),
            (r"^Who gave the (\w+)\?$", (1,), 0),
            (r"^Who received the (\w+)\?$", (1,), 2),
        )
        for form, given, asked in forms:
            if found := re.match(form, question):
                return next(
                    gift[asked] for gift in self.gifts[::-1] if [gift[i] for i in given] == list(found.groups())
                )
        raise AssertionError(question)


def stories(question: str, count: int) -> list[Story]:
    low, high = FACTS[question]
    rng = RandomGenerator(11)
    return [story(question, low + rng.below(high - low + 1), rng) for _ in range(count)]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_reader_finds_the_answer(question: str) -> None:
    told = stories(question, 300)
    for one in told:
        assert Reader(one.facts).answer(one.question) == one.answer
        assert one.answer in ANSWERS[question]
        assert one.support == tuple(sorted(set(one.support)))
        assert set(one.support) <= set(range(len(one.facts)))
    lengths = {len(one.facts) for one in told}
    low, high = FACTS[question]
    assert min(lengths) >= low
    assert max(lengths) <= high
    assert len(lengths) >= min(high - low + 1, 9)
    counts = Counter(one.answer for one in told)
    assert len(counts) >= min(len(ANSWERS[question]), 5)
    assert counts.most_common(1)[0][1] < 0.75 * len(told), counts
    assert len({(one.facts, one.question) for one in told}) > 180


@pytest.mark.parametrize("question", ["qa1", "qa4", "qa5", "qa6", "qa9", "qa10"])
def test_the_supporting_sentences_are_enough(question: str) -> None:
    for one in stories(question, 100):
        support = tuple(one.facts[number] for number in one.support)
        assert Reader(support, all_told=False).answer(one.question) == one.answer


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_question_needs_fewer_sentences_than_the_spec_says(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fewest = FEWEST.get(question, 1)
    told = story(question, fewest, RandomGenerator(3))
    assert len(told.facts) == (2 if question == "qa4" else fewest)
    if question in FEWEST:
        monkeypatch.setattr("ssm.data.tasks.stories.ATTEMPTS", 3000)
        with pytest.raises(DataError, match=f"^{question}: no story of {fewest - 1} sentences? answers a question"):
            story(question, fewest - 1, RandomGenerator(3))


def test_a_moved_thing_has_as_many_supporting_sentences_as_in_babi() -> None:
    assert Counter(len(one.support) for one in stories("qa2", 200)).most_common(1)[0][0] == 2
    assert {len(one.support) for one in stories("qa3", 200)} <= {2, 3, 4}


def test_the_longest_answers_of_the_specs() -> None:
    assert max(len(f" {answer}.") for answers in ANSWERS.values() for answer in answers) == LONGEST


def as_babi(told: list[Story]) -> str:
    """Stories in bAbI's format."""
    lines = []
    for one in told:
        lines += [f"{number} {fact}" for number, fact in enumerate(one.facts, 1)]
        support = " ".join(str(place + 1) for place in one.support)
        lines.append(f"{len(one.facts) + 1} {one.question} \t{one.answer}\t{support}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("question", QUESTIONS)
def test_stories_can_be_written_in_babis_format(question: str) -> None:
    told = stories(question, 20)
    assert parse_babi(as_babi(told), "test") == told


SAMPLE = """\
1 Ann went to the pier.
2 Bob took the oar there.
3 Where is Ann? \tpier\t1
4 Bob moved to the hut.
5 Where is the oar? \thut\t2 4
1 Bob is in the hut.
2 Is Bob in the pier? \tno\t1
"""


def test_a_question_in_babis_format_is_about_all_earlier_sentences() -> None:
    """Line numbers also count questions, and restart with every story."""
    first, second, third = parse_babi(SAMPLE, "test")
    assert first == Story(("Ann went to the pier.", "Bob took the oar there."), "Where is Ann?", "pier", (0,))
    assert second.facts == (*first.facts, "Bob moved to the hut.")
    assert (second.answer, second.support) == ("hut", (1, 2))
    assert third == Story(("Bob is in the hut.",), "Is Bob in the pier?", "no", (0,))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Ann went.\n", "test:1: not a line in bAbI's format: 'Ann went.'"),
        ("1 Ann went.\n2 Where? \there\n", "test:2: not a line in bAbI's format"),
        ("1 Ann went.\n2 Where? \there\t7\n", "test:2: not a line in bAbI's format"),
        ("1 Ann went.\n", "test: holds no question"),
    ],
)
def test_other_formats_are_refused(text: str, said: str) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(said)}"):
        parse_babi(text, "test")

"""Stories with a question and its answer, like bAbI's first ten tasks (Weston et al. 2015).

A story is a random walk in a small world: people move between rooms, and take, give and drop things. Sentences tell
what happens, but not the initial state, so a question must have an answer that follows from the sentences. If it has
none, or if the answer is ambiguous, a new walk starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import permutations

from ssm.base.counting import counted
from ssm.base.errors import DataError
from ssm.data.tasks.draws import RandomGenerator

PEOPLE, GIVERS, INDEFINITE = (
    ("Mary", "John", "Sandra", "Daniel"),
    ("Fred", "Jeff", "Bill", "Mary"),
    ("Bill", "Fred", "Julie", "Mary"),
)
ROOMS = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
PLACES = ("bedroom", "cinema", "kitchen", "office", "park", "school")
THINGS = ("apple", "football", "milk")
GO = ("went to", "went back to", "journeyed to", "travelled to", "moved to")
TAKE = ("took", "got", "grabbed", "picked up")
DROP = ("dropped", "discarded", "left", "put down")
GIVE = ("gave", "handed", "passed")
NUMBERS = ("none", "one", "two", "three")
DIRECTIONS = ("north", "south", "east", "west")
ATTEMPTS = 100_000  # tries to make a story whose question has one answer; a few are usually enough


@dataclass(frozen=True)
class Story:
    """Sentences, a question, its answer, and the indices of the supporting sentences."""

    facts: tuple[str, ...]
    question: str
    answer: str
    support: tuple[int, ...]


@dataclass
class World:
    """The state of the world, and what the sentences have told about it."""

    rng: RandomGenerator
    people: tuple[str, ...]
    at: dict[str, str] = field(default_factory=dict)  # person -> room, told or not
    held: dict[str, str] = field(default_factory=dict)  # thing -> person who has it
    lies: dict[str, str] = field(default_factory=dict)  # thing -> room where it lies
    told: dict[str, tuple[str, int]] = field(default_factory=dict)  # person -> room and sentence of the last move
    taken: dict[str, int] = field(default_factory=dict)  # thing -> sentence in which its holder got it
    path: dict[str, list[tuple[str, tuple[int, ...]]]] = field(default_factory=dict)  # thing -> rooms, with support
    carries: dict[str, list[str]] = field(default_factory=dict)  # person -> things in order of arrival
    touched: dict[str, list[int]] = field(default_factory=dict)  # person -> sentences about what they carry
    facts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.at = {person: self.rng.one_of(ROOMS) for person in self.people}
        self.lies = {thing: self.rng.one_of(ROOMS) for thing in THINGS}

    def move(self) -> None:
        """A person moves to another room with everything that they carry."""
        person = self.rng.one_of(self.people)
        room = self.rng.one_of([room for room in ROOMS if room != self.at[person]])
        self.at[person] = room
        self._say(f"{person} {self.rng.one_of(GO)} the {room}.")
        self.told[person] = room, len(self.facts) - 1
        for thing in self.carries.get(person, []):
            self._seen(thing, person)

    def take(self) -> None:
        """A person takes a thing that lies in their room."""
        near = [
            (person, thing) for person in self.people for thing, room in self.lies.items() if room == self.at[person]
        ]
        if not near:
            return
        person, thing = self.rng.one_of(near)
        del self.lies[thing]
        self._say(f"{person} {self.rng.one_of(TAKE)} the {thing}{self.rng.one_of(('', ' there'))}.")
        self._receive(person, thing)

    def drop(self) -> None:
        """A person drops a thing."""
        if not self.held:
            return
        thing = self.rng.one_of(list(self.held))
        person = self._lose(thing)
        self.lies[thing] = self.at[person]
        self._say(f"{person} {self.rng.one_of(DROP)} the {thing}{self.rng.one_of(('', ' there'))}.")
        self.touched[person].append(len(self.facts) - 1)
        self._seen(thing, person, len(self.facts) - 1)

    def give(self) -> None:
        """A person gives a thing to another person in the same room."""
        near = [
            (thing, other)
            for thing, person in self.held.items()
            for other in self.people
            if other != person and self.at[other] == self.at[person]
        ]
        if not near:
            return
        thing, other = self.rng.one_of(near)
        person = self._lose(thing)
        self._say(f"{person} {self.rng.one_of(GIVE)} the {thing} to {other}.")
        self.touched[person].append(len(self.facts) - 1)
        self._receive(other, thing)

    def _say(self, sentence: str) -> None:
        self.facts.append(sentence)

    def _receive(self, person: str, thing: str) -> None:
        self.held[thing] = person
        self.carries.setdefault(person, []).append(thing)
        self.touched.setdefault(person, []).append(len(self.facts) - 1)
        self.taken[thing] = len(self.facts) - 1
        self._seen(thing, person)

    def _lose(self, thing: str) -> str:
        person = self.held.pop(thing)
        self.carries[person].remove(thing)
        return person

    def _seen(self, thing: str, person: str, put: int | None = None) -> None:
        """Record the room of a thing, if a sentence has told the room of the person who has it."""
        if person not in self.told:
            return
        room, moved = self.told[person]
        support = tuple(sorted({self.taken[thing] if put is None else put, moved}))
        path = self.path.setdefault(thing, [])
        if path and path[-1][0] == room:
            path[-1] = room, support
        else:
            path.append((room, support))


Question = tuple[str, str, tuple[int, ...]]  # question, answer, indices of the supporting sentences


def _walk(rng: RandomGenerator, count: int, people: tuple[str, ...], actions: tuple[str, ...]) -> World:
    world = World(rng, people)
    while len(world.facts) < count:
        getattr(world, rng.one_of(actions))()
    return world


def _where_is_somebody(rng: RandomGenerator, count: int) -> tuple[list[str], Question | None]:
    world = _walk(rng, count, PEOPLE, ("move",))
    person = rng.one_of(list(world.told))
    room, moved = world.told[person]
    return world.facts, (f"Where is {person}?", room, (moved,))


def _where_is_a_thing(rng: RandomGenerator, count: int) -> tuple[list[str], Question | None]:
    world = _walk(rng, count, PEOPLE, ("move", "move", "take", "drop"))
    if not world.path:
        return world.facts, None
    thing = rng.one_of(list(world.path))
    room, support = world.path[thing][-1]
    return world.facts, (f"Where is the {thing}?", room, support)


def _where_was_a_thing(rng: RandomGenerator, count: int) -> tuple[list[str], Question | None]:
    world = _walk(rng, count, PEOPLE, ("move", "move", "take", "drop"))
    known = []
    for thing, path in world.path.items():
        rooms = [room for room, _ in path]
        if len(path) > 1 and rooms.count(rooms[-1]) == 1:
            known.append(thing)
    if not known:
        return world.facts, None
    thing = rng.one_of(known)
    (before, early), (room, late) = world.path[thing][-2:]
    return world.facts, (f"Where was the {thing} before the {room}?", before, tuple(sorted({*early, *late})))


def _two_arguments(rng: RandomGenerator, count: int) -> tuple[list[str], Question | None]:
    """a is north of b, b is north of c: the question is about b."""
    a, b = rng.two_of(ROOMS)
    c = rng.one_of([room for room in ROOMS if room not in (a, b)])
    direction = rng.one_of(DIRECTIONS)
    pairs = [(a, b), (b, c)]
    if rng.below(2):
        pairs.reverse()
    facts = [f"The {one} is {direction} of the {other}." for one, other in pairs]
    if rng.below(2):
        return facts, (f"What is {direction} of the {b}?", a, (pairs.index((a, b)),))
    return facts, (f"What is the {b} {direction} of?", c, (pairs.index((b, c)),))


def _three_arguments(rng: RandomGenerator, count: int) -> tuple[list[str], Question | None]:
    """The question is about the last gift of the story."""
    world = _walk(rng, count, GIVERS, ("move", "take", "give", "drop"))
    gifts = [number for number, fact in enumerate(world.facts) if any(f" {verb} the " in fact for verb in GIVE)]
    if not gifts:
        return world.facts, None
    giver, *_, thing, _, receiver = world.facts[gifts[-1]].rstrip(".").split(" ")
    question, answer = rng.one_of(
        (
            (f"Who gave the {thing} to {receiver}?", giver),
            (f"What did {giver} give to {receiver}?", thing),
            (f"Who did {giver} give the {thing} to?", receiver),
            (f"Who gave the {thing}?", giver),
            (f"Who received the {thing}?", receiver),
        )
    )
    return world.facts, (question, answer, (gifts[-1],))


def _yes_or_no(rng: RandomGenerator, count: int) -> tuple[list[str], Question | None]:
    world = _walk(rng, count, PEOPLE, ("move", "move", "take", "drop"))
    if not world.told:
        return world.facts, None
    person = rng.one_of(list(world.told))
    room, moved = world.told[person]
    place = room if rng.below(2) else rng.one_of([other for other in ROOMS if other != room])
    return world.facts, (f"Is {person} in the {place}?", "yes" if place == room else "no", (moved,))


def _counting(rng: RandomGenerator, count: int) -> tuple[list[str], Question | None]:
    world = _walk(rng, count, PEOPLE, ("move", "take", "drop", "give"))
    if not world.touched:
        return world.facts, None
    person = rng.one_of(list(world.touched))
    number = NUMBERS[len(world.carries[person])]
    return world.facts, (f"How many objects is {person} carrying?", number, tuple(world.touched[person]))


def _lists(rng: RandomGenerator, count: int) -> tuple[list[str], Question | None]:
    world = _walk(rng, count, PEOPLE, ("move", "take", "drop", "give"))
    if not world.touched:
        return world.facts, None
    person = rng.one_of(list(world.touched))
    carried = ",".join(world.carries[person]) or "nothing"
    return world.facts, (f"What is {person} carrying?", carried, tuple(world.touched[person]))


def _negation(rng: RandomGenerator, count: int) -> tuple[list[str], Question | None]:
    """Where a person is or is not. The last sentence about a person answers the question, directly or by exclusion."""
    facts: list[str] = []
    known: dict[str, tuple[str, bool, int]] = {}  # person -> room, whether they are there, sentence
    for number in range(count):
        person, room = rng.one_of(PEOPLE), rng.one_of(ROOMS)
        form = rng.below(3)
        before = known.get(person)
        if form == 0 and before is not None and before[1]:
            room = before[0]
            facts.append(f"{person} is no longer in the {room}.")
        elif form == 0:
            facts.append(f"{person} is not in the {room}.")
        elif form == 1:
            facts.append(f"{person} is in the {room}.")
        else:
            facts.append(f"{person} {rng.one_of(GO)} the {room}.")
        known[person] = room, form != 0, number
    person = rng.one_of(list(known))
    room, there, number = known[person]
    if there and rng.below(2):
        other = rng.one_of([place for place in ROOMS if place != room])
        return facts, (f"Is {person} in the {other}?", "no", (number,))
    return facts, (f"Is {person} in the {room}?", "yes" if there else "no", (number,))


def _indefinite(rng: RandomGenerator, count: int) -> tuple[list[str], Question | None]:
    """Where a person is or may be, from the last sentence about them."""
    facts: list[str] = []
    known: dict[str, tuple[tuple[str, ...], int]] = {}  # person -> one or two places, sentence
    for number in range(count):
        person, form = rng.one_of(INDEFINITE), rng.below(3)
        places: tuple[str, ...] = rng.two_of(PLACES) if form == 0 else (rng.one_of(PLACES),)
        if form == 0:
            facts.append(f"{person} is either in the {places[0]} or the {places[1]}.")
        elif form == 1:
            facts.append(f"{person} is in the {places[0]}.")
        else:
            facts.append(f"{person} {rng.one_of(GO)} the {places[0]}.")
        known[person] = places, number
    person = rng.one_of(list(known))
    places, number = known[person]
    place = rng.one_of(places) if rng.below(3) else rng.one_of([other for other in PLACES if other not in places])
    answer = "no" if place not in places else "yes" if len(places) == 1 else "maybe"
    return facts, (f"Is {person} in the {place}?", answer, (number,))


MAKERS: dict[str, Callable[[RandomGenerator, int], tuple[list[str], Question | None]]] = {
    "qa1": _where_is_somebody,
    "qa2": _where_is_a_thing,
    "qa3": _where_was_a_thing,
    "qa4": _two_arguments,
    "qa5": _three_arguments,
    "qa6": _yes_or_no,
    "qa7": _counting,
    "qa8": _lists,
    "qa9": _negation,
    "qa10": _indefinite,
}
_CARRIED = tuple(",".join(things) for n in range(1, len(THINGS) + 1) for things in permutations(THINGS, n))
ANSWERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("qa1", "qa2", "qa3", "qa4"), ROOMS),
    "qa5": GIVERS + THINGS,
    "qa6": ("yes", "no"),
    "qa7": NUMBERS,
    "qa8": ("nothing", *_CARRIED),
    "qa9": ("yes", "no"),
    "qa10": ("yes", "no", "maybe"),
}


def story(question: str, count: int, rng: RandomGenerator) -> Story:
    """A story of `count` sentences (two for qa4) with a question of type qa1 to qa10.

    Raises:
        DataError: no story of so few sentences answers such a question.
    """
    for _ in range(ATTEMPTS):
        facts, drawn = MAKERS[question](rng, count)
        if drawn is not None:
            return Story(tuple(facts), *drawn)
    raise DataError(f"{question}: no story of {counted(count, 'sentence')} answers a question of this type")

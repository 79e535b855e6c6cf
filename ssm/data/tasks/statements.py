"""False statements about the world: a relation with the object of another subject.

An example is "The capital of France is Madrid.", as in bn Appendix E.2; the wording and lists are ours. An item may
have several colors; a statement counts as false if it is not what people usually say (snow is white).
"""

from __future__ import annotations

from dataclasses import dataclass

from ssm.data.tasks.draws import RandomGenerator
from ssm.specs.tasks.needle import Relation

# The paper has "ignore the fact, only use information in the context to answer the questions".
INSTRUCTION = "Ignore the facts, and use only the information in the context to answer the question."


@dataclass(frozen=True)
class Form:
    """A relation in words, and its true objects."""

    question: str
    statement: str  # up to the object
    objects: dict[str, str]  # subject -> its true object; all objects are different


@dataclass(frozen=True)
class Statement:
    """A false statement."""

    relation: Relation
    question: str
    told: str  # the statement up to the object
    object: str
    alternatives: tuple[str, ...]  # other objects of the relation; the true one is first


FORMS: dict[Relation, Form] = {
    "capital": Form(
        "What is the capital of {}?",
        "The capital of {} is",
        {
            "France": "Paris", "Spain": "Madrid", "Italy": "Rome", "Japan": "Tokyo", "Egypt": "Cairo", "Peru": "Lima",
            "Norway": "Oslo", "Cuba": "Havana", "Greece": "Athens", "Kenya": "Nairobi", "Austria": "Vienna",
            "Ireland": "Dublin",
        },
    ),
    "currency": Form(
        "What is the currency of {}?",
        "The currency of {} is the",
        {
            "Japan": "yen", "India": "rupee", "Mexico": "peso", "Russia": "rouble", "Poland": "zloty",
            "Sweden": "krona", "Israel": "shekel", "Thailand": "baht", "Vietnam": "dong", "Turkey": "lira",
            "China": "yuan", "Switzerland": "franc",
        },
    ),
    "colour": Form(
        "What is the colour of {}?",
        "The colour of {} is",
        {
            "snow": "white", "coal": "black", "blood": "red", "grass": "green", "butter": "yellow",
            "a sapphire": "blue", "chocolate": "brown", "ash": "grey", "a carrot": "orange", "a flamingo": "pink",
            "lavender": "purple",
        },
    ),
    "inventor": Form(
        "Who invented the {}?",
        "The {} was invented by",
        {
            "telephone": "Bell", "phonograph": "Edison", "radio": "Marconi", "dynamite": "Nobel",
            "printing press": "Gutenberg", "battery": "Volta", "cotton gin": "Whitney", "revolver": "Colt",
            "safety razor": "Gillette", "saxophone": "Sax", "lightning rod": "Franklin", "barometer": "Torricelli",
        },
    ),
    "author": Form(
        "Who wrote {}?",
        "{} was written by",
        {
            "Hamlet": "Shakespeare", "Emma": "Austen", "Dracula": "Stoker", "Faust": "Goethe", "Ulysses": "Joyce",
            "Candide": "Voltaire", "Utopia": "More", "Walden": "Thoreau", "Frankenstein": "Shelley",
            "Ivanhoe": "Scott", "Lolita": "Nabokov", "Middlemarch": "Eliot",
        },
    ),
    "young": Form(
        "What is the young of a {} called?",
        "The young of a {} is called a",
        {
            "dog": "puppy", "cat": "kitten", "cow": "calf", "horse": "foal", "sheep": "lamb", "goat": "kid",
            "pig": "piglet", "bear": "cub", "hen": "chick", "goose": "gosling", "frog": "tadpole",
            "kangaroo": "joey",
        },
    ),
}  # fmt: skip


def statement(relation: Relation, alternatives: int, rng: RandomGenerator) -> Statement:
    """A random subject with the object of another subject, and `alternatives` other objects."""
    form = FORMS[relation]
    subject = rng.one_of(list(form.objects))
    true = form.objects[subject]
    others = [one for one in form.objects.values() if one != true]
    drawn = [others.pop(rng.below(len(others))) for _ in range(alternatives)]
    return Statement(
        relation,
        form.question.format(subject),
        form.statement.format(subject),
        drawn[0],
        (true, *drawn[1:]),
    )

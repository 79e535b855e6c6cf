"""Families: the arms that a grid has made of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt

from ssm.specs.base import Setting, Spec

# The papers' letters, in labels. A key that is not here is called by its name.
LETTERS = {
    "d_model": "D",
    "n_layers": "L",
    "d_state": "N",
    "head_dim": "P",
    "expand": "E",
    "n_groups": "G",
    "d_conv": "K",
    "context": "T",
    "vocab_size": "V",
}


class AxisValue(Spec):
    """Where a member stands on one axis."""

    axis: str
    value: Setting  # or its name
    words: str  # both, for readers: "N = 16", "conv on"; empty: the arm's label says it


class Member(Spec):
    """What a grid has made of an arm of a figure file."""

    family: str  # the arm's name in the file
    number: NonNegativeInt  # among the family's, in the order of the grid
    label: str  # the arm's in the file
    places: Annotated[tuple[AxisValue, ...], Field(strict=False, min_length=1)]
    sets: dict[str, Any] = {}  # axis -> what this member's keys are set to; of the axes of its own grid

    @property
    def axes(self) -> dict[str, Setting]:
        """Axis -> value."""
        return {place.axis: place.value for place in self.places}

    def label_without(self, *axes: str, family: bool = True) -> str:
        """What a curve along these axes is called; where its `family` goes without saying, by its other axes alone."""
        words = [place.words for place in self.places if place.axis not in axes and place.words]
        return ", ".join(words if words and not family else [self.label, *words])


def value_text(value: Setting) -> str:
    """A value as it stands in the name of an arm.

    >>> [value_text(value) for value in (16, 1e-3, True, False, "tbtt")]
    ['16', '0.001', 'on', 'off', 'tbtt']
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    return format(value, ".12g") if isinstance(value, float) else str(value)


def is_number(value: Setting) -> bool:
    """Whether a value can be drawn along an axis.

    >>> is_number(16), is_number(True), is_number("16")
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool)


def member_name(family: str, places: Mapping[str, Setting]) -> str:
    """The arm of a family at these values.

    >>> member_name("base", {"d_state": 16, "conv": True})
    'base[d_state=16,conv=on]'
    """
    return f"{family}[{','.join(f'{axis}={value_text(value)}' for axis, value in places.items())}]"


def stands_at(axes: Mapping[str, Setting], values: Mapping[str, Setting]) -> bool:
    """Whether a member's axes have these values, however they are written.

    >>> stands_at({"conv": "on", "d_state": 16}, {"conv": True}), stands_at({"conv": "on"}, {"d_state": 16})
    (True, False)
    """
    return all(axis in axes and value_text(axes[axis]) == value_text(value) for axis, value in values.items())


def axis_name(axis: str) -> str:
    """An axis for readers: the papers' letter of the key, or its name.

    >>> axis_name("model.mixer.d_state"), axis_name("training.lr_scale")
    ('N', 'lr scale')
    """
    key = axis.rpartition(".")[2]
    return LETTERS.get(key, key.replace("_", " "))


def place_words(axis: str, value: Setting) -> str:
    """A place on an axis for readers.

    >>> place_words("model.mixer.d_state", 16), place_words("conv", True)
    ('N = 16', 'conv on')
    """
    equals = " = " if is_number(value) else " "
    return f"{axis_name(axis)}{equals}{value_text(value).replace('_', ' ')}"

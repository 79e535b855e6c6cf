"""Families: the arms that a grid makes from one arm of a figure file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt

from ssm.base.errors import nearest
from ssm.specs.base import Setting, Spec

# Symbols of the papers, for labels. Other keys are shown by their name.
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
    """The value of a member on one axis of the grid."""

    axis: str
    value: Setting  # the value, or the name that the figure file gives it
    words: str  # label of axis and value: "N = 16", "conv on"; empty: the label of the arm already says it


class Member(Spec):
    """One arm of a family: where it comes from, and its values."""

    family: str  # name of the arm in the figure file
    number: NonNegativeInt  # index in the family, in the order of the grid
    label: str  # label of the arm in the figure file
    places: Annotated[tuple[AxisValue, ...], Field(strict=False, min_length=1)]
    sets: dict[str, Any] = {}  # axis -> values that this member sets, for the axes of its own grid

    @property
    def axes(self) -> dict[str, Setting]:
        """Axis -> value."""
        return {place.axis: place.value for place in self.places}

    def label_of(self, axis: str) -> str | None:
        """The label that the figure file gives the value on an axis; None: the file gives it none."""
        place = next(place for place in self.places if place.axis == axis)
        return None if place.words == place_words(axis, place.value) else place.words

    def label_without(self, *axes: str, family: bool = True) -> str:
        """The label without these axes. With `family=False`, other axes replace the label of the family."""
        words = [place.words for place in self.places if place.axis not in axes and place.words]
        return ", ".join(words if words and not family else [self.label, *words])


def value_text(value: Setting) -> str:
    """A value as text, as in the names of arms.

    >>> [value_text(value) for value in (16, 1e-3, True, False, "tbtt")]
    ['16', '0.001', 'on', 'off', 'tbtt']
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    return format(value, ".12g") if isinstance(value, float) else str(value)


def is_number(value: Setting) -> bool:
    """Whether a value is a number, so that it can be drawn along an axis.

    >>> is_number(16), is_number(True), is_number("16")
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool)


def member_name(family: str, places: Mapping[str, Setting]) -> str:
    """The name of the member of a family with these values.

    >>> member_name("base", {"d_state": 16, "conv": True})
    'base[d_state=16,conv=on]'
    """
    return f"{family}[{','.join(f'{axis}={value_text(value)}' for axis, value in places.items())}]"


def has_values(axes: Mapping[str, Setting], values: Mapping[str, Setting]) -> bool:
    """Whether a member has these values on its axes. Values are compared as text: True equals "on".

    >>> has_values({"conv": "on", "d_state": 16}, {"conv": True}), has_values({"conv": "on"}, {"d_state": 16})
    (True, False)
    """
    return all(axis in axes and value_text(axes[axis]) == value_text(value) for axis, value in values.items())


def axis_values(families: Iterable[Mapping[str, Member]]) -> dict[str, list[Setting]]:
    """Axis -> its values, of the members of these families."""
    values: dict[str, list[Setting]] = {}
    for member in (one for members in families for one in members.values()):
        for axis, value in member.axes.items():
            values.setdefault(axis, []).append(value)
    return values


def require_axes(named: Iterable[tuple[str, str]], axes: Collection[str], grid: str = "any grid") -> None:
    """Raise ValueError for the first of these (field, axis) that names no axis of the grid."""
    for field, axis in named:
        if axis not in axes:
            raise ValueError(f"{field}: no axis '{axis}' in {grid}; {nearest(axis, axes)}")


def axis_name(axis: str) -> str:
    """The label of an axis: the symbol of the papers, or the key without underscores.

    >>> axis_name("model.mixer.d_state"), axis_name("training.lr_scale")
    ('N', 'lr scale')
    """
    key = axis.rpartition(".")[2]
    return LETTERS.get(key, key.replace("_", " "))


def place_words(axis: str, value: Setting) -> str:
    """The label of a value on an axis.

    >>> place_words("model.mixer.d_state", 16), place_words("conv", True)
    ('N = 16', 'conv on')
    """
    equals = " = " if is_number(value) else " "
    return f"{axis_name(axis)}{equals}{value_text(value).replace('_', ' ')}"


def joined_labels(labels: Sequence[str]) -> str:
    """Labels as one text. Words with which all of them begin or end are written once.

    >>> [joined_labels(labels) for labels in (["8 states", "16 states"], ["width 2", "width 4"], ["few", "N = 16"])]
    ['8, 16 states', 'width 2, 4', 'few, N = 16']
    """
    words = [label.split() for label in labels]
    start = _shared(words)
    rest = [one[len(start) :] for one in words]
    end = _shared([one[::-1] for one in rest])[::-1]
    apart = [" ".join(one[: len(one) - len(end)]) for one in rest]
    if not all(apart) or any("," in label for label in labels):
        return ", ".join(labels)
    return " ".join([*start, ", ".join(apart), *end])


def _shared(lists: Sequence[Sequence[str]]) -> list[str]:
    """The items with which all of these lists begin."""
    return [items[0] for items in takewhile(lambda items: len(set(items)) == 1, zip(*lists, strict=False))]

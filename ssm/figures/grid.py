"""Grids: one arm of a figure file becomes many, one for each combination of the values of some keys.

A grid has axes. An axis is a key of the model, the recipe, the initial state or the data, with its values. Every
combination of values is a member, which is an ordinary arm. For example, `base` with `d_state: [16, 32]` and
`conv: [off, on]` becomes the family of the arms `base[d_state=16,conv=off]` and so on. The keys are interpreted when
an arm is resolved (ssm/plan/overrides.py).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, StringConstraints
from typing_extensions import TypeAliasType

from ssm.base.errors import nearest, shown
from ssm.claims.families import member_name, place_words, value_text
from ssm.specs.base import Setting

AXIS = r"[A-Za-z_][A-Za-z0-9_.]{0,79}"
NAME = r"[^\[\],=/{}\s][^\[\],=/{}]{0,39}"  # name of a value: it becomes part of names of arms
AxisName = Annotated[str, StringConstraints(pattern=f"^{AXIS}$")]
ValueName = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
Values = Annotated[tuple[bool | int | float | ValueName | None, ...], Field(strict=False, min_length=1)]
# an axis has a list of values, or a mapping of names to values; a value may be a mapping of several keys
Grid = TypeAliasType("Grid", dict[AxisName, Values | Annotated[dict[ValueName | int, Any], Field(min_length=1)]])

# Keys of the arm itself. Their values are names of entries elsewhere.
OF_ARMS = ("model", "data", "training", "checkpoint", "initial_state", "layer", "at")
UNCOUNTED = 10**9  # members beyond this number are not counted


@dataclass(frozen=True)
class _Step:
    """One value of an axis."""

    name: Setting
    value: Any

    @property
    def text(self) -> str:
        return value_text(self.name)


def expanded(figure: dict[str, Any], most: int) -> dict[str, Any]:
    """The content of a figure file at one scale, with the members of grids in place of the arms that have them.

    An arm has its own grid, or otherwise the grid of the figure. In addition it has the axes of the arm whose weights
    it takes (`from`, `snapshot_of`): each member continues from the member with the same values. It also gets that
    member's model and data. It does not get its recipe and initial state, unless its own grid has their axis.
    The `arms` of a measurement may name a family.

    Args:
        most: maximal number of arms of a figure.

    Raises:
        ValueError: a grid is malformed, there are too many members, or an arm has a value that the arm whose weights it
            takes does not have.
    """
    given = figure["arms"] if isinstance(figure.get("arms"), dict) else {}
    arms = {name: arm for name, arm in given.items() if isinstance(arm, dict)}
    shared, labels = figure.get("grid"), figure.get("value_labels")
    if shared is None and all(arm.get("grid") is None for arm in arms.values()):
        return figure
    if not arms:
        raise ValueError("grid: this figure has no arms to which the grid applies")
    own = _own_grids(arms, shared)
    axes = {name: _axes(name, arms, own, ()) for name in arms}
    count = len(given) - len(arms) + sum(_count(found.values()) for found in axes.values())
    if count > most:
        size = f"{count:,}" if count < UNCOUNTED else f"more than {UNCOUNTED:,}"
        raise ValueError(f"arms: the grids make {size} arms; a figure has at most {most}")
    words = _words(labels, axes.values())
    members: dict[str, Any] = {}
    families: dict[str, list[str]] = {}
    for name, arm in given.items():
        made = _members(name, arms, axes, own, words) if name in arms else {name: arm}
        families[name] = list(made)
        members |= made
    rest = {key: value for key, value in figure.items() if key not in ("grid", "value_labels", "arms")}
    if isinstance(rest.get("measurements"), list):
        rest["measurements"] = [_of_members(entry, families) for entry in rest["measurements"]]
    return rest | {"arms": members}


def _own_grids(arms: Mapping[str, dict[str, Any]], shared: Any) -> dict[str, dict[str, list[_Step]]]:
    """The grid of every arm: its own or the figure's. A snapshot has the axes of its arm, and may add the axis `at`."""
    figures = _grid(shared, "grid")
    own = {}
    for name, arm in arms.items():
        where = f"arms.{name}.grid"
        snapshot = arm.get("snapshot_of") is not None
        own[name] = (figures if not snapshot else {}) if arm.get("grid") is None else _grid(arm["grid"], where)
        for axis in own[name]:
            if snapshot and axis != "at":
                raise ValueError(f"{where}.{axis}: a snapshot has the axes of its arm; it can only add 'at'")
    return own


def _grid(grid: Any, where: str) -> dict[str, list[_Step]]:
    """The axes of a grid with their values."""
    if not isinstance(grid, dict | None):
        raise ValueError(f"{where}: expected a mapping of keys to their values, got {shown(grid)}")
    axes = {}
    for axis, values in (grid or {}).items():
        if not re.fullmatch(AXIS, str(axis)):
            raise ValueError(f"{where}: expected a key such as d_state or model.mixer.d_state, got {shown(axis)}")
        if not isinstance(values, list | dict) or not values:
            expected = "a list of values, or a mapping of their names to values"
            raise ValueError(f"{where}.{axis}: expected {expected}, got {shown(values)}")
        pairs = values.items() if isinstance(values, dict) else ((value, value) for value in values)
        steps = axes[axis] = [_Step("none" if name is None else name, value) for name, value in pairs]
        seen = set()
        for step in steps:
            if not isinstance(step.name, Setting) or not re.fullmatch(NAME, step.text):
                expected = "a number, true, false, null or a short word; or name it, {name: value}"
                raise ValueError(f"{where}.{axis}: expected {expected}, got {shown(step.name)}")
            if step.text in seen:
                raise ValueError(f"{where}.{axis}: {step.text} is given twice")
            seen.add(step.text)
    return axes


def _axes(
    name: str,
    arms: Mapping[str, dict[str, Any]],
    own: Mapping[str, dict[str, list[_Step]]],
    below: tuple[str, ...],
) -> dict[str, list[_Step]]:
    """The axes of an arm: first those of the arm whose weights it takes, then its own."""
    source = _source(arms[name])
    if source not in arms or source in below:  # unknown arms and cycles are reported when arms are resolved
        return own[name]
    found = dict(_axes(str(source), arms, own, (*below, name)))
    for axis, steps in own[name].items():
        if axis in found:
            there = [step.text for step in found[axis]]
            for step in steps:
                if step.text not in there:
                    hint = nearest(step.text, there)
                    raise ValueError(f"arms.{name}.grid.{axis}: '{source}' has no member with {step.text}; {hint}")
    return found | own[name]


def _source(arm: Mapping[str, Any]) -> str | None:
    """The arm whose weights this arm takes."""
    source = arm.get("from") or arm.get("snapshot_of")
    return source if isinstance(source, str) else None


def _words(labels: Any, axes: Iterable[Mapping[str, list[_Step]]]) -> dict[tuple[str, str], str]:
    """(axis, value) -> the label, from `value_labels` or made from the axis and the value."""
    steps: dict[str, dict[str, Setting]] = {}
    for axis, found in itertools.chain.from_iterable(arm.items() for arm in axes):
        steps.setdefault(axis, {}).update((step.text, step.name) for step in found)
    words = {(axis, text): place_words(axis, name) for axis, named in steps.items() for text, name in named.items()}
    if not isinstance(labels, dict | None):
        raise ValueError(f"value_labels: expected a mapping of axes to labels, got {shown(labels)}")
    for axis, given in (labels or {}).items():
        if axis not in steps:
            raise ValueError(f"value_labels: no grid has the axis {shown(axis)}; {nearest(str(axis), steps)}")
        if isinstance(given, str) and "{}" in given:
            given = {text: given.replace("{}", text) for text in steps[axis]}
        if not isinstance(given, dict):
            expected = "a label for each value, or one text with {} for the value"
            raise ValueError(f"value_labels.{axis}: expected {expected}, got {shown(given)}")
        for value, label in given.items():
            text = value_text(value) if isinstance(value, Setting) else str(value)
            if text not in steps[axis]:
                raise ValueError(
                    f"value_labels.{axis}: no grid has the value {shown(value)}; {nearest(text, steps[axis])}"
                )
            if not isinstance(label, str):
                raise ValueError(f"value_labels.{axis}.{text}: expected a text, got {shown(label)}")
            words[axis, text] = label
    return words


def _count(axes: Iterable[list[_Step]]) -> int:
    count = 1
    for steps in axes:
        count = min(UNCOUNTED, count * len(steps))
    return count


def _members(
    name: str,
    arms: Mapping[str, dict[str, Any]],
    axes: Mapping[str, dict[str, list[_Step]]],
    own: Mapping[str, dict[str, list[_Step]]],
    words: Mapping[tuple[str, str], str],
) -> dict[str, Any]:
    """Name -> content of the members of an arm. An arm without axes is returned unchanged."""
    plain = {key: value for key, value in arms[name].items() if key != "grid"}
    if not axes[name]:
        return {name: plain}
    members: dict[str, Any] = {}
    for steps in itertools.product(*axes[name].values()):
        chosen = dict(zip(axes[name], steps, strict=True))
        places = [{"axis": axis, "value": step.name, "words": words[axis, step.text]} for axis, step in chosen.items()]
        of_arm: dict[str, Any] = {}
        sets: dict[str, Any] = {}
        for axis in own[name]:
            found, rest = _parted(axis, chosen[axis].value)
            of_arm |= found
            sets |= rest
        member = {"family": name, "number": len(members), "label": plain.get("label"), "places": places, "sets": sets}
        arm = plain | of_arm | {"member": member}
        if isinstance(plain.get("label"), str):
            arm["label"] = ", ".join([plain["label"], *(str(place["words"]) for place in places if place["words"])])
        for key in ("from", "snapshot_of"):
            source = plain.get(key)
            if isinstance(source, str) and axes.get(source):
                arm[key] = member_name(source, {axis: chosen[axis].name for axis in axes[source]})
        members[member_name(name, {axis: step.name for axis, step in chosen.items()})] = arm
    return members


def _parted(axis: str, value: Any) -> tuple[dict[str, Any], Any]:
    """Split a value of an axis into (key -> value for keys of the arm itself, axis -> value for other keys)."""
    if axis in OF_ARMS and not isinstance(value, dict):
        return {axis: value}, {}
    if not isinstance(value, dict):
        return {}, {axis: value}
    of_arm = {key: held for key, held in value.items() if key in OF_ARMS and not isinstance(held, dict)}
    return of_arm, {axis: {key: held for key, held in value.items() if key not in of_arm}}


def _of_members(entry: Any, families: Mapping[str, list[str]]) -> Any:
    """A measurement with members in place of the families in its `arms`."""
    named = entry.get("arms") if isinstance(entry, dict) else None
    if not isinstance(named, list):
        return entry
    members = (families.get(name, [name]) if isinstance(name, str) else [name] for name in named)
    return entry | {"arms": list(itertools.chain.from_iterable(members))}

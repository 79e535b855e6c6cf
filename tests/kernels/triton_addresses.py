"""Interval analysis of a Triton kernel's intermediate code (TTIR): can the computation of an address overflow?

Every integer has an interval. The arguments are known, the grid bounds the program ids, and loops have bounds. A result
that may not fit its type gets a note, and so does everything that is computed from it. A pointer offset with a note is
an address that may be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ssm_kernels.native.triton_launch import Launch

OPERATION = re.compile(r'^(?:(%[\w.]+)(?::\d+)? = )?"?([\w.]+)"?')
NAME = re.compile(r"%[\w.]+(?:#\d+)?")
WIDTH = re.compile(r"(?:x|\b)i(\d+)\b")
LOOP = re.compile(r"scf\.for (%[\w.]+) = (%[\w.]+) to (%[\w.]+) step (%[\w.]+)")
SAME = ("splat", "broadcast", "expand_dims", "trans", "reshape", "extsi", "trunci")


class Value(NamedTuple):
    """The interval of an integer, or of all elements of a tensor."""

    low: int
    high: int
    note: str = ""  # why the value may be wrong


def wrong_addresses(launch: Launch, code: str) -> list[str]:
    """One line for every pointer offset whose computation may overflow.

    Args:
        launch: the kernel and its arguments.
        code: its TTIR from `intermediate_code`.
    """
    values: dict[str, Value] = {
        f"%{name}": Value(value, value)
        for name, value in zip(launch.kernel.arg_names, launch.arguments, strict=False)
        if isinstance(value, int)
    }
    problems, offsets = [], 0
    for line in (text.split(" loc(")[0].strip() for text in code.splitlines()):
        found = OPERATION.match(line)
        if found is None:
            continue
        result, operation = found.groups()
        operands = NAME.findall(line.split("=", 1)[1] if result else line)
        if operation == "scf.for":
            _enter(line, values)
        elif operation == "tt.addptr":
            offsets += 1
            offset = values.get(operands[1], Value(0, 0, "of unknown origin"))
            problems += [f"{line}: {offset.note}"] if offset.note else []
        elif operation == "scf.yield":
            problems += [f"{line}: {values[name].note}" for name in operands if name in values and values[name].note]
        elif result and operation not in ("tt.reduce", "tt.scan", "scf.if") and (width := _width(line)):
            value = _value(operation, line, [values.get(name) for name in operands], launch)
            values[result] = _checked(value, width, line)
        else:
            values.pop(str(result), None)  # another block may use the same name
    assert offsets, "the code has no address"
    return problems


def _enter(line: str, values: dict[str, Value]) -> None:
    """Set the interval of a loop's counter. Values that the loop carries are unknown."""
    loop = LOOP.search(line)
    assert loop is not None, line
    counter, low, high, _ = loop.groups()
    values[counter] = Value(values[low].low, max(values[low].low, values[high].high - 1), values[high].note)
    carried = line.split("iter_args(")[1].split(") ->")[0] if "iter_args(" in line else ""
    types = re.split(r", (?![^<]*>)", line.split("-> (")[1].rsplit(")", 1)[0]) if carried else []
    for pair, kind in zip(carried.split(", ") if carried else [], types, strict=True):
        name, start = pair.split(" = ")
        values.pop(name, None)
        if "i64" in kind and start in values:
            values[name] = values[start]._replace(low=-(2**62), high=2**62)
        elif "i32" in kind:
            values[name] = Value(0, 0, "carried around a loop in 32 bits")


def _value(operation: str, line: str, operands: Sequence[Value | None], launch: Launch) -> Value:
    """The interval of a result for integers of unlimited size."""
    kind = operation.split(".")[-1]
    if kind == "constant":
        number = re.search(r"constant (?:dense<)?(-?\d+|true|false)", line)
        if number is None:
            return Value(0, 0, "a constant of many numbers")
        value = {"true": 1, "false": 0}.get(number[1]) if number[1] in ("true", "false") else int(number[1])
        assert value is not None
        return Value(value, value)
    if kind == "make_range":
        bounds = dict(re.findall(r"(start|end) = (\d+)", line))
        return Value(int(bounds["start"]), int(bounds["end"]) - 1)
    if kind in ("get_program_id", "get_num_programs"):
        count = (*launch.grid, 1, 1)["xyz".index(re.findall(r" ([xyz]) ", line)[0])]
        return Value(0, count - 1) if kind == "get_program_id" else Value(count, count)
    if kind == "select":
        operands = operands[1:]
    known = [x for x in operands if x is not None]
    if not known or len(known) < len(operands):
        return Value(0, 0, f"{kind}: of unknown origin")
    note = next((x.note for x in known if x.note), "")
    first, last = known[0], known[-1]
    if kind in SAME:
        return first._replace(note=note)
    corners = [(a, b) for a in first[:2] for b in last[:2]]
    if kind == "addi":
        bounds_of = [a + b for a, b in corners]
    elif kind == "subi":
        bounds_of = [a - b for a, b in corners]
    elif kind == "muli":
        bounds_of = [a * b for a, b in corners]
    elif kind == "minsi":
        bounds_of = [min(first.low, last.low), min(first.high, last.high)]
    elif kind == "maxsi":
        bounds_of = [max(first.low, last.low), max(first.high, last.high)]
    elif kind == "select":
        bounds_of = [*first[:2], *last[:2]]
    elif kind == "divsi" and last.low > 0:
        bounds_of = [end for a, b in corners for end in (a // b, -(-a // b))]
    elif kind == "remsi" and last.low > 0 and first.low >= 0:
        bounds_of = [0, min(first.high, last.high - 1)]
    else:
        return Value(0, 0, f"{kind}: unknown result")
    return Value(min(bounds_of), max(bounds_of), note)


def _checked(value: Value, width: int, line: str) -> Value:
    """The value, with a note if it may not fit into this number of bits."""
    if value.note or -(2 ** (width - 1)) <= value.low <= value.high < 2 ** (width - 1):
        return value
    return Value(0, 0, f"{line} may be {value.low} to {value.high}")


def _width(line: str) -> int | None:
    """The bits of an integer result; None for booleans and other types."""
    kind = re.split(r"->| to | : ", line)[-1]
    widths = WIDTH.findall(kind)
    return int(widths[-1]) if widths and int(widths[-1]) > 1 and "ptr" not in kind else None

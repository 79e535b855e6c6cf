"""Random changes of the content of a file, and of arguments."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, "", "x" * 5000, "a\nb\x1b[2J", "\x00", "../../etc/passwd", "{run}", "%s", "\ud800", "é" * 300),
    *(0, -1, 1, 99, 2**31, 2**63, 10**19, 10**400, -(10**30), 1_000_000, 0.5, 1e308, -1e-320, float("nan")),
    *(float("inf"), [], {}, [[]], {"": None}, [None] * 3, [1, 1], list(range(3000)), {"kind": "none"}),
    {str(number): number for number in range(300)},
)
WORDS = (
    *("", "-", "--", "-1", "0", "1e400", "nan", "x" * 5000, "a\nb\x1b[2J", "{run}", "..", "/dev/null", "/", "é", "%s"),
    *("--help=1", "--threads=100000", "--set", "--set=figures=[]", "--set=threads=1e-9", "--set=a=[[[["),
    *(
        "--set=a=.inf",
        "--out",
        "--config",
        "--device=tpu",
        "--processes=-1",
        "--every=nan",
        "9" * 24,
        "*",
        "a:b/c",
        "~",
    ),
)
TEXTS: tuple[bytes, ...] = (
    *(b"", b"null", b"[]", b"{}", b"1", b'"x"', b"\xff\xfe", b"\x00" * 100, b"[" * 100_000, b'{"a":' * 100_000),
    *(b"a: " * 20_000, b"- " * 20_000, b"{" * 20_000, b"9" * 6000, b'{"a": ' + b"9" * 6000 + b"}"),
    *(b"a: &a {b: *a}", b"&a [*a]", b"!!python/object:os.system {}", b"? [a]\n: b", b"a: !!binary x", b"a: 2001-99-99"),
    *(b'{"a": NaN}', b'{"a": 1, "a": 2}', b"\xef\xbb\xbf{}", b"a" * 3_000_000, b"<<: [1]", b"a: !!set {x}"),
    b"a: !!int x",
)


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(item, (*place, key))


def _with(value: Any, place: tuple[Any, ...], put: Callable[[Any], Any]) -> Any:
    if not place:
        return put(value)
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = _with(copy[place[0]], place[1:], put)
    return copy


def tree(value: Any, rng: random.Random) -> Any:
    """Replace, remove, double, nest or swap one to three values of plain data."""
    for _ in range(rng.randint(1, 3)):
        places = [*_places(value)]
        place = rng.choice(places)
        if isinstance(value, dict | list) and not place:
            place = rng.choice(places)
        way = rng.randrange(6)
        if way <= 2:
            value = _with(value, place, lambda _: rng.choice(HOSTILE))
        elif way == 3 and place:
            value = _with(value, place[:-1], lambda inside, key=place[-1]: _without(inside, key))
        elif way == 4:
            value = _with(value, place, lambda was: _more(was, rng))
        else:
            other = value
            for key in rng.choice(places):
                if not isinstance(other, dict | list) or (isinstance(other, dict) and key not in other):
                    break
                if isinstance(other, list) and not (isinstance(key, int) and key < len(other)):
                    break
                other = other[key]
            value = _with(value, place, lambda _, other=other: other)
    return value


def _without(inside: Any, key: Any) -> Any:
    if isinstance(inside, dict):
        return {name: item for name, item in inside.items() if name != key}
    return inside[:key] + inside[key + 1 :]


def _more(was: Any, rng: random.Random) -> Any:
    if isinstance(was, dict):
        return was | {rng.choice(("x", "name", "kind", "\x1b", "a" * 3000)): rng.choice(HOSTILE)}
    if isinstance(was, list):
        return was * rng.choice((2, 2, 50))
    if isinstance(was, bool) or was is None:
        return str(was)
    if isinstance(was, int | float) and abs(was) < 10**100:
        return rng.choice((-was, was + 1, was * 10**6, float(was), str(was), was * 0.5))
    if not isinstance(was, str):
        return [was]
    return rng.choice((f"{was}x", was[1:], was.upper(), [was], f"{was}\n"))


def flipped(content: bytes, rng: random.Random) -> bytes:
    """Flip one bit, often in the first 600 bytes."""
    found = bytearray(content)
    place = rng.randrange(len(found)) if rng.random() < 0.7 else rng.randrange(min(len(found), 600))
    found[place] ^= 1 << rng.randrange(8)
    return bytes(found)


def bytes_changed(content: bytes, rng: random.Random) -> bytes:
    """Flip a bit (most often), or cut, double or insert bytes."""
    way = rng.randrange(8)
    start = rng.randrange(len(content) + 1)
    end = min(len(content), start + rng.choice((1, 4, 100, len(content))))
    if way == 0:
        return content[:start]
    if way == 1:
        return content[:start] + content[end:]
    if way == 2:
        return content[:end] + content[start:]
    if way == 3:
        return content[:start] + rng.choice(TEXTS)[:100] + content[end:]
    if not content:
        return b"x"
    return flipped(content, rng)


def header_changed(content: bytes, rng: random.Random) -> bytes:
    """Change the header of a safetensors file: its length, names, shapes, offsets or metadata. It may be ill-formed."""
    length = int.from_bytes(content[:8], "little")
    if rng.random() < 0.2:
        return rng.choice((0, 1, 2**40, 2**63, length + 1, 10**15)).to_bytes(8, "little") + content[8:]
    if rng.random() < 0.1:
        text = rng.choice(TEXTS)
    else:
        text = dumped(tree(json.loads(content[8 : 8 + length]), rng)).encode("utf-8", "surrogatepass")
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def dumped(value: Any) -> str:
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(value, indent=2)
    finally:
        sys.set_int_max_str_digits(4300)


def changed(path: Path, content: bytes, rng: random.Random) -> bytes:
    """Change the content of a file, depending on its format."""
    if path.suffix == ".safetensors":
        return header_changed(content, rng) if rng.random() < 0.3 else bytes_changed(content, rng)
    if path.suffix in (".json", ".yaml"):
        way = rng.random()
        if way < 0.12:
            return rng.choice(TEXTS)
        if way < 0.3:
            return bytes_changed(content, rng)
        if path.suffix == ".json":
            return dumped(tree(json.loads(content), rng)).encode("utf-8", "surrogatepass")
        import yaml

        return yaml.safe_dump(tree(yaml.safe_load(content), rng), allow_unicode=True).encode("utf-8", "surrogatepass")
    return bytes_changed(content, rng)


def words_changed(words: list[str], rng: random.Random) -> list[str]:
    """Replace, remove, double or insert one argument."""
    words = list(words)
    place = rng.randrange(1, len(words) + 1)
    way = rng.randrange(4)
    if way == 0:
        words.insert(place, rng.choice(WORDS))
    elif way == 1 and place < len(words):
        words[place] = rng.choice(WORDS)
    elif way == 2 and place < len(words):
        del words[place]
    else:
        words = words[:place] + words[place - 1 :]
    return words

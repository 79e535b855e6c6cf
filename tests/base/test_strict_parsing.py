"""JSON and YAML from outside: bounded, unambiguous, one line."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import ConfigDict, Field, field_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass

from ssm.base import strict_parsing
from ssm.base.errors import ConfigError, UserError, nearest, printable, shortened, shown
from ssm.base.strict_parsing import parse_json, parse_yaml, read_json, read_yaml, shaped


def refusal(call: Any, *arguments: Any, **more: Any) -> str:
    with pytest.raises(ConfigError) as error:
        call(*arguments, **more)
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 1000
    return text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "Expecting value"),
        (b"\xff", "not UTF-8: byte 0xff at 0"),
        (b'{"a": 1, "a": 2}', "the key 'a' is given twice"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b"[-Infinity]", "-Infinity is not a number"),
        (b"1e999", "the number 1e999 is too large"),
        (b"9" * 6000, "is too large"),
        (b"[" * 49 + b"]" * 49, "nested more than 48 deep"),
        (b"[" * 10**6, "nested more than 48 deep"),
        (b'{"a":' * 10**5, "nested more than 48 deep"),
        (b'{"a": ["\\ud800"]}', "half of a surrogate pair"),
        (b'{"\\uDFFF": 1}', "half of a surrogate pair"),
    ],
)
def test_json_that_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    text = refusal(read_json, path, ConfigError, "thing")
    assert text.startswith(f"{path}: not a readable thing (")
    assert says in text


def test_a_whole_surrogate_pair_is_a_character(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b'["\\ud83d\\ude00", "\\\\ud800"]')
    assert read_json(tmp_path / "x.json", ConfigError, "thing") == ["\U0001f600", "\\ud800"]


def test_a_key_that_stands_twice_among_many_is_found_at_once(tmp_path: Path) -> None:
    keys = [f"k{number}" for number in range(30_000)]
    (tmp_path / "x.json").write_text("{" + ", ".join(f'"{key}": 0' for key in [*keys, keys[-1]]) + "}")
    begun = time.process_time()
    assert "the key 'k29999' is given twice" in refusal(read_json, tmp_path / "x.json", ConfigError, "x")
    assert time.process_time() - begun < 10


def test_json_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    value = {"a": [1, -2.5, None, True, "x", 1 - 2**63, 2**63 - 1], "b": {}, "deep": 7}
    for _ in range(46):
        value = {"in": value}
    path.write_text(json.dumps(value))
    assert read_json(path, ConfigError, "thing") == value
    path.write_text("[0.0, Infinity]")
    assert read_json(path, ConfigError, "thing", finite=False) == [0.0, float("inf")]


def test_files_that_are_missing_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(read_json, tmp_path / "a", ConfigError, "thing", "make it first") == "make it first"
    assert refusal(read_json, tmp_path, ConfigError, "thing") == f"{tmp_path}: not a readable thing (Is a directory)"
    monkeypatch.setattr(strict_parsing, "JSON_BYTES", 10)
    (tmp_path / "b").write_text("[1, 2, 3, 4, 5]")
    assert "it has more than 10 bytes" in refusal(read_json, tmp_path / "b", ConfigError, "thing")
    assert "it has more than" in refusal(read_json, "/dev/zero", ConfigError, "thing")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("&a [*a]", "nested more than 48 deep"),
        ("a: &a {b: *a}", "nested more than 48 deep"),
        ("a: " * 5000, "a text with ': ' needs quotes, or this line is indented too far"),
        ("[" * 500, "nested more than 48 deep"),
        ("- " * 500, "nested more than 48 deep"),
        ("1: a\n'1': b", "the key '1' is given twice"),
        ("a: .inf", "a: infinity is not a valid value"),
        ("a: [1, .nan]", "a.1: not a number is not a valid value"),
        ("a: " + "9" * 6000, "Exceeds the limit"),
        ("a: 0x" + "f" * 40, "a: the number is too large"),
        ("a: 2001-01-01", "a: expected text or a number, got a date"),
        ("a: !!set {x}", "a: expected text or a number, got a set"),
        ("true: 1", "the key True is not text"),
        ("a: !!int x", "invalid literal"),
        ('a: ["\\ud800"]', "half of a surrogate pair"),
        ('"\\udfff": 1', "half of a surrogate pair"),
    ],
)
def test_yaml_that_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    found = refusal(read_yaml, path, ConfigError)
    assert found.startswith(f"{path}:")
    assert says in found
    assert says in refusal(parse_yaml, text, "--set a", ConfigError)


def test_an_alias_of_what_it_is_a_part_of_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="nested more than 48 deep"):
        parse_yaml("&x [*x, *x]", "--set a", ConfigError)


def test_aliases_that_are_few_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: &a {k: [1, 1e-9]}\nb: *a\nc: {<<: *a, l: 2}\n")
    found = read_yaml(tmp_path / "a.yaml", ConfigError)
    assert found == {"a": {"k": [1, 1e-9]}, "b": {"k": [1, 1e-9]}, "c": {"k": [1, 1e-9], "l": 2}}


def test_numbers_without_a_point_are_numbers() -> None:
    found = parse_yaml("{a: [1e-9, x1e-9, '1'], b: {c: -4E3}}", "--set x", ConfigError)
    assert found == {"a": [1e-9, "x1e-9", "1"], "b": {"c": -4000.0}}


@pydantic_dataclass(config=ConfigDict(extra="forbid"))
class Circle:
    kind: Literal["circle"]
    radius: Annotated[float, Field(gt=0.5)]

    @field_validator("radius")
    @classmethod
    def _is_no_seven(cls, radius: float) -> float:
        if radius == 7:
            raise ValueError("A radius of seven\nis too many")
        return radius


@pydantic_dataclass(config=ConfigDict(extra="forbid"))
class Square:
    kind: Literal["square"]
    tiles: Annotated[int, Field(multiple_of=2)] = 2


@dataclass(frozen=True)
class Shape:
    number: int
    names: list[str]
    note: str | None = None
    parts: dict[str, Annotated[Circle | Square, Field(discriminator="kind")]] = field(default_factory=dict)
    mode: Literal["fast", "exact"] = "fast"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([1], "expected a mapping, got a list"),
        ({"number": "x", "names": []}, "number: expected a whole number, got 'x'"),
        ({"number": 1, "names": "x"}, "names: expected a list, got 'x'"),
        ({"number": 1, "names": [None]}, "names.0: expected text, got None"),
        ({"number": 1}, "names: this key is required and is missing"),
        ({"number": {}, "names": []}, "number: expected a whole number, got {}"),
        ({"number": "x", "names": "x"}, "number: expected a whole number, got 'x' (and 1 more problem)"),
        (
            {"number": 1, "names": [], "mode": "exakt"},
            "mode: unknown name 'exakt'; did you mean 'exact'?",
        ),
        (
            {"number": 1, "names": [], "parts": {"a": {"kind": "circel"}}},
            "parts.a: unknown name 'circel'; did you mean 'circle'?",
        ),
        (
            {"number": 1, "names": [], "parts": {"a": {"radius": 1}}},
            "parts.a: the key 'kind' is missing; it selects the kind of this entry",
        ),
        (
            {"number": 1, "names": [], "parts": {"a": {"kind": "circle", "radius": 0.5}}},
            "parts.a.radius: expected a number above 0.5, got 0.5",
        ),
        ({"number": 1, "names": [], "parts": {"a": {"kind": "square", "side": 1}}}, "parts.a.side: unknown key"),
        (
            {"number": 1, "names": [], "parts": {"a": {"kind": "square", "tiles": 3}}},
            "parts.a.tiles: expected a multiple of 2, got 3",
        ),
        (
            {"number": 1, "names": [], "parts": {"a": {"kind": "circle", "radius": 7}}},
            "parts.a.radius: a radius of seven is too many, got 7",
        ),
    ],
)
def test_shapes_in_plain_words(value: Any, says: str) -> None:
    assert refusal(shaped, value, Shape, "here", ConfigError) == f"here: {says}"


def test_json_inside_something_else_names_its_place() -> None:
    assert parse_json('{"a": [1, "b"]}', "a.safetensors", ConfigError) == {"a": [1, "b"]}
    found = refusal(parse_json, '{"a": 1, "a": 2}', "a.safetensors", ConfigError)
    assert found == "a.safetensors: not a JSON object (the key 'a' is given twice)"


def test_a_message_is_one_short_line_whatever_is_in_it() -> None:
    text = str(UserError(f"a.yaml: {'x' * 20_000_000} \x1b[2J\nnext {'word ' * 10_000}"))
    assert text.isprintable()
    assert len(text) <= 1500
    assert str(UserError("a\x1b[31mb\r\nc\u202ed")) == "a\\x1b[31mb\\r\\nc\\u202ed"
    assert [len(shown("x" * 10**7)), len(shown(["x" * 100]))] == [80, 80]
    assert shown(list(range(10**6))) == "a list of 1000000"
    assert shown(10**6000) == "a very large number"
    assert len(nearest("x" * 10**6, ["y" * 5000])) < 120
    assert printable("é ✓") == "é ✓"
    assert shortened("abc", 3) == "abc"

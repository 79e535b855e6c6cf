"""A few seconds of the fuzzer, and tests that it finds problems."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzz.changes import flipped
from fuzz.fuzz import case
from fuzz.world import Target, World, build

from ssm.base import checksum

CASES = 60
LIMIT = 60.0  # seconds; other tests may be running at the same time


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return build(tmp_path_factory.mktemp("fuzz"))


def test_damaged_and_hostile_inputs_are_refused_with_one_line(world: World) -> None:
    ends = {number: case(world, 1, number, LIMIT) for number in range(CASES)}
    wrong = {number: end for number, end in ends.items() if end[1] not in ("fine", "refused")}
    assert not wrong
    assert sum(ended == "refused" for _, ended, _ in ends.values()) > CASES / 2
    assert len({kind for kind, _, _ in ends.values()}) > 10


def test_without_checksums_the_fuzzer_finds_wrong_results(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "_digest", _stored)
    exact = World(world.folder, [target for target in world.targets if target.exact], world.expected)
    assert any(case(exact, 5, number, LIMIT)[1] == "silently wrong" for number in range(60))


def _stored(file: object, place: int) -> str:
    file.seek(place)  # type: ignore[attr-defined]
    return str(file.read(checksum.DIGITS).decode(errors="replace"))  # type: ignore[attr-defined]


def test_a_traceback_a_hang_and_many_lines_are_found(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target("config file", world.folder / "config" / "config.yaml", lambda out: ["plan"])
    alone = World(world.folder, [target])

    def ends(main: object, limit: float = LIMIT) -> str:
        monkeypatch.setattr("fuzz.world.main", main)
        return case(alone, 1, 1, limit)[1]

    def loops(words: list[str]) -> int:
        while True:
            pass

    def sleeps(words: list[str]) -> int:
        import time

        time.sleep(60)
        return 0

    def talks(words: list[str]) -> int:
        import sys

        print("one\ntwo", file=sys.stderr)
        return 2

    assert ends(lambda words: 1 // 0) == "traceback"
    assert ends(loops, 0.05) == "hang"
    assert ends(sleeps, 0.005) == "hang"
    assert ends(talks) == "not one line"
    assert ends(lambda words: (world.folder / "base.json").touch() or 0) == "changed an input"


def test_flipped_changes_one_bit() -> None:
    rng = random.Random(0)
    for _ in range(100):
        content = rng.randbytes(50)
        other = flipped(content, rng)
        assert sum((a ^ b).bit_count() for a, b in zip(content, other, strict=True)) == 1

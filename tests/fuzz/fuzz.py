"""Damaged and hostile inputs of every kind, thousands of them: no traceback, no hang, one line, nothing silently wrong.

    python tests/fuzz/fuzz.py --minutes 10 --seed 3

A case is a function of (seed, number): `--only NUMBER` repeats one. Each takes one good input, changes it, and calls
the command line in this process. It may end in two ways: refused with one line, or fine; and where what was changed are
the numbers of a table or weights, fine means that the result is the one of the good input. No input may be changed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import transformers.models.auto.modeling_auto  # noqa: F401 (takes seconds: no case is to wait for it)
from plan.mini import write_config
from report.folder import results_folder
from small import make_store, model_spec, run_spec

from ssm.base.files import write_json
from ssm.base.tables import VERDICTS, read_table
from ssm.cli.main import main
from ssm.models.backbone import build_model
from ssm.models.checkpoint import load_tensors
from ssm.models.formats import export_checkpoint
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements import LengthClass, PositionLoss
from ssm.training.loop import train

LIMIT = 10.0  # seconds, after which a case counts as a hang
MEMORY = 24 * 2**30  # bytes of address space: who asks for a petabyte is told so


class Hang(BaseException):
    """A case has taken too long. No Exception: nobody but this file has an answer to it."""


@dataclass(frozen=True)
class Target:
    """A good input, and the command that reads it."""

    kind: str
    file: Path
    words: Callable[[Path], list[str]]  # of the command line, by the folder for what is written
    result: Callable[[Path], object] | None = None  # what a fine end gives; None: anything
    exact: bool = False  # whatever is changed, a fine end gives the good input's result


@dataclass
class World:
    """Good inputs of every kind below one folder."""

    folder: Path
    targets: list[Target] = field(default_factory=list)
    expected: dict[Path, object] = field(default_factory=dict)

    def add(self, kind: str, file: Path, *more: Any, **options: Any) -> None:
        self.targets.append(Target(kind, file, *more, **options))


def build(folder: Path) -> World:
    """Make the inputs, and see that each is good."""
    world = World(folder)
    add = world.add
    config = write_config(folder / "config")

    def planned(out: Path) -> list[str]:
        return ["plan", "--config", str(config), "--write", str(out / "specs")]

    for path in sorted(config.rglob("*.yaml")):
        add("figure file" if path.parent != config else "config file", path, planned)

    store = make_store(folder, documents=12)
    base = run_spec(store.spec, budget={"steps": 4}, snapshots=[0.5])
    write_json(folder / "base.json", base.content())
    run = folder / "runs" / "base"
    train(base, store, run, torch.device("cpu"))
    short = folder / "short"
    shutil.copytree(run, short)
    (short / "run.json").unlink()
    curve = PositionLoss(length=64, sequences=4)
    write_json(folder / "task.json", MeasurementTask(measurement=curve, run=base).content())
    classes = LengthClass(of=curve, context=16)
    write_json(folder / "class.json", MeasurementTask(measurement=classes, run=base).content())
    write_json(folder / "data.json", store.spec.content())
    tokens = ["--tokens", str(store.folder), "--device", "cpu", "--threads", "1"]

    def tokenize(out: Path) -> list[str]:
        return ["tokenize", f"{folder}/data.json", "--out", f"{out}/tokens"]

    def training(out: Path) -> list[str]:
        return ["train", f"{folder}/base.json", "--out", f"{out}/run", *tokens]

    def resuming(out: Path) -> list[str]:
        shutil.copytree(short, out / "run")
        return training(out)

    def measuring(out: Path) -> list[str]:
        return ["evaluate", f"{folder}/task.json", "--run", str(run), "--out", f"{out}/t.parquet", *tokens]

    def classing(out: Path) -> list[str]:
        table = ["--table", f"{folder}/curve.parquet", "--out", f"{out}/t.parquet", "--run", str(run)]
        return ["evaluate", f"{folder}/class.json", *table, *tokens]

    def table(out: Path) -> object:
        return read_table(out / "t.parquet").rows()

    def weights(out: Path) -> object:
        tensors, _ = load_tensors(out / "run" / "model.safetensors")
        return {name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in tensors.items()}

    assert main(measuring(folder)) == 0
    (folder / "t.parquet").rename(folder / "curve.parquet")
    for name, command in (("base", training), ("task", measuring), ("class", classing), ("data", tokenize)):
        add("spec", folder / f"{name}.json", command)
    add("manifest", store.folder / "manifest.json", measuring, table)
    add("run.json", run / "run.json", measuring, table)
    add("weights", run / "model.safetensors", measuring, table, exact=True)
    add("checkpoint", short / "checkpoint.safetensors", resuming, weights, exact=True)
    add("checkpoint", short / "checkpoint.metrics.parquet", resuming, weights, exact=True)
    add("table", folder / "curve.parquet", classing, table, exact=True)
    add("tokens", store.folder / "train-00000.tokens", measuring, table, exact=True)

    results = folder / "results" / "smoke"
    task = results_folder(results)
    spec = results / "specs" / "figures" / "lg_fig5.json"

    def judging(out: Path) -> list[str]:
        return ["judge", str(spec), "--tables", f"{results}/tables", "--out", f"{out}/v.parquet"]

    def reporting(out: Path) -> list[str]:
        return ["report", str(results), "--out", f"{out}/pages"]

    def watching(out: Path) -> list[str]:
        return ["watch", str(results)]

    def verdicts(out: Path) -> object:
        return read_table(out / "v.parquet", VERDICTS).rows()

    first = results / "tables" / f"{task.series[0].tables['position_loss']}.parquet"
    record = sorted((results / "runs").glob("*/run.json"))[0]
    live = results / "runs" / "live"
    write_json(live / "progress.json", {
        "done": 3, "total": 10, "unit": "steps", "rate": 38.0, "rate_unit": "tokens", "unit_seconds": 0.5,
        "seconds_left": 35.0, "note": "loss 2.718", "state": "running",
    })  # fmt: skip
    add("spec", spec, judging)
    add("table", first, judging, verdicts, exact=True)
    add("table", results / "verdicts" / "lg_fig5.parquet", lambda out: ["verdicts", str(results)])
    add("run.json", record, watching)
    add("run.json", record, reporting)
    add("manifest", sorted((results / "tokens").glob("*/manifest.json"))[0], reporting)
    add("progress.json", live / "progress.json", watching)

    theirs = folder / "theirs"
    export_checkpoint(build_model(model_spec(), 256, seed=1), "mamba2", theirs / "mamba2")
    export_checkpoint(build_model(model_spec(), 256, seed=1), "mamba_ssm", theirs / "mamba_ssm")
    tokenizer(theirs / "mamba2" / "tokenizer.json")
    (folder / "void.txt").write_text("")  # the model is opened, and then there is no text

    def opening(name: str, *more: str) -> Callable[[Path], list[str]]:
        given = ["--text", f"{folder}/void.txt", "--context", "16", "--device", "cpu", "--threads", "1", *more]
        return lambda out: ["diagnose", str(theirs / name), "-o", f"{out}/page", *given]

    for name in ("mamba2", "mamba_ssm"):
        for path in sorted((theirs / name).iterdir()):
            if path.suffix in (".json", ".safetensors", ".bin"):
                add(f"their {path.name}", path, opening(name))

    for target in {target.words: target for target in world.targets}.values():
        add("arguments", target.file, target.words)
    for target in world.targets:
        with tempfile.TemporaryDirectory() as name:
            code, said = call(target.words(Path(name)), LIMIT * 6)
            opens = target.kind.startswith("their") or target.words(Path(name) / "x")[0] == "diagnose"
            assert code == 0 or opens, (target, said)
            if target.result is not None:
                world.expected[target.file] = target.result(Path(name))
    return world


def tokenizer(path: Path) -> None:
    """A tokenizer.json of a few words."""
    import tokenizers

    words = {chr(97 + number): number for number in range(26)} | {"?": 26}
    tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="?")).save(str(path))


# --- Changes ----------------------------------------------------------------------------------------------------------

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
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
TEXTS: tuple[bytes, ...] = (
    *(b"", b"null", b"[]", b"{}", b"1", b'"x"', b"\xff\xfe", b"\x00" * 100, b"[" * 100_000, b'{"a":' * 100_000),
    *(b"a: " * 20_000, b"- " * 20_000, b"{" * 20_000, BOMB.encode(), b"9" * 6000, b'{"a": ' + b"9" * 6000 + b"}"),
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
    """One to three values of plain data replaced, removed, doubled, nested or swapped."""
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
    found = bytearray(content)
    place = rng.randrange(len(found)) if rng.random() < 0.7 else rng.randrange(min(len(found), 600))
    found[place] ^= 1 << rng.randrange(8)
    return bytes(found)


def bytes_changed(content: bytes, rng: random.Random) -> bytes:
    """A flipped bit, most often; or cut, doubled, filled."""
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
    """Another header of a safetensors file, well formed or not: its length, names, shapes, places, metadata."""
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
    """Another content of a file, by what it is."""
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
    """Other arguments: one replaced, removed, doubled or put in."""
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


# --- One case ---------------------------------------------------------------------------------------------------------


def call(words: list[str], limit: float) -> tuple[int, str]:
    """The exit code of the command line and what it said on stderr."""

    def late(*_: object) -> None:
        raise Hang

    said = io.StringIO()
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = main(words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return code, said.getvalue()


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Of every file below: its size and when it was written."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def case(world: World, seed: int, number: int, limit: float = LIMIT) -> tuple[str, str, str]:
    """One change and its end: (kind, "fine", "refused" or what is wrong, details)."""
    rng = random.Random(f"{seed}/{number}")
    kinds = sorted({target.kind for target in world.targets})
    kind = rng.choice(kinds)
    target = rng.choice([target for target in world.targets if target.kind == kind])
    good = target.file.read_bytes()
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        words = target.words(out)
        if kind == "arguments":
            bad, words = good, words_changed(words, rng)
        else:
            bad = changed(target.file, good, rng)
        about = f"{target.file.name}: {' '.join(words)[:300]!r}"
        if bad != good:
            target.file.write_bytes(bad)
        if kind == "checkpoint":
            shutil.rmtree(out / "run")
            words = target.words(out)
        before = state(world.folder)
        try:
            with contextlib.chdir(out):
                code, said = call(words, limit)
            problem = judged(target, world, out, code, said, bad == good or kind == "arguments")
        except Hang:
            code, problem, said = 1, "hang", ""
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            code, problem, said = 1, "traceback", "".join(traceback.format_exception(error)[-3:])
        finally:
            same = state(world.folder) == before
            if bad != good:
                target.file.write_bytes(good)
        if not same:
            problem = "changed an input"
    return kind, problem or ("fine" if code == 0 else "refused"), f"{about}\n{said}" if problem else said


def judged(target: Target, world: World, out: Path, code: int, said: str, untouched: bool) -> str:
    """What is wrong with an end; nothing: ''."""
    lines = said.strip("\n").split("\n")
    if code != 0 and len([line for line in lines if line.strip()]) != 1:
        return "not one line"
    if code != 0 and len(lines[0]) > 2000:
        return "a long line"
    if not said.replace("\n", "").isprintable():
        return "raw control characters"
    if code == 0 and target.exact and not untouched and target.result is not None:
        try:
            found = target.result(out)
        except Exception:
            return "no result"
        if found != world.expected[target.file]:
            return "silently wrong"
    return ""


def main_of_fuzz() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=10**9, help="at most")
    parser.add_argument("--only", type=int, help="this case alone")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    counts: Counter[tuple[str, str]] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as name:
        world = build(Path(name))
        end = time.monotonic() + 60 * given.minutes
        numbers = [given.only] if given.only is not None else range(given.cases)
        for number in numbers:
            if time.monotonic() > end:
                break
            begun = time.monotonic()
            kind, ended, details = case(world, given.seed, number)
            slowest = max(slowest, time.monotonic() - begun)
            counts[kind, ended] += 1
            if ended not in ("fine", "refused") or given.only is not None:
                print(f"case {number} (seed {given.seed}), {kind}: {ended}: {details}", flush=True)
    for kind in sorted({kind for kind, _ in counts}):
        print(f"{kind}: {', '.join(f'{n} {ended}' for (of, ended), n in sorted(counts.items()) if of == kind)}")
    wrong = sum(count for (_, ended), count in counts.items() if ended not in ("fine", "refused"))
    print(f"{sum(counts.values())} cases with seed {given.seed}, the slowest {slowest:.1f} s; {wrong} ended wrongly")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main_of_fuzz())

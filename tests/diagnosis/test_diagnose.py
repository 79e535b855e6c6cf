"""`ssm diagnose` as a user calls it: a small checkpoint of transformers and a few text files."""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from diagnosis.fabricated import diagnosis, everything, facts, fails_from, tables
from file_limit import file_limit
from html_page import Page, squeezed
from printed import commands
from safetensors.torch import load_file, save_file
from small import content, model_spec, text, write_checkpoint
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing

from ssm.base.errors import ConfigError, DataError, TableError
from ssm.base.files import name_lock
from ssm.base.tables import read_provenance
from ssm.claims import words as claim_words
from ssm.cli import diagnose as diagnose_verb
from ssm.cli import extend as extend_verb
from ssm.cli.diagnose import extend_words
from ssm.cli.main import main
from ssm.diagnosis import diagnose, load_diagnosis, write_diagnosis
from ssm.diagnosis.result import Diagnosis
from ssm.diagnosis.verdict import digits, sentence_of
from ssm.models.backbone import build_model
from ssm.specs.diagnosis import ENOUGH, WHY_TOLERANCE
from ssm.specs.diagnosis_defaults import TOLERANCE

pytestmark = pytest.mark.usefixtures("without_plots")
QUICK: dict[str, Any] = {"context": 16, "length": 64, "device": "cpu", "threads": 1, "passkey": False}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with theirs/ (a checkpoint) and texts/."""
    folder = tmp_path_factory.mktemp("world")
    write_checkpoint(build_model(model_spec(), 256, seed=1), "mamba2", folder / "theirs")
    (folder / "texts").mkdir()
    for number in range(8):
        (folder / "texts" / f"{number}.txt").write_text(text(number))
    return folder


@pytest.fixture(scope="module")
def made(world: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Diagnosis, Path]:
    """A diagnosis, and its folder."""
    out = tmp_path_factory.mktemp("made") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ssm.diagnosis.page.plots", lambda *_: [])
        return diagnose(world / "theirs", [str(world / "texts")], out, **QUICK), out


def words(world: Path, out: Path, model: Path | None = None) -> list[str]:
    """The words of the command."""
    given = ["--context", "16", "--length", "64", "--device", "cpu", "--threads", "1", "--no-passkey"]
    return ["diagnose", str(model or world / "theirs"), "--text", f"{world}/texts", "-o", str(out), *given]


def call(world: Path, out: Path, *options: str, model: Path | None = None) -> int:
    """The exit code of the command."""
    return main([*words(world, out, model), *options])


def test_page_record_and_tables(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # with its plots
    assert call(world, tmp_path / "out") == 0
    said = capsys.readouterr()
    record = json.loads((tmp_path / "out" / "diagnosis.json").read_text(), parse_constant=pytest.fail)
    lines = said.out.splitlines()
    assert record["verdict"]["paragraph"].startswith(" ".join(lines[: lines.index("")]))
    assert max(map(len, lines)) <= 80
    assert f"{tmp_path}/out/index.html" in said.out.replace("\\\n", "")
    assert "bits per byte" in said.out
    page = (tmp_path / "out" / "index.html").read_text()
    assert record["verdict"]["paragraph"] in page
    assert page.count('<img src="data:image/svg+xml;base64,') == 6
    inside = record["readings"]["in_context"]["value"]
    bits = record["readings"]["in_context_bits"]["value"]
    assert bits == pytest.approx(math.log2(inside), rel=1e-9), "a token is a byte"
    assert f"A byte of text costs {claim_words.number(bits)} bits inside the context" in record["verdict"]["paragraph"]
    assert lines[lines.index("") + 2].split()[:3] == ["16", digits(inside), "-"]
    assert lines[lines.index("") + 2].endswith(f" {digits(bits)}")
    heads = record["readings"]["drift"]["map"]
    assert [len(row) for row in heads["growth"]] == [record["readings"]["drift"]["heads"] // 2] * 2
    assert sorted(map(int, record["readings"]["effective_length"]["gains"])) == [1, 2, 4, 8, 16]
    assert record["facts"]["can_extend"]
    assert record["facts"]["parameters"] == build_model(model_spec(), 256, seed=1).parameters_count
    assert record["facts"]["tokenizer"] == "bytes"
    assert record["facts"]["document"] > record["facts"]["length"]
    assert "<dt>Tokenizer</dt>" in page
    names = {path.stem for path in (tmp_path / "out" / "tables").iterdir()}
    inside = {"state_statistics", "effective_remembrance", "memory_length", "decay_range"}
    inside |= {"context_loss", "spelled_bytes"}
    assert names == {"position_loss", "restart_loss", "length_class"} | inside
    origin = read_provenance(tmp_path / "out" / "tables" / "position_loss.parquet")
    assert origin["context"] == 16
    assert origin["packages"]["transformers"] == transformers.__version__
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"index.html", "diagnosis.json", "tables"}


def test_a_diagnosis_can_be_read_again(made: tuple[Diagnosis, Path]) -> None:
    found, folder = made
    again = load_diagnosis(folder)
    assert (again.facts, again.readings, again.verdict) == (found.facts, found.readings, found.verdict)
    assert list(again.readings.ratios) == [32, 64]
    assert again.tables.restart_loss["position_from"].min() == 8
    for name, table in found.tables.present().items():
        assert table.equals(again.tables.present()[name]), name


@pytest.mark.parametrize(
    ("gone", "more", "says"),
    [
        ("", "", "diagnosis.json: .*no such"),
        ("diagnosis.json", "", "diagnosis.json: .*no such"),
        ("tables", "", "length_class.parquet: no such table"),
        ("tables/restart_loss.parquet", "", "restart_loss.parquet: no such table"),
        ("index.html", "mine", "mine.parquet: is not a table of a diagnosis"),
        ("index.html", "metrics", "metrics.parquet: is not a table of a diagnosis"),  # a table of a run
    ],
)
def test_a_diagnosis_without_a_file_is_one_line(gone: str, more: str, says: str, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    write_diagnosis(diagnosis(tables(), can_extend=False), folder)
    assert load_diagnosis(folder).facts.title == "mamba2-130m"
    path = folder / gone
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if more:
        (folder / "tables" / f"{more}.parquet").touch()
    with pytest.raises(TableError, match=says) as caught:
        load_diagnosis(folder)
    assert str(folder) in str(caught.value)


def test_the_same_call_finds_the_same(world: Path, made: tuple[Diagnosis, Path], tmp_path: Path) -> None:
    """Except for the cost."""
    one, other = made[0], diagnose(world / "theirs", [str(world / "texts")], tmp_path / "out", **QUICK)
    assert (one.readings, one.verdict) == (other.readings, other.verdict)
    assert one.tables.position_loss.equals(other.tables.position_loss)


def test_bfloat16_reads_nearly_the_same(world: Path, made: tuple[Diagnosis, Path], tmp_path: Path) -> None:
    half = diagnose(world / "theirs", [str(world / "texts")], tmp_path / "out", precision="bfloat16", **QUICK)
    losses = [found.tables.position_loss for found in (made[0], half)]
    assert not losses[0].equals(losses[1])
    assert losses[0]["loss"].to_numpy() == pytest.approx(losses[1]["loss"].to_numpy(), abs=0.03)


def test_a_loss_that_is_no_number(world: Path, tmp_path: Path) -> None:
    """The weights are so large that a state overflows beyond the context."""
    spoiled = Path(shutil.copytree(world / "theirs", tmp_path / "spoiled"))
    weights = load_file(spoiled / "model.safetensors")
    weights["backbone.layers.0.mixer.in_proj.weight"] *= 3e19
    save_file(weights, spoiled / "model.safetensors", metadata={"format": "pt"})
    found = diagnose(spoiled, [str(world / "texts")], tmp_path / "out", **QUICK)
    assert found.verdict.outcome == "breaks"
    assert "not a number" in found.verdict.paragraph
    assert load_diagnosis(tmp_path / "out").verdict == found.verdict


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_model_without_any_number(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # with its plots
    spoiled = Path(shutil.copytree(world / "theirs", tmp_path / "spoiled"))
    weights = load_file(spoiled / "model.safetensors")
    weights["backbone.layers.0.mixer.in_proj.weight"] *= 3e30
    save_file(weights, spoiled / "model.safetensors", metadata={"format": "pt"})
    found = diagnose(spoiled, [str(world / "texts")], tmp_path / "out", **QUICK)
    assert found.verdict.paragraph.endswith("inside its context of 16 tokens. Check the weights."), "no head is counted"


REFUSED = {
    "--context 24": "context 24: expected a power of two from 4 on; the nearest are 16 and 32",
    "--length 20": "length 20: expected at least twice the context, 32",
    "--length 8192": "--length 8192 needs at least 32,772 (4 windows): give more text, or --length 2048",
    "--tolerance 0.9": "--tolerance: expected a number above 1, got 0.9",
    "--budget inf": "--budget: expected a finite number, got inf",
    "--text /nowhere": "/nowhere: no such file or folder",
    "--tokenizer nothing": "nothing: no such tokenizer.json or folder; give one, a name on the hub",
    "--sequences 3": "--sequences: expected a number from 4 on, got 3",
    f"--seed {10**25}": "--seed: expected a whole number above -2^63 and below 2^63, got '10000000000000000000000000'",
    f"--seed {-(2**63)}": "--seed: expected a whole number above -2^63 and below 2^63, got '-9223372036854775808'",
    "--seed 1.5": "--seed: expected a whole number above -2^63 and below 2^63, got '1.5'",
    "-o .": "'.': expected the name of a new folder",
    "-o=": "expected a name or a path, got '' (is a variable unset?)",
    "--text=": "expected a name or a path, got ''",
    "--tokenizer=": "expected a name or a path, got ''",
    "--text=caf\udce9.txt": "expected a name in UTF-8, got 'caf\\udce9.txt' (is the locale UTF-8?)",
}
NEED_THE_MODEL = ("--length 8192", "--tokenizer nothing")


@pytest.mark.parametrize(("options", "said"), REFUSED.items())
def test_bad_options(
    options: str,
    said: str,
    world: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if options not in NEED_THE_MODEL:
        monkeypatch.setattr("ssm.diagnosis.load_any_model", lambda *_: pytest.fail("the model was loaded"))
    assert call(world, tmp_path / "out", *options.split()) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("ssm diagnose: ")
    assert said in error
    assert not list(tmp_path.iterdir())


def test_missing_text_is_reported_before_the_model_is_loaded(tmp_path: Path) -> None:
    none = tmp_path / "none.txt"
    for given in (none, str(none), [none], [str(none)]):
        with pytest.raises(DataError, match=rf"^{none}: no such file or folder$"):
            diagnose(tmp_path / "none", given, tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "nope"}, r"--device nope: expected auto, cpu or cuda \("),
        ({"device": torch.device("cuda:1")}, r"--device cuda:1: expected auto, cpu or cuda \("),
        ({"threads": 0}, r"--threads 0: expected 1 to 1024; this machine has \d+$"),
        ({"device": "cpu:0", "length": 0}, "--length: expected a number above 0, got 0$"),
        ({"device": torch.device("cpu"), "context": 0}, "--context: expected a number above 0, got 0$"),
        ({"precision": ""}, "--precision: unknown name ''"),
    ],
)
def test_wrong_arguments_of_a_call_are_one_line(
    options: dict[str, Any], said: str, world: Path, tmp_path: Path
) -> None:
    """A valid device comes with another error, which is found later."""
    with pytest.raises(ConfigError, match=f"^{said}"):
        diagnose(world / "theirs", world / "texts", tmp_path / "out", **QUICK | options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("out", ["a:b/report", pytest.param("file:report", marks=pytest.mark.exhaustive)])
def test_a_colon_is_a_letter_of_a_name(out: str, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A colon in the paths of the output, the text and the model is not part of a URL."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(world / "texts", "t:ext")
    shutil.copytree(world / "theirs", "mo:del")
    given = ["--context", "16", "--length", "64", "--device", "cpu", "--threads", "1", "--no-passkey"]
    assert main(["diagnose", "mo:del", "--text", "t:ext", "-o", out, *given]) == 0
    assert load_diagnosis(out).facts.text == "t:ext"


def test_a_second_process_with_the_same_folder_is_refused_at_once(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ssm.diagnosis.load_any_model", lambda *_: pytest.fail("it has begun"))
    with name_lock(tmp_path / "out"):
        assert call(world, tmp_path / "out") == 2
    assert capsys.readouterr().err == f"ssm diagnose: {tmp_path}/out: another process is writing it\n"


def test_remains_of_a_killed_process_are_removed(world: Path, tmp_path: Path) -> None:
    (tmp_path / ".out.12-0123abcd.tmp" / "tokens").mkdir(parents=True)
    assert call(world, tmp_path / "out") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs a list of this process's open files")
def test_the_tokens_are_closed_before_they_are_removed(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network disk keeps open files, so their folder cannot be removed."""
    removed, in_use = shutil.rmtree, list[str]()

    def rmtree(folder: Path, *more: Any, **options: Any) -> None:
        files = [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
        files += Path("/proc/self/maps").read_text().splitlines()
        in_use.extend(file for file in files if str(folder) in file)
        removed(folder, *more, **options)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    assert call(world, tmp_path / "out") == 0
    assert not in_use


def test_a_text_under_another_key(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.dumps({"content": text(number)}) for number in range(8)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    given = ["--text", f"{tmp_path}/rows.jsonl"]
    assert call(world, tmp_path / "out", *given) == 2
    assert "no key 'text' (give its name as --text-key, or as text_key in data.yaml)" in capsys.readouterr().err
    assert call(world, tmp_path / "out", *given, "--text-key", "content") == 0
    assert load_diagnosis(tmp_path / "out").facts.sequences > 0


def test_replace_puts_a_new_folder_in_the_place_of_an_old_one(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After an error while drawing, and after a kill before the exchange, nothing is measured again."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "diagnosis.json").write_text("the old one")
    assert call(world, out, "--replace", "0123abcd") == 0
    made = load_diagnosis(out)
    with monkeypatch.context() as patch:
        patch.setattr("ssm.diagnosis.diagnose_loaded", lambda *_, **__: made)
        patch.setattr("ssm.diagnosis.page.plots", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError) as caught:
            call(world, out, "--replace", "ffffffff")
    said = f"the numbers of the diagnosis are in {tmp_path}/.out.ffffffff.part; only its page is missing"
    assert caught.value.__notes__ == [said]
    monkeypatch.setattr("ssm.diagnosis.diagnose", lambda **_: pytest.fail("it is there"))
    capsys.readouterr()
    assert call(world, out, "--replace", "ffffffff") == 0
    said = capsys.readouterr()
    assert " ".join(said.out.split()).startswith(sentence_of(made.readings, made.facts))
    assert said.err == ""
    assert {path.name for path in out.iterdir()} == {"index.html", "diagnosis.json", "tables"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert call(world, out, "--replace", "old") == 2
    assert "expected eight hex digits, got 'old'" in capsys.readouterr().err


def test_replace_keeps_a_folder_with_the_model_or_the_texts(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Path(shutil.copytree(world, tmp_path / "out"))
    (out / "diagnosis.json").write_text("{}")
    before = content(tmp_path)
    for verb, mark, read in (("diagnose", "diagnosis.json", "theirs"), ("extend", "result.json", "texts/*.txt")):
        (out / "diagnosis.json").rename(out / mark)
        model, text = (f"{out}/{read}" if read == own else str(world / own) for own in ("theirs", "texts/*.txt"))
        assert main([verb, model, "--text", text, "-o", str(out), "--context", "16", "--replace", "0123abcd"]) == 2
        said = f"ssm {verb}: {out}: contains {out}/{read}, which would be deleted; give another -o"
        assert capsys.readouterr().err == f"{said}\n"
        (out / mark).rename(out / "diagnosis.json")
    assert content(tmp_path) == before


def test_json_prints_only_the_record(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(world, tmp_path / "out", "--json") == 0
    said = capsys.readouterr()
    assert said.out == (tmp_path / "out/diagnosis.json").read_text()
    assert json.loads(said.out, parse_constant=pytest.fail)["facts"]["context"] == 16
    assert call(world, tmp_path / "out", "--json") == 2
    assert capsys.readouterr().out == ""


def test_page_and_terminal_show_the_same_next_command(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = diagnosis(everything(0, fails_from(3100)))
    monkeypatch.setattr("ssm.diagnosis.diagnose_loaded", lambda *_, **__: broken)
    options = ["--tokenizer", "bytes", "--budget", "30"]
    assert call(world, tmp_path / "out", *options) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = shlex.split(commands(lines)["To repair it, type"].replace("\\\n", ""))
    assert " ".join(options[:2]) in " ".join(shown)
    assert f"Next: {shlex.join(shown)}" in squeezed(Page((tmp_path / "out/index.html").read_text()).text)


def extend_command(options: str = "", text: tuple[str, ...] = ("book.txt",), **changes: Any) -> list[str]:
    parser = argparse.ArgumentParser()
    diagnose_verb.add_arguments(parser)
    typed = ["my model", "--text", *text, "-o", "report", *options.split()]
    return extend_words(parser.parse_args(typed), facts(**changes))


@pytest.mark.parametrize(
    ("known", "length"),
    [
        ({"windows": 4, "sequences": 4, "stopped_by": "text"}, 4096),
        ({"windows": 10, "sequences": 10, "stopped_by": "text"}, 16384),
        ({"windows": 10, "sequences": 10, "stopped_by": "decided"}, 16384),
        ({"windows": 10, "sequences": 8, "stopped_by": "sequences"}, 16384),
        ({"windows": 16, "sequences": 4, "stopped_by": "budget"}, 32768),
        ({"windows": 4, "sequences": 4, "stopped_by": "text", "length": 6144}, 4096),  # not below 2 T
    ],
)
def test_the_command_to_extend_asks_for_a_length_that_the_text_has(known: dict[str, Any], length: int) -> None:
    """`ssm extend` needs 16 windows."""
    words = extend_command(**known)
    assert words[words.index("--length") + 1] == str(length)


def test_the_command_to_extend_repeats_the_options() -> None:
    """`ssm extend` accepts the command."""
    plain = ["ssm", "extend", "my model", "--text", "book.txt", "--context", "2048", "--length", "32768"]
    assert extend_command() == [*plain, "-o", "extended"]
    given = "--tokenizer bytes --tolerance 1.2 --precision float32 --budget 30.0 --sequences 64 --seed 2 --device cpu"
    words = extend_command(f"{given} --threads 1 --text-key content --no-passkey --json")
    assert words[:9] == plain
    assert {*given.split(), "--threads", "--text-key", "content", "--no-passkey"} < {*words}
    assert "--json" not in words
    parser = argparse.ArgumentParser()
    extend_verb.add_arguments(parser)
    asked = vars(parser.parse_args(words[2:]))
    expected = {"model": "my model", "text": ["book.txt"], "context": 2048, "length": 32768, "tolerance": 1.2}
    expected |= {"budget": 30.0, "sequences": 64, "seed": 2, "threads": 1, "passkey": False, "out": Path("extended")}
    assert expected.items() <= asked.items()


def test_the_command_names_many_files_by_their_glob(tmp_path: Path) -> None:
    names = [str(tmp_path / f"{number:02}.txt") for number in range(20)]
    for name in names:
        Path(name).touch()
    assert extend_command(text=(*names,))[4] == f"{tmp_path}/*.txt"
    assert extend_command(text=(*names[:3],))[4:7] == names[:3]
    assert extend_command(text=(*names[1:],))[4:24] == [*names[1:], "--context"]
    odd = tmp_path / "[a]"
    odd.mkdir()
    for name in ("1.txt", "2.txt"):
        (odd / name).touch()
    assert extend_command(text=(f"{odd}/1.txt", f"{odd}/2.txt"))[4:6] == [f"{odd}/1.txt", f"{odd}/2.txt"]


def test_no_context_is_known(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ssm.diagnosis.load_any_model", lambda *_: pytest.fail("the model was loaded"))
    arguments = ["diagnose", f"{world}/theirs", "--text", f"{world}/texts", "-o", f"{tmp_path}/out", "--device", "cpu"]
    assert main(arguments) == 2
    assert "does not say what context it was trained on; give --context" in capsys.readouterr().err


def test_a_context_of_the_config_that_is_no_power_of_two(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Path(shutil.copytree(world / "theirs", tmp_path / "theirs"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 1000}))
    arguments = ["diagnose", str(model), "--text", f"{world}/texts", "-o", f"{tmp_path}/out", "--device", "cpu"]
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert "the context in its config.json is 1000, which is no power of two; give --context 512" in said


@pytest.mark.parametrize("verb", ["diagnose", "extend"])
def test_what_the_files_decide_is_said(
    verb: str, world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Path(shutil.copytree(world / "theirs", tmp_path / "theirs"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 16}))
    names = ["<unk>", "<bos>", *map(str, range(254))]
    tokenizer = Tokenizer(WordLevel({name: number for number, name in enumerate(names)}, "<unk>"))
    tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    tokenizer.save(str(model / "tokenizer.json"))
    (tmp_path / "short.txt").write_text("1")
    arguments = [verb, str(model), "--text", f"{tmp_path}/short.txt", "-o", f"{tmp_path}/out", "--device", "cpu"]
    assert main(arguments) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == [
        f"{verb} theirs: context 16 from its config.json; reading up to 256 tokens",
        f"{verb} theirs: its tokenizer begins texts with <bos>; windows here begin without it",
    ]
    (model / "tokenizer_config.json").write_text("{")  # only for this note
    assert main([*arguments, "--context", "16"]) == 2
    assert capsys.readouterr().err.splitlines() == said[2:]
    assert main([*arguments, "--context", "8"]) == 2
    note = f"{verb} theirs: context 8 from --context; its config.json says 16"
    assert capsys.readouterr().err.splitlines()[0] == note
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).unlink()
    assert main(arguments) == 2
    note = f"{verb} theirs: it has no tokenizer and 256 rows in its embedding: its tokens are bytes"
    assert capsys.readouterr().err.splitlines()[1] == note


def test_an_existing_folder_is_not_changed(world: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert call(world, tmp_path) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_weights_that_are_not_numbers(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoiled = Path(shutil.copytree(world / "theirs", tmp_path / "spoiled"))
    weights = load_file(spoiled / "model.safetensors")
    name = "backbone.layers.1.mixer.norm.weight"
    weights[name][0] = torch.nan
    save_file(weights, spoiled / "model.safetensors", metadata={"format": "pt"})
    assert call(world, tmp_path / "out", model=spoiled) == 2
    assert capsys.readouterr().err.strip() == f"ssm diagnose: {spoiled}: weights that are not finite: {name}"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("limit", "left"), [(5_000, set()), (20_000, {"diagnosis.json", "tables"})])
def test_a_full_disk(
    limit: int, left: set[str], world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit of the file size gives one line. It leaves all numbers, or no files."""
    with file_limit(limit):
        assert call(world, tmp_path / "out") == 2
    assert "cannot be written (File too large)" in capsys.readouterr().err.splitlines()[-1]
    assert {path.name for path in tmp_path.glob("out/*")} == {*left}
    assert [path.name for path in tmp_path.iterdir()] == ["out"] * bool(left)


def test_help_and_documentation_have_the_numbers_of_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    """Help and documentation repeat some numbers as text. Help imports no spec, because that is slow."""
    with pytest.raises(SystemExit):
        main(["diagnose", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"(default: {TOLERANCE})" in said
    assert f'The verdict "holds" needs {ENOUGH} windows or more.' in said
    page = " ".join((Path(__file__).parents[2] / "docs" / "your-checkpoint.md").read_text().split())
    assert f"The lower end of the ratio's 95% interval is above {TOLERANCE}, at one length or more." in page
    assert f"is at most {TOLERANCE} at every length, in {ENOUGH} windows of the text or more." in page
    assert f"chose {TOLERANCE - 1:.0%}, as in the claims about lg Figure 5" in page
    assert "Ten percent" in WHY_TOLERANCE


def test_a_folder_inside_the_texts(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The next command would read it as text."""
    out = world / "texts" / "deep" / "out"
    assert call(world, out) == 2
    said = f"ssm diagnose: {out}: is inside {world}/texts, which is read as text; give another -o\n"
    assert capsys.readouterr().err == said
    assert not out.parent.exists()

"""The commands that `ssm extend` prints at its end work."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from diagnosis.fabricated import diagnosis, fails_from, tables
from extension.world import CONTEXT, LENGTH
from printed import commands

from ssm.cli.extend import add_arguments, more_words
from ssm.cli.main import main
from ssm.extension.usage import LOADED, usages
from ssm.models.formats import FORMATS

# As published: mamba_ssm itself needs a GPU to be imported.
MAMBA_SSM = """
class MambaLMHeadModel:
    @classmethod
    def from_pretrained(cls, pretrained_model_name, device=None, dtype=None, **kwargs):
        return f"{pretrained_model_name} on {device}, {kwargs}"
"""


@pytest.fixture
def said(world: Path, whole: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Library -> command, as `ssm extend` prints them for a finished extension."""
    quick = f"--context {CONTEXT} --length {LENGTH} --sequences 64 --no-passkey --steps 40 --lr 3e-3 --control"
    more = "--in-context-tolerance 1.0 --device cpu --threads 1"
    given = [str(world / "theirs"), "--text", str(world / "texts"), *quick.split(), *more.split(), "-o", str(whole)]
    assert main(["extend", *given]) == 0
    assert main(["extend", *given, "--json"]) == 0
    record = capsys.readouterr().out
    assert record.endswith((whole / "result.json").read_text())
    text = record.removesuffix((whole / "result.json").read_text())
    assert max(map(len, text.splitlines())) <= 80
    assert str(whole / "model") in text.replace("\\\n", "")
    return commands(text.splitlines())


def run(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command with this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        shell=True,
        env=os.environ | {"PATH": path, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


def test_transformers_loads_the_written_model(said: dict[str, str]) -> None:
    assert list(said) == ["transformers", "lm-evaluation-harness"]
    done = run(said["transformers"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Mamba2ForCausalLM(")


def test_mamba_ssm_gets_the_folder(tmp_path: Path) -> None:
    module = tmp_path / "mamba_ssm" / "models" / "mixer_seq_simple.py"
    module.parent.mkdir(parents=True)
    module.write_text(MAMBA_SSM)
    done = run(usages("mamba_ssm", Path("it's") / "model", None)["mamba_ssm"], PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "it's/model on cuda, {}\n"), done.stderr


def test_more_text_than_the_limit_of_windows_allows() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(["theirs", "--text", "a.txt", "--sequences", "8", "-o", "out"])
    after = diagnosis(tables(0, fails_from(28000), sequences=8), stopped_by="sequences", windows=15, limit=8)
    what, words = more_words(args, after)
    given = "--text a.txt --held-out MORE.txt --sequences 64 -o out"
    assert (what, " ".join(words)) == ("on more text", f"ssm extend theirs {given}")


def test_many_files_are_one_glob_in_the_next_command(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    names = [str(tmp_path / f"{number}.txt") for number in range(3)]
    for name in names:
        Path(name).touch()
    _, words = more_words(parser.parse_args(["theirs", "--text", *names, "-o", "out"]), None)
    assert words[4:6] == [f"{tmp_path}/*.txt", "--held-out"]


def test_every_format_has_a_command() -> None:
    assert {form.library for form in FORMATS.values()} == LOADED.keys()
    assert FORMATS["fla_gla"].library == "fla"
    assert (FORMATS["mamba2"].library, FORMATS["mamba_ssm"].library) == ("transformers", "mamba_ssm")


def test_the_command_of_a_run_with_a_given_tokenizer() -> None:
    found = usages(None, Path("a b/model"), "EleutherAI/gpt-neox-20b")
    assert list(found) == ["lm-evaluation-harness"]
    words = shlex.split(found["lm-evaluation-harness"])
    assert words[words.index("--model_args") + 1] == "pretrained=a b/model,tokenizer=EleutherAI/gpt-neox-20b"


def test_the_harness_reads_a_name_with_a_comma_as_json() -> None:
    (command,) = usages(None, Path("ö,=1/model"), "own").values()
    words = shlex.split(command)
    assert json.loads(words[words.index("--model_args") + 1]) == {"pretrained": "ö,=1/model", "tokenizer": "own"}

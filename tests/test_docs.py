"""The pages for users: links and commands exist, examples work, and sentences are short."""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import words
import yaml

from ssm.cli.main import VERBS, main
from ssm.plan import load_config, make_plan
from ssm.plan.manual import FOLDER
from ssm.plan.read import choose_scale
from ssm.specs.base import SCALES
from ssm.specs.tasks import parse_data

ROOT = Path(__file__).parents[1]
MOST_BYTES = 8 * 1024  # of README.md
TOP = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
GENERATED = [*sorted((ROOT / FOLDER).glob("*.md")), ROOT / "docs" / "findings.md"]
WRITTEN = [*TOP, *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path not in GENERATED)]
PAGES = [*WRITTEN, *GENERATED, ROOT / "kernels" / "README.md", ROOT / "reports" / "README.md"]
OF_TASKS = [page for page in WRITTEN if page.is_relative_to(ROOT / "docs") and page.name != "README.md"]
CONFIGS = sorted((ROOT / "config").rglob("*.yaml"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
PROGRAMS = ("ssm ", "make ", "snakemake ")


def named(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def blocks(page: str, kind: str) -> list[str]:
    """The code blocks of a page in one language; "": shell commands and their output."""
    return [code for name, code in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")) if name == kind]


def commands(page: str) -> list[str]:
    """The commands of a page, without comments. A backslash at the end of a line joins it with the next one."""
    lines = [line for block in blocks(page, "") for line in block.replace("\\\n", " ").splitlines()]
    typed = [line.strip().removeprefix("$ ").split("  #")[0].strip() for line in lines]
    return [line for line in typed if line.startswith(PROGRAMS)]


def anchors(page: Path) -> set[str]:
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", words.BLOCK.sub("", text), re.M)
    return set(re.findall(r'<a id="([^"]+)"></a>', text)) | {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings
    }


def test_the_first_page_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= MOST_BYTES


@pytest.mark.parametrize("page", named(PAGES))
def test_links_have_a_target(page: str) -> None:
    text = words.BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not link.startswith(("http://", "https://")):
            file, _, anchor = link.partition("#")
            target = (ROOT / page).parent / file if file else ROOT / page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", named(WRITTEN))
def test_sentences_are_short(page: str) -> None:
    found = words.sentences((ROOT / page).read_text(encoding="utf-8"))
    assert [sentence for sentence in found if words.words(sentence) > words.LONGEST] == []


def test_long_sentences_are_counted() -> None:
    long = " ".join(["word"] * 26)
    assert [words.words(one) for one in words.sentences(f"# Title\n\nShort. W{long}.\n\n- `a b` c\n")] == [1, 1, 26, 2]


def test_lines_of_config_files_fit_the_width_of_code() -> None:
    lines = {path.name: path.read_text("utf-8").splitlines() for path in CONFIGS}
    assert len(lines) > 50
    long = [(name, line) for name, found in lines.items() for line in found if len(line) > 120]
    assert [one for one in long if not one[1].startswith("# |")] == []


@pytest.mark.parametrize("path", named(CONFIGS))
def test_every_anchor_of_a_config_file_is_used(path: str) -> None:
    events = list(yaml.parse((ROOT / path).read_text("utf-8")))
    used = {event.anchor for event in events if isinstance(event, yaml.AliasEvent)}
    assert {event.anchor for event in events if isinstance(event, yaml.NodeEvent) and event.anchor} <= used


def test_tables_and_examples_of_help_texts_are_no_sentences() -> None:
    text = "codes:\n  75  one two\n      three\n  76  x\n\nexamples:\n  ssm train a\n  ssm plan\n\nlast:\n  five six"
    assert [words.words(one) for one in words.sentences(text)] == [1, 1, 3, 1, 1, 1, 2]


def test_sentences_of_code_and_figure_files_are_counted(tmp_path: Path) -> None:
    code, figure = tmp_path / "code.py", tmp_path / "figure.yaml"
    code.write_text(
        'def f(x):\n    """One two.\n\n    Args:\n        x: three.\n    """\n'
        "    y = 1  # four\n    # five\n    # six\n"
        '    raise ValueError(f"{x}: seven eight nine ten")\n'
    )
    figure.write_text("# Eleven\n# twelve.\npaper: lg\nsays: A text that people read. Short.\n")
    assert [words.words(one) for one in words.sentences(words.markdown_of(code))] == [1, 2, 2, 1, 1, 5]
    assert [words.words(one) for one in words.sentences(words.markdown_of(figure))] == [5, 1, 2]


@pytest.mark.parametrize("page", [*named(OF_TASKS), "CONTRIBUTING.md"])
def test_a_page_about_a_task_begins_with_a_command(page: str) -> None:
    assert re.match(r"# [^\n]+\n\n```", (ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", named(OF_TASKS))
def test_a_page_about_a_task_ends_with_a_command(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text.endswith("\n```\n")
    assert text[:-4].rpartition("```\n")[2].startswith(PROGRAMS)


@pytest.mark.parametrize("page", named([*WRITTEN, ROOT / "kernels" / "README.md"]))
def test_commands_exist(page: str) -> None:
    """Commands of ssm with their options, targets of make, and figures for snakemake."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    figures = {path.stem for path in (ROOT / "config" / "figures").glob("*.yaml")}
    for line in commands(page):
        program, *rest = shlex.split(line)
        if program == "ssm":
            parser = argparse.ArgumentParser()
            verb, *arguments = rest
            assert verb in VERBS, line
            importlib.import_module(f"ssm.cli.{verb}").add_arguments(parser)
            known = {option for action in parser._actions for option in action.option_strings}
            assert {one.split("=")[0] for one in arguments if re.match("--?[a-z]", one)} <= known, line
        elif program == "make":
            assert {one for one in rest if "=" not in one} <= targets, line
        elif program == "snakemake":
            asked = set(re.findall(r"(?<![=\w])[a-z]+_[a-z]+\d+\w*", line)) - {"x_mine"}
            assert asked <= figures, line
            if "--report" in rest:  # without a target, Snakemake wants all headline figures
                assert asked, line


def with_small_figure(folder: Path) -> Path:
    """A copy of the config folder, with the small figure of the guide as x_mine."""
    (text,) = [block for block in blocks("docs/change-a-figure.md", "yaml") if block.startswith("paper: ")]
    shutil.copytree(ROOT / "config", folder / "config")
    (folder / "config" / "figures" / "x_mine.yaml").write_text(text)
    return folder / "config"


def test_the_small_example_figure_is_planned_and_registered_as_the_guide_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = with_small_figure(tmp_path)
    plan = make_plan(load_config(config, "smoke", ["x_mine"]))
    assert (len(plan.runs), len(plan.measurements), len(plan.figures["x_mine"].claims)) == (6, 12, 1)
    (command,) = re.findall("`ssm (register x_NAME.*?)`", (ROOT / "CONTRIBUTING.md").read_text())
    arguments = [*shlex.split(command.replace("x_NAME", "x_mine")), "--config", str(config)]
    assert main(arguments) == 0
    assert "x_mine (smoke), x_mine (gpu), x_mine (paper)" in capsys.readouterr().out


def test_a_figure_that_can_be_judged_at_one_scale_only_is_not_registered_at_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The claim reads 16 T: 512 tokens at scale smoke, 2,048 at scale gpu."""
    config = with_small_figure(tmp_path)
    file = config / "figures" / "x_mine.yaml"
    file.write_text(file.read_text().replace("times_context: 16, sequences", "length: 512, sequences"))
    assert main(["register", "x_mine", "--scale", "gpu", "--config", str(config)]) == 2
    assert capsys.readouterr().err.endswith("not at 2,048; planned at the scale 'gpu'\n")


def test_functions_that_the_guide_shows_have_types() -> None:
    """`make check` refuses a function without them."""
    parsed = [ast.parse(code) for code in blocks("CONTRIBUTING.md", "python")]
    functions = [node for one in parsed for node in ast.walk(one) if isinstance(node, ast.FunctionDef)]
    assert functions
    for function in functions:
        assert function.returns
        assert all(one.annotation for one in function.args.args if one.arg != "self"), function.name


def test_the_examples_of_data_sets_are_valid() -> None:
    entries = yaml.safe_load("".join(blocks("docs/your-data.md", "yaml")))
    assert set(entries) == {"mine", "keys"}
    for name, entry in entries.items():
        for scale in SCALES:
            assert parse_data(choose_scale(entry, scale, name) | {"name": name}, name).vocab_size >= 256


def test_the_example_of_a_scan_runs() -> None:
    (code,) = blocks("docs/scans.md", "python")
    names: dict[str, torch.Tensor] = {}
    exec(code, names)
    assert (names["y"].shape, names["state"].shape) == ((2, 64, 4, 32), (2, 4, 16, 32))


def test_the_example_of_a_model_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that reads in pieces has the logits of one that reads at once."""
    sizes = {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
    transformers.MambaForCausalLM(transformers.MambaConfig(**sizes)).save_pretrained(tmp_path / "my-mamba")
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("docs/your-checkpoint.md", "python")
    names: dict[str, Any] = {}
    exec(code, names)
    model, tokens, logits = names["model"], names["tokens"], names["logits"]
    assert logits.shape == (2, 64, 300)
    with torch.no_grad():
        whole = model.logits(model.hidden(tokens.repeat(1, 2))[0])
        torch.testing.assert_close(whole, torch.cat([logits, model.logits(names["x"])], 1))

"""The targets of a user's checkpoint: its diagnosis and its extension."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from plan.mini import edit
from workflow.stand_in import after, make, snakemake, verbs

ANSWERS = "a b/smoke/checkpoints/mine-1.3b"
BOTH = ["diagnose_mine-1.3b", "extend_mine-1.3b"]


def answers(place: Path, *targets: str) -> list[list[str]]:
    """Make these targets, and return the calls of `ssm`. The output names every page."""
    (place / "calls.txt").write_text("")
    result = snakemake(place, "--cores", "2", *targets)
    assert result.returncode == 0, result.stdout + result.stderr
    whats = ["diagnosis" if target.startswith("diagnose") else "extension" for target in targets]
    named = re.findall("^Report: (.*)$", result.stderr, re.MULTILINE)
    assert sorted(named) == [f"{ANSWERS}/{what}/index.html" for what in sorted(whats)]
    for what in whats:
        assert (place / ANSWERS / what / "index.html").is_file()
    return sorted(shlex.split(call) for call in (place / "calls.txt").read_text().splitlines())


def test_a_checkpoint_is_diagnosed_and_extended_once(own: Path) -> None:
    diagnosed, extended = answers(own, *BOTH)
    given = ["my model", "--text", "my text/*.txt", "--context", "64", "--budget", "10.0"]
    assert diagnosed[:8] == ["diagnose", *given]
    assert extended[:10] == ["extend", *given, "--policy", "state_passing"]
    assert "--steps" not in extended  # without the key, the command uses its own default
    for call in (diagnosed, extended):
        assert call[-4:] == ["--device", "auto", "--threads", "1"]
    assert answers(own, *BOTH) == []
    assert {path.name for path in (own / ANSWERS).iterdir()} == {"diagnosis", "extension"}
    (log,) = (own / "a b/smoke/logs/checkpoints/mine-1.3b").glob("extension.*.log")
    assert log.read_text() == "extend progress\n"

    # A key of the extension only.
    edit(own / "config", "models.yaml", "my model,", "my model, steps: 7,")
    (call,) = answers(own, *BOTH)
    assert (call[0], after("--steps", call)) == ("extend", "7")

    # A wrong path is not taken for files that a finished answer no longer needs: `ssm` runs, and names the path.
    edit(own / "config", "models.yaml", "my text/", "my txt/")
    assert [after("--text", call) for call in answers(own, *BOTH)] == ["my txt/*.txt"] * 2


@pytest.mark.exhaustive
def test_another_context_text_or_model_makes_new_answers(own: Path) -> None:
    assert not {"diagnose", "extend"} & {call[0] for call in make(own, "all")}
    assert verbs(answers(own, *BOTH)) == ["diagnose", "extend"]
    edit(own / "config", "models.yaml", "smoke: 64", "smoke: 128")
    assert verbs(answers(own, *BOTH)) == ["diagnose", "extend"]
    (own / "my text" / "b.txt").write_text("Another one.")
    assert verbs(answers(own, *BOTH)) == ["diagnose", "extend"]
    (own / "my model" / "model.safetensors").write_text("{ }")
    assert verbs(answers(own, *BOTH)) == ["diagnose", "extend"]
    (own / ANSWERS / "diagnosis").rename(own / "elsewhere")
    assert verbs(answers(own, *BOTH)) == ["diagnose"]
    # Only the file that marks the old answer is left.
    for file in (own / ANSWERS / "diagnosis").glob("[!.]*"):
        file.unlink()
    edit(own / "config", "models.yaml", "smoke: 128", "smoke: 256")
    assert verbs(answers(own, *BOTH)) == ["diagnose", "extend"]
    assert answers(own, *BOTH) == []

    # Finished answers stay if the model and the text are gone.
    (own / "my model").rename(own / "moved")
    done = snakemake(own, "--cores", "1", *BOTH)
    assert done.returncode == 0, done.stdout + done.stderr
    why = "(files of its text or checkpoint are missing, so changes are not noticed)"
    for what in ("diagnosis", "extension"):
        assert f"Report: {ANSWERS}/{what}/index.html {why}\n" in done.stderr
    assert (own / "calls.txt").read_text() == ""


@pytest.mark.exhaustive
def test_an_old_answer_stays_until_the_new_one_is_complete_and_an_extension_continues(own: Path) -> None:
    answers(own, *BOTH)
    (own / ANSWERS / "diagnosis" / "index.html").write_text("the old page")
    edit(own / "config", "models.yaml", "smoke: 64", "smoke: 128")
    (own / "kill").touch()
    for _ in range(2):
        assert snakemake(own, "--cores", "1", "--keep-going", *BOTH).returncode != 0
        assert (own / ANSWERS / "diagnosis" / "index.html").read_text() == "the old page"
        assert (own / ANSWERS / "extension" / "work").read_text() == "begun "
    (own / "kill").unlink()
    assert verbs(answers(own, *BOTH)) == ["diagnose", "extend"]
    assert (own / ANSWERS / "diagnosis" / "index.html").read_text() == "diagnose"
    assert (own / ANSWERS / "extension" / "work").read_text() == "begun begun begun ", "it continues in its folder"

    # An extension of another text is removed, not continued.
    (own / "kill").touch()
    edit(own / "config", "models.yaml", "smoke: 128", "smoke: 256")
    assert snakemake(own, "--cores", "1", BOTH[1]).returncode != 0
    (own / "my text" / "a.txt").write_text("Once upon another time.")
    (own / "kill").unlink()
    assert verbs(answers(own, BOTH[1])) == ["extend"]
    assert (own / ANSWERS / "extension" / "work").read_text() == "begun "
    assert not list((own / ANSWERS).glob("extension.????????"))

    # After a kill between the last file and the replacement of the folder, only the replacement is left to do.
    (own / "fail").touch()
    edit(own / "config", "models.yaml", "smoke: 256", "smoke: 512")
    assert snakemake(own, "--cores", "1", "--keep-going", *BOTH).returncode != 0
    (own / "fail").unlink()
    made = {path: path.stat().st_mtime_ns for path in (own / ANSWERS).rglob("*.json")}
    assert verbs(answers(own, *BOTH)) == ["diagnose", "extend"]
    assert {path.stat().st_mtime_ns for path in (own / ANSWERS).rglob("*.json")} < set(made.values())
    assert {path.name for path in (own / ANSWERS).iterdir()} == {"diagnosis", "extension"}

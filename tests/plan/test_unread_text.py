"""Held-out text stays unread, also if runs and measurements use several texts; and tokens have the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plan.mini import edit, figure

from ssm.base.errors import ConfigError
from ssm.data.build import split_of
from ssm.plan import Plan, load_config, make_plan
from ssm.specs.data import DataSpec
from ssm.specs.windows import LongestWindow, LongestWindows

TEXTS = """
text: {corpus: {kind: stdlib}}
narrow: {corpus: {kind: stdlib}, held_out: 0.05}
wide: {corpus: {kind: stdlib}, held_out: 0.25}
reseeded: {corpus: {kind: stdlib}, held_out_seed: 7}
aside: {corpus: {kind: stdlib}, choice: 0.1}
prose: {corpus: {kind: docstrings}, held_out: 0.25}
pairs: {corpus: {kind: stdlib}, tokenizer: {kind: bpe, vocab_size: 512}}
pairs_aside: {corpus: {kind: stdlib}, tokenizer: {kind: bpe, vocab_size: 512}, choice: 0.1}
facts: {task: facts, corpus: {kind: stdlib}, mix: [{length: 300}]}
facts_wide: {task: facts, corpus: {kind: stdlib}, held_out: 0.25, mix: [{length: 300}]}
"""
BASE = {"label": "Base", "training": "pretrain"}
SCALED = {"label": "Scaled", "from": "base", "repair": {"kind": "scale_a", "factors": [2], "times_context": 4}}


@pytest.fixture
def folder(folder: Path) -> Path:
    edit(folder, "data.yaml", "\ntext: {corpus: {kind: stdlib}}\n".lstrip(), TEXTS.lstrip())
    return folder


def planned(folder: Path, data: str, measured: str | None = None, **arms: Any) -> Plan:
    """A figure that measures a base on `data`, and other arms, on the text `measured` or on each arm's own text."""
    measurement = {"kind": "position_loss", "times_context": 4} | ({"text": measured} if measured else {})
    drawings = [{"kind": "position_curves"}]
    arms = {"base": BASE} | arms
    figure(folder, "x_mine", paper="x", data=data, arms=arms, measurements=[measurement], drawings=drawings)
    return make_plan(load_config(folder, figures=["x_mine"]))


def tuned(data: str) -> dict[str, Any]:
    return {"label": "Tuned", "from": "base", "training": "posttrain", "data": data}


@pytest.mark.parametrize("measured", ["text", "narrow", "aside", "prose"])
def test_text_that_training_left_out_can_be_measured(folder: Path, measured: str) -> None:
    planned(folder, "text", measured)


def test_the_longest_windows_of_each_text(folder: Path) -> None:
    plan = planned(folder, "aside", "prose", scaled=SCALED | {"repair": SCALED["repair"] | {"times_context": 8}})
    windows = {plan.data[name].name: longest for name, longest in plan.longest_windows().items()}
    context = 32
    assert windows == {
        "aside": LongestWindows(choice=LongestWindow(length=8 * context, reader="scale_a")),
        "prose": LongestWindows(held_out=LongestWindow(length=4 * context, reader="position_loss")),
    }
    assert set(plan.longest_windows(jobs=()).values()) == {LongestWindows()}


@pytest.mark.parametrize("measured", ["wide", "reseeded"])
def test_text_that_training_read_is_refused(folder: Path, measured: str) -> None:
    with pytest.raises(ConfigError, match=f"text: 'text' trains on documents that '{measured}' holds out; give both"):
        planned(folder, "text", measured)


def test_text_that_an_ancestor_read_is_refused(folder: Path) -> None:
    planned(folder, "wide", tuned=tuned("text"))
    with pytest.raises(ConfigError, match=r"arm 'tuned'.*'text' trains on documents that 'wide' holds out"):
        planned(folder, "text", tuned=tuned("wide"))


def test_a_task_whose_test_text_training_read_is_refused(folder: Path) -> None:
    curves = {"kind": "curves", "measurement": "accuracy", "x": "length", "column": "forced_share"}
    changes = {"paper": "x", "data": "text", "arms": {"base": BASE}, "drawings": [curves]}
    figure(folder, "x_mine", **changes, measurements=[{"kind": "accuracy", "task": "facts"}])
    make_plan(load_config(folder, figures=["x_mine"]))
    figure(folder, "x_mine", **changes, measurements=[{"kind": "accuracy", "task": "facts_wide"}])
    with pytest.raises(ConfigError, match="task: 'text' trains on documents that 'facts_wide' holds out; give both"):
        make_plan(load_config(folder, figures=["x_mine"]))


def test_a_repair_chooses_on_text_that_no_ancestor_read(folder: Path) -> None:
    planned(folder, "aside", scaled=SCALED)
    planned(folder, "aside", tuned=tuned("aside"), scaled=SCALED | {"from": "tuned"})
    with pytest.raises(ConfigError, match="'text' trains on documents that 'aside' sets aside for choices"):
        planned(folder, "text", "text", tuned=tuned("aside"), scaled=SCALED | {"from": "tuned"})


def test_the_vocabulary_of_bpe_depends_on_its_training_documents(folder: Path) -> None:
    planned(folder, "pairs", "pairs", tuned=tuned("pairs"))
    with pytest.raises(ConfigError, match="text: 'pairs_aside' has other tokens than 'pairs', which the run reads"):
        planned(folder, "pairs", "pairs_aside")
    with pytest.raises(ConfigError, match="the tokens of 'pairs_aside' differ from the parent's 'pairs'"):
        planned(folder, "pairs", tuned=tuned("pairs_aside"))


SHARES = st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.45])
TEXT = st.builds(
    lambda held_out, choice, seed: DataSpec.parse(
        {"name": "t", "corpus": {"kind": "stdlib"}, "held_out": held_out, "choice": choice, "held_out_seed": seed}, ""
    ),
    SHARES,
    SHARES,
    st.sampled_from([1, 2]),
)


def text(held_out: float, choice: float) -> DataSpec:
    content = {"name": "t", "corpus": {"kind": "stdlib"}, "held_out": held_out, "choice": choice, "held_out_seed": 1}
    return DataSpec.parse(content, "")


@settings(max_examples=60)
@example(read=text(0.1, 0.2), trained=text(0.3, 0.0), choice=True)  # .1 + .2 is above .3 in floating point
@given(read=TEXT, trained=TEXT, choice=st.booleans())
def test_kept_from_is_what_the_splits_are(read: DataSpec, trained: DataSpec, choice: bool) -> None:
    """Of 400 documents, a share of a twentieth is never empty by chance (with these seeds)."""
    kept = {"held_out", "choice"} if choice else {"held_out"}
    shared = [n for n in range(400) if split_of(read, n) in kept and split_of(trained, n) == "train"]
    nothing = read.held_out + read.choice * choice == 0
    assert read.kept_from(trained, choice=choice) == (not shared) or nothing

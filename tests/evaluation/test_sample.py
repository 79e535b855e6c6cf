"""A sample is an example of its task as text, and the sample of lg Figure 8 has the words of the paper."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from data.tasks.test_prompts import TOKENIZERS
from small import make_task

from ssm.base.seeds import derived_seed
from ssm.base.tables import read_provenance, read_table
from ssm.claims.statements import CONFIRMED, REFUTED
from ssm.claims.verdict import judge
from ssm.data.build import build_store
from ssm.data.store import TokenStore
from ssm.data.tasks import build_generator, passkey
from ssm.evaluation.measure import measure
from ssm.evaluation.sample import sample
from ssm.plan import Plan, load_config, make_plan
from ssm.specs.measurements.sample import Sample

CONFIG = Path(__file__).parents[2] / "config"
PAPER = {  # words of the prompt, and other words of the same length
    "INSTRUCTION": ("important", "vital"),
    "TEXT": ("blue", "grey"),
    "NEEDLE": ("Remember", "remember"),
    "QUESTION": ("What", "Which"),
}


@cache
def figure_8() -> Plan:
    return make_plan(load_config(CONFIG, "smoke", ["lg_fig8"]))


def judged(folder: Path) -> dict[str, str]:
    """Claim -> verdict of the figure."""
    plan = figure_8()
    ((name, task),), (data,) = plan.measurements.items(), plan.data.values()
    build_store(data, folder / "tokens", workers=1)
    measure(task, folder / f"{name}.parquet", torch.device("cpu"), tokens=folder / "tokens")
    assert read_provenance(folder / f"{name}.parquet")["seed"] == 12
    table = read_table(folder / f"{name}.parquet", Sample.table)
    assert table["tokens"].sum() == 963
    frame = judge(plan.figures["lg_fig8"], folder)
    return dict(zip(frame["claim"], frame["verdict"], strict=True))


def test_figure_8_has_the_words_of_the_paper(tmp_path: Path) -> None:
    assert judged(tmp_path) == {"pieces": CONFIRMED, "depth": CONFIRMED}


@pytest.mark.parametrize("where", PAPER)
def test_a_changed_word_is_refuted(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, (old, new) = getattr(passkey, where), PAPER[where]
    changed = known.replace(old, new) if isinstance(known, str) else tuple(part.replace(old, new) for part in known)
    assert changed != known
    monkeypatch.setattr(passkey, where, changed)
    assert judged(tmp_path)["pieces"] == REFUTED


def test_a_key_at_another_depth_is_refuted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passkey.PasskeyPrompts, "_before", lambda prompts, row: int(prompts.text[row]) // 3)
    assert judged(tmp_path) == {"pieces": CONFIRMED, "depth": REFUTED}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_sample_is_a_test_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_task(tmp_path / "tokens", task="passkey", mix=[{"length": 280}])
    monkeypatch.setattr(TokenStore, "tokenizer", lambda store: TOKENIZERS[name])
    spec = Sample(task=store.spec, length=500, depth=0.0)
    table, (again, other) = sample(spec, store), (spec.model_copy(update={"seed": seed}) for seed in (12, 5))
    pieces = ["instruction", "needle", "text behind", "question", "key"]
    assert table["piece"].to_list() == pieces  # no text before the needle
    assert table["place"].to_list() == [0, 1, 2, 3, 4]
    generator = build_generator(spec.example(), "test", derived_seed(12, "sample"), store)
    tokens = np.concatenate([part for _, part in generator.pieces(0)])
    assert "".join(table["text"]) == TOKENIZERS[name].decode(tokens)
    texts = dict(zip(pieces, table["text"], strict=True))
    assert texts["needle"].strip() == passkey.NEEDLE.format(key=texts["key"].strip(" ."))
    assert sample(again, store).equals(table)
    assert sample(other, store)["text"][4] != texts["key"]


def test_other_tasks_have_a_prompt_and_an_answer(tmp_path: Path) -> None:
    store = make_task(tmp_path / "tokens", task="facts", mix=[{"length": 400, "questions": ["qa1"], "facts": [2, 3]}])
    table = sample(Sample(task=store.spec, length=300), store)
    assert table["piece"].to_list() == ["prompt", "answer"]
    assert table["text"][0].endswith("?")
    assert table["text"][1].endswith(".")

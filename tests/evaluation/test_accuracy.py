"""Accuracy on tasks, compared with models of known answers, and with decoding token by token."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import transformers
from data.tasks.examples import TASKS, task_store
from evaluation.rigged import Carries, Rigged
from models.formats.round_trip import moved
from models.test_foreign import made
from polars.testing import assert_frame_equal
from small import import_checkpoint, make_task, model_spec, run_spec
from torch import Tensor

from ssm.base.errors import CheckpointError
from ssm.base.seeds import derived_seed
from ssm.data.batches import IGNORE_INDEX
from ssm.data.store import TokenStore
from ssm.data.tasks import build_generator
from ssm.evaluation import stream
from ssm.evaluation.accuracy import accuracy
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.models.backbone import LanguageModel, build_model
from ssm.models.foreign import ForeignModel
from ssm.specs.measurements.accuracy import Accuracy
from ssm.specs.tasks import parse_data
from ssm.training.distributed import ProcessGroup

CPU = torch.device("cpu")
MIX = [{"shortest": 4, "longest": 7}]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return make_task(tmp_path_factory.mktemp("copies") / "tokens", task="copy", alphabet=5, mix=MIX)


def subject_of(store: TokenStore, model: Any) -> EvaluationContext:
    return EvaluationContext(model, 3, store, CPU, "test")


def copier(upto: int = 10**9, doubts: bool = False) -> Rigged:
    """Copies the first `upto` letters of a string. With `doubts`, each error leads to another."""
    bar = 6

    def rule(read: Tensor) -> Tensor:
        predicted = torch.zeros_like(read)
        for row, tokens in enumerate(read.tolist()):
            if bar not in tokens:
                continue
            at = tokens.index(bar)
            string = tokens[1:at]
            for place in range(at, len(tokens)):
                number = place - at  # of the next letter
                before = tokens[at + 1 : place + 1]
                if number >= len(string):
                    predicted[row, place] = 7
                elif number >= upto or (doubts and before and before[-1] != string[number - 1]):
                    predicted[row, place] = (string[number] + 1) % 5
                else:
                    predicted[row, place] = string[number]
        return predicted

    return Rigged(rule, 9)


def test_a_model_that_copies_is_right(copies: TokenStore) -> None:
    spec = Accuracy(task=copies.spec, lengths=(1, 5, 12), examples=20)
    table = accuracy(spec, subject_of(copies, copier()))
    assert dict(table.schema) == {
        name: kind for name, kind in Accuracy.table.columns.items() if name not in Accuracy.table.optional
    }
    assert table["length"].to_list() == [1] * 20 + [5] * 20 + [12] * 20
    assert table["tokens"].to_list() == table["length"].to_list(), "the full stop is not scored"
    assert table["example"].to_list() == [*range(20)] * 3
    assert table["answer"].sum() == 0
    assert table["difficulty"].null_count() == 60
    assert set(table["group"]) == {"copy"}
    for column in ("forced_share", "generated_share"):
        assert (table[column] == 1).all()
    assert table["forced_all"].all()
    assert table["generated_all"].all()


def test_without_lengths_the_test_set_has_the_mix_of_the_task(copies: TokenStore) -> None:
    table = accuracy(Accuracy(task=copies.spec, examples=200), subject_of(copies, copier()))
    assert set(table["length"]) == {4, 5, 6, 7}


def test_shares_are_fractions_of_the_answer(copies: TokenStore) -> None:
    spec = Accuracy(task=copies.spec, lengths=(2, 8), examples=10)
    table = accuracy(spec, subject_of(copies, copier(upto=2)))
    for length, share in ((2, 1.0), (8, 0.25)):
        part = table.filter(length=length)
        assert (part["forced_share"] == share).all()
        assert (part["generated_share"] == share).all()
        assert (part["forced_all"] == (share == 1)).all()
        assert (part["generated_all"] == (share == 1)).all()


def test_an_error_that_leads_to_others_counts_more_in_greedy_decoding(copies: TokenStore) -> None:
    """The second letter is wrong. Under teacher forcing this is the only error; in decoding, all others follow."""

    class OnceWrong(Rigged):
        def __init__(self) -> None:
            right = copier(doubts=True).rule

            def rule(read: Tensor) -> Tensor:
                predicted = right(read)
                for row, tokens in enumerate(read.tolist()):
                    if 6 in tokens and tokens.index(6) + 1 < len(tokens):
                        place = tokens.index(6) + 1
                        predicted[row, place] = (tokens[2] + 1) % 5
                return predicted

            super().__init__(rule, 9)

    table = accuracy(Accuracy(task=copies.spec, lengths=(6,), examples=12), subject_of(copies, OnceWrong()))
    assert np.allclose(table["forced_share"], 5 / 6)
    assert np.allclose(table["generated_share"], 1 / 6)


def log_likelihood(model: LanguageModel, state: Any, logits: Tensor, answer: np.ndarray) -> float:
    """The log-likelihood of an answer after a prompt, token by token."""
    total = 0.0
    for token in answer[answer != IGNORE_INDEX].tolist():
        total += float(logits[0].double().log_softmax(-1)[token])
        logits, state = model.step(torch.tensor([token]), state)
    return total


def token_by_token(spec: Accuracy, store: TokenStore, model: LanguageModel) -> pl.DataFrame:
    """The same table, example by example and token by token, by `model.step`."""
    rows = []
    seed = derived_seed(spec.seed, "accuracy", 3)
    for task in spec.sets():
        generator = build_generator(task, "test", seed, store)
        for example in range(spec.examples):
            made = generator.make(np.array([example]))
            following, answers = made.following[0], made.answers
            read = torch.from_numpy(made.inputs[0])  # (N,) tokens, or (N, C + 1) values
            read = read if read.is_floating_point() else read.long()
            for number, (start, stop) in enumerate(zip(answers.start, answers.stop, strict=True)):
                state, forced, generated = None, [], []
                for place in range(stop):
                    logits, state = model.step(read[place : place + 1], state)
                    if place == start:
                        branch = state, logits
                    if place >= start:
                        forced.append(int(logits.argmax()) == following[place])
                state, logits = branch
                for place in range(start, stop):
                    predicted = logits.argmax(-1)
                    generated.append(int(predicted) == following[place])
                    if place + 1 < stop:
                        logits, state = model.step(predicted, state)
                shares = [np.mean(forced), all(forced), np.mean(generated), all(generated)]
                group, difficulty = task.groups[answers.group[number]], answers.difficulty[number]
                about = [answers.length[number], group, example, number, None if np.isnan(difficulty) else difficulty]
                if answers.alternatives is not None:
                    wrong = [log_likelihood(model, *branch, answer) for answer in answers.alternatives[number]]
                    margin = log_likelihood(model, *branch, following[start:stop]) - max(wrong)
                    shares += [margin, margin > 0]
                rows.append([*about, stop - start, *shares])
    columns = dict(list(Accuracy.table.columns.items())[: len(rows[0])])
    return pl.DataFrame(rows, schema=columns, orient="row")


@pytest.mark.parametrize("name", TASKS)
@torch.no_grad()
def test_the_table_is_that_of_reading_and_decoding_token_by_token(name: str, tmp_path: Path) -> None:
    store = task_store(name, tmp_path)
    lengths = {"copy": (3, 11), "copy, packed": (2, 6), "passkey": (260,), "recall": (36, 60), "facts": (300,)}
    lengths |= {"facts, hidden": (400,), "pixels": (64,), "needle": (240,), "ruler": (470,)}
    lengths |= {
        name.replace("copy", other): lengths[name]
        for name in ("copy", "copy, packed")
        for other in ("stack_copy", "sort")
    }
    task = store.spec
    if name == "facts":
        mix = [{"length": 300, "questions": ["qa1", "qa6", "qa8"], "facts": [2, 5]}]
        task = task.model_validate(task.model_dump() | {"mix": mix})  # type: ignore[attr-defined]
    if name == "ruler":
        task = task.model_validate(task.model_dump() | {"mix": task.mix[:1]})  # type: ignore[attr-defined]
    spec = Accuracy(task=task, lengths=lengths.get(name), examples=5 if "copy" in name else 2)
    model = build_model(model_spec(), store.vocab_size, 5, task.channels).eval()
    model = model.double() if task.channels is None else model  # values are in float32
    table = accuracy(spec, subject_of(store, model))
    assert_frame_equal(table, token_by_token(spec, store, model), rel_tol=1e-9)
    assert (table["forced_share"] != table["generated_share"]).any() or name not in ("copy", "copy, packed")


@torch.no_grad()
def test_a_model_of_transformers_has_the_same_table_as_its_import(tmp_path: Path) -> None:
    """Three passes continue from its cache after a prompt: the example, greedy decoding, and the alternatives."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.MistralConfig(vocab_size=256, intermediate_size=40, sliding_window=50, **sizes)
    peer = moved(transformers.MistralForCausalLM(config))
    peer.save_pretrained(tmp_path / "model")
    store = task_store("needle", tmp_path)
    spec = Accuracy(task=store.spec, lengths=(240,), examples=6)
    ours, theirs = import_checkpoint(tmp_path / "model").model.eval(), ForeignModel(peer, "test")
    tables = [accuracy(spec, subject_of(store, model)) for model in (ours, theirs)]
    assert tables[0]["margin"].abs().min() > 0.01
    assert_frame_equal(*tables, abs_tol=1e-3)


def test_a_model_that_cannot_write_has_no_accuracy(copies: TokenStore) -> None:
    model = ForeignModel(made("Bamba", time_step_limit=[0.0, 0.3]), "x")
    with pytest.raises(CheckpointError, match=r"^x: BambaForCausalLM cannot write text: "):
        accuracy(Accuracy(task=copies.spec, lengths=(5,), examples=2), subject_of(copies, model))


@pytest.mark.parametrize("alternatives", [1, 4])
def test_the_plan_counts_all_tokens_that_are_read(alternatives: int, tmp_path: Path) -> None:
    """In prompts, in greedy decoding, and in alternatives."""
    read = 0

    class Counting(Rigged):
        def hidden(self, tokens: Tensor, state: Carries | None = None) -> tuple[Tensor, Carries]:
            nonlocal read
            read += tokens.numel()
            return super().hidden(tokens, state)

    store = task_store("needle", tmp_path)
    task = parse_data(store.spec.content() | {"alternatives": alternatives}, "test")
    spec = Accuracy.parse({"task": task.content(), "lengths": (240,), "examples": 12}, "test")
    accuracy(spec, subject_of(store, Counting(torch.zeros_like)))
    run = run_spec(task, context=329, batch_tokens=329)
    assert sum(work.tokens for work in spec.work(run)) == pytest.approx(read, rel=0.05)


@pytest.mark.parametrize(("forward_tokens", "rows"), [(1, 1), (7, 3), (64, 2)])
def test_the_size_of_segments_does_not_change_results(
    forward_tokens: int, rows: int, copies: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = Accuracy(task=copies.spec, examples=9)  # prompts of several lengths in a batch
    model = build_model(model_spec(), 9, 5).double().eval()
    whole = accuracy(spec, subject_of(copies, model))
    monkeypatch.setitem(stream.FORWARD_TOKENS, "cpu", forward_tokens)
    monkeypatch.setitem(stream.ROWS, "cpu", rows)
    assert accuracy(spec, subject_of(copies, model)).equals(whole)


def test_processes_share_the_examples(copies: TokenStore) -> None:
    summed: list[Tensor] = []

    class Isolated(ProcessGroup):
        """One of two processes, which gets nothing from the other."""

        def total(self, values: Tensor) -> Tensor:
            summed.append(values)
            return values

    spec = Accuracy(task=copies.spec, lengths=(4, 6), examples=7)
    for rank in range(2):
        accuracy(spec, replace(subject_of(copies, copier()), group=Isolated(rank, 2)))
    forced, generated = summed[::2], summed[1::2]
    for parts in (forced, generated):
        for first, second in zip(parts[:2], parts[2:], strict=True):  # both lengths
            assert (first + second == 1).all()
            assert first.any()
            assert second.any()


def test_other_seeds_have_other_examples(copies: TokenStore) -> None:
    seen: dict[tuple[int, int], set[tuple[int, ...]]] = {}

    class Noting(Rigged):
        def __init__(self, key: tuple[int, int]):
            super().__init__(copier().rule, 9)
            self.key = key

        def hidden(self, tokens: Tensor, state: Carries | None = None) -> tuple[Tensor, Carries]:
            if state is None:
                seen.setdefault(self.key, set()).update(tuple(row) for row in tokens.tolist() if any(row))
            return super().hidden(tokens, state)

    for seed in (1, 2):
        for run in (3, 4):
            spec = Accuracy(task=copies.spec, lengths=(9,), examples=6, seed=seed)
            accuracy(spec, replace(subject_of(copies, Noting((seed, run))), seed=run))
    assert len(set.union(*seen.values())) == sum(len(examples) for examples in seen.values())

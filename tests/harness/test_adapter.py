"""Tasks of lm-evaluation-harness with local files, compared with forward passes of transformers over whole texts."""

from __future__ import annotations

import json
import math
import re
import shutil
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from harness import world
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
from torch import Tensor, nn

from ssm.base.errors import ConfigError
from ssm.evaluation.stream import FORWARD_TOKENS
from ssm.harness.__main__ import main
from ssm.harness.adapter import HarnessModel
from ssm.models.backbone import LanguageModel

TOLERANCE = 1e-5  # relative, of a log-likelihood


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders mamba2/ and tasks/. Do not change them."""
    folder = tmp_path_factory.mktemp("harness")
    world.mamba2(folder / "mamba2")
    world.tasks(folder / "tasks")
    return folder


@pytest.fixture(scope="module")
def peer(folder: Path) -> nn.Module:
    return transformers.Mamba2ForCausalLM.from_pretrained(folder / "mamba2").eval()


@pytest.fixture
def without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise AssertionError("a connection to the network")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)


def template(*, single: str) -> dict[str, Any]:
    """The part of tokenizer.json that adds tokens around a text."""
    names = {"<s>": 1, "</s>": 2}
    parts = [
        {"Sequence": {"id": "A", "type_id": 0}} if part == "A" else {"SpecialToken": {"id": part, "type_id": 0}}
        for part in single.split()
    ]
    known = {name: {"id": name, "ids": [number], "tokens": [name]} for name, number in names.items()}
    pair = [*parts, {"Sequence": {"id": "B", "type_id": 0}}]
    return {"post_processor": {"type": "TemplateProcessing", "single": parts, "pair": pair, "special_tokens": known}}


TEMPLATE = template(single="<s> A </s>")


def requests(*arguments: tuple[Any, ...]) -> list[Any]:
    return [SimpleNamespace(args=each) for each in arguments]


def add_tokenizer(folder: Path) -> Path:
    words = {"<unk>": 0, "<s>": 1, "</s>": 2, "one": 3, "two": 4} | {f"w{i}": i for i in range(5, 256)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.usefixtures("without_network")
def test_tasks_of_the_harness_agree_with_transformers(folder: Path, peer: nn.Module) -> None:
    """Some texts and contexts are longer than 2,048 tokens, and are not cut."""
    results: Any = simple_evaluate(
        model="ssm",
        model_args={"pretrained": str(folder / "mamba2")},
        tasks=["local_rolling", "local_choice", "local_generate"],
        batch_size=2,
        device="cpu",
        task_manager=TaskManager(include_path=str(folder / "tasks"), include_defaults=False),
        bootstrap_iters=0,
    )
    assert results["config"]["max_length"] > 2**60
    texts = [list(text.encode()) for text in world.TEXTS]
    values = [world.scored(peer, [world.NEWLINE], text)[0] for text in texts]
    samples = {name: [one["resps"][0] for one in found] for name, found in results["samples"].items()}
    assert [one[0] for one in samples["local_rolling"]] == pytest.approx(values, rel=TOLERANCE)
    bits = -sum(values) / math.log(2) / sum(map(len, texts))
    assert results["results"]["local_rolling"]["bits_per_byte,none"] == pytest.approx(bits, rel=TOLERANCE)

    right = 0
    for one, document in zip(results["samples"]["local_choice"], world.QUESTIONS, strict=True):
        wanted = [
            world.scored(peer, list(document["question"].encode()), list(choice.encode()))
            for choice in document["choices"]
        ]
        found = [response[0] for response in one["resps"]]
        assert [value for value, _ in found] == pytest.approx([value for value, _ in wanted], rel=TOLERANCE)
        assert [greedy for _, greedy in found] == [greedy for _, greedy in wanted]
        right += max(range(3), key=lambda i: wanted[i][0]) == document["answer"]
    assert results["results"]["local_choice"]["acc,none"] == pytest.approx(right / len(world.QUESTIONS))

    for one, prompt in zip(samples["local_generate"], world.PROMPTS, strict=True):
        assert one[0] == world.written(peer, list(prompt.encode()), world.MOST)


def test_batch_size_and_pieces_do_not_change_results(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [([1, 2, 3], [4, 5]), ([1] * 60, [7]), ([9], []), ([1, 2] * 40, [3] * 30)]
    prompts = requests(*((text, {"until": [], "max_gen_toks": 5}) for text in ("a", "abc", "once more")))

    def answers(size: int) -> tuple[list[float], list[bool], list[str]]:
        model = HarnessModel(str(folder / "mamba2"), batch_size=size)
        found = model._loglikelihood_tokens([(("", ""), *one) for one in asked], disable_tqdm=True)
        return [value for value, _ in found], [greedy for _, greedy in found], model.generate_until(prompts, True)

    values, greedy, texts = answers(1)
    assert (values[2], greedy[2]) == (0.0, True)
    seen: list[tuple[int, ...]] = []
    hidden = LanguageModel.hidden

    def recorded(self: LanguageModel, tokens: Tensor, *others: Any) -> Any:
        seen.append(tuple(tokens.shape))
        return hidden(self, tokens, *others)

    monkeypatch.setitem(FORWARD_TOKENS, "cpu", 21)
    monkeypatch.setattr(LanguageModel, "hidden", recorded)
    for size in (3, 4):
        again = answers(size)
        assert again[0] == pytest.approx(values, rel=TOLERANCE)
        assert again[1:] == (greedy, texts)
    assert max(rows * length for rows, length in seen) == 21
    assert {rows for rows, _ in seen} == {3, 4}


def test_a_model_with_a_fixed_number_of_positions_reads_windows_and_logs_cuts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = world.gpt2(tmp_path / "gpt2", positions=64)
    peer = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    model = HarnessModel(str(folder), batch_size=4, device="cpu")
    assert model.max_length == 64
    text = "".join(chr(33 + (7 * i) % 90) for i in range(100))
    tokens = list(text.encode())
    first = world.scored(peer, [world.NEWLINE], tokens[:64])[0]
    rest = world.scored(peer, tokens[35:64], tokens[64:])[0]
    assert model.loglikelihood_rolling(requests((text,)), True) == pytest.approx([first + rest], rel=TOLERANCE)
    assert "max_length" not in caplog.text
    found = model.loglikelihood(requests((text[:97], text[97:]), (text[:9], text[9:11])), disable_tqdm=True)
    assert [value for value, _ in found] == pytest.approx(
        [world.scored(peer, tokens[35:97], tokens[97:])[0], world.scored(peer, tokens[:9], tokens[9:11])[0]],
        rel=TOLERANCE,
    )
    assert "a text of 100 tokens is cut to its last 65 (max_length)" in caplog.text
    prompts = ("abc", "defg", "hij", text)
    asked = requests(*((prompt, {"until": [world.STOP], "max_gen_toks": world.MOST}) for prompt in prompts))
    assert model.generate_until(asked, True) == [
        world.written(peer, list(prompt.encode())[-(64 - world.MOST) :], world.MOST) for prompt in prompts
    ]


def test_max_length_cuts_texts_as_other_models_do(folder: Path) -> None:
    whole, cut = (HarnessModel(str(folder / "mamba2"), max_length=length) for length in (None, "8"))
    asked = requests((world.LONG[:200],))
    assert whole.loglikelihood_rolling(asked, True) != pytest.approx(cut.loglikelihood_rolling(asked, True), rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"pretrained": ""}, "--model_args pretrained=MODEL is missing"),
        ({"pretrianed": "x"}, "--model_args pretrianed: unknown; did you mean 'pretrained'?"),
        ({"dtype": "float8"}, "--model_args dtype=float8: expected auto, float32 or bfloat16"),
        ({"pretrained": "none", "batch_size": "many"}, "--model_args batch_size=many: expected a whole number, 1 or"),
        ({"pretrained": "none", "max_length": 1}, "--model_args max_length=1: expected a whole number, 2 or more"),
        ({"prefix_token_id": 256}, "--model_args prefix_token_id=256: the model has 256 tokens"),
        ({"pretrained": "none", "add_bos_token": "no"}, "--model_args add_bos_token=no: expected True or False"),
        ({"device": "mps"}, "--device mps: expected auto, cpu or cuda"),
    ],
)
def test_wrong_arguments_are_one_line(folder: Path, arguments: dict[str, Any], said: str) -> None:
    """Those that do not depend on the model are refused before it is loaded."""
    with pytest.raises(ConfigError, match=re.escape(said)):
        HarnessModel(**{"pretrained": str(folder / "mamba2"), "device": "cpu"} | arguments)


def test_the_default_device_of_the_harness_is_the_gpu_if_there_is_one(folder: Path) -> None:
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert HarnessModel(str(folder / "mamba2"), device="cuda:0").device.type == expected


@pytest.mark.parametrize("most", [0, -1])
def test_a_continuation_of_no_tokens_is_refused(folder: Path, most: int) -> None:
    """As for the harness's own models."""
    with pytest.raises(ConfigError, match=rf"max_gen_toks {most}: expected a whole number, 1 or more"):
        HarnessModel(str(folder / "mamba2")).generate_until(requests(("a", {"until": [], "max_gen_toks": most})), True)


def test_samples_are_refused(folder: Path) -> None:
    model = HarnessModel(str(folder / "mamba2"), batch_size="auto")
    assert model.batch_size > 1
    with pytest.raises(ConfigError, match="do_sample: ssm generates only greedily"):
        model.generate_until(requests(("a", {"until": [], "do_sample": True, "temperature": 0.7})), True)


@pytest.mark.parametrize(
    ("files", "prefix", "end", "encoded"),
    [
        ({"tokenizer_config.json": {"bos_token": "<s>", "eos_token": {"content": "</s>"}}}, 1, 2, [3, 4]),
        ({"tokenizer_config.json": {"bos_token": "<s>", "add_bos_token": True}}, 1, None, [1, 3, 4]),
        ({"tokenizer_config.json": {"eos_token": "</s>", "model_max_length": int(1e30)}}, 2, 2, [3, 4]),
        ({"config.json": {"eos_token_id": [2, 0]}}, 2, 2, [3, 4]),
        ({"tokenizer.json": TEMPLATE}, 1, None, [1, 3, 4]),
        ({"tokenizer.json": TEMPLATE, "tokenizer_config.json": {"eos_token": "</s>"}}, 1, 2, [1, 3, 4]),
        ({"tokenizer.json": TEMPLATE, "tokenizer_config.json": {"add_bos_token": False}}, 1, None, [3, 4]),
        ({}, None, None, [3, 4]),
    ],
)
def test_special_tokens_come_from_the_files_of_the_model(
    folder: Path, tmp_path: Path, files: dict[str, Any], prefix: int | None, end: int | None, encoded: list[int]
) -> None:
    own = tmp_path / "model"
    shutil.copytree(folder / "mamba2", own)
    add_tokenizer(own)
    for name, content in files.items():
        known = json.loads((own / name).read_text()) if (own / name).exists() else {}
        (own / name).write_text(json.dumps(known | content))
    model = HarnessModel(str(own))
    assert (model.prefix, model.eot_token_id, model.tok_encode("one two")) == (prefix, end, encoded)
    assert model.tok_encode("one two", add_special_tokens=False) == [3, 4]
    if prefix is None:
        with pytest.raises(ConfigError, match="name no token that begins a text; give one with --model_args prefix_"):
            model.loglikelihood_rolling(requests(("one two",)), True)
        assert HarnessModel(str(own), prefix_token_id="0").prefix_token_id == 0


def test_special_tokens_of_a_model_that_transformers_reads(tmp_path: Path) -> None:
    folder = add_tokenizer(world.gpt2(tmp_path / "gpt2"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 2}))
    model = HarnessModel(str(folder))
    assert (model.prefix_token_id, model.eot_token_id) == (2, 2)
    asked = requests(("one two", {"until": [], "max_gen_toks": 3}))
    (text,) = model.generate_until(asked, True)
    first = model.tok_encode(text)[0]
    assert first != 2
    # Each token that ends a text, as transformers has it: in generation_config.json, or else in config.json.
    for name, ends in (("generation_config.json", [2, first]), ("config.json", [2, first])):
        (folder / "generation_config.json").unlink(missing_ok=True)
        (folder / name).write_text(json.dumps((config if name == "config.json" else {}) | {"eos_token_id": ends}))
        model = HarnessModel(str(folder))
        assert (model.eot_token_id, model.generate_until(asked, True)) == (2, [""])


def test_special_tokens_end_a_text_and_are_not_in_it(folder: Path, tmp_path: Path) -> None:
    """As for the harness's own models: a stop string can be a special token, and other special tokens are left out."""
    add_tokenizer(tmp_path)
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    model = HarnessModel(str(folder / "mamba2"), tokenizer=str(tmp_path / "tokenizer.json"), prefix_token_id=0)

    def read(tokens: list[int], until: str) -> tuple[str, list[bool]]:
        stopped: list[bool] = []

        def fixed(_: Any, prompts: Any, most: int, ended: Any, device: Any) -> list[list[int]]:
            stopped.extend(ended(0, tokens[: n + 1]) for n in range(len(tokens)))
            return [tokens]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ssm.harness.adapter.continuations", fixed)
            return model.generate_until(requests(("one", {"until": [until], "max_gen_toks": 4})), True)[0], stopped

    assert read([3, 1, 4, 2], "</s>") == ("one two", [False, False, False, True])
    assert read([3, 1, 4, 5], "w7") == ("one two w5", [False, False, False, False])


def test_without_lm_eval_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval.__main__", None)
    assert main() == 2
    said = capsys.readouterr().err
    assert said.startswith("ssm.harness: lm_eval cannot be imported (")
    assert said.endswith("pip install '.[harness]' in the clone\n")


def test_a_users_error_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", lambda: HarnessModel("nowhere"))
    assert main() == 2
    said = capsys.readouterr().err
    assert said.startswith("ssm.harness: nowhere: ")
    assert said.count("\n") == 1

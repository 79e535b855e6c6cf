"""Tiny checkpoints of transformers, and tasks of the harness with local files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
import yaml
from models import tiny
from small import write_checkpoint
from torch import Tensor, nn

from ssm.models.backbone import build_model

NEWLINE = 10
LONG = "One day the state of the model was full of what it had read. " * 48  # 2,928 bytes
TEXTS = ("A short text.", LONG, "Another one,\nof two lines.")
QUESTIONS: tuple[dict[str, Any], ...] = (
    {"question": "The sky is", "choices": [" blue", " a long word", " red"], "answer": 0},
    {"question": LONG + "It was", "choices": [" full", " empty", "!"], "answer": 2},
    {"question": "Two and two are", "choices": [" four", " five", " six or so"], "answer": 1},
)
PROMPTS = ("Read on:", "And then", LONG[:2500], "Say:")
STOP, MOST = "e", 12
ASKED: dict[str, dict[str, Any]] = {
    "rolling": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "bits_per_byte"}],
    },
    "choice": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{answer}}",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
    },
    "generate": {
        "output_type": "generate_until",
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "{{wanted}}",
        "generation_kwargs": {"until": [STOP], "max_gen_toks": MOST},
        "metric_list": [{"metric": "exact_match"}],
    },
}


def mamba2(folder: Path) -> Path:
    """A Mamba-2 of transformers for bytes. Its output depends strongly on its state."""
    spec = tiny.spec(n_layers=2, d_state=8, head_dim=8, chunk=64)
    return write_checkpoint(tiny.eventful(build_model(spec, 256, 0)), "mamba2", folder)


def gpt2(folder: Path, positions: int = 64) -> Path:
    """A GPT-2 of transformers for bytes. ssm reads it through transformers, and it has a fixed number of positions."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 256, "n_positions": positions, "n_embd": 16, "n_layer": 2, "n_head": 2}
    config = transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape)
    model.save_pretrained(folder)
    return folder


def tasks(folder: Path) -> Path:
    """Write three tasks of the harness and their data."""
    folder.mkdir()
    data = {
        "rolling": [{"text": text} for text in TEXTS],
        "choice": QUESTIONS,
        "generate": [{"prompt": prompt, "wanted": "nothing"} for prompt in PROMPTS],
    }
    for name, documents in data.items():
        task(folder, name, documents)
    return folder


def task(folder: Path, name: str, documents: Sequence[dict[str, Any]]) -> None:
    """Write the task local_NAME with these documents: a YAML file and a data file."""
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(document) + "\n" for document in documents))
    local = {
        "task": f"local_{name}",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(file)}, "cache_dir": str(folder / "cache")},
        "test_split": "test",
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(local | ASKED[name]))


@torch.no_grad()
def log_probabilities(model: nn.Module, tokens: list[int]) -> Tensor:
    """Log-probabilities of all next tokens, from one forward pass of transformers: (T, V) float64."""
    logits = model(torch.tensor([tokens]), use_cache=False).logits[0]  # (T, V)
    return F.log_softmax(logits.double(), -1)


def scored(model: nn.Module, context: list[int], wanted: list[int]) -> tuple[float, bool]:
    """ln p of the wanted tokens after a context, and whether greedy decoding would give them."""
    found = log_probabilities(model, [*context, *wanted][:-1])[len(context) - 1 :]  # (n, V)
    targets = torch.tensor(wanted)
    value = found.gather(1, targets[:, None]).sum()
    return float(value), bool((found.argmax(1) == targets).all())


def written(model: nn.Module, tokens: list[int], most: int) -> str:
    """Greedy decoding up to the stop string, with one forward pass over the whole text for each token."""
    found = b""
    while len(found) < most and STOP not in found.decode(errors="replace"):
        found += bytes([int(log_probabilities(model, [*tokens, *found])[-1].argmax())])
    return found.decode(errors="replace").split(STOP)[0]

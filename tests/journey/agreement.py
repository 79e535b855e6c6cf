"""Compare the results of `ssm extend` with a library's own forward pass, on the windows for the choice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ssm.data.own_text import disjoint_windows
from ssm.data.store import TokenStore
from ssm.extension.text import Text, tokenized
from ssm.models.load import load_any_model
from ssm.specs.diagnosis import LEAST, DiagnosisSpec

LOGITS, NATS = 1e-4, 1e-4  # largest allowed differences of a logit and of a mean loss
Logits = Callable[[Tensor], Tensor]  # a library's own, (B, T, V) of tokens (B, T)
NAMES = ("in_context", "far_perplexity", "paired_ratio")


def text_of(extended: Path) -> Text:
    """The three parts of the text that an extension has read."""
    asked, stores = json.loads((extended / "extension.json").read_text()), extended / "work" / "tokens"
    spec = DiagnosisSpec.parse(asked["spec"]["diagnosis"], "an extension")
    tokenizer = TokenStore.open(stores / "text").spec.spelled_by
    assert tokenizer is not None
    return tokenized(asked["text"], asked["held_out"], asked["divided"], asked["share"], tokenizer, spec, stores)


def windows_that_chose(extended: Path) -> Tensor:
    """Tokens (W, L + 1) of the text for the choice."""
    spec = json.loads((extended / "result.json").read_text())["spec"]["diagnosis"]
    choice = text_of(extended).choice.held_out
    windows = disjoint_windows(choice, spec["length"], spec["seed"], LEAST)
    rows = choice.rows(windows.positions, spec["length"] + 1)
    return torch.from_numpy(rows.astype(np.int64))


def own_losses(logits: Logits, windows: Tensor, context: int) -> dict[str, float]:
    """The losses of `ssm.extension.losses` in nats, by a library's own forward pass."""
    half, far = context // 2, (windows.shape[1] - 1) * 3 // 4
    full = _losses(logits, windows)  # (W, L)
    restarted = windows.unfold(1, context + 1, half)  # (W, n, T + 1), from every T / 2 tokens
    later = _losses(logits, restarted.flatten(0, 1))[:, half:]  # (W n, T / 2): from T / 2 to T tokens after a start
    alone = later.reshape(len(windows), -1)  # (W, L - T / 2)
    distant = full[:, far:].mean()
    found = (alone.mean(), distant, distant - alone[:, far - half :].mean())
    return dict(zip(NAMES, map(float, found), strict=True))


def differences(extended: Path, original: Logits, exported: Logits) -> dict[str, float]:
    """Differences between a library and ssm: in the losses of result.json, and in the logits of the new model.

    Args:
        extended: the folder of an extension that wrote model/ or candidate/.
        original, exported: the library's own logits of the original and of the new model.
    """
    result = json.loads((extended / "result.json").read_text())
    windows = windows_that_chose(extended)
    said = (result["candidates"][0], result["chosen"])
    found = {}
    for name, candidate, logits in zip(("original", "extended"), said, (original, exported), strict=True):
        own = own_losses(logits, windows, result["spec"]["diagnosis"]["context"])
        for key, value in own.items():
            found[f"{name}, {key}"] = abs(value - candidate[key])
    model = load_any_model(extended / (result["model"] or result["candidate"])).model
    with torch.no_grad():
        ours = model(windows[:4, :-1])[0]
    return found | {"logits": float((exported(windows[:4, :-1]) - ours).abs().max())}


def agrees(differences: dict[str, float]) -> bool:
    """Whether every difference is within its limit. NaN is not."""
    return all(value <= (LOGITS if name == "logits" else NATS) for name, value in differences.items())


def _losses(logits: Logits, tokens: Tensor) -> Tensor:
    """tokens (B, T + 1) -> the loss of every target, (B, T) float64."""
    found = [
        F.cross_entropy(logits(part[:, :-1]).double().mT, part[:, 1:], reduction="none") for part in tokens.split(256)
    ]
    return torch.cat(found)

"""Time and memory of a training step and of a decoding step against length (ls Table 1)."""

from __future__ import annotations

import time
from collections.abc import Callable

import polars as pl
import torch
import torch.nn.functional as F
from torch import Tensor

from ssm.base.progress import Progress
from ssm.base.tables import COST
from ssm.models.backbone import LanguageModel, build_model
from ssm.models.state import State
from ssm.specs.measurement import Cost

DECODED = 16  # tokens decoded in one timed go: one is too short to time


def cost(spec: Cost, device: torch.device) -> pl.DataFrame:
    """In the schema COST, with one sequence a step.

    A training step is a forward and a backward pass over T tokens; its memory is what autograd keeps between the two. A
    decoding step is one more token after T of them; the state is what it needs of these T.
    """
    rows = []
    generator = torch.Generator().manual_seed(spec.seed)
    with Progress("measure cost", len(spec.models) * len(spec.lengths), "points") as progress:
        for model_spec in spec.models:
            model = build_model(model_spec, spec.vocab_size, spec.seed).to(device)
            for length in spec.lengths:
                tokens = torch.randint(spec.vocab_size, (1, length + 1), generator=generator).to(device)  # (1, T + 1)
                for name, values in _costs(model, tokens, spec.repeats, device).items():
                    rows += [
                        (model_spec.name, model_spec.mixer.kind, length, name, repeat, value)
                        for repeat, value in enumerate(values, 1)
                    ]
                progress.advance()
    return pl.DataFrame(rows, schema=COST.columns, orient="row")


def _costs(model: LanguageModel, tokens: Tensor, repeats: int, device: torch.device) -> dict[str, list[float]]:
    def loss() -> Tensor:
        logits, _ = model(tokens[:, :-1])  # (1, T, V)
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def train() -> None:
        model.zero_grad(set_to_none=True)
        loss().backward()

    with torch.no_grad():
        state: State = model(tokens[:, :-1])[1]

        def decode() -> None:
            now = state
            for _ in range(DECODED):
                _, now = model.step(tokens[:, -1], now)

        decoding = [seconds / DECODED for seconds in _timed(decode, repeats, device)]
    return {
        "training_step": _timed(train, repeats, device),
        "training_memory": [float(_kept_bytes(loss))],
        "decoding_step": decoding,
        "state": [float(sum(tensor.nbytes for tensor in state.tensors().values()))],
    }


def _kept_bytes(forward: Callable[[], Tensor]) -> int:
    """Bytes of all memory that the backward pass of `forward` waits for, parameters included, each block once."""
    blocks: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        blocks[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        kept = forward()  # alive, so that no block is freed and counted again
    del kept
    return sum(blocks.values())


def _timed(call: Callable[[], None], repeats: int, device: torch.device) -> list[float]:
    """Seconds of each of `repeats` calls, after one that is not counted."""
    call()
    seconds = []
    for _ in range(repeats):
        _wait(device)
        start = time.perf_counter()
        call()
        _wait(device)
        seconds.append(time.perf_counter() - start)
    return seconds


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

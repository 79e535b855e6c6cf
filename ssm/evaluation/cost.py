"""Time and memory of a training step and of a decoding step by length (ls Table 1)."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import torch
import torch.nn.functional as F
from ssm_kernels.timing import seconds_of
from torch import Tensor

from ssm.base.progress import Progress
from ssm.evaluation.registry import MEASURES
from ssm.models.backbone import LanguageModel, build_model
from ssm.models.state import State
from ssm.specs.measurements.cost import Cost

DECODED = 16  # tokens in one timing of decoding, because one token is too short to time


@MEASURES.function
def cost(spec: Cost, device: torch.device) -> pl.DataFrame:
    """Costs in the schema Cost.table, with one sequence in each step.

    A training step is a forward and a backward pass over T tokens. Its memory is what autograd saves between the two. A
    decoding step reads one token after T tokens, and needs the state after these. Each round of repeats measures all
    lengths, so that a temporary slowdown of the machine affects all of them.
    """
    rows = []
    generator = torch.Generator().manual_seed(spec.seed)
    with Progress("measure cost", len(spec.models) * spec.repeats, "rounds") as progress:
        for model_spec in spec.models:
            model = build_model(model_spec, spec.vocab_size, spec.seed).to(device)
            named = (model_spec.name, model_spec.mixer.kind)
            steps = []
            for length in spec.lengths:
                tokens = torch.randint(spec.vocab_size, (1, length + 1), generator=generator).to(device)  # (1, T + 1)
                steps.append(_Steps(model, tokens))
                rows += [(*named, length, name, 1, value) for name, value in steps[-1].bytes().items()]
            for repeat in range(spec.repeats + 1):
                for length, step in zip(spec.lengths, steps, strict=True):
                    seconds = {
                        "training_step": seconds_of(step.train, device),
                        "decoding_step": seconds_of(step.decode, device) / DECODED,
                    }
                    if repeat:  # the first round warms up
                        rows += [(*named, length, name, repeat, value) for name, value in seconds.items()]
                progress.advance(int(repeat > 0))
    return pl.DataFrame(rows, schema=Cost.table.columns, orient="row")


class _Steps:
    """The steps of one model at one length."""

    def __init__(self, model: LanguageModel, tokens: Tensor):
        """tokens (1, T + 1)."""
        self.model, self.tokens = model, tokens
        with torch.no_grad():
            self.state: State = model(tokens[:, :-1])[1]

    def train(self) -> None:
        self.model.zero_grad(set_to_none=True)
        self._loss().backward()

    @torch.no_grad()
    def decode(self) -> None:
        """DECODED tokens."""
        now = self.state
        for _ in range(DECODED):
            _, now = self.model.step(self.tokens[:, -1], now)

    def bytes(self) -> dict[str, float]:
        """Bytes saved for the backward pass, and bytes of the state for a decoding step."""
        return {"training_memory": float(_kept_bytes(self._loss)), "state": float(self.state.nbytes)}

    def _loss(self) -> Tensor:
        logits, _ = self.model(self.tokens[:, :-1])  # (1, T, V)
        return F.cross_entropy(logits.flatten(0, 1), self.tokens[:, 1:].flatten())


def _kept_bytes(forward: Callable[[], Tensor]) -> int:
    """Bytes of all memory saved for the backward pass of `forward`, with parameters; each block counts once."""
    blocks: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        blocks[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        output = forward()  # a reference, so that no block is freed and its address used again
    del output
    return sum(blocks.values())

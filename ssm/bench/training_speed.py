"""Speed of a training step on the CPU: ours against transformers' Mamba-2, in one process, step by step in turn.

Both have the same weights, batches, optimizer and clipping. Equal results come first: without them no speed is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ssm.base.errors import UserError
from ssm.base.progress import Progress
from ssm.base.tables import TRAINING_SPEED
from ssm.bench.peer import peer_name, transformers_mamba2
from ssm.models.backbone import LanguageModel, build_model
from ssm.specs.model import Mamba2Mixer, ModelSpec
from ssm.specs.training import Budget, TrainingSpec
from ssm.training.optimizer import build_optimizer, set_rates

# The model that the smoke scale trains (config/models.yaml).
MODEL = ModelSpec(
    name="mamba2-slow",
    d_model=64,
    n_layers=2,
    mixer=Mamba2Mixer(d_state=64, head_dim=32, a_range=(1.0, 1.0), dt_range=(1e-4, 1e-3)),
    peak_lr=4e-3,
)
VOCABULARY = 256  # bytes
PEER_CHUNKS = (8, 16, 32, 64)  # its default, 256, only pads such short sequences
TOLERANCE = 1e-4  # of logits and of losses
GATE_STEPS = 3  # training steps whose losses must agree: they warm both sides up, too


class GateError(UserError):
    """The implementations disagree, so that comparing their speed means nothing."""


@dataclass(frozen=True)
class Contestant:
    """One implementation with its optimizer."""

    implementation: str
    chunk: int
    model: nn.Module
    logits: Callable[[Tensor], Tensor]  # tokens (B, T) -> (B, T, V)
    optimizer: torch.optim.Optimizer

    @property
    def name(self) -> str:
        return f"{self.implementation} chunk {self.chunk}"

    def step(self, tokens: Tensor, clip_norm: float) -> float:
        """One training step on tokens (B, T + 1); returns its loss."""
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.logits(tokens[:, :-1])  # (B, T, V)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip_norm)
        self.optimizer.step()
        return float(loss.detach())


def training_speed(context: int, batch_size: int, repeats: int) -> pl.DataFrame:
    """Time `repeats` training steps of every implementation, with denormals flushed to zero and with them kept.

    Returns:
        A table of the schema TRAINING_SPEED.

    Raises:
        GateError: logits or losses differ; nothing was timed.
        UserError: transformers is not installed.
    """
    training = TrainingSpec(context=context, batch_tokens=context * batch_size, budget=Budget(steps=1))
    contestants = _contestants(training)
    generator = torch.Generator().manual_seed(0)

    def batch() -> Tensor:
        return torch.randint(VOCABULARY, (batch_size, context + 1), generator=generator)  # (B, T + 1)

    check(contestants, [batch() for _ in range(GATE_STEPS)], training.clip_norm)
    rows = []
    try:
        with Progress("bench training", repeats, "repeats") as progress:
            for repeat in range(1, repeats + 1):
                tokens = batch()
                turn = repeat % len(contestants)  # nobody always comes first, or after the same other one
                for flush in (True, False) if repeat % 2 else (False, True):
                    torch.set_flush_denormal(flush)
                    for contestant in contestants[turn:] + contestants[:turn]:
                        start = time.perf_counter()
                        contestant.step(tokens, training.clip_norm)
                        seconds = time.perf_counter() - start
                        speed = training.batch_tokens / seconds
                        named = (contestant.implementation, contestant.chunk)
                        rows.append((*named, flush, repeat, 1000 * seconds, speed))
                progress.advance()
    finally:
        torch.set_flush_denormal(False)
    return pl.DataFrame(rows, schema=TRAINING_SPEED.columns, orient="row")


def check(contestants: list[Contestant], batches: list[Tensor], clip_norm: float) -> None:
    """The gate: equal logits at the start, and equal losses on the first training steps.

    Raises:
        GateError: the first that differs from the first contestant by more than TOLERANCE.
    """
    ours, *peers = contestants
    with torch.no_grad():
        expected = ours.logits(batches[0][:, :-1])  # (B, T, V)
        for peer in peers:
            difference = float((peer.logits(batches[0][:, :-1]) - expected).abs().max())
            _agree(f"logits of {ours.name} and {peer.name}", difference)
    for step, tokens in enumerate(batches, 1):
        losses = [contestant.step(tokens, clip_norm) for contestant in contestants]
        for peer, loss in zip(peers, losses[1:], strict=True):
            _agree(f"losses of {ours.name} and {peer.name} at training step {step}", abs(loss - losses[0]))


def _agree(what: str, difference: float) -> None:
    if not difference <= TOLERANCE:  # NaN is a difference
        raise GateError(f"no speed to report: the {what} differ by {difference:.3g}, more than {TOLERANCE:g}")


def _contestants(training: TrainingSpec) -> list[Contestant]:
    """Ours, then transformers at each chunk size: one set of weights, one set of rates."""
    model = build_model(MODEL, VOCABULARY, 0)
    optimizer = build_optimizer(model, training)
    ours = Contestant("ssm", MODEL.mixer.chunk, model, lambda tokens: model(tokens)[0], optimizer)
    contestants = [ours]
    for chunk in PEER_CHUNKS:
        peer = transformers_mamba2(model, chunk).train()
        theirs = _optimizer_like(optimizer, model, peer, training)
        contestants.append(Contestant("transformers", chunk, peer, _logits_of(peer), theirs))
    for contestant in contestants:
        set_rates(contestant.optimizer, MODEL.peak_lr, training.weight_decay)
    return contestants


def _logits_of(peer: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda tokens: peer(tokens, use_cache=False).logits


def _optimizer_like(
    optimizer: torch.optim.Optimizer, model: LanguageModel, peer: nn.Module, training: TrainingSpec
) -> torch.optim.AdamW:
    """The optimizer of `model` for the same parameters of `peer`, in the same groups."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = [
        group | {"params": [peer.get_parameter(peer_name(names[id(parameter)])) for parameter in group["params"]]}
        for group in optimizer.param_groups
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=training.betas, eps=training.eps, fused=True)


def medians(frame: pl.DataFrame) -> pl.DataFrame:
    """Per denormal setting, implementation and chunk the median of both columns, in the order of these keys."""
    keys = ("flush_denormal", "implementation", "chunk")
    return frame.group_by(keys).agg(pl.col("milliseconds", "tokens_per_second").median()).sort(keys)


def ratios(frame: pl.DataFrame) -> dict[bool, tuple[float, int]]:
    """By denormal setting: our speed over that of the fastest peer (by medians), and that peer's chunk."""
    found = {}
    for flush in (True, False):
        here = medians(frame).filter(flush_denormal=flush)
        ours = here.filter(implementation="ssm")["milliseconds"].item()
        best = here.filter(pl.col("implementation") != "ssm").sort("milliseconds").row(0, named=True)
        found[flush] = (best["milliseconds"] / ours, best["chunk"])
    return found


def table_text(frame: pl.DataFrame) -> str:
    """The medians and the ratios, for reading."""
    columns = {flush: medians(frame).filter(flush_denormal=flush) for flush in (True, False)}
    lines = [
        f"{'':<24}{'denormals flushed':>24}{'denormals kept':>24}",
        f"{'':<24}" + f"{'ms':>12}{'tokens/s':>12}" * 2,
    ]
    for flushed, kept in zip(columns[True].iter_rows(named=True), columns[False].iter_rows(named=True), strict=True):
        numbers = "".join(f"{row['milliseconds']:>12.2f}{row['tokens_per_second']:>12,.0f}" for row in (flushed, kept))
        lines.append(f"{flushed['implementation'] + ' chunk ' + str(flushed['chunk']):<24}{numbers}")
    best = "".join(f"{f'{ratio:.2f} x chunk {chunk}':>24}" for ratio, chunk in ratios(frame).values())
    lines.append(f"{'ssm / best transformers':<24}{best}")
    return "\n".join(lines)

"""Speed of a training step on the CPU, compared with transformers' Mamba and Mamba-2.

Both sides have the same weights, batches, optimizer and clipping. Nothing is timed before their results agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ssm.base.errors import UserError
from ssm.base.tables import TRAINING_SPEED
from ssm.models.backbone import LanguageModel, build_model
from ssm.specs.mixers.mamba1 import Mamba1Mixer
from ssm.specs.mixers.mamba2 import Mamba2Mixer
from ssm.specs.model import ModelSpec
from ssm.specs.training import Budget, TrainingSpec
from ssm.training.optimizer import build_optimizer, set_rates
from ssm_kernels.benchmarks.peer import peer_name, transformers_mamba, transformers_mamba2
from ssm_kernels.benchmarks.race import Contestant, flushed_denormals, race

# 4 layers of width 128: small enough for a laptop, and large enough for the projections to matter.
MODELS = {
    "mamba1": ModelSpec(name="mamba1", d_model=128, n_layers=4, mixer=Mamba1Mixer(), peak_lr=1e-3),
    "mamba2": ModelSpec(name="mamba2", d_model=128, n_layers=4, mixer=Mamba2Mixer(d_state=64), peak_lr=1e-3),
}
VOCABULARY = 256  # bytes
PEER_CHUNKS = (16, 32, 64, 256)  # chunk sizes of transformers' Mamba-2; 256 is its default
TOLERANCE = 1e-4  # largest difference of logits and of losses
GRADIENT_TOLERANCE = 1e-3  # largest norm of the difference over norm, for each parameter
GATE_STEPS = 3  # training steps with equal losses before timing; they also warm up


class GateError(UserError):
    """The implementations disagree, so their speeds cannot be compared."""


@dataclass(frozen=True)
class Trainee:
    """One implementation with its optimizer."""

    name: str
    model: nn.Module
    logits: Callable[[Tensor], Tensor]  # tokens (B, T) -> (B, T, V)
    optimizer: torch.optim.Optimizer

    def gradients(self, tokens: Tensor) -> dict[str, Tensor]:
        """Gradients of the loss by name of the parameter."""
        self.backward(tokens)
        return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in self.model.named_parameters()}

    def backward(self, tokens: Tensor) -> Tensor:
        """The loss on tokens (B, T + 1). Writes the gradients into the parameters."""
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.logits(tokens[:, :-1])  # (B, T, V)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        return loss

    def step(self, tokens: Tensor, clip_norm: float) -> float:
        """One training step on tokens (B, T + 1); returns its loss."""
        loss = self.backward(tokens)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip_norm)
        self.optimizer.step()
        return float(loss.detach())


def training_speed(model: str, context: int, batch_size: int, repeats: int, seconds: float) -> pl.DataFrame:
    """Time training steps of all implementations of one of MODELS, with denormals flushed to zero and with them kept.

    Args:
        repeats: largest number of timed steps of each implementation.
        seconds: largest total time of these steps, for each implementation.

    Returns:
        A table with the schema TRAINING_SPEED.

    Raises:
        GateError: logits, gradients or losses differ. Nothing was timed.
        UserError: transformers or mambapy is not installed.
    """
    training = TrainingSpec(context=context, batch_tokens=context * batch_size, budget=Budget(steps=1))
    trainees = _trainees(MODELS[model], training)
    generator = torch.Generator().manual_seed(0)

    def batch() -> Tensor:
        return torch.randint(VOCABULARY, (batch_size, context + 1), generator=generator)  # (B, T + 1)

    def step_of(trainee: Trainee) -> Callable[[], object]:
        return lambda: trainee.step(batch(), training.clip_norm)

    check(trainees, [batch() for _ in range(GATE_STEPS)], training.clip_norm)
    rows = []
    for flush in (True, False):
        contestants = [Contestant(trainee.name, step_of(trainee)) for trainee in trainees]
        with flushed_denormals(flush):
            race(contestants, repeats, seconds, torch.device("cpu"))
        rows += [
            (model, contestant.name, flush, repeat, milliseconds, 1000 * training.batch_tokens / milliseconds)
            for contestant in contestants
            for repeat, milliseconds in enumerate(contestant.milliseconds, 1)
        ]
    return pl.DataFrame(rows, schema=TRAINING_SPEED.columns, orient="row")


def check(trainees: list[Trainee], batches: list[Tensor], clip_norm: float) -> None:
    """Compare logits and all gradients at the start, then the losses of training steps.

    Gradients are compared directly, because Adam divides by their size: losses would not show a wrong scale.

    Raises:
        GateError: names the first difference from ours above TOLERANCE or GRADIENT_TOLERANCE.
    """
    ours, *peers = trainees
    with torch.no_grad():
        expected = ours.logits(batches[0][:, :-1])  # (B, T, V)
        for peer in peers:
            difference = float((peer.logits(batches[0][:, :-1]) - expected).abs().max())
            _agree(f"logits of {ours.name} and {peer.name}", difference, TOLERANCE)
    wanted = ours.gradients(batches[0])
    for peer in peers:
        found = peer.gradients(batches[0])
        for name, gradient in wanted.items():
            theirs = found[peer_name(name)].view_as(gradient)
            difference = float((theirs - gradient).norm() / gradient.norm())
            _agree(f"gradients of {name} of {ours.name} and {peer.name}", difference, GRADIENT_TOLERANCE)
    for step, tokens in enumerate(batches, 1):
        losses = [trainee.step(tokens, clip_norm) for trainee in trainees]
        for peer, loss in zip(peers, losses[1:], strict=True):
            difference = abs(loss - losses[0])
            _agree(f"losses of {ours.name} and {peer.name} at training step {step}", difference, TOLERANCE)


def _agree(what: str, difference: float, tolerance: float) -> None:
    if not difference <= tolerance:  # NaN fails too
        raise GateError(f"nothing was timed: the {what} differ by {difference:.3g}, more than {tolerance:g}")


def _trainees(spec: ModelSpec, training: TrainingSpec) -> list[Trainee]:
    """Ours, then transformers with each of its scans. All have the same weights and learning rates."""
    model = build_model(spec, VOCABULARY, 0)
    optimizer = build_optimizer(model, training)
    if isinstance(spec.mixer, Mamba1Mixer):
        peers = {"transformers, mambapy": transformers_mamba(model, mambapy=True)}
    else:
        peers = {f"transformers, chunk {chunk}": transformers_mamba2(model, chunk) for chunk in PEER_CHUNKS}
    trainees = [Trainee("ssm", model, lambda tokens: model(tokens)[0], optimizer)]
    for name, peer in peers.items():
        theirs = _optimizer_like(optimizer, model, peer.train(), training)
        trainees.append(Trainee(name, peer, _logits_of(peer), theirs))
    for trainee in trainees:
        set_rates(trainee.optimizer, spec.peak_lr, training.weight_decay)
    return trainees


def _logits_of(peer: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda tokens: peer(tokens, use_cache=False).logits


def _optimizer_like(
    optimizer: torch.optim.Optimizer, model: LanguageModel, peer: nn.Module, training: TrainingSpec
) -> torch.optim.AdamW:
    """An optimizer for `peer`, with the parameter groups of the optimizer of `model`."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = [
        group | {"params": [peer.get_parameter(peer_name(names[id(parameter)])) for parameter in group["params"]]}
        for group in optimizer.param_groups
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=training.betas, eps=training.eps, fused=True)


def medians(frame: pl.DataFrame) -> pl.DataFrame:
    """Median of both columns per denormal setting and implementation, in the order of the race."""
    keys = ("flush_denormal", "implementation")
    return frame.group_by(keys, maintain_order=True).agg(pl.col("milliseconds", "tokens_per_second").median())


def ratios(frame: pl.DataFrame) -> dict[bool, tuple[float, str]]:
    """Denormal setting -> (our speed over that of the fastest peer, by medians; name of this peer)."""
    ratio_of = {}
    for flush in (True, False):
        here = medians(frame).filter(flush_denormal=flush)
        ours = here.filter(implementation="ssm")["milliseconds"].item()
        best = here.filter(pl.col("implementation") != "ssm").sort("milliseconds").row(0, named=True)
        ratio_of[flush] = (best["milliseconds"] / ours, best["implementation"])
    return ratio_of


def table_text(frame: pl.DataFrame) -> str:
    """The medians and the ratios as a table that people read."""
    columns = {flush: medians(frame).filter(flush_denormal=flush) for flush in (True, False)}
    lines = [
        f"{'':<24}{'denormals flushed':>26}{'denormals kept':>26}",
        f"{'':<24}" + f"{'ms':>13}{'tokens/s':>13}" * 2,
    ]
    for flushed, kept in zip(columns[True].iter_rows(named=True), columns[False].iter_rows(named=True), strict=True):
        numbers = "".join(f"{row['milliseconds']:>13.2f}{row['tokens_per_second']:>13,.0f}" for row in (flushed, kept))
        lines.append(f"{flushed['implementation']:<24}{numbers}")
    best = "".join(f"{ratio:>25.2f}x" for ratio, _ in ratios(frame).values())
    lines.append(f"{'ssm / fastest peer':<24}{best}")
    return "\n".join(lines)

"""Speed of a training step on the CPU, compared with transformers' models and with our models in PyTorch alone.

All have the same weights, batches, optimizer and clipping. Nothing is timed before their results agree.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from ssm.base.tables import TRAINING_SPEED
from ssm.models.backbone import LanguageModel, build_model
from ssm.specs.model import ModelSpec
from ssm.specs.training import Budget, TrainingSpec
from ssm.training.optimizer import build_optimizer, set_rates
from ssm_kernels.backends import use_backend
from ssm_kernels.benchmarks.gate import agree
from ssm_kernels.benchmarks.peer import Peer, transformers_peer
from ssm_kernels.benchmarks.race import Contestant, flushed_denormals, race
from ssm_kernels.operators import Direct


@dataclass(frozen=True)
class Subject:
    """A model to train, and the implementations of transformers that it is compared with.

    Args:
        model: its spec, without name and peak_lr.
        form: the checkpoint format of transformers' model; None: transformers has none.
        options: name of an implementation -> keys of transformers' config.
    """

    model: dict[str, Any]
    form: str | None = None
    options: dict[str, dict[str, Any]] = field(default_factory=lambda: {"transformers": {}})

    def spec(self, name: str) -> ModelSpec:
        return ModelSpec.parse({"name": name, "d_model": 128, "n_layers": 4, "peak_lr": 1e-3} | self.model, name)


# 4 layers of width 128: small enough for a laptop, and large enough for the projections to matter. Layers, norms and
# feed-forward layers are those of transformers' models: Qwen3-Next for Gated DeltaNet, and RecurrentGemma for Griffin.
SUBJECTS = {
    "mamba1": Subject(
        {"mixer": {"kind": "mamba1"}},
        "mamba",
        {"transformers, mambapy": {"use_mambapy": True, "use_associative_scan": False}},
    ),
    "mamba2": Subject(
        {"mixer": {"kind": "mamba2", "d_state": 64}},
        "mamba2",
        {f"transformers, chunk {chunk}": {"chunk_size": chunk} for chunk in (16, 32, 64, 256)},  # 256 is its default
    ),
    "gated_deltanet": Subject(
        {
            "mixer": {"kind": "gated_deltanet", "n_heads": 2, "key_dim": 64, "value_dim": 64, "norm_eps": 1e-6},
            "ffn": {"kind": "gated_mlp", "d_hidden": 384},
            "norm": "rms_from_one",
            "norm_eps": 1e-6,
        },
        "qwen3_next",
    ),
    "griffin": Subject(
        {
            "mixer": {"kind": "rglru", "blocks": 4, "unscaled_start": True},
            "mixer_at": {
                2: {
                    "kind": "attention",
                    "n_heads": 4,
                    "n_kv_heads": 1,
                    "rotary_pct": 0.5,
                    "window": 64,
                    "out_bias": True,
                }
            },
            "ffn": {"kind": "gated_mlp", "d_hidden": 384, "activation": "gelu_tanh", "bias": True},
            "norm": "rms_from_one",
            "norm_eps": 1e-6,
            "embedding_scale": 11.3125,  # sqrt(128) in bfloat16
            "logit_cap": 30.0,
        },
        "recurrent_gemma",
        {"transformers": {"pad_token_id": None}},  # by default the embedding of token 0 gets no gradient
    ),
    "rwkv7": Subject(
        {
            "mixer": {"kind": "rwkv7", "head_dim": 64},
            "ffn": {"kind": "rwkv_channel_mix", "d_hidden": 512, "receptance": False},
            "norm": "layer",
            "embedding_norm": True,
        }
    ),
    "s5": Subject({"mixer": {"kind": "s5", "d_state": 128}}),
}
PYTORCH = "ssm, PyTorch scans"  # our model without our C++ code
VOCABULARY = 256  # bytes
TOLERANCE = 1e-4  # largest difference of logits and of losses
GRADIENT_TOLERANCE = 1e-3  # largest norm of the difference over norm, for each parameter
TINY = 1e-12  # a smaller gradient counts as this; some are zero at the start, because their output weights are zero
PROFILED_STEPS = 10
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "mkldnn::_linear_pointwise")  # operators of torch
OURS = (Direct.__name__, f"{Direct.__name__}Backward")
GATE_STEPS = 3  # training steps with equal losses before timing; they also warm up


@dataclass(frozen=True)
class Trainee:
    """One implementation with its optimizer."""

    name: str
    model: nn.Module
    logits: Callable[[Tensor], Tensor]  # tokens (B, T) -> (B, T, V)
    optimizer: torch.optim.Optimizer
    peer: Peer | None = None  # its parameters in relation to ours; None: they are the same

    def expected(self, ours: dict[str, Tensor]) -> dict[str, Tensor]:
        """The gradients that this implementation should have, from ours."""
        return ours if self.peer is None else self.peer.converted(ours)

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
    """Time training steps of all implementations of one of SUBJECTS, with denormals flushed to zero and with them kept.

    Args:
        repeats: largest number of timed steps of each implementation.
        seconds: largest total time of these steps, for each implementation.

    Returns:
        A table with the schema TRAINING_SPEED.

    Raises:
        GateError: logits, gradients or losses differ. Nothing was timed.
        UserError: transformers or mambapy is not installed.
    """
    training = _recipe(context, batch_size)
    trainees = _trainees(model, training)
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


def step_shares(model: str, context: int, batch_size: int) -> dict[str, float]:
    """Part -> its share of the time of our training step, with denormals flushed, by torch's profiler.

    Matrix products are those of PyTorch: projections, the head, attention. Our operations are those of ssm_kernels.
    """
    training = _recipe(context, batch_size)
    ours = _ours(build_model(SUBJECTS[model].spec(model), VOCABULARY, 0), training)
    tokens = torch.randint(VOCABULARY, (batch_size, context + 1))  # (B, T + 1)
    with flushed_denormals():
        ours.step(tokens, training.clip_norm)
        with _quiet_stderr(), profile(activities=[ProfilerActivity.CPU]) as recorded:
            for _ in range(PROFILED_STEPS):
                ours.step(tokens, training.clip_norm)
    events, times = recorded.key_averages(), dict.fromkeys(("matrix products", "our operations", "the rest"), 0.0)
    assert {event.key for event in events}.issuperset(OURS)
    for event in events:
        part = "matrix products" if event.key in PRODUCTS else "our operations" if event.key in OURS else "the rest"
        times[part] += event.self_cpu_time_total
    return {part: time / sum(times.values()) for part, time in times.items()}


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """torch's profiler writes its start and its stop to stderr, whatever its log level."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


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
            agree(f"logits of {ours.name} and {peer.name}", difference, TOLERANCE)
    gradients = ours.gradients(batches[0])
    for peer in peers:
        found = peer.gradients(batches[0])
        for name, gradient in peer.expected(gradients).items():
            difference = float((found.pop(name) - gradient).norm() / gradient.norm().clamp_min(TINY))
            agree(f"gradients of {name} of {ours.name} and {peer.name}", difference, GRADIENT_TOLERANCE)
        assert not found, f"parameters without a counterpart in ours: {', '.join(found)}"
    for step, tokens in enumerate(batches, 1):
        losses = [trainee.step(tokens, clip_norm) for trainee in trainees]
        for peer, loss in zip(peers, losses[1:], strict=True):
            difference = abs(loss - losses[0])
            agree(f"losses of {ours.name} and {peer.name} at training step {step}", difference, TOLERANCE)


def _trainees(name: str, training: TrainingSpec) -> list[Trainee]:
    """Ours, then transformers' implementations and PyTorch's scans. All have the same weights and learning rates."""
    subject = SUBJECTS[name]
    spec = subject.spec(name)
    model = build_model(spec, VOCABULARY, 0)
    trainees = [_ours(model, training)]
    if subject.form is not None:
        for title, options in subject.options.items():
            peer = transformers_peer(model, subject.form, **options)
            theirs = _optimizer_like(trainees[0].optimizer, model, peer, training)
            trainees.append(Trainee(title, peer.model.train(), _peer_logits_of(peer.model), theirs, peer))
    plain = build_model(spec, VOCABULARY, 0)
    trainees.append(Trainee(PYTORCH, plain, _pytorch_logits_of(plain), build_optimizer(plain, training)))
    for trainee in trainees:
        set_rates(trainee.optimizer, spec.peak_lr, training.weight_decay)
    return trainees


def _recipe(context: int, batch_size: int) -> TrainingSpec:
    return TrainingSpec(context=context, batch_tokens=context * batch_size, budget=Budget(steps=1))


def _ours(model: LanguageModel, training: TrainingSpec) -> Trainee:
    return Trainee("ssm", model, _logits_of(model), build_optimizer(model, training))


def _logits_of(model: LanguageModel) -> Callable[[Tensor], Tensor]:
    return lambda tokens: model(tokens)[0]


def _peer_logits_of(peer: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda tokens: peer(tokens, use_cache=False).logits


def _pytorch_logits_of(model: LanguageModel) -> Callable[[Tensor], Tensor]:
    def logits(tokens: Tensor) -> Tensor:
        with use_backend("torch"):
            return model(tokens)[0]

    return logits


def _optimizer_like(
    optimizer: torch.optim.Optimizer, model: LanguageModel, peer: Peer, training: TrainingSpec
) -> torch.optim.AdamW:
    """An optimizer for `peer`, with the parameter groups of the optimizer of `model`."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = []
    for group in optimizer.param_groups:
        ours = {names[id(parameter)]: parameter for parameter in group["params"]}
        theirs = [peer.model.get_parameter(name) for name in peer.converted(ours)]
        groups.append(group | {"params": theirs})
    return torch.optim.AdamW(groups, lr=0.0, betas=training.betas, eps=training.eps, fused=True)


def medians(frame: pl.DataFrame) -> pl.DataFrame:
    """Median of both columns per denormal setting and implementation, in the order of the race."""
    keys = ("flush_denormal", "implementation")
    return frame.group_by(keys, maintain_order=True).agg(pl.col("milliseconds", "tokens_per_second").median())


def ratios(frame: pl.DataFrame) -> dict[bool, tuple[float, str]]:
    """Denormal setting -> (our speed over that of the fastest other implementation, by medians; its name)."""
    ratio_of = {}
    for flush in (True, False):
        here = medians(frame).filter(flush_denormal=flush)
        ours = here.filter(implementation="ssm")["milliseconds"].item()
        best = here.filter(pl.col("implementation") != "ssm").sort("milliseconds").row(0, named=True)
        ratio_of[flush] = (best["milliseconds"] / ours, best["implementation"])
    return ratio_of


def shares_text(shares: dict[str, float], frame: pl.DataFrame) -> str:
    """`step_shares`, and the ratio to the fastest other implementation if all but the matrix products took no time."""
    parts = ", ".join(f"{share:.0%} {part}" for part, share in shares.items())
    most = ratios(frame)[True][0] / shares["matrix products"]
    return f"ssm's step: {parts}; {most:.1f}x if all else took no time"


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
    lines.append(f"{'ssm / fastest other':<24}{best}")
    return "\n".join(lines)

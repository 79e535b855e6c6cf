"""Speed and memory of a Mamba-2 that reads a long sequence and generates tokens, compared with transformers.

Both models have the same weights. Nothing is timed before their logits and their tokens agree.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from ssm.base.tables import INFERENCE_SPEED
from ssm.models.backbone import LanguageModel, build_model
from ssm.specs.model import ModelSpec
from ssm_kernels.benchmarks.gate import agree
from ssm_kernels.benchmarks.peer import transformers_peer
from ssm_kernels.benchmarks.race import Contestant, race
from ssm_kernels.testing.numerics import error

MODEL = ModelSpec.parse(  # Mamba-2 of 130M parameters, with the sizes of state-spaces/mamba2-130m
    {"name": "mamba2-130m", "d_model": 768, "n_layers": 24, "mixer": {"kind": "mamba2"}, "peak_lr": 6e-4}, "mamba2-130m"
)
VOCABULARY = 50_288
READ = 4096  # tokens of the sequence
GENERATED = 32  # tokens after a prompt of as many tokens
TOLERANCE = 1e-4  # largest norm of the difference of all logits, over their norm


@dataclass(frozen=True)
class Reader:
    """One implementation."""

    name: str
    read: Callable[[Tensor], Tensor]  # tokens (1, T) -> logits (1, T, V)
    generate: Callable[[Tensor, int], Tensor]  # prompt (1, T) and a number n -> the next n tokens (n,)


@torch.inference_mode()
def inference_speed(spec: ModelSpec, vocab_size: int, length: int, repeats: int, seconds: float) -> pl.DataFrame:
    """Time a forward pass over `length` tokens, and GENERATED tokens that follow a prompt.

    Args:
        spec: a Mamba-2 model.
        repeats: largest number of timed calls of each implementation.
        seconds: largest total time of these calls, for each implementation and task.

    Returns:
        A table with the schema INFERENCE_SPEED.

    Raises:
        GateError: logits or tokens differ. Nothing was timed.
        UserError: transformers is not installed.
    """
    readers = _readers(build_model(spec, vocab_size, 0).eval())
    tokens = torch.randint(vocab_size, (1, length), generator=torch.Generator().manual_seed(0))
    prompt = tokens[:, :GENERATED]
    check(readers, tokens, prompt)
    tasks: dict[str, Callable[[Reader], object]] = {
        f"read {length:,} tokens": lambda reader: reader.read(tokens),
        f"generate {GENERATED} tokens": lambda reader: reader.generate(prompt, GENERATED),
    }
    rows: list[tuple[object, ...]] = []
    for task, run in tasks.items():
        contestants = [Contestant(reader.name, partial(run, reader)) for reader in readers]
        peak = {contestant.name: _peak_mib(contestant.run) for contestant in contestants}
        race(contestants, repeats, seconds, torch.device("cpu"))
        rows += [
            (spec.name, contestant.name, task, repeat, milliseconds, peak[contestant.name])
            for contestant in contestants
            for repeat, milliseconds in enumerate(contestant.milliseconds, 1)
        ]
    return pl.DataFrame(rows, schema=INFERENCE_SPEED.columns, orient="row")


def check(readers: list[Reader], tokens: Tensor, prompt: Tensor) -> None:
    """Compare all logits of `tokens` (1, T), and the tokens that follow `prompt`, with those of the first reader.

    Raises:
        GateError: they differ.
    """
    ours, *others = readers
    logits, written = ours.read(tokens), ours.generate(prompt, GENERATED)
    for other in others:
        agree(f"logits of {ours.name} and {other.name}", error(other.read(tokens), logits), TOLERANCE)
        wrong = int((other.generate(prompt, GENERATED) != written).sum())
        agree(f"generated tokens of {ours.name} and {other.name}", wrong, 0)


def _readers(model: LanguageModel) -> list[Reader]:
    """Ours, and transformers with its default chunk size. Their caches start empty in every call."""

    def generate(prompt: Tensor, n: int) -> Tensor:
        logits, state = model(prompt)
        written = [logits[:, -1].argmax(-1)]  # (1,)
        for _ in range(n - 1):
            logits, state = model.step(written[-1], state)  # (1, V)
            written.append(logits.argmax(-1))
        return torch.cat(written)

    peer: Any = transformers_peer(model, "mamba2").model.eval()

    def peer_generate(prompt: Tensor, n: int) -> Tensor:
        options = {"max_new_tokens": n, "do_sample": False, "eos_token_id": None}
        written: Tensor = peer.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
        return written[0, prompt.shape[1] :]

    return [
        Reader("ssm", lambda tokens: model(tokens)[0], generate),
        Reader("transformers", lambda tokens: peer(tokens, use_cache=False).logits, peer_generate),
    ]


def _peak_mib(run: Callable[[], object]) -> float | None:
    """The most memory that a call adds to this process, in MiB; None where the system cannot tell it (not Linux)."""
    reset, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    if not reset.exists():
        return None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # freed memory that the process keeps would hide what the call needs
        trim(0)
    reset.write_text("5")  # the peak becomes the present size (Linux: man 5 proc)
    before = _kib("VmRSS", status)
    run()
    return (_kib("VmHWM", status) - before) / 1024


def _kib(name: str, status: Path) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", status.read_text())
    assert found is not None
    return int(found[1])


def table_text(frame: pl.DataFrame) -> str:
    """The medians as a table that people read, with ratios to ours."""
    lines = [f"{'':<24}{'ms':>12}{'x ssm':>9}{'peak MiB':>12}{'x ssm':>9}"]
    for (task,), rows in frame.group_by("task", maintain_order=True):
        lines.append(str(task))
        medians = rows.group_by("implementation", maintain_order=True).agg(pl.col("milliseconds", "peak_mib").median())
        ours = medians.row(0, named=True)
        for row in medians.iter_rows(named=True):
            line = f"  {row['implementation']:<22}{row['milliseconds']:>12.1f}"
            line += f"{row['milliseconds'] / ours['milliseconds']:>9.2f}"
            if row["peak_mib"] is not None:
                line += f"{row['peak_mib']:>12.0f}{row['peak_mib'] / ours['peak_mib']:>9.2f}"
            lines.append(line)
    return "\n".join(lines)

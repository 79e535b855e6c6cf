"""Weights on disk: one safetensors file with the run's spec in its header. Nothing is ever unpickled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ssm.base.errors import CheckpointError
from ssm.base.files import whole_file
from ssm.models.backbone import LanguageModel, build_model
from ssm.specs.training import RunSpec


def save_tensors(path: str | Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write tensors and a JSON header as one whole file.

    Raises:
        OutputError: `path` cannot be written.
    """
    plain = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    with whole_file(path) as temporary:
        try:
            save_file(plain, temporary, metadata={"ssm": json.dumps(header, sort_keys=True)})
        except SafetensorError as error:  # what a full disk becomes
            raise OSError(str(error)) from error


def load_tensors(path: str | Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote.

    Raises:
        CheckpointError: no such file, truncated or corrupted, or not written by ssm.
    """
    with _opened(path, device) as (file, header):
        return {name: file.get_tensor(name) for name in file.keys()}, header  # noqa: SIM118 (not a dict)


def read_header(path: str | Path) -> dict[str, Any]:
    """The header alone; errors as `load_tensors`."""
    with _opened(path) as (_, header):
        return header


@contextmanager
def _opened(path: str | Path, device: torch.device | str = "cpu") -> Iterator[tuple[Any, dict[str, Any]]]:
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            header = json.loads((file.metadata() or {}).get("ssm", "null"))
            if not isinstance(header, dict):
                raise CheckpointError(f"{path}: was not written by ssm (its header holds no spec)")
            yield file, header
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such checkpoint") from error
    except (OSError, SafetensorError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path}: truncated or corrupted ({error})") from error


def save_model(path: str | Path, model: LanguageModel, run: RunSpec, step: int, origin: str) -> None:
    """Write the weights of `model`, trained as `run` for `step` steps.

    Args:
        origin: fingerprint of what the run was made from (text, and the parent's origin); see `ssm.training.origin`.
    """
    save_weights(path, dict(model.state_dict()), run, step, origin)


def save_weights(path: str | Path, weights: dict[str, Tensor], run: RunSpec, step: int, origin: str) -> None:
    """`save_model`, from the model's state dict."""
    save_tensors(path, weights, {"run": run.content(), "step": step, "origin": origin})


def load_model(path: str | Path, device: torch.device | str = "cpu") -> tuple[LanguageModel, RunSpec]:
    """The model of a file written by `save_model`, and the run that trained it.

    Raises:
        CheckpointError: the file is no such checkpoint, or its tensors are not its spec's.
    """
    tensors, header = load_tensors(path)
    if "run" not in header:
        raise CheckpointError(f"{path}: its header holds no run")
    run = RunSpec.parse(header["run"], str(path))
    model = build_model(run.model, run.data.vocab_size, run.seed)
    load_weights(model, tensors, str(path))
    return model.to(device), run


def snapshot_path(folder: Path, fraction: float) -> Path:
    """Where the weights at `fraction` of a run's steps lie."""
    return folder / "snapshots" / f"at{fraction:g}.safetensors"


def snapshot_step(fraction: float, steps: int) -> int:
    """The step at which the snapshot at `fraction` of `steps` is taken."""
    return max(1, round(fraction * steps))


def load_weights(model: LanguageModel, tensors: dict[str, Tensor], source: str) -> None:
    """Copy `tensors` into `model`; every missing, unknown or mis-shaped tensor is named in one error.

    Raises:
        CheckpointError: the names or shapes differ, or a weight is not finite.
    """
    expected = model.state_dict()
    problems = [f"missing {name}" for name in expected if name not in tensors]
    problems += [f"unknown {name}" for name in tensors if name not in expected]
    problems += [
        f"{name} is {tuple(tensors[name].shape)}, expected {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in tensors and tensors[name].shape != tensor.shape
    ]
    problems += [f"{name} is not finite" for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if problems:
        raise CheckpointError(f"{source}: {'; '.join(problems)}")
    model.load_state_dict(tensors)

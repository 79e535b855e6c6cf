"""Weights on disk: one safetensors file with the run's spec and the file's digest in its header.

Files are never unpickled. A file that was changed after writing is an error.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ssm.base.checksum import BLANK, stored_checksum, verify_checksum, write_checksum
from ssm.base.errors import CheckpointError, first_line
from ssm.base.files import atomic_file, reading
from ssm.base.records import RUN_RECORD, RUN_WEIGHTS
from ssm.base.safetensors_header import safetensors_header
from ssm.base.strict_parsing import parse_json, read_json, shaped
from ssm.models.backbone import build_model
from ssm.models.foreign import build_foreign
from ssm.models.readable import Readable
from ssm.models.repairs import repaired
from ssm.models.trainable import TrainableModel
from ssm.specs.foreign import ForeignSpec
from ssm.specs.repairs.base import Point
from ssm.specs.training import RunSpec

SLACK = 2**20  # parameters: a spec may exceed twice its file by this number
SNAPSHOTS = "snapshots"  # folder of weights that are saved during a run
CHECKSUM_KEY = "seal"  # key of the file's digest in the header
CHOSEN = "chosen"  # key of a repair's numbers in the header
AGAIN = "delete it and make it again"


def save_tensors(path: str | Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write tensors and a JSON header as one whole file, with its digest (`ssm.base.checksum`).

    Raises:
        OutputError: `path` cannot be written.
    """
    plain = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    with atomic_file(path) as temporary:
        temporary.touch()
        usual = temporary.stat().st_mode
        try:
            save_file(plain, temporary, metadata={"ssm": json.dumps(header | {CHECKSUM_KEY: BLANK}, sort_keys=True)})
        except SafetensorError as error:  # for example on a full disk
            raise OSError(str(error)) from error
        with suppress(OSError):  # some disks have no modes
            temporary.chmod(usual)  # safetensors makes files that only their owner can read
        write_checksum(temporary)


def load_tensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file of `save_tensors`: the tensors and the header.

    Raises:
        CheckpointError: the file is missing, unreadable, truncated, corrupted, changed after writing, or not written by
            ssm.
    """
    check_tensors(path)
    try:
        with reading(CheckpointError, path), safe_open(path, framework="pt") as file:
            header = _header(path, file.metadata() or {})
            return {name: file.get_tensor(name) for name in file.keys()}, header  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: truncated or corrupted ({first_line(error)})") from error


def check_tensors(path: str | Path) -> str:
    """Check that a file is unchanged since `save_tensors` wrote it. Returns its digest; errors as in `load_tensors`."""
    read_header(path)
    with reading(CheckpointError, path):
        return verify_checksum(path, CheckpointError, AGAIN)


def read_header(path: str | Path) -> dict[str, Any]:
    """Read only the header. The file's digest is not checked. Errors as in `load_tensors`."""
    return _header(path, safetensors_header(path, CheckpointError).get("__metadata__", {}))


def _header(path: str | Path, metadata: dict[str, str]) -> dict[str, Any]:
    if "ssm" not in metadata:
        raise CheckpointError(f"{path}: was not written by ssm (its header has no spec)")
    header = parse_json(metadata["ssm"], f"{path}: truncated or corrupted: its header", CheckpointError)
    if not isinstance(header, dict):
        raise CheckpointError(f"{path}: was not written by ssm (its header has no spec)")
    return {key: value for key, value in header.items() if key != CHECKSUM_KEY}


def save_weights(
    path: str | Path, weights: dict[str, Tensor], run: RunSpec, step: int, origin: str, chosen: Point | None = None
) -> None:
    """Write the weights of a model after `step` steps of `run`.

    Args:
        weights: the model's state dict.
        origin: fingerprint of the run's inputs (text, and the parent's origin); see `ssm.training.lineage`.
        chosen: for a repair without training: its numbers. The weights are the parent's, and the repair is applied
            each time the file is read.
    """
    header = {"run": run.content(), "step": step, "origin": origin}
    save_tensors(path, weights, header if chosen is None else header | {CHOSEN: list(chosen)})


def load_model(path: str | Path, device: torch.device | str = "cpu") -> tuple[TrainableModel, RunSpec]:
    """The model of a file of `save_weights`, and the run that trained it.

    Raises:
        CheckpointError: the file is not a checkpoint of ssm, or its tensors do not fit its spec. The record of its run
            has another digest. It is a repair that changes how a model is read.
    """
    model, run = load_readable(path, device)
    if not isinstance(model, TrainableModel):
        assert run.repair is not None
        raise CheckpointError(
            f"{path}: '{run.repair.kind}' is a way of reading a model, not a model that can be trained"
        )
    return model, run


def load_readable(path: str | Path, device: torch.device | str = "cpu") -> tuple[Readable, RunSpec]:
    """Like `load_model`, but also for repairs that change how a model is read. These are in evaluation mode."""
    tensors, header = load_tensors(path)
    run = run_of(header, path)
    _check_size(run, tensors, path)
    model = _shell(run, path)
    load_weights(model, tensors, str(path))
    _check_record(Path(path))
    model = model.to(device)
    if run.repair is None:
        return model, run
    return repaired(model.eval(), run.repair, _chosen(header, run, path)), run


def _chosen(header: dict[str, Any], run: RunSpec, path: str | Path) -> Point:
    """The numbers of a repaired model."""
    assert run.repair is not None
    wrong = f"{path}: its header has no valid numbers of the repair '{run.repair.kind}'"
    numbers = tuple(shaped(header.get(CHOSEN), list[float | None], wrong, CheckpointError))
    if len(numbers) != len(run.repair.start(run.own_model)):
        raise CheckpointError(wrong)
    return numbers


def run_of(header: dict[str, Any], path: str | Path) -> RunSpec:
    """The run in a header of `save_weights`.

    Raises:
        CheckpointError: the header has no run.
        ConfigError: the run is not valid.
    """
    if "run" not in header:
        raise CheckpointError(f"{path}: its header has no run")
    return RunSpec.parse(header["run"], str(path))


def digests(folder: Path, run: RunSpec) -> dict[str, str]:
    """File name -> digest of a run's weights and snapshots, for its record. Files that do not exist are left out.

    Raises:
        CheckpointError: a file cannot be read.
    """
    paths = [folder / RUN_WEIGHTS, *(snapshot_path(folder, at) for at in run.training.snapshots)]
    with reading(CheckpointError, folder):
        stored = {path.relative_to(folder).as_posix(): stored_checksum(path) for path in paths if path.exists()}
    return {name: digest for name, digest in stored.items() if digest is not None}


def _check_record(path: Path) -> None:
    """Check that weights in the folder of a finished run have the digest in the run's record."""
    folder = run_folder(path)
    if not (folder / RUN_RECORD).exists():
        return
    record = read_json(folder / RUN_RECORD, CheckpointError, "record of a run")
    named = record.get("weights") if isinstance(record, dict) else None
    if not isinstance(named, dict) or named.get(path.relative_to(folder).as_posix()) != stored_checksum(path):
        raise CheckpointError(f"{path}: not the weights of {folder / RUN_RECORD}; delete both and train again")


def _check_size(run: RunSpec, tensors: dict[str, Tensor], path: str | Path) -> None:
    """Refuse a spec of a much larger model than its file, before memory for it is allocated."""
    with torch.device("meta"):
        try:
            parameters = _shell(run, path).parameters_count
        except (RuntimeError, OverflowError) as error:
            raise CheckpointError(f"{path}: its spec describes an impossible model ({first_line(error)})") from error
    stored = sum(tensor.numel() for tensor in tensors.values())
    if parameters > 2 * stored + SLACK:
        raise CheckpointError(f"{path}: its spec has {parameters:,} parameters, but the file has {stored:,}")


def run_folder(weights: Path) -> Path:
    """The folder of the run that a file of weights belongs to."""
    return weights.parent.parent if weights.parent.name == SNAPSHOTS else weights.parent


def snapshot_path(folder: Path, fraction: float) -> Path:
    """The file with the weights at `fraction` of a run's steps."""
    return folder / SNAPSHOTS / f"at{fraction:g}.safetensors"


def snapshot_step(fraction: float, steps: int) -> int:
    """The step at which the snapshot at `fraction` of `steps` is taken."""
    return max(1, round(fraction * steps))


def _shell(run: RunSpec, path: str | Path) -> TrainableModel:
    """A run's model, not yet with its weights."""
    if isinstance(run.model, ForeignSpec):
        return build_foreign(run.model, str(path))
    return build_model(run.model, run.data.vocab_size, run.seed, run.data.channels)


def load_weights(model: TrainableModel, tensors: dict[str, Tensor], source: str) -> None:
    """Copy `tensors` into `model`.

    Raises:
        CheckpointError: names or shapes differ, or a weight is not finite. The message lists all problems.
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

"""Post-train a model so that it works beyond its context, and write it in its original format.

`extend` does everything that `ssm extend` does.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ssm.base.checksum import sha256_of
from ssm.base.errors import ConfigError, DataError, OutputError
from ssm.base.files import folder_lock, remove_leftovers
from ssm.base.paths import absolute, path_names
from ssm.base.strict_parsing import option, read_json, shaped
from ssm.data.own_text import require_files, tokenizer_of
from ssm.data.training_batches import training_batches
from ssm.diagnosis import settings_of
from ssm.diagnosis.notes import notes
from ssm.extension.folder import Folder
from ssm.extension.parent_run import own_folder, run_of
from ssm.extension.recipe import extended_run, training_of
from ssm.extension.records import Result
from ssm.extension.repairing import Repairing
from ssm.extension.stages import Stages
from ssm.extension.text import Text, require_training_text, tokenized
from ssm.models.device import prepare_device
from ssm.models.foreign import ForeignModel, check_unchanged
from ssm.models.load import LoadedModel, ModelOutline, load_any_model, outline_of
from ssm.plan.sources import text_files
from ssm.specs.diagnosis_defaults import TEXT_KEY
from ssm.specs.extension import (
    IN_CONTEXT_TOLERANCE,
    MEASURE,
    OPTIONS,
    STATE_OPTIONS,
    USUAL_POLICY,
    ExtensionSpec,
    known_policy,
    policy_fields,
    unused_option,
)
from ssm.specs.initial_states import SPECS as INITIAL_STATES
from ssm.specs.repairs import SPECS as REPAIRS
from ssm.specs.repairs import RepairSpec
from ssm.specs.training import RunSpec

__all__ = ["extend", "extension_of"]


def extend(
    model: str | Path,
    text: str | Path | Sequence[str | Path],
    out: str | Path,
    held_out: str | Path | Sequence[str | Path] | float = (),
    tokenizer: str | None = None,
    device: str | torch.device = "auto",
    threads: int | None = None,
    text_key: str = TEXT_KEY,
    **settings: Any,
) -> dict[str, Any]:
    """Post-train a model, choose the best weights, and write them in the original format.

    The same call continues an extension that was stopped. It also sets denormals, threads and TF32 of this process
    (`prepare_device`).

    Args:
        model: a folder, a file, a name on the hub, or the folder of a run of ssm (`ssm.models.load.load_any_model`).
        text: a file, folder or glob to train on, or several of them.
        out: the extension's folder (`ssm.extension.folder`).
        held_out: the same, to measure on; or the share of `text` that is held out, between 0 and 1. If empty, the share
            is computed (`ssm.extension.windows.wanted`).
        tokenizer: as in `ssm.data.own_text.tokenizer_named`; None: the model's own.
        device, threads: as in `ssm.models.device.prepare_device`.
        text_key: JSON key or Parquet column with the text.
        settings: as in `extension_of`.

    Returns:
        The content of result.json. Its main keys are "outcome", "reason" and "model".

    Raises:
        UserError: with a message of one line.
        Preempted: a signal stopped the process. The same call continues.
    """
    text = path_names(text)
    others, share = _files_and_share(held_out)
    texts, folder, place = [*text, *others], Folder(Path(out)), Path(model)
    folder.check(place if place.is_dir() else None, texts)
    for files in (text, others) if others else (text,):
        require_files(files, text_key)
    chosen = prepare_device(device, threads)
    extension_of(outline_of(model), chosen, **settings)  # wrong ones are refused before the weights are read
    loaded = load_any_model(model, chosen)
    _require_extendable(loaded, settings.get("policy", USUAL_POLICY))
    spec = extension_of(loaded, chosen, **settings)
    if spec.repair is None:
        training_of(spec, loaded.spec, loaded.name)
    else:
        _check_repair(spec.repair, loaded)
    known = tokenizer_of(loaded, tokenizer)
    folder.begin(_original(loaded), texts)
    with folder_lock(folder.path):
        remove_leftovers(folder.path)
        recorded = folder.record_settings(
            {
                "fingerprint": loaded.fingerprint,
                "text": [*absolute(text)],
                "text_files": _state_of(text),
                "held_out": [*absolute(others)],
                "held_out_files": _state_of(others),
                "divided": not others,
                "share": share,
                "tokenizer": known.content(),
                **({"text_key": text_key} if text_key != TEXT_KEY else {}),  # a key that earlier records lack
                "spec": spec.content(),
            }
        )
        finished = _finished(folder)
        if finished is not None:
            return finished
        for note in notes(loaded, known, spec.diagnosis, settings.get("context")):
            print(f"extend {loaded.title}: {note}", file=sys.stderr, flush=True)
        divided = recorded["divided"], recorded["share"]
        text, others = _as_recorded(text, recorded["text"]), _as_recorded(others, recorded["held_out"])
        parts = tokenized(text, others, *divided, known, spec.diagnosis, folder.tokens, text_key)
        if loaded.foreign is not None and isinstance(loaded.model, ForeignModel):
            check_unchanged(loaded.model, loaded.foreign, folder.path)
        parent = run_of(loaded, parts.train.spec, spec.diagnosis.context)
        if spec.repair is None:
            _require_trainable(spec, parent, parts, loaded.name)
        print(f"extend {loaded.title}: {parts.held_out.line}", file=sys.stderr, flush=True)
        stages = Stages if spec.repair is None else Repairing
        return stages(loaded, parent, parts, spec, folder, chosen).work()


def extension_of(
    loaded: LoadedModel | ModelOutline,
    device: torch.device,
    policy: str = USUAL_POLICY,
    p_zero: float | None = None,
    sigma: float | None = None,
    by: str | None = None,
    steps: int | None = None,
    lr: float | None = None,
    batch_tokens: int | None = None,
    micro_batch_tokens: int | None = None,
    activation_checkpointing: bool = False,
    control: bool = False,
    measure: str = MEASURE,
    in_context_tolerance: float = IN_CONTEXT_TOLERANCE,
    **diagnosis: Any,
) -> ExtensionSpec:
    """The settings of an extension. Missing values come from the model's files, or are defaults.

    Args:
        loaded: the model; or its outline, to check the other arguments.
        policy: an initial state (`ssm.specs.initial_states`), or a repair without training (`ssm.specs.repairs`). A
            repair has no options of training.
        p_zero, sigma: options of an initial state; None: its default.
        by: an option of a repair; None: its default.
        steps, lr, batch_tokens, micro_batch_tokens, activation_checkpointing, control, measure, in_context_tolerance:
            fields of `ExtensionSpec`; None: the default.
        diagnosis: as in `ssm.diagnosis.settings_of`; training uses its context, precision and seed too.

    Raises:
        ConfigError: a value is missing or out of range, the policy is unknown, or it does not have this option.
    """
    options: dict[str, Any] = {
        "p_zero": p_zero,
        "sigma": sigma,
        "by": by,
        "steps": steps,
        "lr": lr,
        "batch_tokens": batch_tokens,
        "micro_batch_tokens": micro_batch_tokens,
        "activation_checkpointing": activation_checkpointing,
        "control": control,
    }
    known_policy(policy)
    fields = INITIAL_STATES[policy].model_fields if policy in INITIAL_STATES else {}
    for name in STATE_OPTIONS:
        if options[name] is None and name in fields and fields[name].is_required():
            raise ConfigError(f"policy {policy} needs {option(name)}")
    unused = unused_option(policy, options)
    if unused is not None:
        name, why = unused
        raise ConfigError(f"policy {policy} has no option {option(name)}{why}")
    given = {
        "diagnosis": settings_of(loaded, device, **diagnosis),
        **policy_fields(policy, options),
        "measure": measure,
        "in_context_tolerance": in_context_tolerance,
    }
    return ExtensionSpec.of_options(given, OPTIONS, {}, loaded.name)


def _files_and_share(held_out: str | Path | Sequence[str | Path] | float) -> tuple[Sequence[str], float | None]:
    """The files that are held out, and the share of the text that is held out instead; None: it is computed."""
    if not isinstance(held_out, float | int):
        return path_names(held_out), None
    if not 0 < held_out < 1:
        expected = "expected a share of --text between 0 and 1, or files"
        raise ConfigError(f"--held-out {held_out:g}: {expected} (a file of this name: ./{held_out:g})")
    return (), held_out


def _require_extendable(loaded: LoadedModel, policy: str) -> None:
    trains = policy not in REPAIRS
    if loaded.why_not_extend is not None and (trains or not loaded.only_repaired):
        hint = "; try --policy scale_a, which trains nothing" if loaded.only_repaired else ""
        raise ConfigError(f"{loaded.name}: cannot be extended: {loaded.why_not_extend}{hint}")


def _require_trainable(spec: ExtensionSpec, parent: RunSpec, text: Text, source: str) -> None:
    """Report settings and text that cannot be trained before anything is measured."""
    extended_run(spec, parent, text.train.spec, source)
    require_training_text(text, spec.diagnosis.context)
    training_batches(text.train, spec.diagnosis.context, 1, stream=False, seed=spec.diagnosis.seed)


def _finished(folder: Folder) -> dict[str, Any] | None:
    """The result of a finished extension; None: it is not finished, or the model that it wrote is gone."""
    if not folder.result.exists():
        return None
    result = shaped(
        read_json(folder.result, OutputError, "result"), Result, f"{folder.result}: not a result", OutputError
    )
    written = result["model"] or result["candidate"]
    return dict(result) if written is None or (folder.path / written).exists() else None


def _check_repair(repair: RepairSpec, loaded: LoadedModel) -> None:
    if loaded.source is None:
        raise ConfigError(f"{loaded.name}: is a run of ssm; to repair it, write a figure with 'repair' in an arm")
    try:
        repair.check(loaded.spec)
    except ValueError as error:
        raise ConfigError(f"{loaded.name}: {error}") from None


def _original(loaded: LoadedModel) -> Path:
    """The folder with the model's files."""
    return own_folder(loaded) if loaded.source is None else loaded.source.folder


def _as_recorded(given: Sequence[str], recorded: Sequence[str]) -> Sequence[str]:
    """The names of files as they were given, if an extension has recorded them so; else as it has recorded them."""
    return given if [*absolute(given)] == [*recorded] else recorded


def _state_of(paths: Sequence[str]) -> str:
    """A digest that changes if the content of a file changes, or if a file appears or disappears.

    Other names of the same files, such as a glob, give the same digest.
    """
    files = text_files(absolute(paths)) if paths else ()
    if files is None:
        return "gone"
    states = []
    for path in sorted(files):
        try:
            states.append(f"{path} {sha256_of(path)}")
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    return hashlib.sha256("\n".join(states).encode()).hexdigest()[:16]

"""Up to where can a recurrent language model be trusted, and why does it break?

`diagnose` is the whole of `ssm diagnose`; `diagnose_loaded`, `write_diagnosis` and `load_diagnosis` are its parts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ssm.base.errors import ConfigError
from ssm.base.files import claimed, whole_folder, write_json, write_text
from ssm.base.provenance import provenance
from ssm.base.tables import read_table, write_table
from ssm.data.own_text import own_text, tokenizer_of
from ssm.data.store import TokenStore
from ssm.diagnosis.page import build_page
from ssm.diagnosis.readings import read
from ssm.diagnosis.result import SCHEMAS, Diagnosis, Facts, Tables, as_json, from_json, read_json
from ssm.diagnosis.sampling import computing_in, sample
from ssm.diagnosis.verdict import verdict_of
from ssm.models.device import device_name, prepare_device
from ssm.models.load import LoadedModel, load_any_model
from ssm.models.readable import Readable
from ssm.specs.diagnosis import OCTAVES, TOLERANCE, DiagnosisSpec

__all__ = ["diagnose", "diagnose_loaded", "load_diagnosis", "settings_of", "write_diagnosis"]

PIECE = 2**24  # numbers that `hidden` gives at once: logits, where a model gives these
PAGE, RECORD, TABLES = "index.html", "diagnosis.json", "tables"


def diagnose(
    model: str | Path,
    text: Sequence[str],
    out: str | Path,
    tokenizer: str | None = None,
    device: str = "auto",
    threads: int | None = None,
    **settings: Any,
) -> Diagnosis:
    """Read a model on a text, and write page, JSON and tables into a new folder.

    Args:
        model: a folder, a file, a name of the hub, or a run of ssm (`ssm.models.load.load_any_model`).
        text: files, folders or globs.
        out: the new folder, there whole or not at all; held from the start against another call.
        tokenizer: as of `ssm.data.own_text.tokenizer_named`; None: the model's own.
        settings: as of `settings_of`.

    Raises:
        UserError: one line.
    """
    chosen = prepare_device(device, threads)
    with claimed(out), whole_folder(out) as folder, tempfile.TemporaryDirectory(dir=folder) as scratch:
        loaded = load_any_model(model, chosen)
        spec = settings_of(loaded, chosen, **settings)
        store = own_text(text, tokenizer_of(loaded, tokenizer), Path(scratch) / "tokens", held_out=1.0)
        found = diagnose_loaded(loaded, store, spec, chosen, text=", ".join(text))
        write_diagnosis(found, folder)
    return found


def settings_of(
    loaded: LoadedModel,
    device: torch.device,
    context: int | None = None,
    length: int | None = None,
    budget: float = 10.0,
    precision: str | None = None,
    tolerance: float | None = None,
    **others: Any,
) -> DiagnosisSpec:
    """The settings of a diagnosis, with what the model itself says where nothing is given.

    Args:
        context: T; None: as the model's files say.
        length: None: 16 T, or where the model's table of positions ends.
        budget: minutes.
        precision: None: bfloat16 on a GPU, float32 elsewhere.
        tolerance: None: TOLERANCE.
        others: fields of `DiagnosisSpec`.

    Raises:
        ConfigError: the model does not say its context and none is given, or a value is out of its range.
    """
    context = context or loaded.context
    if context is None:
        raise ConfigError(f"{loaded.name}: its config.json does not say what context it was trained on; give --context")
    if loaded.longest is not None and (length or 2 * context) > loaded.longest:
        raise ConfigError(
            f"{loaded.name}: its table of positions ends at {loaded.longest}; give --length {loaded.longest} and a "
            "--context of at most half of it"
        )
    given = {
        "context": context,
        "length": length or min(OCTAVES * context, loaded.longest or OCTAVES * context),
        "budget_seconds": 60.0 * budget,
        "precision": precision or ("bfloat16" if device.type == "cuda" else "float32"),
        "tolerance": tolerance if tolerance is not None else TOLERANCE,
        **others,
    }
    return DiagnosisSpec.parse(given, "diagnosis")


def diagnose_loaded(
    loaded: LoadedModel, store: TokenStore, spec: DiagnosisSpec, device: torch.device, *, text: str
) -> Diagnosis:
    """Diagnose a loaded model on the held-out part of a store.

    Args:
        text: what the store was made from, in words.
    """
    model = loaded.model.to(device)
    taken = sample(model, store, spec, device, f"diagnose {loaded.title}")
    facts = Facts(
        title=loaded.title,
        name=loaded.name,
        kind=loaded.kind,
        parameters=model.parameters_count,
        vocab_size=model.vocab_size,
        context=spec.context,
        length=spec.length,
        sequences=taken.sequences,
        tokens_read=taken.tokens,
        seconds=taken.seconds,
        tokens_per_second=taken.tokens_per_second,
        state_bytes=_state_bytes(model, spec, device),
        peak_bytes=taken.peak_bytes,
        device=device_name(device),
        precision=spec.precision,
        text=text,
        text_sha256=store.manifest["corpus"]["sha256"],
        fingerprint=loaded.fingerprint,
        seed=spec.seed,
        tolerance=spec.tolerance,
        stopped_by=taken.stopped_by,
        can_extend=loaded.why_not_extend is None,
        can_be_scaled=loaded.only_repaired,
        missing=taken.missing,
        looks=taken.looks,
    )
    readings = read(taken.tables, facts)
    return Diagnosis(facts, taken.tables, readings, verdict_of(readings, facts))


def write_diagnosis(diagnosis: Diagnosis, folder: str | Path) -> None:
    """Write index.html, diagnosis.json and tables/, each a whole file."""
    folder = Path(folder)
    origin = provenance(**diagnosis.facts.as_json())
    for kind, frame in diagnosis.tables.present().items():
        write_table(frame, SCHEMAS[kind], folder / TABLES / f"{kind}.parquet", origin)
    write_text(folder / PAGE, build_page(diagnosis))
    write_json(folder / RECORD, as_json(diagnosis))


def load_diagnosis(folder: str | Path) -> Diagnosis:
    """What `write_diagnosis` wrote.

    Raises:
        TableError, CheckpointError: a file is missing or broken.
    """
    folder = Path(folder)
    paths = {path.stem: path for path in (folder / TABLES).glob("*.parquet")}
    tables = Tables(**{kind: read_table(path, SCHEMAS[kind]) for kind, path in paths.items()})
    return from_json(read_json(folder / RECORD), tables)


@torch.inference_mode()
def _state_bytes(model: Readable, spec: DiagnosisSpec, device: torch.device) -> int:
    """Of what the model carries on behind one sequence of T tokens."""
    tokens, state = torch.zeros(1, spec.context, dtype=torch.int64, device=device), None
    with computing_in(spec, device):
        for piece in tokens.split(max(1, PIECE // model.hidden_size), dim=1):
            _, state = model.hidden(piece, state)
    assert state is not None
    return int(state.nbytes)

"""How far can a recurrent language model be trusted, and why does it break?

`diagnose` does everything that `ssm diagnose` does. `diagnose_loaded`, `write_diagnosis`, `write_page` and
`load_diagnosis` are its parts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import torch

from ssm.base.errors import ConfigError, TableError
from ssm.base.files import atomic_folder, name_lock, scratch_folder, write_json, write_text
from ssm.base.paths import path_names, require_outside
from ssm.base.provenance import provenance
from ssm.base.tables import read_table, write_table
from ssm.data.own_text import own_text, require_files, tokenizer_of, tokenizer_words
from ssm.data.store import TokenStore
from ssm.diagnosis.notes import notes
from ssm.diagnosis.outcome import extend_words
from ssm.diagnosis.page import build_page
from ssm.diagnosis.readings import read
from ssm.diagnosis.result import SCHEMAS, Diagnosis, Facts, Tables, as_json, from_json, read_diagnosis_record
from ssm.diagnosis.sampling import sample
from ssm.diagnosis.verdict import verdict_of
from ssm.models.device import device_name, prepare_device
from ssm.models.load import LoadedModel, ModelOutline, load_any_model, outline_of
from ssm.specs.diagnosis import DEFAULT_CONTEXTS, DiagnosisSpec
from ssm.specs.diagnosis_defaults import BUDGET, TEXT_KEY, TOLERANCE

__all__ = ["diagnose", "diagnose_loaded", "load_diagnosis", "settings_of", "write_diagnosis", "write_page"]

PAGE, RECORD, TABLES = "index.html", "diagnosis.json", "tables"
WRITTEN = (PAGE, RECORD, f"{TABLES}/*.parquet")  # globs of all files of a diagnosis


def diagnose(
    model: str | Path,
    text: str | Path | Sequence[str | Path],
    out: str | Path,
    tokenizer: str | None = None,
    device: str | torch.device = "auto",
    threads: int | None = None,
    text_key: str = TEXT_KEY,
    extend: Callable[[Facts], Sequence[str]] | None = None,
    **settings: Any,
) -> Diagnosis:
    """Diagnose a model on a text, and write the page, the JSON file and the tables into a new folder.

    It also sets denormals, threads and TF32 of this process (`prepare_device`).

    Args:
        model: a folder, a file, a name on the hub, or a run of ssm (`ssm.models.load.load_any_model`).
        text: a file, folder or glob, or several of them.
        out: the new folder. It appears with all numbers, and the page is written last, so that an error while drawing
            loses no number. Another call with the same folder is refused meanwhile.
        tokenizer: as in `ssm.data.own_text.tokenizer_named`; None: the model's own.
        device, threads: as in `ssm.models.device.prepare_device`.
        text_key: JSON key or Parquet column with the text.
        extend: returns the words of the command that the page shows if the model is worth extending; None: `ssm extend`
            with the same model, text, tokenizer and key of the text.
        settings: as in `settings_of`.

    Raises:
        UserError: with a message of one line.
    """
    text = path_names(text)
    require_outside(out, text)
    require_files(text, text_key)
    chosen = prepare_device(device, threads)
    with name_lock(out), scratch_folder(out) as scratch:
        with atomic_folder(out) as folder:
            settings_of(outline_of(model), chosen, **settings)  # wrong ones are refused before the weights are read
            loaded = load_any_model(model, chosen)
            spec = settings_of(loaded, chosen, **settings)
            known = tokenizer_of(loaded, tokenizer)
            for note in notes(loaded, known, spec, settings.get("context")):
                print(f"diagnose {loaded.title}: {note}", file=sys.stderr, flush=True)
            store = own_text(text, known, scratch / "tokens", held_out=1.0, text_key=text_key)
            diagnosis = diagnose_loaded(loaded, store, spec, chosen, text=", ".join(text))
            del store  # a network disk keeps files that are still open, and their folder
            write_diagnosis(diagnosis, folder)
        others = ["--tokenizer", tokenizer] if tokenizer is not None else []
        others += ["--text-key", text_key] if text_key != TEXT_KEY else []
        facts = diagnosis.facts
        words = extend(facts) if extend is not None else extend_words(facts, str(model), text, others)
        write_page(diagnosis, out, words)
    return diagnosis


def settings_of(
    loaded: LoadedModel | ModelOutline,
    device: torch.device,
    context: int | None = None,
    length: int | None = None,
    budget: float = BUDGET,
    precision: str | None = None,
    tolerance: float | None = None,
    **others: Any,
) -> DiagnosisSpec:
    """The settings of a diagnosis. Missing values come from the model's files, or are defaults.

    Args:
        loaded: the model; or its outline, to check the other arguments.
        context: T, tokens; None: the value in the model's files.
        length: tokens; None: 16 T, or where the model's positions end or change if that is shorter.
        budget: minutes.
        precision: None: `LoadedModel.default_precision`.
        tolerance: None: TOLERANCE.
        others: fields of `DiagnosisSpec`.

    Raises:
        ConfigError: neither the caller nor the model's files give a context, or a value is out of range.
    """
    context = loaded.context if context is None else context
    if context is None:
        raise ConfigError(f"{loaded.name}: its config.json does not say what context it was trained on; give --context")
    if context & (context - 1) and context == loaded.context:
        below = 1 << context.bit_length() - 1
        says = f"the context in its {loaded.described_by} is {context}, which is no power of two"
        raise ConfigError(f"{loaded.name}: {says}; give --context {below}")
    if loaded.longest is not None and (2 * context if length is None else length) > loaded.longest:
        raise ConfigError(
            f"{loaded.name}: its positions end or change at {loaded.longest}; give --length {loaded.longest} and a "
            "--context of at most half that length"
        )
    if length is None:
        length = min(DEFAULT_CONTEXTS * context, loaded.longest or DEFAULT_CONTEXTS * context)
    given = {
        "context": context,
        "length": length,
        "budget_seconds": 60.0 * budget,
        "precision": loaded.default_precision(device) if precision is None else precision,
        "tolerance": tolerance if tolerance is not None else TOLERANCE,
        **others,
    }
    return DiagnosisSpec.of_options(given, DiagnosisSpec.model_fields, {"budget_seconds": "budget"}, "")


def diagnose_loaded(
    loaded: LoadedModel,
    store: TokenStore,
    spec: DiagnosisSpec,
    device: torch.device,
    *,
    text: str,
    all_windows: bool = False,
) -> Diagnosis:
    """Diagnose a loaded model on the held-out part of a store.

    Args:
        text: description of the text in the store.
        all_windows: as in `sample`.
    """
    model = loaded.model.to(device)
    sampled = sample(model, store, spec, device, f"diagnose {loaded.title}", all_windows)
    facts = Facts(
        title=loaded.title,
        name=loaded.name,
        kind=loaded.kind,
        parameters=model.parameters_count,
        vocab_size=model.vocab_size,
        context=spec.context,
        length=spec.length,
        sequences=sampled.sequences,
        limit=spec.sequences,
        tokens_read=sampled.tokens,
        seconds=sampled.seconds,
        tokens_per_second=sampled.tokens_per_second,
        state_bytes=sampled.state_bytes,
        peak_bytes=sampled.peak_bytes,
        device=device_name(device),
        precision=spec.precision,
        text=text,
        text_sha256=store.manifest["corpus"]["sha256"],
        tokenizer=tokenizer_words(store),
        fingerprint=loaded.fingerprint,
        seed=spec.seed,
        tolerance=spec.tolerance,
        stopped_by=sampled.stopped_by,
        can_extend=loaded.why_not_extend is None,
        can_be_scaled=loaded.only_repaired,
        missing=sampled.missing,
        looks=sampled.looks,
        windows=sampled.windows,
        all_windows=all_windows,
        reading_seconds=sampled.reading_seconds,
        longest=loaded.longest,
        document=store.held_out.usual_document,
    )
    readings = read(sampled.tables, facts)
    return Diagnosis(facts, sampled.tables, readings, verdict_of(readings, facts))


def write_diagnosis(diagnosis: Diagnosis, folder: str | Path) -> None:
    """Write tables/ and diagnosis.json. No file is ever left half written."""
    folder = Path(folder)
    origin = provenance(**diagnosis.facts.as_json())
    for kind, frame in diagnosis.tables.present().items():
        write_table(frame, SCHEMAS[kind], folder / TABLES / f"{kind}.parquet", origin)
    write_json(folder / RECORD, as_json(diagnosis))


def write_page(diagnosis: Diagnosis, folder: str | Path, extend: Sequence[str] = ()) -> None:
    """Write index.html into the folder of `write_diagnosis`.

    Args:
        extend: as in `build_page`.
    """
    try:
        write_text(Path(folder) / PAGE, build_page(diagnosis, extend=extend))
    except Exception as error:
        error.add_note(f"the numbers of the diagnosis are in {folder}; only its page is missing")
        raise


def load_diagnosis(folder: str | Path) -> Diagnosis:
    """Read what `write_diagnosis` wrote.

    Raises:
        TableError: a file is missing, broken, or no part of a diagnosis.
    """
    folder = Path(folder)
    record, tables = read_diagnosis_record(folder / RECORD), folder / TABLES
    found = {path.stem for path in tables.glob("*.parquet")}
    for name in sorted(found - {field.name for field in fields(Tables)}):
        raise TableError(f"{tables / f'{name}.parquet'}: is not a table of a diagnosis")
    needed = {field.name for field in fields(Tables) if field.default is MISSING}
    read = {name: read_table(tables / f"{name}.parquet", SCHEMAS[name]) for name in sorted(needed | found)}
    return from_json(record, Tables(**read))

"""The folder of one extension: its settings, and the places of its files."""

from __future__ import annotations

import glob
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssm.base.errors import OutputError, shown
from ssm.base.files import LOCK, make_folder, write_json
from ssm.base.paths import require_outside
from ssm.base.records import RUN_RECORD, RUN_WEIGHTS
from ssm.base.strict_parsing import option, read_json, shaped
from ssm.diagnosis import WRITTEN as OF_DIAGNOSIS
from ssm.extension.records import Settings
from ssm.models.formats.source import CARD, COMPANIONS, CONFIG, INDEX, OWN_CODE, listed_in
from ssm.models.formats.write import check_apart
from ssm.training.checkpoint_file import FILE as CHECKPOINT

SETTINGS, RESULT, PAGE = "extension.json", "result.json", "index.html"
CHOICE = ("measure", "in_context_tolerance")  # settings that affect only the choice
READING = ("budget_seconds", "sequences")  # settings that affect how many windows a diagnosis reads
HELD_OUT = ("held_out", "held_out_files")  # settings that name other text to measure on
SPEED = ("micro_batch_tokens", "activation_checkpointing")  # settings that affect the time and memory of training
TEXTS, FILES = ("text", "held_out"), ("text_files", "held_out_files")  # names of files, and digests of their content
DIVIDED = ("divided", "share")  # settings that say which part of the text is held out of training
MODELS = ("model", "candidate")
# Globs of all files of an extension, besides weights with unusual names (`written_in`).
OF_MODEL = (CONFIG, CARD, RUN_RECORD, f"*{INDEX}", "*.safetensors", "*.bin", "*.pt", "*.pth", *COMPANIONS, *OWN_CODE)
WRITTEN = (
    SETTINGS, RESULT, PAGE, "work",
    *(f"{folder}/{file}" for folder in ("before", "after", "control") for file in OF_DIAGNOSIS),
    *(f"{folder}/{file}" for folder in MODELS for file in OF_MODEL),
)  # fmt: skip
NAMES = {  # settings that are no option with the same name
    "fingerprint": "the model's fingerprint",
    "tokenizer": "--tokenizer",
    "share": "--held-out",
    "divided": "whether --held-out is a share",
    "budget_seconds": "--budget, in seconds,",
    "passkey": "whether there are recall tests (--no-passkey)",
}


def written_in(folder: Path) -> Iterator[str]:
    """Globs of all files that an extension wrote in `folder`, which is read after the fixed names.

    Weights have the names that they had in the original. An index names them if they are unusual.
    """
    yield from WRITTEN
    for index in [index for part in MODELS for index in (folder / part).glob(f"*{INDEX}")]:
        for name in set(listed_in(index).values()):
            yield glob.escape(f"{index.parent.name}/{name}")


@dataclass(frozen=True)
class Folder:
    """The places in an extension's folder.

    - extension.json: the settings. The same command continues here; another command is refused.
    - work/tokens/: the token stores
    - work/runs/: the runs imported, extended and control (`ssm watch` shows them)
    - work/choice.json: the losses of the original and of the trained weights
    - work/trials.json: for a repair without training, all numbers that the search tried, and their losses
    - work/repair.json: for a repair without training, the numbers that the search found
    - before/, after/, control/: diagnoses
    - model/: the extended model in the original format, if something was gained
    - candidate/: otherwise, the trained model in the original format
    - index.html, result.json: written last
    """

    path: Path

    @property
    def tokens(self) -> Path:
        return self.path / "work" / "tokens"

    @property
    def choice(self) -> Path:
        return self.path / "work" / "choice.json"

    @property
    def repair(self) -> Path:
        return self.path / "work" / "repair.json"

    @property
    def trials(self) -> Path:
        return self.path / "work" / "trials.json"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def candidate(self) -> Path:
        return self.path / "candidate"

    @property
    def page(self) -> Path:
        return self.path / PAGE

    @property
    def result(self) -> Path:
        return self.path / RESULT

    def run(self, arm: str) -> Path:
        """The folder of the run imported, extended or control."""
        return self.path / "work" / "runs" / arm

    def diagnosis(self, of: str) -> Path:
        """The folder of the diagnosis before, after or control."""
        return self.path / of

    def check(self, original: Path | None, texts: Sequence[str]) -> None:
        """Check that the folder is new or has an extension, and does not mix with what the extension reads.

        Args:
            original: the folder of the original model, which is never changed; None: not known yet.
            texts: files, folders or globs of text. All files in a folder are text.

        Raises:
            OutputError: the folder is inside the original's folder or a text's, or has other content.
        """
        if original is not None:
            check_apart(self.path, original)
        require_outside(self.path, texts)
        temporary = {path.name for path in self.path.glob(f".{SETTINGS}.*.tmp")}  # of a process that was killed
        names = {path.name for path in self.path.iterdir()} if self.path.is_dir() else set[str]()
        present = names - {LOCK} - temporary
        if present and SETTINGS not in present:
            raise OutputError(f"{self.path}: has other content than an extension; give a new folder with -o")

    def begin(self, original: Path, texts: Sequence[str]) -> None:
        """Make the folder, unless it has an extension already.

        Raises:
            OutputError: as in `check`, or the folder cannot be written.
        """
        self.check(original, texts)
        make_folder(self.path)

    def record_settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Record the settings, and delete results that depend on changed ones.

        Before the first diagnosis, all settings may change. Before the first checkpoint of training, those of its time
        and memory may. Later, only settings that do not affect training may change, and only if no model was gained:
        the rules of the choice, the number of windows, and other held-out files. So nothing is trained twice.

        Args:
            settings: with the keys of TEXTS, FILES and DIVIDED, and "spec".

        Returns:
            The settings. The same files keep the names that they got first, such as a glob: the token store has these.
            If other files are held out later, the keys of DIVIDED keep their first values, because training has
            already used this part of the text.

        Raises:
            OutputError: a setting that may not change is different.
        """
        path = self.path / SETTINGS
        old: dict[str, Any] | None = None
        if path.exists():
            record = read_json(path, OutputError, "record of an extension")
            old = dict(shaped(record, Settings, f"{path}: not the record of an extension", OutputError))
            for name, files in zip(TEXTS, FILES, strict=True):
                if old[files] == settings[files]:
                    settings = settings | {name: old[name]}
        begun = old is not None and (self.diagnosis("before").exists() or self.run("extended").exists())
        if old is not None and begun and settings["held_out"]:
            settings = settings | {key: old[key] for key in DIVIDED}
        if old == settings:
            return settings
        if old is not None and begun:
            free = () if self.model.exists() or self._has_trained() else SPEED
            was, wanted = _without(old, free), _without(settings, free)
            if self.model.exists() or _of_training(was) != _of_training(wanted):
                differs = _difference(was, wanted)
                raise OutputError(f"{self.path}: has another extension ({differs}); give another -o")
            self.delete([self.result, self.candidate, self.diagnosis("after"), self.diagnosis("control")])
            other_text = any(old[key] != settings[key] for key in HELD_OUT)
            if other_text:
                self.delete([self.choice, self.trials, self.repair, self.tokens / "held_out"])
            if other_text or _of_reading(old) != _of_reading(settings):
                self.delete([self.diagnosis("before")])
        else:
            self.delete([self.trials, self.repair, self.tokens])
        write_json(path, settings)
        return settings

    def _has_trained(self) -> bool:
        """Whether a run has a checkpoint, or has ended."""
        files = (CHECKPOINT, RUN_WEIGHTS, RUN_RECORD)
        return any((self.run(arm) / file).exists() for arm in ("extended", "control") for file in files)

    def delete(self, paths: Sequence[Path]) -> None:
        """Delete files, links and folders in this order. A kill leaves each of them complete or gone.

        Raises:
            OutputError: one of them cannot be deleted.
        """
        for path in paths:
            try:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path.replace(path.with_name(f".{path.name}.tmp")))
                else:
                    path.unlink(missing_ok=True)
            except OSError as error:
                raise OutputError(f"{path}: cannot be deleted ({error.strerror or error})") from error


def _without(settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The settings without some keys of their spec."""
    return {**settings, "spec": {key: value for key, value in settings["spec"].items() if key not in names}}


def _of_training(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that training depends on."""
    spec = _without(settings, CHOICE)["spec"]
    spec["diagnosis"] = {key: value for key, value in spec["diagnosis"].items() if key not in READING}
    return {key: value for key, value in settings.items() if key not in HELD_OUT} | {"spec": spec}


def _of_reading(settings: Mapping[str, Any]) -> list[Any]:
    return [settings["spec"]["diagnosis"].get(key) for key in READING]


def _policy(spec: Mapping[str, Any]) -> str:
    """What the user gave as --policy."""
    repair, state = spec.get("repair"), spec.get("initial_state")
    if isinstance(repair, dict):
        return shown(repair.get("kind"))
    return shown(state.get("policy") if isinstance(state, dict) else state)


def _difference(old: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """The most telling difference of two settings, as text."""
    was, wanted = _policy(old["spec"]), _policy(settings["spec"])
    if was != wanted:
        return f"--policy was {was}, is {wanted}"
    setting, was, wanted = _first_difference(old, settings)
    if setting in FILES:
        return "the files of its text have changed"
    return f"{_named(setting)} was {shown(was)}, is {shown(wanted)}"


def _first_difference(was: Any, wanted: Any, where: str = "") -> tuple[str, Any, Any]:
    """The first setting that differs, such as spec.diagnosis.seed, and its two values."""
    if isinstance(was, dict) and isinstance(wanted, dict):
        for key in sorted(was.keys() | wanted.keys()):
            if was.get(key) != wanted.get(key):
                return _first_difference(was.get(key), wanted.get(key), f"{where}.{key}" if where else str(key))
    return where, was, wanted


def _named(setting: str) -> str:
    """A setting, such as spec.diagnosis.seed, as the user gave it."""
    first, *_, last = setting.split(".") * 2
    return NAMES.get(first) or NAMES.get(last) or option(last)

"""The folder of one extension: whose it is, and what lies where."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssm.base.errors import OutputError, shown
from ssm.base.files import make_folder, write_json
from ssm.base.records import Settings
from ssm.base.strict_parsing import read_json, shaped

SETTINGS, LOCK, RESULT = "extension.json", ".lock", "result.json"
CHOICE = ("measure", "in_context_tolerance")  # settings that nothing but the choice depends on
READING = ("budget_seconds", "sequences")  # settings of the diagnosis that say how many windows it reads
HELD_OUT = ("held_out", "held_out_files")  # settings that say which other text is measured
DIVIDED = ("divided", "share")  # settings that say which part of the text is held out of training


@dataclass(frozen=True)
class Folder:
    """The places below an extension's folder.

    extension.json             what was asked; the same command goes on here, another is refused
    work/tokens/               the token stores
    work/runs/                 imported, extended, control: folders of runs (`ssm watch` shows them)
    work/choice.json           what the original and the trained weights measure
    work/repair.json           instead of runs and choice: what the search for a repair's numbers found
    before/ after/ control/    diagnoses
    model/                     the extended model, in the format that the original came in, if something was gained
    candidate/                 the trained model, in that format, if nothing was
    index.html, result.json    last of all
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
    def model(self) -> Path:
        return self.path / "model"

    @property
    def candidate(self) -> Path:
        return self.path / "candidate"

    @property
    def page(self) -> Path:
        return self.path / "index.html"

    @property
    def result(self) -> Path:
        return self.path / RESULT

    def run(self, arm: str) -> Path:
        """Of imported, extended or control."""
        return self.path / "work" / "runs" / arm

    def diagnosis(self, of: str) -> Path:
        """Of before, after or control."""
        return self.path / of

    def begin(self, originals: Path, texts: Sequence[str]) -> None:
        """Make the folder, unless an extension has begun in it.

        Args:
            originals: the folder of the model to be extended, which is left alone.
            texts: files, folders or globs that are read; a folder's files are all text.

        Raises:
            OutputError: it is inside the original's folder or a text's, holds something else, or cannot be written.
        """
        new, original = self.path.resolve(), originals.resolve()
        if new == original or original in new.parents:
            raise OutputError(f"{self.path}: is inside the original's folder, which is left alone; give another -o")
        for text in texts:
            read = Path(text).expanduser().resolve()
            if new == read or read in new.parents:
                raise OutputError(f"{self.path}: is inside {text}, which is read as text; give another -o")
        make_folder(self.path)
        begun = {path.name for path in self.path.glob(f".{SETTINGS}.*.tmp")}  # a kill's, while it was written
        found = {path.name for path in self.path.iterdir()} - {LOCK} - begun
        if found and SETTINGS not in found:
            raise OutputError(f"{self.path}: holds something else than an extension; give a new folder with -o")

    def insist_on(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Note what is asked. What nothing rests on yet may be asked otherwise.

        As long as there are but tokens, that is everything. Afterwards, and where no model was gained, it is what
        training does not depend on: the rules of the choice, how many windows are read, and other files that are held
        out. Nobody who asks for these is made to train again.

        Args:
            settings: with the keys of HELD_OUT and DIVIDED, and "spec".

        Returns:
            The settings. Where other files are held out later, those of DIVIDED are as they were: what has trained has.

        Raises:
            OutputError: something else was asked when the extension began.
        """
        path = self.path / SETTINGS
        found = None
        if path.exists():
            found = read_json(path, OutputError, "record of an extension")
            if isinstance(found, dict) and "spec" in found and not found.keys() >= {*DIVIDED}:
                older = "holds an extension by an earlier version of ssm, which divided the text in another way"
                raise OutputError(f"{self.path}: {older}; it stays as it is: give another -o")
            found = dict(shaped(found, Settings, f"{path}: not the record of an extension", OutputError))
        begun = found is not None and (self.diagnosis("before").exists() or self.run("extended").exists())
        if found is not None and begun and settings["held_out"]:
            settings = settings | {key: found[key] for key in DIVIDED}
        if found == settings:
            return settings
        if found is not None and begun:
            if self.model.exists() or _of_training(found) != _of_training(settings):
                differs = _first_difference(found, settings)
                raise OutputError(f"{self.path}: holds another extension ({differs}); give another -o")
            self._forget([self.result, self.candidate, self.diagnosis("after"), self.diagnosis("control")])
            other_text = any(found[key] != settings[key] for key in HELD_OUT)
            if other_text:
                self._forget([self.choice, self.repair, self.tokens / "held_out"])
            if other_text or _of_reading(found) != _of_reading(settings):
                self._forget([self.diagnosis("before")])
        else:
            self._forget([self.tokens])
        write_json(path, settings)
        return settings

    def _forget(self, paths: Sequence[Path]) -> None:
        """Delete files and folders one after the other, each whole or not at all."""
        for path in paths:
            try:
                if path.is_dir():
                    shutil.rmtree(path.replace(path.with_name(f".{path.name}.tmp")))
                else:
                    path.unlink(missing_ok=True)
            except OSError as error:
                raise OutputError(f"{path}: cannot be deleted ({error.strerror or error})") from error


def _of_training(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that training depends on."""
    spec = {key: value for key, value in settings["spec"].items() if key not in CHOICE}
    spec["diagnosis"] = {key: value for key, value in spec["diagnosis"].items() if key not in READING}
    return {key: value for key, value in settings.items() if key not in HELD_OUT} | {"spec": spec}


def _of_reading(settings: Mapping[str, Any]) -> list[Any]:
    return [settings["spec"]["diagnosis"].get(key) for key in READING]


def _first_difference(was: Any, wanted: Any, where: str = "") -> str:
    if isinstance(was, dict) and isinstance(wanted, dict):
        for key in sorted(was.keys() | wanted.keys()):
            if was.get(key) != wanted.get(key):
                return _first_difference(was.get(key), wanted.get(key), f"{where}.{key}" if where else str(key))
    return f"{where} was {shown(was)}, is {shown(wanted)}"

"""The folder of one extension: whose it is, and what lies where."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssm.base.errors import OutputError, shown
from ssm.base.files import make_folder, write_json
from ssm.base.outside import read_json, shaped
from ssm.base.records import Settings

SETTINGS, LOCK, RESULT = "extension.json", ".lock", "result.json"
CHOICE = ("measure", "in_context_tolerance")  # settings that nothing but the choice depends on


@dataclass(frozen=True)
class Folder:
    """The places below an extension's folder.

    extension.json             what was asked; the same command goes on here, another is refused
    work/tokens/               the token stores
    work/runs/                 imported, extended, control: folders of runs (`ssm watch` shows them)
    work/choice.json           what the original and the trained weights measure
    work/repair.json           instead of runs and choice: what the search for a repair's numbers found
    before/ after/ control/    diagnoses
    model/                     the extended model, in the format that the original came in
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

    def insist_on(self, settings: dict[str, Any]) -> None:
        """Note what is asked. What nothing rests on yet may be asked otherwise.

        That is everything as long as there are but tokens, and the rules of the choice where no model was exported: who
        gained nothing may be less strict, and is not trained again.

        Raises:
            OutputError: something else was asked when the extension began.
        """
        path = self.path / SETTINGS
        found = None
        if path.exists():
            found = read_json(path, OutputError, "record of an extension")
            found = shaped(found, Settings, f"{path}: not the record of an extension", OutputError)
        if found == settings:
            return
        if found is not None and self.diagnosis("before").exists():
            if self.model.exists() or _without_choice(found) != _without_choice(settings):
                differs = _first_difference(found, settings)
                raise OutputError(f"{self.path}: holds another extension ({differs}); give another -o")
            for of in ("after", "control"):
                shutil.rmtree(self.diagnosis(of), ignore_errors=True)
            self.result.unlink(missing_ok=True)
        else:
            shutil.rmtree(self.tokens, ignore_errors=True)
        write_json(path, settings)


def _without_choice(settings: Mapping[str, Any]) -> dict[str, Any]:
    spec = {key: value for key, value in settings["spec"].items() if key not in CHOICE}
    return {**settings, "spec": spec}


def _first_difference(was: Any, wanted: Any, where: str = "") -> str:
    if isinstance(was, dict) and isinstance(wanted, dict):
        for key in sorted(was.keys() | wanted.keys()):
            if was.get(key) != wanted.get(key):
                return _first_difference(was.get(key), wanted.get(key), f"{where}.{key}" if where else str(key))
    return f"{where} was {shown(was)}, is {shown(wanted)}"

"""An example of every task, for the tests of all tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from small import make_task, text

from ssm.data.store import TokenStore

QUESTIONS = [f"qa{number}" for number in range(1, 11)]
TASKS: dict[str, dict[str, Any]] = {
    "copy": {"task": "copy", "mix": [{"shortest": 5, "longest": 9, "share": 3}, {"shortest": 12, "longest": 12}]},
    "copy, packed": {"task": "copy", "alphabet": 7, "packed": 50, "mix": [{"shortest": 2, "longest": 9}]},
    "stack_copy": {"task": "stack_copy", "mix": [{"shortest": 4, "longest": 9}]},
    "stack_copy, packed": {"task": "stack_copy", "packed": 50, "mix": [{"shortest": 3, "longest": 9}]},
    "sort": {"task": "sort", "alphabet": 40, "mix": [{"shortest": 4, "longest": 9}]},
    "sort, packed": {"task": "sort", "alphabet": 30, "packed": 50, "mix": [{"shortest": 3, "longest": 9}]},
    "passkey": {"task": "passkey", "mix": [{"length": 280}, {"length": 260, "depths": [0.5, 1.0]}]},
    "needle": {
        "task": "needle",
        "corpus": {"kind": "files", "paths": ["TEXTS"]},
        "held_out": 0.4,
        "mix": [{"length": 330}, {"length": 260, "depths": [0.5, 1.0], "relations": ["capital", "young"]}],
    },
    "recall": {
        "task": "recall",
        "vocabulary": 64,
        "mix": [{"length": 30, "pairs": 5, "share": 3}, {"length": 40, "pairs": 9}],
    },
    "ruler": {
        "task": "ruler",
        "mix": [{"length": 700, "tasks": ["niah_single_1", "niah_multikey_2"]}, {"length": 2000, "tasks": ["vt"]}],
    },
    "facts": {"task": "facts", "mix": [{"length": 3500, "questions": QUESTIONS}]},
    "facts, hidden": {
        "task": "facts",
        "corpus": {"kind": "files", "paths": ["TEXTS"]},
        "held_out": 0.4,
        "mix": [{"length": 700, "questions": ["qa1", "qa6"], "facts": [2, 6]}],
        "shots": 1,
    },
    "pixels": {"task": "pixels", "images": {"kind": "digits"}, "examples": 1297},
}
HELD = {"pixels": 500}  # number of test examples, for tasks with a finite set
# The first tokens of examples. If they change, results change under the same ids.
GOLDEN = {
    "copy": "ecf6bfaf9481f427",
    "copy, packed": "98b450debdbfd2ee",
    "stack_copy": "db2395672ce559e2",
    "stack_copy, packed": "bdddc75976669029",
    "sort": "495b7f62812f26b8",
    "sort, packed": "f03ac783594cfb18",
    "passkey": "9cecc0ed9cbe0d40",
    "needle": "0572b3e23610359b",
    "recall": "e30fcd2723272a5f",
    "ruler": "51d1a1656f9f347b",
    "facts": "f289afea16169fd4",
    "facts, hidden": "0c8e0aee047f0864",
    "pixels": "9f91dbde5bfeffdc",
}


def task_store(name: str, folder: Path) -> TokenStore:
    """The store of an example; its texts are in the same folder."""
    content = TASKS[name]
    if "corpus" in content:
        texts = folder / "texts"
        texts.mkdir(parents=True)
        for number in range(12):
            (texts / f"{number:02}.txt").write_text(text(number).replace(" is ", " is. ").replace(" so ", " so\n"))
        content = content | {"corpus": {"kind": "files", "paths": [str(texts)]}}
    return make_task(folder / "tokens", **content)

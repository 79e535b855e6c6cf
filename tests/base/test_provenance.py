"""The commit of the code is that of its own checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ssm.base import provenance


def test_an_installed_copy_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of the repository in which its environment is."""
    identity = ("-c", "user.name=n", "-c", "user.email=e")
    for command in (("init", "--quiet"), (*identity, "commit", "--quiet", "--allow-empty", "--message", "m")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)

    def commit(root: Path) -> str:
        monkeypatch.setattr(provenance, "__file__", str(root / "ssm/base/provenance.py"))
        return provenance._commit()

    (tmp_path / "site-packages").mkdir()
    assert commit(tmp_path / "site-packages") == "unknown"
    assert len(commit(tmp_path)) == 12

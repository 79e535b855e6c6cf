"""Calls `ssm` and reads what it prints."""

from __future__ import annotations

import pytest

from ssm.cli.main import main


def lines(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> list[str]:
    """The lines that `ssm` prints with these arguments. It has to end with this exit code."""
    capsys.readouterr()
    assert main(list(arguments)) == code
    printed = capsys.readouterr()
    return (printed.out + printed.err).splitlines()

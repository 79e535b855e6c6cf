"""The header of a safetensors file: bounded, inside the file, one line."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from ssm.base.errors import ConfigError
from ssm.base.safetensors_header import safetensors_header


def tensors(header: Any, size: int = 8) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"\0" * size


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file has 0 bytes"),
        (struct.pack("<Q", 10**15) + b"{}", "its header should have 1,000,000,000,000,000"),
        (tensors(b"[" * 5000), "nested more than 48 deep"),
        (tensors([1]), "not a mapping of tensors"),
        (tensors({"__metadata__": {"ssm": 1}}), "its metadata are not text"),
        (tensors({"a": {"shape": [10**15], "data_offsets": [0, 4 * 10**15]}}), "'a' is outside the file"),
        (tensors({"a": {"shape": [10**15], "data_offsets": [0, 8]}}), "'a' is outside the file"),
        (tensors({"a": {"shape": [-1], "data_offsets": [0, 8]}}), "'a' is outside the file"),
        (tensors({"a": {"shape": [2]}}), "'a' is outside the file"),
    ],
)
def test_headers_that_are_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        safetensors_header(path, ConfigError)
    text = str(error.value)
    assert text.startswith(f"{path}: truncated or corrupted")
    assert says in text
    assert "\n" not in text
    assert len(text) < 1000


def test_a_header_that_is_read(tmp_path: Path) -> None:
    header = {"__metadata__": {"a": "b"}, "x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    (tmp_path / "a").write_bytes(tensors(header))
    assert safetensors_header(tmp_path / "a", ConfigError) == header

"""Tables and weights that hold their own digest: no bit of them can change unseen."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch

from ssm.base import checksum
from ssm.base.errors import CheckpointError, TableError, UserError
from ssm.base.tables import VERDICTS, read_any, read_provenance, read_table, write_table
from ssm.models.weights_file import load_tensors, read_header, save_tensors
from ssm.specs.measurements import SCHEMAS
from ssm.specs.measurements.position_loss import PositionLoss

FLIPS = 200


def table(path: Path) -> None:
    rows = [(n // 8, n % 8, n % 8 + 1, 2.0 + n / 7) for n in range(64)]
    write_table(pl.DataFrame(rows, PositionLoss.table.columns, orient="row"), PositionLoss.table, path, {"seed": 1})


def weights(path: Path) -> None:
    save_tensors(path, {"a": torch.arange(500.0), "b": torch.ones(3, dtype=torch.bfloat16)}, {"step": 3})


def read(path: Path) -> object:
    return read_table(path, PositionLoss.table) if path.suffix == ".parquet" else load_tensors(path)


@pytest.mark.parametrize(("name", "write"), [("a.parquet", table), ("a.safetensors", weights)])
@pytest.mark.parametrize("among", [slice(None), slice(0, 600), slice(-600, None)], ids=["all", "front", "end"])
def test_every_flipped_bit_is_found(tmp_path: Path, name: str, write: Callable[[Path], None], among: slice) -> None:
    path, rng = tmp_path / name, random.Random(name)
    write(path)
    good = path.read_bytes()
    places = range(len(good))[among]
    for _ in range(FLIPS):
        content = bytearray(good)
        content[rng.choice(places)] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        with pytest.raises(UserError) as error:
            read(path)
        assert "\n" not in str(error.value)
    path.write_bytes(good)
    read(path)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    table(tmp_path / "a:b.parquet")
    frame, schema, provenance = read_any(tmp_path / "a:b.parquet", SCHEMAS)
    assert frame.rows()[9] == (1, 1, 2, 2.0 + 9 / 7)
    assert (schema, provenance) == (PositionLoss.table, {"seed": 1})
    assert read_table(tmp_path / "a:b.parquet", PositionLoss.table).equals(frame)
    assert read_provenance(tmp_path / "a:b.parquet") == provenance
    weights(tmp_path / "w")
    tensors, header = load_tensors(tmp_path / "w")
    assert header == read_header(tmp_path / "w") == {"step": 3}
    assert torch.equal(tensors["a"], torch.arange(500.0))


def test_the_same_weights_are_the_same_file(tmp_path: Path) -> None:
    weights(tmp_path / "a")
    weights(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_pages_have_checksums_for_other_readers(tmp_path: Path) -> None:
    """Every flipped bit of the numbers themselves is seen by pyarrow alone."""
    import pyarrow.parquet as pq

    table(tmp_path / "a.parquet")
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    column = pq.read_metadata(tmp_path / "a.parquet").row_group(0).column(3)
    content[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 2] ^= 1
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(OSError, match="CRC checksum"):
        pq.read_table(tmp_path / "a.parquet", page_checksum_verification=True)


THREADS = """
import os, sys
import polars, pyarrow
from ssm.base.tables import read_provenance
pyarrow.set_cpu_count(16)
before = len(os.listdir("/proc/self/task"))
read_provenance(sys.argv[1])
print(len(os.listdir("/proc/self/task")) - before)
"""


def test_no_thread_of_pyarrow_holds_a_table_that_was_read(tmp_path: Path) -> None:
    """One that still held the file when Python ended would abort the process: so did half of the calls under load."""
    path = tmp_path / "t.parquet"
    table(path)
    found = subprocess.run([sys.executable, "-c", THREADS, str(path)], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 3  # with threads one for each column, and another


def test_files_of_others_are_told_how_to_be_made_again(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(TableError, match=r"contains no digest: .*; delete it and make it again"):
        read_table(tmp_path / "a.parquet")
    weights(tmp_path / "w")
    (tmp_path / "w").write_bytes((tmp_path / "w").read_bytes().replace(checksum.MARK.encode(), b"ssm_sha256:"))
    with pytest.raises(CheckpointError, match="contains no digest"):
        load_tensors(tmp_path / "w")


def test_words_that_look_like_the_place_of_a_digest_are_left_alone(tmp_path: Path) -> None:
    path, frame = (
        tmp_path / "a.parquet",
        pl.DataFrame({"sequence": [0], "position_from": [0], "position_to": [1], "loss": [2.0]}),
    )
    write_table(frame, PositionLoss.table, path, {"name": checksum.MARK + "not digits"})
    assert read_provenance(path) == {"name": checksum.MARK + "not digits"}
    digest = checksum.MARK + "ab" * 32  # a whole one: which of the two is the file's own cannot be told
    with pytest.raises(UserError, match="looks like a digest"):
        write_table(frame, PositionLoss.table, path, {"name": digest})
    assert read_provenance(path) == {"name": checksum.MARK + "not digits"}


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    empty = pl.DataFrame(schema=PositionLoss.table.columns)
    with pytest.raises(TableError, match="has no rows"):
        write_table(empty, PositionLoss.table, tmp_path / "a.parquet", {})
    write_table(pl.DataFrame(schema=VERDICTS.columns), VERDICTS, tmp_path / "v.parquet", {})
    assert read_table(tmp_path / "v.parquet", VERDICTS).is_empty()
    with pytest.raises(TableError, match="expected 'position_loss'"):
        read_table(tmp_path / "v.parquet", PositionLoss.table)

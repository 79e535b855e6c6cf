"""Tables: tidy Parquet files with a declared schema, their provenance and their digest inside.

The schemas of all results stand here, in one place, because they are the contract between the floor that measures
and the floor that draws and judges. Losses are natural-log cross-entropies in nats per token; positions count tokens
from the start of the sequence, and a bin [position_from, position_to) holds the TARGETS predicted at these positions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ssm.base.errors import TableError, first_line, nearest, shown
from ssm.base.files import whole_file
from ssm.base.outside import parse_json
from ssm.base.seal import BLANK, check_seal, seal

I64, F64, TEXT = pl.Int64(), pl.Float64(), pl.String()


@dataclass(frozen=True)
class Schema:
    """A table's name, its columns in order, and one line on what a row is.

    `keys` are the columns that say what a row is about; the others hold what was found there. `sample` is the one of
    them that numbers what was drawn at random, and over which a mean has its error.
    """

    name: str
    row: str
    columns: dict[str, pl.DataType]
    keys: tuple[str, ...] = ()
    sample: str | None = None
    may_be_empty: bool = False


METRICS = Schema(
    "metrics",
    "one optimizer step of a training run",
    {
        "step": I64,  # 1, 2, ...
        "tokens": I64,  # tokens seen up to and including this step
        "loss": F64,  # training loss of this step's batch, nats per token
        "grad_norm": F64,  # before clipping
        "lr": F64,
        "weight_decay": F64,
        "state_norm": F64,  # mean norm of the state that the batch started from (0 for the zero state)
    },
    keys=("step", "tokens"),
    may_be_empty=True,  # so it is at a checkpoint inside the first step
)
POSITION_LOSS = Schema(
    "position_loss",
    "one sequence, one bin of positions: the loss with the full history since the start of the sequence",
    {"sequence": I64, "position_from": I64, "position_to": I64, "loss": F64},
    keys=("sequence", "position_from", "position_to"),
    sample="sequence",
)
RESTART_LOSS = Schema(
    "restart_loss",
    "one sequence, one bin: the loss on the SAME targets when the model restarts T/2 to T tokens before each",
    {"sequence": I64, "position_from": I64, "position_to": I64, "loss": F64},
    keys=("sequence", "position_from", "position_to"),
    sample="sequence",
)
EFFECTIVE_REMEMBRANCE = Schema(
    "effective_remembrance",
    "one sequence, one t, one distance: d(q(.|x_0:T), q(.|x_t:T)) (lg Def. 3.3)",
    {"sequence": I64, "t": I64, "length": I64, "distance": TEXT, "value": F64},
    keys=("sequence", "t", "length", "distance"),
    sample="sequence",
)
STATE_STATISTICS = Schema(
    "state_statistics",
    "one sequence, one position, one layer, one head (-1: all heads; layer -1: the whole state)",
    {"sequence": I64, "position": I64, "layer": I64, "head": I64, "norm": F64, "mean": F64, "std": F64},
    keys=("sequence", "position", "layer", "head"),
    sample="sequence",
)
PASSKEY = Schema(
    "passkey",
    "one length, one depth, one trial: a key read in a long text and asked for at its end",
    {
        "length": I64,  # tokens of the prompt and the key that is asked for
        "depth": F64,  # of the key in the text: 0 its start, 1 its end
        "trial": I64,  # 0, 1, ...: other digits, and a text that begins elsewhere
        "correct": pl.Boolean(),  # every token of the key is the most probable one after those before it
        "digits_right": I64,  # digits that are spelled before the first token that is not
    },
    keys=("length", "depth", "trial"),
    sample="trial",
)
LENGTH_CLASS = Schema(
    "length_class",
    "one run: its class of length extension (ls Def. 2.1) and whether it length-generalizes (lg Def. 3.2)",
    {
        "class": TEXT,  # strong, weak, none or not decided (ls Def. 2.1)
        "extends_from": I64,  # T_0 of ls Def. 2.1; null for none and where it is not decided
        "largest_rise": F64,  # largest increase of the loss from one length to the next, nats
        "largest_rise_error": F64,  # its standard error over sequences
        "generalizes": pl.Boolean(),  # lg Def. 3.2
        "best_position": I64,  # t* of lg Def. 3.2, middle of its bin
        "excess": F64,  # largest loss past t* minus the loss at t*, nats
        "excess_error": F64,
        "excess_sequences": I64,  # that the excess was tested on: half of all, the other half chose t*
        "context": I64,
        "length": I64,
        "sequences": I64,
    },
    keys=("context", "length", "sequences"),
)
MODEL_SIZE = Schema(
    "model_size",
    "one named model: its configuration as built here, and its parameter count",
    {
        "model": TEXT,
        "mixer": TEXT,  # of a hybrid all of them, joined by +
        "n_layers": I64,
        "d_model": I64,
        "state_shape": TEXT,  # of one sequence in one layer (of most layers), the heads first
        "peak_lr": F64,
        "parameters": I64,  # tied embeddings counted once, at the tokenizer's vocabulary
        "embedding_parameters": I64,
        "published_parameters": I64,
    },
    keys=("model",),
)
VERDICTS = Schema(
    "verdicts",
    "one claim of one figure, judged",
    {
        "target": TEXT,
        "claim": TEXT,
        "says": TEXT,
        "paper": TEXT,  # what the paper reports
        "quantity": TEXT,  # what is computed here, in words
        "estimate": F64,
        "low": F64,
        "high": F64,
        "interval": TEXT,  # how the interval was made
        "expected": TEXT,  # the region that confirms
        "verdict": TEXT,  # confirmed, refuted, not decided
        "reason": TEXT,
        "sort": TEXT,  # whose statement: paper, definition (a property of what was built), ours; elsewhere
        "number": TEXT,  # the same for verdicts, of whichever figures, that judge the very same number
        "registered": pl.Boolean(),  # before its seeds were read; null: a rehearsal
        "registration": TEXT,  # that in words
    },
    may_be_empty=True,  # a figure need not claim anything
)
TAXONOMY = Schema(
    "taxonomy",
    "one named model's recurrence: what its spec declares, and what was measured on the mixer of most of its layers",
    {
        "model": TEXT,
        "mixer": TEXT,
        "system": TEXT,  # its published name
        "paper": TEXT,
        "scan": TEXT,  # the operation that carries it
        "decay": TEXT,  # what one decay is shared by
        "complex": pl.Boolean(),
        "recurrence": TEXT,
        "state_shape": TEXT,  # of one sequence in one layer
        "state_numbers": I64,  # in the state of one sequence and layer after one token
        "state_numbers_late": I64,  # after `length` tokens
        "length": I64,
        "selective": pl.Boolean(),  # measured: what remains of an initial state depends on the input; null: it grows
        "linear": pl.Boolean(),  # measured: what remains is proportional to the initial state; null: it grows
        "identity": pl.Boolean(),  # measured: what remains is the initial state, whole (A_t = I); null: it grows
    },
    keys=("model",),
)
COST = Schema(
    "cost",
    "what one step of a model costs at one length",
    {
        "model": TEXT,
        "mixer": TEXT,
        "length": I64,  # T
        "cost": TEXT,  # training_step, decoding_step: seconds; training_memory, state: bytes
        "repeat": I64,  # 1, 2, ...; bytes are counted once
        "value": F64,
    },
    keys=("model", "mixer", "length", "cost", "repeat"),
    sample="repeat",
)
TRAINING_SPEED = Schema(
    "training_speed",
    "one timed training step of one implementation; implementations alternate within a repeat",
    {
        "model": TEXT,
        "implementation": TEXT,  # ssm, or transformers and how it scans
        "flush_denormal": pl.Boolean(),  # whether denormal numbers are flushed to zero
        "repeat": I64,  # 1, 2, ...
        "milliseconds": F64,
        "tokens_per_second": F64,
    },
)
PROCESS_SPEED = Schema(
    "process_speed",
    "one short run of training, by one process or by several; the ways alternate within a repeat",
    {
        "model": TEXT,
        "processes": I64,
        "batch_tokens": I64,  # tokens of a training step
        "way": TEXT,  # one; part: one, a part of the batch; apart: each its part, at once; together: as a team
        "repeat": I64,  # 1, 2, ...
        "milliseconds": F64,  # a step of the slowest process
    },
)
SCAN_SPEED = Schema(
    "scan_speed",
    "one timed call of one implementation of a scan; implementations alternate, and who is wrong is not timed",
    {
        "operation": TEXT,  # a function of ssm_kernels
        "system": TEXT,  # whose sizes and decays
        "shape": TEXT,  # B x T x ...
        "dtype": TEXT,
        "state": pl.Boolean(),  # with an initial state, and with a gradient through the final one
        "direction": TEXT,  # forward, forward+backward
        "contestant": TEXT,  # a backend of ours, or a peer
        "repeat": I64,  # 1, 2, ...; null: not timed
        "milliseconds": F64,
        "error": F64,  # the largest relative error of an output or gradient against the oracle in float64
        "reason": TEXT,  # why it was not timed
        "limit_ms": F64,  # what the machine's measured limits allow
    },
)
SCHEMAS = {
    schema.name: schema
    for schema in (
        METRICS,
        POSITION_LOSS,
        RESTART_LOSS,
        EFFECTIVE_REMEMBRANCE,
        STATE_STATISTICS,
        PASSKEY,
        LENGTH_CLASS,
        MODEL_SIZE,
        VERDICTS,
        TAXONOMY,
        COST,
        TRAINING_SPEED,
        PROCESS_SPEED,
        SCAN_SPEED,
    )
}


def write_table(frame: pl.DataFrame, schema: Schema, path: str | Path, provenance: dict[str, Any]) -> None:
    """Write `frame` as a whole Parquet file that carries the schema's name and the provenance in its metadata.

    Raises:
        TableError: the columns or types of `frame` are not the schema's.
        OutputError: `path` cannot be written.
    """
    _check(frame, schema, Path(path))
    metadata = {"ssm.schema": schema.name, "ssm.provenance": json.dumps(provenance, sort_keys=True), "ssm.seal": BLANK}
    table = frame.to_arrow()
    # The digest is that of the whole file; the pages' own checksums are for other readers. Arrow's schema would be
    # a second copy of the metadata.
    options = {"compression": "zstd", "write_page_checksum": True, "store_schema": False}
    with whole_file(path) as temporary:
        # A file is opened here, because of a path pyarrow takes what precedes a colon for a protocol.
        with temporary.open("wb") as file, pq.ParquetWriter(file, table.schema, **options) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(metadata)
        seal(temporary)


def read_table(path: str | Path, schema: Schema | None = None) -> pl.DataFrame:
    """Read a table; with `schema` given, insist on it.

    Raises:
        TableError: no such file, not a Parquet file, changed since it was written, no or another schema, or no rows.
    """
    table = _open(path)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    if schema is not None:
        name = _metadata(table.schema, path, "schema")
        if name != schema.name:
            raise TableError(f"{path}: holds the schema {shown(name)}, expected '{schema.name}'")
        _check(frame, schema, Path(path))
    return frame


def schema_name(path: str | Path) -> str:
    """The name of the schema that a table follows. Raises as `read_table`."""
    return _metadata(_open(path).schema, path, "schema")


def schema_of(path: str | Path) -> Schema:
    """The schema that a table follows. Raises as `read_table`."""
    name = schema_name(path)
    if name not in SCHEMAS:
        raise TableError(f"{path}: holds the schema {shown(name)}; {nearest(name, SCHEMAS)}")
    return SCHEMAS[name]


def read_provenance(path: str | Path) -> dict[str, Any]:
    """The provenance that `write_table` stored. Raises as `read_table`."""
    text = _metadata(_open(path).schema, path, "provenance")
    found = parse_json(text, f"{path}: its provenance", TableError, "JSON object")
    if not isinstance(found, dict):
        raise TableError(f"{path}: its provenance: not a JSON object")
    return found


def _open(path: str | Path) -> pa.Table:
    """The one way in: what is not what was written is refused before it is read."""
    try:
        with Path(path).open("rb") as file:
            if file.read(4) != b"PAR1":
                raise TableError(f"{path}: not a readable Parquet file")
        check_seal(path, TableError, "delete it and make it again")
        # pq.read_table would import pandas where it is installed.
        with Path(path).open("rb") as file, pq.ParquetFile(file, page_checksum_verification=True) as table:
            return table.read()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise TableError(f"{path}: no such table") from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise TableError(f"{path}: not a readable Parquet file ({first_line(error)})") from error


def _metadata(schema: pa.Schema, path: str | Path, what: str) -> str:
    found = (schema.metadata or {}).get(f"ssm.{what}".encode())
    if found is None:
        raise TableError(f"{path}: carries no {what}, so it was not written by ssm")
    return found.decode(errors="replace")


def _check(frame: pl.DataFrame, schema: Schema, path: Path) -> None:
    if frame.is_empty() and not schema.may_be_empty:
        raise TableError(f"{path}: has no rows; a '{schema.name}' has at least one ({schema.row})")
    for column in frame.columns:
        if column not in schema.columns:
            hint = nearest(column, schema.columns)
            raise TableError(f"{path}: column '{column}' is not in the schema '{schema.name}'; {hint}")
    for column, kind in schema.columns.items():
        if column not in frame.columns:
            raise TableError(f"{path}: column '{column}' of the schema '{schema.name}' is missing")
        if frame.schema[column] != kind:
            raise TableError(
                f"{path}: column '{column}' is {frame.schema[column]}, the schema '{schema.name}' says {kind}"
            )

"""Checkpoints of other libraries, in and out: one file a format, each a table of names. A new one: its file, and a line
in FORMATS.
"""

from ssm.models.formats.format import Format
from ssm.models.formats.read import FORMATS, Imported, import_checkpoint, known_format
from ssm.models.formats.write import export_checkpoint, round_as_read

__all__ = ["FORMATS", "Format", "Imported", "export_checkpoint", "import_checkpoint", "known_format", "round_as_read"]

"""Checkpoints of other libraries, in and out: one file a format, each with a table of config.json's keys and one of
tensors' names. A new one: its file, called like its key, which registers it.
"""

from ssm.models.formats.format import FORMATS, Format
from ssm.models.formats.read import Imported, import_checkpoint, known_format
from ssm.models.formats.write import export_checkpoint, round_as_read

__all__ = ["FORMATS", "Format", "Imported", "export_checkpoint", "import_checkpoint", "known_format", "round_as_read"]

FORMATS.discover()

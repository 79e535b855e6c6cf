"""Read and write checkpoints of other libraries.

A format is a table of the keys of config.json and a table of tensor names. Its file has the name of its key and
registers it. Variants are in the same file. To add a format, add a file.
"""

from ssm.models.formats.format import FORMATS, Format
from ssm.models.formats.read import Imported, known_format
from ssm.models.formats.write import export_checkpoint, round_as_read

__all__ = ["FORMATS", "Format", "Imported", "export_checkpoint", "known_format", "round_as_read"]

FORMATS.discover()

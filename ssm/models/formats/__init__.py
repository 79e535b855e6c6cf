"""Read and write checkpoints of other libraries.

Each format has one file: a table of the keys of config.json and a table of tensor names. To add a format, add a file
with the name of its key. The file registers the format.
"""

from ssm.models.formats.format import FORMATS, Format
from ssm.models.formats.read import Imported, import_checkpoint, known_format
from ssm.models.formats.write import export_checkpoint, round_as_read

__all__ = ["FORMATS", "Format", "Imported", "export_checkpoint", "import_checkpoint", "known_format", "round_as_read"]

FORMATS.discover()

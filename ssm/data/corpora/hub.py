"""A data set of the Hugging Face hub, streamed by the optional package `datasets`."""

from __future__ import annotations

from collections.abc import Iterator

from ssm.base.errors import DataError, first_line, nearest
from ssm.data.corpora.base import CorpusReader, Document, as_text
from ssm.specs.corpora.hub import HubCorpus


class HubReader(CorpusReader, kind="hub"):
    """Reads the rows of a data set."""

    spec: HubCorpus

    def documents(self) -> Iterator[Document]:
        """Every row of the split, in the hub's order; nothing is stored on this machine.

        Raises:
            DataError: the package is missing, the data set cannot be opened or read, or a row lacks the text.
        """
        spec = self.spec
        try:
            import datasets
        except ImportError as error:
            raise DataError(f"{spec.name}: data sets of the hub need `pip install '.[hub]'` in the clone") from error
        where = f"{spec.name} ({spec.split})"
        try:
            rows = iter(
                datasets.load_dataset(spec.name, spec.config, split=spec.split, revision=spec.revision, streaming=True)
            )
        except Exception as error:  # the package raises its own exceptions, and its transports' exceptions
            raise DataError(f"{where}: cannot be opened on the hub ({first_line(error)})") from error
        number = 0
        while True:
            try:
                row = next(rows)
            except StopIteration:
                return
            except Exception as error:
                raise DataError(f"{where}: reading failed at row {number} ({first_line(error)})") from error
            if spec.text_key not in row:
                raise DataError(f"{where}: no column '{spec.text_key}' (text_key); {nearest(spec.text_key, row)}")
            text = as_text(row[spec.text_key], f"{where}: row {number} of column '{spec.text_key}'")
            yield Document(f"{spec.split}:{number}", text, len(text))
            number += 1

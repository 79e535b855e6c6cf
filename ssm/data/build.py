"""Building a token store: documents are streamed, hashed, split and encoded; their tokens go to shards.

Memory holds only the batches in progress and the largest document. The store is built in a temporary folder next to its
final one, and renamed when it is complete.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from ssm.base.errors import ConfigError, DataError, MissingFilesError, OutputError
from ssm.base.files import name_lock, new_folder, reading, scratch_folder, write_json, write_text, writing
from ssm.base.progress import Progress
from ssm.base.provenance import provenance
from ssm.base.seeds import derived_seed
from ssm.data.corpora import Document, build_reader, documents
from ssm.data.encoding import BATCH_BYTES, TextBatch, encode_in_order, usable_cores
from ssm.data.shards import SplitWriter
from ssm.data.store import ALWAYS, FORMAT, MANIFEST, SPLITS, TOKENIZER, VERSION, TokenStore
from ssm.data.tokenizers import Tokenizer, make_tokenizer
from ssm.specs.base import short_hash
from ssm.specs.data import BpeTokenizer, BytesTokenizer, Data, DataSpec


def build_store(spec: Data, folder: str | Path, workers: int | None = None, utf8: bool = False) -> bool:
    """Tokenize the spec's corpus into `folder`, completely or not at all. A task without text gets only a manifest.

    Args:
        spec: corpus, tokenizer and held-out share; or a task.
        folder: the store's folder, or a link to it. It is missing or empty, or holds the finished store of this spec.
        workers: tokenizing processes; None: one per core. The tokens do not depend on it.
        utf8: the text must be in UTF-8 for the tokenizer `bytes`, too, as it must for the others.

    Returns:
        True if the store was built, False if it existed.

    Raises:
        DataError: the corpus or the tokenizer is missing, unreadable or empty; or a split would be empty.
        OutputError: the folder holds something else, or the tokens of files that have changed; or cannot be written; or
            another process builds it.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"workers: expected at least 1, got {workers}")
    folder = new_folder(folder)
    if _already_there(spec, folder):
        _require_unchanged(spec, folder)
        return False
    with name_lock(folder), scratch_folder(folder) as temporary:
        _build(spec, temporary, workers or usable_cores(), utf8)
        if _already_there(spec, folder):  # another process has built it meanwhile
            return False
        with writing(folder):
            if any(folder.glob("*")):
                shutil.rmtree(folder)  # parts of a store without a manifest
            temporary.rename(folder)  # it may be an empty folder
    return True


def split_of(spec: DataSpec, index: int) -> str:
    """The split of the document at `index` of the corpus, as a function of the spec's seed and the index."""
    drawn = derived_seed(spec.held_out_seed, "held_out", index)
    if drawn < spec.held_out * 2**63:
        return "held_out"
    return "choice" if drawn < (spec.held_out + spec.choice) * 2**63 else "train"


def _build(spec: Data, folder: Path, workers: int, utf8: bool) -> None:
    text, corpus, counts = spec.text, hashlib.sha256(), {"documents": 0, "bytes": 0}
    tokenizer, writers = None, {}
    sizes = _sizes(_files(spec))  # first: a file that changes meanwhile has another size later
    if text is not None and (utf8 or not isinstance(text.tokenizer, BytesTokenizer)):
        build_reader(text.corpus).require_utf8()
    if spec.spelled_by is not None:
        tokenizer = make_tokenizer(spec.spelled_by, _tokenizer_training_texts(text))
    if text is not None:
        assert tokenizer is not None
        writers = _tokenize(text, tokenizer, folder, workers, corpus, counts)
    _hash_other_files(corpus, spec)
    written = {name: entry for writer in writers.values() for name, entry in writer.files.items()}
    if tokenizer is not None and tokenizer.json is not None:
        write_text(folder / TOKENIZER, tokenizer.json)
        content = tokenizer.json.encode()
        written[TOKENIZER] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "spec": spec.content(),
        "vocab_size": spec.vocab_size,
        "corpus": counts | {"sha256": corpus.hexdigest()},
        "splits": {name: writer.summary() for name, writer in writers.items()},
        "files": written,
        "sizes": sizes,
        "provenance": provenance(),
    }
    write_json(folder / MANIFEST, manifest)


def _tokenize(
    spec: DataSpec, tokenizer: Tokenizer, folder: Path, workers: int, corpus: Any, counts: dict[str, int]
) -> dict[str, SplitWriter]:
    """Write the splits of a text, and update the digest `corpus` and the `counts` of documents and bytes."""
    writers = {name: SplitWriter(folder, name, spec) for name in (SPLITS if spec.choice else ALWAYS)}

    def batches() -> Iterator[TextBatch]:
        batch = TextBatch()
        for index, document in enumerate(_documents(spec)):
            _hash_document(corpus, document)
            counts["documents"] += 1
            counts["bytes"] += len(document.text)
            batch.texts.append(document.text)
            batch.splits.append(split_of(spec, index))
            batch.stored += document.stored
            batch.size += len(document.text)
            if batch.size >= BATCH_BYTES:
                yield batch
                batch = TextBatch()
        yield batch

    # The bytes of a corpus that is cut at max_documents are not known in advance, only its documents.
    cut = spec.max_documents
    total, unit = (cut, "documents") if cut else (build_reader(spec.corpus).stored_bytes(), "bytes")
    with Progress(f"tokenize {spec.name}", total, unit, rate_unit="B") as progress:
        for batch, encoded in encode_in_order(tokenizer, batches(), workers):
            for tokens, split in zip(encoded, batch.splits, strict=True):
                writers[split].add(tokens)
            progress.advance(len(batch.texts) if cut else batch.stored, work=batch.size)

    for writer in writers.values():
        writer.close()
    _check_split(spec, {name: writer.n_documents for name, writer in writers.items()})
    return writers


def _documents(spec: DataSpec) -> Iterator[Document]:
    return islice(documents(spec.corpus), spec.max_documents)


def _tokenizer_training_texts(spec: DataSpec | None) -> Iterator[bytes]:
    """Training documents from the start of the corpus, up to the BPE tokenizer's `train_bytes`."""
    if spec is None or not isinstance(spec.tokenizer, BpeTokenizer):
        return
    left = spec.tokenizer.train_bytes
    with Progress(f"train the tokenizer of {spec.name}", left, "bytes") as progress:
        for index, document in enumerate(_documents(spec)):
            if split_of(spec, index) == "train":
                yield document.text[:left]
                progress.advance(min(len(document.text), left))
                left -= len(document.text)
                if left <= 0:
                    return


def _hash_document(corpus: Any, document: Document) -> None:
    """Add name and content, each after its length, so that different corpora never hash the same bytes."""
    for part in (document.name.encode(), document.text):
        corpus.update(len(part).to_bytes(8, "little"))
        corpus.update(part)


def _hash_other_files(corpus: Any, spec: Data) -> None:
    """Add the files that a task reads beside its text when it makes its examples."""
    for beside in spec.sources.corpora:
        if spec.text is None or beside != spec.text.corpus:
            for name, path in build_reader(beside).files():
                with reading(DataError):
                    content = path.read_bytes()
                _hash_document(corpus, Document(name, content, 0))


def _require_unchanged(spec: Data, folder: Path) -> None:
    """Refuse a finished store if its text has changed. The text is read again if a file is newer or a size differs.

    A finished store does not need its files any more. So it is kept if a file or folder of the spec is missing as a
    whole. If some files of a folder or glob are missing, the text has changed.

    Raises:
        DataError: a file or folder of the text cannot be read.
        OutputError: the text has changed.
    """
    try:
        files = _files(spec)
        with reading(DataError):
            newest = max((path for _, path in files), key=lambda path: path.stat().st_mtime, default=None)
            newer = newest is not None and newest.stat().st_mtime > (folder / MANIFEST).stat().st_mtime
    except MissingFilesError:
        return
    manifest, sizes = TokenStore.open(folder, verify=False).manifest, _sizes(files)
    if not newer and manifest.get("sizes", sizes) == sizes:  # a store of an earlier version has no sizes
        return
    corpus = hashlib.sha256()
    for document in _documents(spec.text) if spec.text is not None else ():
        _hash_document(corpus, document)
    _hash_other_files(corpus, spec)
    if corpus.hexdigest() != manifest["corpus"]["sha256"]:
        what = f"newest: {newest}" if newer else "files were added, removed, renamed or replaced"
        raise OutputError(
            f"{folder}: the text has changed since its tokens were written ({what}); delete the folder, or give another"
        )


def _files(spec: Data) -> list[tuple[str, Path]]:
    """(name, path) of the user's files; errors as in `FilesReader.files`."""
    return [file for corpus in spec.sources.corpora for file in build_reader(corpus).files()]


@reading(DataError)
def _sizes(files: list[tuple[str, Path]]) -> str:
    """A hash of the files' names and sizes: `mv` and `rsync -a` keep old times."""
    return short_hash([(name, path.stat().st_size) for name, path in files])


def _check_split(spec: DataSpec, n_documents: dict[str, int]) -> None:
    if spec.choice and not n_documents["choice"]:
        raise DataError(
            f"{spec.corpus.words}: the split 'choice' got no document; give more documents, or change choice "
            f"(now {spec.choice}) or held_out_seed"
        )
    wanted = {"train": spec.held_out < 1, "held_out": spec.held_out > 0}
    for name, other in (("train", "held_out"), ("held_out", "train")):
        if wanted[name] and not n_documents[name]:
            went = f"all {n_documents[other]:,} documents went to the split '{other}', because they are never cut"
            if n_documents[other] == 1:
                went = f"the only document went to the split '{other}', because it is never cut"
            raise DataError(
                f"{spec.corpus.words}: {went}; give more documents, or change held_out (now {spec.held_out}) or "
                "held_out_seed"
            )


def _already_there(spec: Data, folder: Path) -> bool:
    """Whether `folder` holds the finished store of this spec. Raises OutputError if it holds anything unexpected."""
    if (folder / MANIFEST).exists():
        if TokenStore.open(folder, verify=False).manifest.get("spec") != spec.content():
            raise OutputError(f"{folder}: holds the token store of another spec; give another folder or delete it")
        return True
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: is a file, expected a folder")
    foreign = [path.name for path in sorted(folder.glob("*")) if not _is_part_of_store(path)]
    if foreign:
        raise OutputError(f"{folder}: holds '{foreign[0]}', which is not part of a token store; give another folder")
    return False


def _is_part_of_store(path: Path) -> bool:
    return path.suffix in (".tokens", ".documents") or path.name == TOKENIZER

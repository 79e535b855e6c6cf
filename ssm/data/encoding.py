"""Parallel encoding: processes encode batches of documents; the results return in order.

The tokens do not depend on the number of processes, because each document is encoded separately. The number of batches
in progress is bounded.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import chain, cycle

import numpy as np

from ssm.base.errors import DataError
from ssm.data.tokenizers import JsonTokenizer, Tokenizer

BATCH_BYTES = 2**20  # text that a process encodes in one call
PROCESSES_FROM = 8 * 2**20  # bytes: for less text, starting processes costs more than it saves
AHEAD = 2  # batches in progress per process


@dataclass
class TextBatch:
    """Consecutive documents, and their splits."""

    texts: list[bytes] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)  # one per text
    stored: int = 0  # bytes of the corpus as stored, perhaps compressed
    size: int = 0  # bytes of text


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def encode_in_order(
    tokenizer: Tokenizer, batches: Iterable[TextBatch], workers: int
) -> Iterator[tuple[TextBatch, list[np.ndarray]]]:
    """Every batch with the tokens of its documents, in order.

    Args:
        tokenizer: byte tokens are always made in this process, because sending the text would cost more.
        batches: read only as far ahead as the processes need.
        workers: number of processes. They are used for at least `PROCESSES_FROM` bytes of text.

    Raises:
        DataError: a process was killed.
    """
    batches = iter(batches)
    json = tokenizer.json
    if json is not None and workers > 1:
        first, size = [], 0
        for batch in batches:
            first.append(batch)
            size += batch.size
            if size >= PROCESSES_FROM:
                yield from _in_processes(json, tokenizer.vocab_size, chain(first, batches), workers)
                return
        batches = iter(first)
    for batch in batches:
        yield batch, tokenizer.encode(batch.texts)


def _in_processes(
    json: str, vocab_size: int, batches: Iterable[TextBatch], workers: int
) -> Iterator[tuple[TextBatch, list[np.ndarray]]]:
    # A pool for each process. One pool of several starts them one by one. If one was killed meanwhile, Python 3.11 can
    # wait forever for a process that starts later.
    pools = [
        ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(json, vocab_size)
        )
        for _ in range(workers)
    ]
    in_progress: deque[tuple[TextBatch, Future[list[np.ndarray]]]] = deque()

    def first() -> tuple[TextBatch, list[np.ndarray]]:
        tokens = in_progress[0][1].result()
        return in_progress.popleft()[0], tokens

    try:
        for batch, pool in zip(batches, cycle(pools), strict=False):
            in_progress.append((batch, pool.submit(_encode, batch.texts)))
            if len(in_progress) >= AHEAD * workers:
                yield first()
        while in_progress:
            yield first()
    except BrokenProcessPool as error:
        several = sum(len(batch.texts) for batch, _ in in_progress) > 1
        advice = (
            "fewer need less: give `ssm tokenize` a smaller --workers, or write `taskset -c 0` before another command"
            if several
            else "it encoded a single document: divide it into several"
        )
        raise DataError(f"a tokenizing process was killed (out of memory?); {advice}") from error
    finally:
        for _, future in in_progress:
            future.cancel()
        for pool in pools:
            pool.shutdown()


_worker_tokenizer: Tokenizer  # set once per worker process, by _start_worker


def _start_worker(json: str, vocab_size: int) -> None:
    global _worker_tokenizer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_die_with_parent, daemon=True).start()
    _worker_tokenizer = JsonTokenizer(json, vocab_size, "the tokenizer")


def _die_with_parent() -> None:
    """End with the parent process. Otherwise a worker would wait forever for work from a killed parent."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode(texts: list[bytes]) -> list[np.ndarray]:
    return _worker_tokenizer.encode(texts)

"""Failure detection: all processes of a group end soon after one of them dies, even if they wait for it.

Every process keeps one connection to process 0. The connection of a killed process is closed. A host that is down does
not answer the kernel's probes. Both end the job within half a minute; an all-reduce would wait forever.
Processes never have to answer themselves, so a busy process (writing a checkpoint) does not look dead.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import socket
import sys
import threading
import traceback
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn, Self

from torch.distributed import Store

from ssm.base.errors import UserError, advise, as_user_error
from ssm.base.exit_codes import LOST, REQUEUE
from ssm.base.stopping import Preempted, cause_of

CONNECT_TIMEOUT = 600.0  # seconds until all processes have started: hundreds may load Python from one slow disk
MESSAGE_TIMEOUT = 10.0  # seconds to wait for an expected message, such as the cause of a failed all-reduce
CODES = {UserError: 2, KeyboardInterrupt: 130, Preempted: REQUEUE}  # the exit codes of `ssm`
KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}  # a silent host counts as dead after 25 s


class FailureDetector:
    """A block in which all processes end when one of them fails or dies. One of them prints one line.

    Args:
        rank: of this process, below `size`.
        address: the host of process 0.
        store: a key-value store that all processes share.
        verb: the command that the printed line names.
        less_memory: its options that need less memory.
    """

    def __init__(self, rank: int, size: int, address: str, store: Store, verb: str, less_memory: str):
        self.rank, self.size, self.verb, self.less_memory = rank, size, verb, less_memory
        self.peers: dict[socket.socket, str] = {}
        self.lock = threading.Lock()  # held by the thread that ends this process
        self.ending = threading.Event()
        try:
            if rank == 0:
                self._accept(address, store)
            else:
                self._connect(address, store)
        except OSError as error:
            raise UserError(f"process {rank} of {size}: cannot connect to the other processes ({error})") from error
        for connection in self.peers:
            _keep_alive(connection)
        self.thread = threading.Thread(target=self._monitor, name="failure detection", daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error = cause_of(error)
            advise(error, self.less_memory)
            error = as_user_error(error) or error
        if isinstance(error, RuntimeError):  # perhaps an all-reduce failed because a process died; the thread finds out
            self.ending.wait(MESSAGE_TIMEOUT)
        if not self.lock.acquire(timeout=MESSAGE_TIMEOUT):
            os._exit(LOST)
        if error is not None and not (isinstance(error, Preempted) and error.together):
            self._fail(error)
        self._send("done")
        for connection in self.peers:
            connection.close()

    def _fail(self, error: BaseException) -> NoReturn:
        """Tell the others, and exit. Process 0 prints the line for all. Every process prints its own defects."""
        code = next((code for kind, code in CODES.items() if isinstance(error, kind)), 1)
        message = f"ssm {self.verb}: {str(error) or 'interrupted'}" if code != 1 else ""
        if code == 1:
            traceback.print_exception(error)
        elif self.rank == 0:
            print(message, file=sys.stderr)
        self._send("failed", code=code, message=message)
        if self.rank:
            self.thread.join(MESSAGE_TIMEOUT)  # until process 0 has read the message, or has sent the same
        _exit(code)

    # --- Connecting ---------------------------------------------------------------------------------------------------

    def _accept(self, address: str, store: Store) -> None:
        own = "127.0.0.1" if address in ("127.0.0.1", "localhost") else ""
        with socket.create_server((own, 0)) as server:
            server.settimeout(CONNECT_TIMEOUT)
            token = secrets.token_hex()
            store.set("ssm/failure_detection", json.dumps([server.getsockname()[1], token]))
            while len(self.peers) < self.size - 1:
                connection, _ = server.accept()
                connection.settimeout(MESSAGE_TIMEOUT)
                hello = _receive(connection)
                if hello.get("token") == token:  # other programs may connect too
                    self.peers[connection] = f"process {hello['rank']} of {self.size} ({hello['where']})"

    def _connect(self, address: str, store: Store) -> None:
        port, token = json.loads(store.get("ssm/failure_detection"))
        connection = socket.create_connection((address, port), timeout=CONNECT_TIMEOUT)
        self.peers[connection] = f"process 0 of {self.size} ({address})"
        self._send("hello", token=token, rank=self.rank, where=f"{socket.gethostname()}, pid {os.getpid()}")

    # --- Monitoring ---------------------------------------------------------------------------------------------------

    def _monitor(self) -> None:
        with selectors.DefaultSelector() as selector:
            for other in self.peers:
                other.settimeout(MESSAGE_TIMEOUT)
                selector.register(other, selectors.EVENT_READ, data=other)
            while selector.get_map():
                for key, _ in selector.select():
                    connection: socket.socket = key.data
                    message = _receive(connection)
                    if message.get("word") == "done":
                        selector.unregister(connection)
                    elif message:
                        return self._end(message["code"], "" if self.rank else message["message"])
                    else:  # closed without a message
                        return self._end(LOST, self._death_message(connection))

    def _death_message(self, connection: socket.socket) -> str:
        if self.rank > 1:  # process 1 prints the line for all others
            return ""
        return (
            f"ssm {self.verb}: {self.peers[connection]} has died, so the other processes end too; run the same command "
            "to continue from the last checkpoint"
        )

    def _end(self, code: int, message: str) -> None:
        """End this process and, from process 0, all others. Do nothing if the main thread is ending it already."""
        if not self.lock.acquire(blocking=False):
            return
        self.ending.set()
        if message:
            print(message, file=sys.stderr, flush=True)
        self._send("failed", code=code, message="")
        _exit(code)

    def _send(self, word: str, **more: Any) -> None:
        line = json.dumps({"word": word, **more}).encode() + b"\n"
        for connection in self.peers:
            try:
                connection.sendall(line)
            except OSError:
                continue  # that process has ended as well


def _exit(code: int) -> NoReturn:
    """Exit without waiting for other threads, which may be in an all-reduce that never ends."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # a full disk, or a closed pipe
            stream.flush()
    os._exit(code)


def _receive(connection: socket.socket) -> dict[str, Any]:
    """A JSON object from one line; empty if the connection is closed or the line is invalid.

    It reads byte by byte, so that the next line stays in the connection.
    """
    line = b""
    while not line.endswith(b"\n"):
        try:
            byte = connection.recv(1)
        except OSError:
            return {}
        if not byte:
            return {}
        line += byte
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _keep_alive(connection: socket.socket) -> None:
    """Let the kernel probe the other host regularly."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

"""PyTorch's ``TCPStore`` over our client and our server. What is stored where is not decided here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from weakref import WeakValueDictionary

import torch.distributed as dist

from . import _native
from .failures import NetworkFailure, StoreFailure
from .works import milliseconds
from .worlds import World


class ClientStore(dist.Store):
    """What PyTorch asks of a store, asked of a client of ours."""

    def __init__(self, client: _native.Store, timeout: timedelta) -> None:
        super().__init__()
        self._client = client
        self.set_timeout(timeout)

    @property
    def _millis(self) -> int:
        """PyTorch's half keeps the time, because that is where its prefixes put theirs."""
        return milliseconds(self.timeout) or _DEFAULT_MILLIS

    def set(self, key: str, value: str | bytes) -> None:
        _asked(self._client.set, key, _bytes("set", value), self._millis)

    def get(self, key: str) -> bytes:
        return _asked(self._client.get, key, self._millis)

    def add(self, key: str, amount: int) -> int:
        return _asked(self._client.add, key, amount, self._millis)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        given = _bytes("compare_set", expected), _bytes("compare_set", desired)
        return _asked(self._client.compare_set, key, *given, self._millis)

    def delete_key(self, key: str) -> bool:
        return _asked(self._client.delete, key, self._millis)

    def append(self, key: str, value: str | bytes) -> None:
        _asked(self._client.append, key, _bytes("append", value), self._millis)

    def check(self, keys: Sequence[str]) -> bool:
        return _asked(self._client.check, _listed("check", "keys", keys), self._millis)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        _asked(self._client.wait, _listed("wait", "keys", keys), milliseconds(timeout) or self._millis)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return _asked(self._client.multi_get, _listed("multi_get", "keys", keys), self._millis)

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        keys, values = _listed("multi_set", "keys", keys), _listed("multi_set", "values", values)
        if len(keys) != len(values):
            raise ValueError(f"phalanx: multi_set: {len(keys)} keys and {len(values)} values, must be as many")
        _asked(self._client.multi_set, keys, [_bytes("multi_set", value) for value in values], self._millis)

    def num_keys(self) -> int:
        return _asked(self._client.num_keys, self._millis)

    def list_keys(self) -> list[str]:
        return _asked(self._client.list_keys, self._millis)

    def queue_push(self, key: str, value: str | bytes) -> None:
        _asked(self._client.push, key, _bytes("queue_push", value), self._millis)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        value = _asked(self._client.pop, key, block, self._millis)
        if value is None:
            raise _Empty(f"phalanx: queue_pop: queue {key!r} is empty")
        return value

    def queue_len(self, key: str) -> int:
        return _asked(self._client.queue_len, key, self._millis)

    def clone(self) -> ClientStore:
        """Another handle on the same store, with a timeout of its own; calls from several threads need none."""
        return ClientStore(self._client, self.timeout)

    def has_extended_api(self) -> bool:
        return True

    # The names under which PyTorch's C++ looks for them.
    getNumKeys = num_keys
    deleteKey = delete_key


class TCPStore(ClientStore):
    """A store at `host_name` and `port`, which the rank with `is_master` serves: PyTorch's ``TCPStore`` to PyTorch.

    Ranks with this class and ranks with PyTorch's own may share one store, whoever serves it. With a `key` of 64 hexadecimal digits, which
    only this class knows, everything is encrypted and strangers are kept out. Without one, only a store of this machine is served or used,
    unless `insecure` or ``PHALANX_INSECURE=1`` says that whoever reaches it may read and change everything. `multi_tenant` shares the server
    of this process at that port, if there is one. `use_libuv` chooses among PyTorch's servers, and changes nothing here.
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = timedelta(seconds=300),
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
        *,
        key: str | None = None,
        insecure: bool = False,
    ) -> None:
        if master_listen_fd is not None:
            raise ValueError(
                f"phalanx: TCPStore: master_listen_fd is {master_listen_fd}, must be None: the store opens its own socket, where port 0 takes a free one"
            )
        self._host_name = host_name
        self._server = None
        if is_master:
            serve = _served if multi_tenant else _started
            self._server = serve(host_name, port, key, insecure)
            port = self._server.port
        self._port = port
        millis = milliseconds(timeout) or _DEFAULT_MILLIS
        super().__init__(_asked(_native.Store, host_name, port, millis, key, insecure), timeout)
        if wait_for_workers and world_size:
            self._await_workers(world_size)

    @property
    def host(self) -> str:
        return self._host_name

    @property
    def port(self) -> int:
        return self._port

    def _await_workers(self, world_size: int) -> None:
        """Counts this rank, where PyTorch's stores count theirs; the one that serves waits for the others."""
        count = self.add(_WORKERS, 1)
        if self._server is None or count >= world_size:
            if count >= world_size:
                self.set(_ALL_WORKERS, b"1")
            return
        self.wait([_ALL_WORKERS])


class WorldStore(ClientStore):
    """The store of a world that `phalanx.init` joined, for what PyTorch's ranks tell each other."""

    def __init__(self, world: World, timeout: timedelta = timedelta(seconds=300)) -> None:
        super().__init__(_asked(world._native.store), timeout)


def _asked(call, *arguments):
    try:
        return call(*arguments)
    except _native.Error as error:
        kind = NetworkFailure if isinstance(error, _native.NetworkError) else StoreFailure
        raise kind(f"phalanx: {error}", error) from None


def _started(host_name: str, port: int, key: str | None, insecure: bool) -> _native.StoreHost:
    return _asked(_native.StoreHost, host_name, port, key, insecure)


def _served(host_name: str, port: int, key: str | None, insecure: bool) -> _native.StoreHost:
    """The server of this process at a port, for as long as somebody has it."""
    server = _SERVERS.get(port)
    if server is None:
        server = _started(host_name, port, key, insecure)
        _SERVERS[server.port] = server
    return server


def _listed(call: str, argument: str, given: Sequence[Any]) -> list[Any]:
    """Several keys or values. A single one is a sequence too, of its letters, which nobody means."""
    if isinstance(given, (str, bytes, bytearray)):
        raise TypeError(f"phalanx: {call}: {argument} are a {type(given).__name__}, must be a list")
    return list(given)


def _bytes(call: str, value: str | bytes) -> bytes:
    if isinstance(value, str):
        return value.encode()
    # C++ hands over bytes as a list of their numbers.
    if isinstance(value, (bytes, bytearray, memoryview, list)):
        return bytes(value)
    raise TypeError(f"phalanx: {call}: value is a {type(value).__name__}, must be a str or bytes")


# Those that may be shared.
_SERVERS: WeakValueDictionary[int, _native.StoreHost] = WeakValueDictionary()
# Older versions of PyTorch have no word for it.
_Empty = getattr(dist, "QueueEmptyError", StoreFailure)
# For stores that are told to wait no time, as PyTorch says it.
_DEFAULT_MILLIS = 300_000
_WORKERS = "phalanx/workers"
_ALL_WORKERS = "phalanx/workers/all"

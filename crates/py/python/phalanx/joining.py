"""How ranks that share a store of PyTorch's find each other: rank 0 opens a door, and says on the store where it is."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from . import _native
from .rounds import Rounds
from .times import seconds, span
from .worlds import World

_TRANSPORTS = ("automatic", "shared_memory", "tcp")
_PROTECTIONS = ("encrypted", "authenticated", "handshake")


@dataclass(frozen=True)
class Options:
    """How a group is formed, given as ``pg_options``; all ranks of the group say the same.

    ``transport`` is "automatic" (shared memory inside a host, TCP between hosts), "shared_memory" or "tcp". ``protection`` is what is done
    for bytes that travel over TCP: "encrypted", "authenticated", or "handshake" alone.

    With a `world`, the group is the next one of that world, as `world.group()` makes it, whatever language its other ranks are written in;
    the rest is the world's to say then.
    """

    transport: str = "automatic"
    protection: str = "encrypted"
    world: World | None = None

    def __post_init__(self) -> None:
        for name, values in (("transport", _TRANSPORTS), ("protection", _PROTECTIONS)):
            if getattr(self, name) not in values:
                raise ValueError(
                    f"phalanx: Options: {name} is {getattr(self, name)!r}, must be one of {', '.join(values)}"
                )


def given_or(usual: Options, given: Any) -> Options:
    """What was given as ``pg_options``, or what is usual where nothing was."""
    chosen = usual if given is None else given
    if not isinstance(chosen, Options):
        raise TypeError(f"phalanx: pg_options is a {type(chosen).__name__}, must be a phalanx.Options, or nothing")
    return chosen


def next_of(world: World, rank: int, size: int, timeout: timedelta) -> _native.Group:
    """The world's next group of all its ranks, which PyTorch takes for one of `size` ranks with this one as `rank`."""
    if (rank, size) != (world.rank, world.size):
        raise ValueError(
            f"phalanx: world: this process is rank {world.rank} of {world.size}, must be rank {rank} of {size} as in the group"
        )
    return world._native.group(None, seconds("joining", timeout))


def meet(
    store: dist.Store,
    rank: int,
    size: int,
    name: str,
    timeout: timedelta,
    options: Options,
    shown: tuple[_native.Presence, list[int]] | None = None,
) -> _native.Group:
    """The group of `size` ranks that all call this with a store of their own group, and where it is shown: by the numbers that its ranks
    have there, errors name them."""
    timeout = span("joining", timeout)
    if not 0 <= rank < size:
        raise ValueError(f"phalanx: joining: rank is {rank}, must be below the group size {size}")
    members = list(range(size)) if shown is None else shown[1]
    arguments = (rank, size, name, timeout.total_seconds(), options.transport, options.protection, shown)
    if size == 1:
        return _native.join(None, *arguments)
    rounds = Rounds(store, rank, members, timeout)
    said = [_native.host_identity(), options.transport, options.protection]
    if rank:
        *door, refusal = rounds.ask(said)
        if refusal is not None:
            raise ValueError(refusal)
        group = _native.join(tuple(door), *arguments)
    else:
        group = _opened(rounds, members, said, arguments)
    rounds.forget()
    return group


def _opened(rounds: Rounds, members: list[int], said: list[str], arguments: tuple) -> _native.Group:
    """The group that all others come to by a door that this rank opens."""
    heard = rounds.gather(said)
    refusal = _difference(members, [wiring for _, *wiring in heard])
    if refusal is not None:
        rounds.answer(["", 0, "", refusal])
        raise ValueError(refusal)
    hosts = {host for host, *_ in heard}
    door = _native.Door(len(members), len(hosts) > 1)
    try:
        rounds.answer(["127.0.0.1" if len(hosts) == 1 else _own_address(), door.port, door.key, None])
        group = _native.join(("127.0.0.1", door.port, door.key), *arguments)
        group.keep(door)
        return group
    finally:
        # All have come in, or nobody is to come any more.
        door.close()


def _difference(members: list[int], wirings: list[list[str]]) -> str | None:
    """What is to be said where not all ranks would wire the group as the first does."""
    for rank, wiring in zip(members, wirings):
        for name, one, other in zip(("transport", "protection"), wirings[0], wiring):
            if one != other:
                said = f"{one} on rank {members[0]}, {other} on rank {rank}"
                return f"phalanx: pg_options: {name} is {said}, must be the same on all"
    return None


def underneath(store: dist.Store) -> dist.Store:
    """The store that the prefixes were put before."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store


def _own_address() -> str:
    """Where other hosts reach this one: as they reach the master, if that is here, else by the interface that leads to it."""
    master = os.environ.get("MASTER_ADDR")
    if not master:
        return socket.gethostbyname(socket.getfqdn())
    family, kind, _, _, address = socket.getaddrinfo(
        master, int(os.environ.get("MASTER_PORT", "1")), type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind) as probe:
        # Nothing is sent: the system only says which of its addresses it would use.
        probe.connect(address)
        own = probe.getsockname()[0]
    return master if own.startswith("127.") or own in ("::1", address[0]) else own

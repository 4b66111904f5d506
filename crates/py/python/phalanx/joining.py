"""How ranks that share a store of PyTorch's find each other: rank 0 opens a door, and says on the store where it is."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from . import _native
from .failures import BackendError, unequipped
from .rounds import Rounds
from .times import seconds, span
from .worlds import World

_TRANSPORTS = ("automatic", "shared_memory", "tcp")
_PROTECTIONS = ("encrypted", "authenticated", "handshake")
# What all ranks of a group say alike.
_ALIKE = ("transport", "protection", "compare_call_sites")
_MOST_REMEMBERED = 1 << 32


@dataclass(frozen=True)
class Options:
    """How a group is formed and what it looks for, given as ``pg_options``.

    ``transport`` is "automatic" (shared memory inside a host, TCP between hosts), "shared_memory" or "tcp". ``protection`` is what is done
    for bytes that travel over TCP: "encrypted", "authenticated", or "handshake" alone. With ``compare_call_sites`` all ranks have to call from
    the same line of the program, by which two operations of one shape are told apart. All ranks of the group say the same of these three.

    With ``check_nan`` a NaN that this rank gives is refused before anything is sent; the others wait for it. ``remembered`` is how many
    operations this rank's recorder keeps, 2,048 unless it is said.

    With a `world`, the group is the next one of that world, as `world.group()` makes it, whatever language its other ranks are written in;
    transport and protection are the world's to say then.
    """

    transport: str = "automatic"
    protection: str = "encrypted"
    world: World | None = None
    check_nan: bool = False
    compare_call_sites: bool = False
    remembered: int | None = None

    def __post_init__(self) -> None:
        for name, values in (("transport", _TRANSPORTS), ("protection", _PROTECTIONS)):
            if getattr(self, name) not in values:
                raise ValueError(
                    f"phalanx: Options: {name} is {getattr(self, name)!r}, must be one of {', '.join(values)}"
                )
        for name in ("check_nan", "compare_call_sites"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"phalanx: Options: {name} is {getattr(self, name)!r}, must be True or False")
        if self.remembered is None:
            return
        told = f"phalanx: Options: remembered is {self.remembered!r}, must be a number from 1 to {_MOST_REMEMBERED}"
        if not isinstance(self.remembered, int) or isinstance(self.remembered, bool):
            raise TypeError(told)
        if not 1 <= self.remembered <= _MOST_REMEMBERED:
            raise ValueError(told)


def given_or(usual: Options, given: Any) -> Options:
    """What was given as ``pg_options``, or what is usual where nothing was."""
    chosen = usual if given is None else given
    if not isinstance(chosen, Options):
        raise TypeError(f"phalanx: pg_options is a {type(chosen).__name__}, must be a phalanx.Options, or nothing")
    return chosen


def next_of(options: Options, rank: int, size: int, timeout: timedelta) -> _native.Group:
    """The next group of all ranks of the options' world, which PyTorch takes for one of `size` ranks with this one as `rank`."""
    world = options.world
    if (rank, size) != (world.rank, world.size):
        raise ValueError(
            f"phalanx: world: this process is rank {world.rank} of {world.size}, must be rank {rank} of {size} as in the group"
        )
    return world._native.group(None, seconds("joining", timeout), _manner(options))


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
    arguments = (rank, size, name, timeout.total_seconds(), _manner(options), shown)
    if size == 1:
        return _native.join(None, *arguments)
    own_key = _native.JobKey()
    rounds = Rounds(store, rank, members, timeout)
    said = [_native.host_identity(), own_key.variable, [getattr(options, each) for each in _ALIKE]]
    if rank:
        host, port, told, refusal = rounds.ask(said)
        if refusal is not None:
            raise _refused(*refusal)
        key = own_key.recall(told, _place(rounds, name))
        group = _native.join((host, port, key), *arguments)
    else:
        group = _opened(rounds, members, said, own_key, arguments)
    rounds.forget()
    return group


def _opened(
    rounds: Rounds, members: list[int], said: list[Any], own_key: _native.JobKey, arguments: tuple
) -> _native.Group:
    """The group that all others come to by a door that this rank opens."""
    heard = rounds.gather(said)
    refusal = _difference(members, [alike for _, _, alike in heard])
    refusal = refusal or _lack(members, [variable for _, variable, _ in heard])
    if refusal is not None:
        rounds.answer(["", 0, "", refusal])
        raise _refused(*refusal)
    hosts = {host for host, *_ in heard}
    try:
        address = "127.0.0.1" if len(hosts) == 1 else _own_address()
        key = own_key.mint(_place(rounds, arguments[2]))
        door = _native.Door(len(members), len(hosts) > 1, key)
    except (OSError, ValueError, _native.Error) as error:
        # The others wait for this rank's answer, and no longer than for that.
        refusal = f"phalanx: joining: rank {members[0]} cannot let the others in: {error}", members[:1]
        rounds.answer(["", 0, "", refusal])
        raise _refused(*refusal) from error
    try:
        rounds.answer([address, door.port, key.told, None])
        group = _native.join(("127.0.0.1", door.port, key), *arguments)
        group.keep(door)
        return group
    finally:
        # All have come in, or nobody is to come any more.
        door.close()


def _manner(options: Options) -> _native.Manner:
    """The options as the native half has them, and what the environment adds to them: what is wrong with it is told before anybody is met."""
    return _native.Manner(
        options.transport, options.protection, options.check_nan, options.compare_call_sites, options.remembered
    )


def _place(rounds: Rounds, name: str) -> str:
    """What this meeting is called: by its round, which the store tells, and by its group, which each rank knows without."""
    return f"{rounds.name}/{name}"


def _difference(members: list[int], alike: list[list[Any]]) -> tuple[str, list[int]] | None:
    """What is to be said where not all ranks would form the group as the first does, and who lacks something: nobody."""
    for rank, values in zip(members, alike):
        for name, one, other in zip(_ALIKE, alike[0], values):
            if one != other:
                said = f"{one} on rank {members[0]}, {other} on rank {rank}"
                return f"phalanx: pg_options: {name} is {said}, must be the same on all", []
    return None


def _lack(members: list[int], variables: list[str | None]) -> tuple[str, list[int]] | None:
    """What is to be said where some ranks have a job key and some have none, and which these are. `variables` lead to the ranks' keys."""
    having = {rank: variable for rank, variable in zip(members, variables) if variable is not None}
    lacking = [rank for rank in members if rank not in having]
    if not having or not lacking:
        return None
    rank, variable = next(iter(having.items()))
    names = f"rank{'s' if len(lacking) > 1 else ''} {', '.join(map(str, lacking))}"
    keys = "PHALANX_KEY_FD, PHALANX_KEY_FILE and PHALANX_KEY are not set"
    said = f"{keys} on {names}, and {variable} is on rank {rank}: all ranks must have the key, or none"
    return f"phalanx: job key: {said}", lacking


def _refused(words: str, lacking: list[int]) -> Exception:
    """What every rank raises for a meeting that the first one has ended: a failure where these ranks lack what others have, and where there
    are none, what programs said was wrong."""
    return BackendError(words, unequipped(lacking)) if lacking else ValueError(words)


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

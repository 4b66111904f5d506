"""``init_method="phalanx://host:port/job"``: a store that somebody else serves, shared by many jobs, each under its own name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlparse

import torch.distributed as dist
from torch.distributed.rendezvous import register_rendezvous_handler


def register() -> None:
    try:
        register_rendezvous_handler("phalanx", meet)
    except RuntimeError:
        # PyTorch refuses a second time.
        pass


def meet(url: str, timeout: timedelta = timedelta(minutes=30), **_: Any) -> Iterator[tuple[dist.Store, int, int]]:
    """The store of the job that `url` names, with this process's rank and the size of its world."""
    parsed = urlparse(url)
    query = parse_qs(parsed.query)
    missing = [name for name in ("rank", "world_size") if name not in query]
    if not parsed.hostname or not parsed.port or missing:
        lacks = f"has no {' and no '.join(missing)}" if missing else "has no host with a port"
        raise ValueError(
            f"phalanx: init_method: {url} {lacks}, must be phalanx://host:port/job with rank and world_size"
        )
    rank, size = int(query["rank"][0]), int(query["world_size"][0])
    # PyTorch's own client, whose C++ every backend can call without Python.
    store: dist.Store = dist.TCPStore(parsed.hostname, parsed.port, None, False, timeout, wait_for_workers=False)
    job = parsed.path.strip("/")
    yield dist.PrefixStore(job, store) if job else store, rank, size
    raise RuntimeError(f"phalanx: init_method: {url} can be met at once only")

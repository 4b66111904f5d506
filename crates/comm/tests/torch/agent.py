"""PyTorch's side of the interoperation tests: a TCPStore that is told what to do, a JSON object a line.

    agent.py serve libuv|legacy      hosts a server and is its first client
    agent.py connect HOST PORT       is a client of a server that is there
    agent.py rank                    is one rank of a gloo group, from torchrun's variables

Prints {"ready": PORT} first, then one answer a line. Values travel as hexadecimal text.
"""

import datetime
import json
import os
import sys

import torch
import torch.distributed as dist

TIMEOUT = datetime.timedelta(seconds=20)


def serve(kind):
    return dist.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=TIMEOUT, use_libuv=kind == "libuv"
    )


def connect(host, port):
    return dist.TCPStore(host, int(port), is_master=False, timeout=TIMEOUT)


def play(store, op, key="", keys=(), value="", expected="", values=(), delta=0, size=0, millis=0):
    """Carries out one operation; the answer is in the same words as the Rust side's."""
    raw = bytes.fromhex
    if op == "set":
        return store.set(key, raw(value))
    if op == "multi_set":
        return store.multi_set(keys, [raw(value) for value in values])
    if op == "get":
        return store.get(key).hex()
    if op == "multi_get":
        return [value.hex() for value in store.multi_get(keys)]
    if op == "wait":
        return store.wait(keys, datetime.timedelta(milliseconds=millis))
    if op == "check":
        return store.check(keys)
    if op == "add":
        return store.add(key, delta)
    if op == "compare_set":
        return store.compare_set(key, raw(expected), raw(value)).hex()
    if op == "delete":
        return store.delete_key(key)
    if op == "append":
        return store.append(key, raw(value))
    if op == "num_keys":
        return store.num_keys()
    if op == "list_keys":
        return sorted(store.list_keys())
    if op == "push":
        return store.queue_push(key, raw(value))
    if op == "pop":
        return store.queue_pop(key).hex()
    if op == "queue_len":
        return store.queue_len(key)
    if op == "barrier":
        return store.barrier(key, size, datetime.timedelta(milliseconds=millis))
    raise ValueError(f"no operation {op}")


def obey(store):
    tell({"ready": store.port})
    for line in sys.stdin:
        try:
            tell({"answer": play(store, **json.loads(line))})
        except dist.DistStoreError as error:
            tell({"timeout": str(error)})
        except NotImplementedError as error:
            tell({"unsupported": str(error)})


def tell(answer):
    print(json.dumps(answer), flush=True)


def rank():
    """Everything that a gloo group asks of its store, and the right sums through it."""
    dist.init_process_group("gloo", timeout=TIMEOUT)
    me, size = dist.get_rank(), dist.get_world_size()
    tell({"ready": me})

    total = torch.tensor([me + 1.0])
    dist.all_reduce(total)
    assert total.item() == size * (size + 1) / 2, total

    second = dist.new_group(list(range(size)))
    word = torch.tensor([42.0 if me == 0 else 0.0])
    dist.broadcast(word, 0, group=second)
    assert word.item() == 42.0, word

    names = [None] * size
    dist.all_gather_object(names, f"rank {me}")
    assert names == [f"rank {other}" for other in range(size)], names

    dist.barrier()
    dist.destroy_process_group()
    tell({"answer": int(total.item())})


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        rank()
    else:
        obey({"serve": serve, "connect": connect}[sys.argv[1]](*sys.argv[2:]))
    # Every answer is out: PyTorch's own teardown may take its time without us.
    sys.stdout.flush()
    os._exit(0)

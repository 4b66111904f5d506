"""The arithmetic of compare.sh: reads what each program prints, and makes a table of medians. Standard library only.

    compare.py bytes SIZES                            the sizes as plain numbers
    compare.py collect FLAVOUR REPEAT SIZES TRANSPORT NEAR < OUTPUT  one JSON object a measurement; NEAR is how far apart the cores
                                                      were before and after, in ns, as 45,47, or only a comma
    compare.py table RAW                              Markdown
"""

import json
import os
import platform
import statistics
import sys

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MPIS = ("ompi4", "mpich4", "ompi5", "mpich5", "impi")
# How many times as long the way between cores is that counts as the same one.
SAME = 1.5
HEAD = ("operation", "size", "ours us", "Gloo us", "best MPI us", "which", "Gloo/ours", "MPI/ours")
# What stands in the last columns, and what they mean.
LAST = {
    "shm": (("buffers us", "Gloo/buffers", "MPI/buffers", "of the prototype"), "buffers are ours in buffers that the group has made, and the last\n\
column is the share that they reach of the speed of the prototype, which reads and writes such buffers in place."),
    "tcp": (("authenticated us", "encrypted us"), "The last columns are ours with a job key, which all peers do\nwithout."),
}


def size(text):
    """`64K` as a number."""
    unit = UNITS.get(text[-1:].upper(), 1)
    digits = text[:-1] if unit > 1 else text
    if not digits.isdecimal():
        sys.exit(f"compare: '{text}' is no size: write a number of bytes, or one with K, M or G, such as 64K")
    return int(digits) * unit


def show(number):
    """A number in the largest unit that keeps it whole."""
    for name, unit in reversed(UNITS.items()):
        if number >= unit and number % unit == 0:
            return f"{number // unit}{name}"
    return str(number)


def long(number):
    """The same in words."""
    shown = show(number)
    return f"{shown[:-1]} {shown[-1]}iB" if shown[-1] in UNITS else f"{shown} B"


def digits(number, count):
    """A number with so many digits, or as many as it has before the point."""
    return f"{number:,.0f}" if number >= 10 ** (count - 1) else f"{number:.{count}g}"


def measurements(lines):
    """What a program printed: our JSON, or the peers' CSV (impl,op,np,dtype,bytes,batches,iters,min,median,foreign)."""
    for line in lines:
        if line.startswith("{"):
            told = json.loads(line)
            # The peers tell the time of one way.
            ways = 2 if told["op"] == "ping_pong" else 1
            yield "ours", told["op"], told["np"], told["bytes"], told["min_us"] / ways, told["p50_us"] / ways, None
            continue
        parts = line.strip().split(",")
        if len(parts) == 10:
            name, op, np, _, count, _, _, least, median, foreign = parts
            op = "ping_pong" if op == "sendrecv" else op
            yield name, op, int(np), int(count), float(least), float(median), float(foreign)


def collect(flavour, repeat, sizes, transport, near):
    """Our bytes are those of the buffers, rounded to whole slices; the size that was asked for is the next one."""
    near = [int(apart) for apart in near.split(",") if apart]
    for name, op, np, count, least, median, foreign in measurements(sys.stdin):
        asked = min(sizes, key=lambda asked: abs(asked - count))
        print(json.dumps({
            "flavour": name if flavour == "proto" else flavour, "repeat": repeat, "transport": transport, "op": op, "np": np, "bytes": asked,
            "min_us": least, "p50_us": median, "foreign": foreign, "near": near,
        }))


def read(path):
    """Everything that was measured."""
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def medians(raw):
    """The median over repeats by operation, size and flavour, in the order of the first repeat."""
    times = {}
    for told in raw:
        times.setdefault((told["op"], told["bytes"]), {}).setdefault(told["flavour"], []).append(told["p50_us"])
    return {case: {name: statistics.median(all) for name, all in by.items()} for case, by in times.items()}


def by_distance(raw):
    """What was measured while the cores were so far apart, in ns, for each distance that they had. Those in whose time it changed are
    left out; where none is known, all are together."""
    seen = sorted(apart for told in raw for apart in told.get("near", ()))
    # Distances vary by a fifth where nothing moves, and are twice as long where no cache is shared.
    starts = [apart for apart, before in zip(seen, [0, *seen]) if apart > SAME * before]
    place = lambda apart: max(start for start in starts if start <= apart)
    parts = {}
    for told in raw:
        near = told.get("near", ())
        if len({place(apart) for apart in near}) <= 1:
            parts.setdefault(place(near[0]) if near else None, []).append(told)
    apart = lambda part: [apart for told in part for apart in told.get("near", ())]
    return [(round(statistics.median(apart(part))) if apart(part) else None, part) for _, part in sorted(parts.items(), key=lambda of: of[0] or 0)]


def best_mpi(found):
    """The name of the MPI that is fastest here, if any was measured."""
    return min((name for name in MPIS if name in found), key=found.get, default=None)


def row(case, found, transport):
    """One line of the table."""
    ours, gloo = found.get("ours"), found.get("gloo")
    best = best_mpi(found)
    buffers = found.get("buffers")
    prototype = found.get("proto_zero")
    ratio = lambda other, ours=ours: digits(other / ours, 3) if ours and other else ""
    time = lambda micros: f"{micros:,.2f}" if micros and micros < 100 else f"{micros:,.0f}" if micros else ""
    mpi = found.get(best)
    last = ((time(found.get("authenticated")), time(found.get("encrypted"))) if transport == "tcp" else
            (time(buffers), ratio(gloo, buffers), ratio(mpi, buffers), f"{100 * prototype / buffers:.0f} %" if buffers and prototype else ""))
    return (case[0], long(case[1]), time(ours), time(gloo), time(mpi), best or "", ratio(gloo), ratio(mpi), *last)


def processor():
    """The name of the processor, where the kernel says it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def table(raw):
    """Everything that was measured, as Markdown."""
    ranks = ", ".join(sorted({str(told["np"]) for told in raw}))
    repeats = max(told["repeat"] for told in raw)
    foreign = [told["foreign"] for told in raw if told["foreign"] is not None]
    busy = f" Other programs had up to {100 * max(foreign):.0f} % of the processors, {100 * statistics.median(foreign):.0f} % \
in the median." if foreign else ""
    rounds = "repeat" if repeats == 1 else "repeats"
    transport = raw[0].get("transport", "shm")
    columns, meaning = LAST[transport]
    over = " over TCP" if transport == "tcp" else ""
    print(f"{ranks} ranks{over}, f32, medians of {repeats} {rounds}; {processor()}, {os.cpu_count()} cores.{busy}")
    parts = by_distance(raw)
    for apart, part in parts:
        share = f", {100 * len(part) / len(raw):.0f} % of what was measured" if len(parts) > 1 else ""
        print(f"\nCores {apart} ns apart{share}:\n" if apart else "")
        print("| " + " | ".join((*HEAD, *columns)) + " |")
        print("|---|" + "--:|" * 4 + "---|" + "--:|" * (2 + len(columns)))
        found = medians(part)
        for case in (case for case in medians(raw) if case in found):
            print("| " + " | ".join(row(case, found[case], transport)) + " |")
    print(f"\nRatios of times: above 1 ours is faster. {meaning} ping_pong is the time of one way.")


def main(arguments):
    match arguments:
        case ["bytes", sizes]:
            print(",".join(str(size(text)) for text in sizes.split(",")))
        case ["collect", flavour, repeat, sizes, transport, near]:
            collect(flavour, int(repeat), [size(text) for text in sizes.split(",")], transport, near)
        case ["table", path]:
            table(read(path))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

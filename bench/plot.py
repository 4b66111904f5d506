"""Draws what compare.sh measured: for each operation, how many times as long as ours its peers take. Standard library only.

    plot.py RAW OUT.svg      RAW holds the measurements that compare.sh leaves beside its table, as JSON lines
"""

import math
import sys
from html import escape

from compare import best_mpi, medians, read, show

WIDTH, COLUMNS = 968, 3
PANEL, GAP = (258, 228), (56, 56)
LEFT, TOP = 56, 74
# The least ratio that is drawn.
LEAST = 1 / 5
INK, GRID, PARITY = "#222222", "#dddddd", "#222222"
# What is drawn: a name, whose time, beside which of ours, in which colour, and whether dashed.
LINES = {
    "shm": (
        ("Gloo", "gloo", "ours", "#d62728", False),
        ("best MPI", "mpi", "ours", "#1f77b4", False),
        ("Gloo, to buffers of the group's making", "gloo", "buffers", "#d62728", True),
        ("best MPI, to such buffers", "mpi", "buffers", "#1f77b4", True),
    ),
    "tcp": (
        ("Gloo", "gloo", "ours", "#d62728", False),
        ("best MPI", "mpi", "ours", "#1f77b4", False),
        ("Gloo, to ours encrypted", "gloo", "encrypted", "#d62728", True),
        ("best MPI, to ours encrypted", "mpi", "encrypted", "#1f77b4", True),
    ),
}


def ratios(times, peer, own):
    """Points of one line: bytes, and how many times as long the peer takes."""
    for bytes, by in sorted(times.items()):
        theirs = by.get(best_mpi(by) if peer == "mpi" else peer)
        if theirs and by.get(own):
            yield bytes, theirs / by[own]


def logarithmic(least, most, start, end):
    """From a value to a place on an axis."""
    return lambda value: start + math.log(value / least) / math.log(most / least) * (end - start)


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{INK}" {more}>{escape(words)}</text>'


def line(x1, y1, x2, y2, colour, width):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def curve(points, colour, is_dashed):
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = ' stroke-dasharray="5 4"' if is_dashed else ""
    yield f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>'


def panel(op, lines, corner, sizes, most):
    """One operation, its sizes at equal distances. All have the same axes."""
    (left, top), (width, height) = corner, PANEL
    across = {bytes: left + at * width / max(len(sizes) - 1, 1) for at, bytes in enumerate(sizes)}
    up = logarithmic(LEAST, most, top + height, top)
    yield text(left + width / 2, top - 8, op, more='font-weight="bold"')
    tick = 1
    while tick <= most:
        yield line(left, up(tick), left + width, up(tick), PARITY if tick == 1 else GRID, 1)
        yield text(left - 6, up(tick) + 4, f"{tick:,}", "end")
        tick *= 10
    for bytes in sizes:
        yield line(across[bytes], top, across[bytes], top + height, GRID, 1)
        yield text(across[bytes], top + height + 16, show(bytes))
    for points, colour, is_dashed in lines:
        yield from curve([(across[bytes], up(max(ratio, LEAST))) for bytes, ratio in points], colour, is_dashed)


def picture(raw):
    transport, ranks = raw[0].get("transport", "shm"), raw[0]["np"]
    by_op = {}
    for (op, bytes), times in medians(raw).items():
        by_op.setdefault(op, {})[bytes] = times
    sizes = sorted({bytes for times in by_op.values() for bytes in times})
    drawn = {op: [(list(ratios(times, peer, own)), colour, dashed) for _, peer, own, colour, dashed in LINES[transport]] for op, times in by_op.items()}
    highest = max((ratio for lines in drawn.values() for points, *_ in lines for _, ratio in points), default=10)
    most = 10 ** math.ceil(math.log10(max(highest, 10)))
    rows = -(-len(drawn) // COLUMNS)
    height = TOP + rows * (PANEL[1] + GAP[1])
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">'
    yield '<rect width="100%" height="100%" fill="#ffffff"/>'
    over = "over TCP" if transport == "tcp" else "on one host"
    yield text(LEFT, 20, f"How many times as long as ours the peers take, by bytes: {ranks} ranks {over}. Above 1 ours is faster.", "start", 'font-size="14"')
    x = LEFT
    for name, peer, own, colour, is_dashed in LINES[transport]:
        yield from curve([(x, 40), (x + 26, 40)], colour, is_dashed)
        yield text(x + 34, 44, name, "start")
        x += 60 + 7 * len(name)
    for at, (op, lines) in enumerate(drawn.items()):
        corner = LEFT + at % COLUMNS * (PANEL[0] + GAP[0]), TOP + at // COLUMNS * (PANEL[1] + GAP[1])
        yield from panel(op, lines, corner, sizes, most)
    yield "</svg>"


if len(sys.argv) != 3:
    sys.exit(__doc__)
with open(sys.argv[2], "w", encoding="utf-8") as out:
    out.writelines(f"{part}\n" for part in picture(read(sys.argv[1])))

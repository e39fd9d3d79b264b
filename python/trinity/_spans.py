"""Layers of a KV cache that are coded side by side: matrices of tokens by the channels of a few layers.

A codec has a plan for each matrix, and its stages want many values; but a class of each column, and rows enough in a
tile for one to foresee the next, want layers side by side and few. So many go together as a matrix needs not to be
coded twice (small ones are coded by an arithmetic coder, too).
"""

from __future__ import annotations

#: Values up to which a matrix is coded by an arithmetic coder as well, and the better kept (`SMALL` in
#: models/tensor/src/codec/line.rs).
SMALL = 1 << 16


def spans(layers: int, values: int) -> list[tuple[int, int]]:
    """The first layer of each matrix and the one behind its last, where a layer has so many values.

    >>> spans(30, 128 * 192)[:2], len(spans(30, 128 * 192)), spans(2, 16), spans(5, 1 << 20)[-1]
    ([(0, 3), (3, 6)], 10, [(0, 2)], (4, 5))
    """
    together = SMALL // max(values, 1) + 1
    count = max(layers // together, 1)
    return [(layers * at // count, layers * (at + 1) // count) for at in range(count)]

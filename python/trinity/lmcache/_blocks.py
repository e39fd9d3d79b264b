"""Chunks of a KV cache as bytes whose number is bounded ahead.

A packed chunk says which key, number format and shape it is of, and carries a digest of all of itself; one that says
something else, or is cut or damaged, is `Refused`. At a rate no chunk takes more than `BlockCoder.capacity`, which
follows from its shape alone.

    magic 8 | digest 16 | key 16 | number format 8 | sides u32 and each side u32 | matrices u32 and each length u32 | bytes
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from typing import Any

from .. import _arrays, _coded, _core
from .._errors import InputError, RunError

_MAGIC = b"TRIKVC1\n"
_DIGEST = 16
#: Values from which on a matrix is worth a container of its own.
_LEAST = 8192
_FIXED = len(_MAGIC) + 2 * _DIGEST + 8 + 4 + 4


class Refused(ValueError):
    """A chunk that is not taken or not given back, and why."""


def _hash(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=_DIGEST).digest()


class BlockCoder:
    """Codes arrays of shape ``(…, tokens, channels)`` at ``bits`` per value; every bit where that is ``None``.

    >>> import numpy as np
    >>> coder = BlockCoder(bits=4)
    >>> chunk = np.sin(np.arange(2 * 3 * 64 * 128, dtype=np.float32)).reshape(2, 3, 64, 128)
    >>> packed = coder.pack(chunk, b"key")
    >>> len(packed) <= coder.capacity(chunk.shape, 4), len(coder.unpack(packed, chunk.shape, "f32", b"key"))
    (True, 196608)
    >>> coder.unpack(packed, chunk.shape, "f32", b"another")
    Traceback (most recent call last):
        ...
    trinity.lmcache._blocks.Refused: it is the chunk of another key
    """

    def __init__(self, bits: float | None = 3.0, codec: str | None = None) -> None:
        if bits is not None and not 0 < bits <= 16:
            raise InputError(f"{bits} bits per value: expected a number above zero, up to 16, or none for every bit")
        self.bits = bits
        self.codec = codec or ("line-fast" if bits is not None else None)

    def _matrices(self, shape: Sequence[int]) -> list[tuple[int, int]]:
        """Rows and columns of what is coded one by one; none where the chunk goes as it is."""
        values = math.prod(shape)
        if values < _LEAST:
            return []
        columns = shape[-1]
        rows = shape[-2] if len(shape) > 1 else 1
        if rows * columns < _LEAST:
            return [(values // columns, columns)]
        return [(rows, columns)] * (values // (rows * columns))

    def capacity(self, shape: Sequence[int], element_size: int) -> int:
        """The most bytes that a chunk of a shape takes."""
        shape = [int(side) for side in shape]
        matrices = self._matrices(shape)
        head = _FIXED + 4 * len(shape) + 4 * len(matrices)
        if not matrices or self.bits is None:
            return head + math.prod(shape) * element_size
        return head + sum(int(rows * columns * self.bits / 8) for rows, columns in matrices)

    def pack(self, x: Any, key: bytes) -> bytes:
        """A chunk as bytes; `Refused` where a value is not finite, or its matrices need more bits."""
        _, _, dtype, shape, data = _arrays.plain(x, "chunk")
        raw = data.tobytes()
        width = len(raw) // max(math.prod(shape), 1)
        parts: list[_arrays.Plain] = []
        at = 0
        for rows, columns in self._matrices(shape):
            end = at + rows * columns * width
            parts.append(("chunk", "kv-cache", dtype, [rows, columns], data[at:end]))
            at = end
        bodies = self._coded(parts) if parts else []
        if self.bits is None and sum(map(len, bodies)) > len(raw):
            bodies = []
        sides = struct.pack(f"<I{len(shape)}I", len(shape), *shape)
        lengths = struct.pack(f"<I{len(bodies)}I", len(bodies), *map(len, bodies))
        rest = b"".join([_hash(key), dtype.encode().ljust(8), sides, lengths, *(bodies or [raw])])
        return _MAGIC + _hash(rest) + rest

    def _coded(self, parts: list[_arrays.Plain]) -> list[bytes]:
        target = ("lossless", 1.0) if self.bits is None else ("bits", float(self.bits))
        asked = _coded._asked(self.codec, target, strict=True, measure=False)
        try:
            return [one[0] for one in _core.encode(parts, asked, {}, None)]
        except InputError as error:
            raise Refused(f"it cannot be coded: {error}") from None

    def unpack(self, packed: bytes, shape: Sequence[int], dtype: str, key: bytes) -> Any:
        """The values again, as bytes in a row; `Refused` where these are not of this key, number format and shape.

        What lies behind the chunk is left alone: a buffer may be longer.
        """
        start = len(_MAGIC) + _DIGEST
        if packed[: len(_MAGIC)] != _MAGIC:
            raise Refused("it is no chunk of this version")
        try:
            at = start + _DIGEST + 8
            (count,) = struct.unpack_from("<I", packed, at)
            stated = list(struct.unpack_from(f"<{min(count, 16)}I", packed, at + 4))
            at += 4 + 4 * count
            (bodies,) = struct.unpack_from("<I", packed, at)
            lengths = struct.unpack_from(f"<{bodies}I", packed, at + 4)
            at += 4 + 4 * bodies
        except (struct.error, OverflowError, MemoryError):
            raise Refused("it is cut or damaged") from None
        own_dtype = packed[start + _DIGEST : start + _DIGEST + 8].decode("latin-1").rstrip()
        wanted = [int(side) for side in shape]
        raw = math.prod(wanted) * _arrays.width(dtype)
        end = at + (sum(lengths) if bodies else raw)
        if len(packed) < end or _hash(bytes(packed[start:end])) != packed[len(_MAGIC) : start]:
            raise Refused("its checksum does not hold: it is cut, damaged, or of another shape")
        if packed[start : start + _DIGEST] != _hash(key):
            raise Refused("it is the chunk of another key")
        if (own_dtype, stated) != (dtype, wanted):
            raise Refused(f"it is {own_dtype} of {stated}, and {dtype} of {wanted} is asked for")
        if not bodies:
            return bytes(packed[at:end])
        containers = []
        for length in lengths:
            containers.append(bytes(packed[at : at + length]))
            at += length
        try:
            decoded = _core.decode(containers, None)
        except (InputError, RunError) as error:
            raise Refused(f"it cannot be decoded: {error}") from None
        return b"".join(bytes(memory) for memory, *_ in decoded)

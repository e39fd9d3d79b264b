"""Chunks of a KV cache as bytes whose number is bounded ahead.

A packed chunk says which key, number format and shape it is of, and carries a digest of all of itself; one that says
something else, or is cut or damaged, is `Refused`. At a rate no chunk takes more than `BlockCoder.capacity`, which
follows from its shape alone.

    magic 8 | digest 16 | key 16 | number format 8 | sides u32 and each side u32 | matrices u32 and each length u32 |
    scales u32 and each scale f32 | bytes

At a rate a few layers go together in one matrix, side by side: rows are tokens, columns their channels, and each layer
is over its own root mean square, so that errors are the same share of each.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _arrays, _coded, _core
from .._errors import InputError, RunError
from .._spans import spans

_MAGIC = b"TRIKVC2\n"
_DIGEST = 16
#: Values from which on a matrix is worth a container of its own.
_LEAST = 8192
_FIXED = len(_MAGIC) + 2 * _DIGEST + 8 + 4 + 4 + 4


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

    def capacity(self, shape: Sequence[int], element_size: int) -> int:
        """The most bytes that a chunk of a shape takes."""
        shape = [int(side) for side in shape]
        sides = _sides(shape)
        kinds, layers, tokens, channels = sides
        together = spans(layers, tokens * channels) if kinds else []
        head = _FIXED + 4 * len(shape) + 4 * kinds * (1 if self.bits is None else len(together))
        if not kinds or self.bits is None:
            return head + math.prod(shape) * element_size
        return head + 4 * kinds * layers + kinds * sum(int(tokens * (end - start) * channels * self.bits / 8) for start, end in together)

    def pack(self, x: Any, key: bytes) -> bytes:
        """A chunk as bytes; `Refused` where a value is not finite, or its matrices need more bits."""
        _, _, dtype, shape, data = _arrays.plain(x, "chunk")
        sides = _sides(shape)
        bodies: list[bytes] = []
        scales = np.empty(0, np.float32)
        if sides[0] and self.bits is not None:
            bodies, scales = self._at_rate(dtype, sides, data)
        elif sides[0]:
            # Layers one below the other: a codec of every bit learns from all that came before.
            shape_of_kind = [sides[1] * sides[2], sides[3]]
            bodies = self._coded([("chunk", "kv-cache", dtype, shape_of_kind, own) for own in data.reshape(sides[0], -1)])
            bodies = bodies if sum(map(len, bodies)) <= data.nbytes else []
        words = b"".join(struct.pack(f"<I{len(own)}I", len(own), *own) for own in (shape, [len(body) for body in bodies]))
        scaled = struct.pack("<I", scales.size) + scales.astype("<f4").tobytes()
        rest = b"".join([_hash(key), dtype.encode().ljust(8), words, scaled, *(bodies or [data.tobytes()])])
        return _MAGIC + _hash(rest) + rest

    def _at_rate(self, dtype: str, sides: Sides, data: np.ndarray[Any, Any]) -> tuple[list[bytes], np.ndarray[Any, Any]]:
        kinds, layers, tokens, channels = sides
        values = _single(dtype, data)
        if not np.isfinite(values).all():
            at = int(np.flatnonzero(~np.isfinite(values))[0])
            raise Refused(f"it cannot be coded: value {at} is {'NaN' if np.isnan(values[at]) else 'infinite'}")
        values = values.reshape(kinds, layers, tokens, channels)
        scales = np.sqrt(np.einsum("kltc,kltc->kl", values, values, dtype=np.float64) / (tokens * channels)).astype(np.float32)
        scales[scales == 0] = 1
        parts: list[_arrays.Plain] = []
        for own, scale in zip(values, scales):
            for start, end in spans(layers, tokens * channels):
                rows = np.empty((tokens, end - start, channels), np.float32)
                np.divide(own[start:end].transpose(1, 0, 2), scale[start:end, None], out=rows)
                parts.append(("chunk", "kv-cache", "f32", [tokens, (end - start) * channels], rows.reshape(-1).view(np.uint8)))
        return self._coded(parts), scales.reshape(-1)

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
            stated, at = _counted(packed, start + _DIGEST + 8, "I")
            lengths, at = _counted(packed, at, "I")
            found_scales, at = _counted(packed, at, "f")
            scales = np.array(found_scales, np.float32)
        except (struct.error, OverflowError, MemoryError):
            raise Refused("it is cut or damaged") from None
        own_dtype = packed[start + _DIGEST : start + _DIGEST + 8].decode("latin-1").rstrip()
        wanted = [int(side) for side in shape]
        raw = math.prod(wanted) * _arrays.width(dtype)
        end = at + (sum(lengths) if lengths else raw)
        if len(packed) < end or _hash(bytes(packed[start:end])) != packed[len(_MAGIC) : start]:
            raise Refused("its checksum does not hold: it is cut, damaged, or of another shape")
        if packed[start : start + _DIGEST] != _hash(key):
            raise Refused("it is the chunk of another key")
        if (own_dtype, stated) != (dtype, wanted):
            raise Refused(f"it is {own_dtype} of {stated}, and {dtype} of {wanted} is asked for")
        if not lengths:
            return bytes(packed[at:end])
        sides = _sides(wanted)
        containers = []
        for length in lengths:
            containers.append(bytes(packed[at : at + length]))
            at += length
        try:
            decoded = _core.decode(containers, None)
        except (InputError, RunError) as error:
            raise Refused(f"it cannot be decoded: {error}") from None
        kinds, layers, tokens, channels = sides
        if not scales.size:
            found = [(dtype, [layers * tokens, channels])] * kinds
        else:
            found = [("f32", [tokens, (end - start) * channels]) for _ in range(kinds) for start, end in spans(layers, tokens * channels)]
        if [(own, list(shape)) for _, own, shape, _ in decoded] != found:
            raise Refused("its matrices are not those of its shape")
        rows = [np.frombuffer(memory, np.uint8) for memory, *_ in decoded]
        return b"".join(one.tobytes() for one in rows) if not scales.size else _layers(dtype, sides, rows, scales)


def _counted(packed: bytes, at: int, kind: str) -> tuple[list[Any], int]:
    """As many numbers as the first one says, and where they end."""
    (count,) = struct.unpack_from("<I", packed, at)
    return list(struct.unpack_from(f"<{count}{kind}", packed, at + 4)), at + 4 + 4 * count


#: Kinds of values (keys and values), and what each has: layers, tokens, channels.
Sides = tuple[int, int, int, int]


def _sides(shape: Sequence[int]) -> Sides:
    """What a chunk of a shape has; nothing where it goes as it is."""
    values = math.prod(shape)
    if values < _LEAST:
        return 0, 0, 0, 0
    channels = shape[-1]
    tokens = shape[-2] if len(shape) > 1 else 1
    layers = shape[-3] if len(shape) > 2 else 1
    if layers * tokens * channels < _LEAST:
        layers = values // (tokens * channels)
    return values // (layers * tokens * channels), layers, tokens, channels


def _layers(dtype: str, sides: Sides, rows: list[np.ndarray[Any, Any]], scales: np.ndarray[Any, Any]) -> bytes:
    """Values of layers again, out of matrices over their scales."""
    kinds, layers, tokens, channels = sides
    values = np.empty((kinds, layers, tokens, channels), np.float32)
    own = iter(rows)
    for into, scale in zip(values, scales.reshape(kinds, layers)):
        for start, end in spans(layers, tokens * channels):
            moved = next(own).view(np.float32).reshape(tokens, end - start, channels).transpose(1, 0, 2)
            np.multiply(moved, scale[start:end, None, None], out=into[start:end])
    return _narrow(dtype, values.reshape(-1))


def _single(dtype: str, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Values of a number format in single precision."""
    torch = _arrays.torch_module()
    if torch is not None:
        found: np.ndarray[Any, Any] = _arrays.array(data, dtype, [-1], "torch").float().numpy()
        return found
    return data.view(_arrays.numpy_dtype(dtype)).astype(np.float32)


def _narrow(dtype: str, values: np.ndarray[Any, Any]) -> bytes:
    """Single precision in a number format; what is beyond its largest number is that number."""
    torch = _arrays.torch_module()
    if torch is not None:
        wanted = _arrays.torch_dtype(dtype)
        most = torch.finfo(wanted).max
        return bytes(torch.from_numpy(values).clamp_(-most, most).to(wanted).view(torch.uint8).numpy().data)
    numpy_dtype = _arrays.numpy_dtype(dtype)
    if numpy_dtype.kind == "f":
        most = float(np.finfo(numpy_dtype).max)
    else:
        import ml_dtypes

        most = float(ml_dtypes.finfo(numpy_dtype).max)
    return values.clip(-most, most).astype(numpy_dtype).tobytes()

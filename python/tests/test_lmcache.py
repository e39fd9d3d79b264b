"""The serde for LMCache: its bound, its refusals, and LMCache itself around it.

LMCache wants a PyTorch: the environment of vLLM with two packages more (docs/integrations.md), at `.venv-vllm` or where
`TRINITY_VLLM_PYTHON` says.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import trinity
from folders import flipped
from processes import VLLM, has, python
from trinity.lmcache import BlockCoder, Refused


def _chunk(shape: tuple[int, ...], law: str = "normal") -> np.ndarray:
    random = np.random.default_rng(3)
    if law == "zero":
        return np.zeros(shape, np.float16)
    if law == "outliers":
        return (random.standard_t(2, size=shape) * 0.1).astype(np.float16)
    scale = np.exp(random.normal(size=(*([1] * (len(shape) - 1)), shape[-1])))
    return (random.normal(size=shape) * scale).astype(np.float16)


@pytest.mark.parametrize("bits", [1.5, 2, 3, 4, 8, None])
@pytest.mark.parametrize("shape", [(2, 3, 256, 64), (2, 4, 16, 64), (1, 2, 100, 96), (2, 2, 3, 5), (1,), (2, 1, 17, 1000)])
def test_no_chunk_takes_more_than_its_shape_allows(bits, shape):
    coder = BlockCoder(bits)
    for law in "normal", "outliers", "zero":
        chunk = _chunk(shape, law)
        packed = coder.pack(chunk, b"key")
        assert len(packed) <= coder.capacity(shape, 2), law
        # A buffer is as long as the most that it may hold.
        room = packed + bytes(coder.capacity(shape, 2) - len(packed))
        found = np.frombuffer(coder.unpack(room, shape, "f16", b"key"), np.float16).reshape(shape).astype(np.float64)
        if bits is None or math.prod(shape) < 8192:
            assert np.array_equal(found, chunk.astype(np.float64)), law
        elif law == "normal":
            error = ((found - chunk) ** 2).sum() / (chunk.astype(np.float64) ** 2).sum()
            assert error < 3 * 4.0**-bits, (bits, error)


def test_what_is_cut_flipped_or_another_is_refused():
    coder, shape = BlockCoder(3), (2, 2, 128, 64)
    packed = coder.pack(_chunk(shape), b"key")
    damaged = [flipped(packed, at, 0x10) for at in range(0, len(packed), 97)]
    for one in [*damaged, *(packed[:end] for end in range(0, len(packed), 101))]:
        with pytest.raises(Refused):
            coder.unpack(one, shape, "f16", b"key")
    for other in ((2, 2, 64, 128), "f16", b"key"), ((4, 128, 64), "f16", b"key"), (shape, "bf16", b"key"), (shape, "f16", b"kez"):
        with pytest.raises(Refused):
            coder.unpack(packed, *other)


def test_a_chunk_that_is_not_finite_is_not_taken():
    chunk = _chunk((2, 2, 128, 64))
    chunk[1, 1, 5, 7] = np.nan
    with pytest.raises(Refused, match="is NaN"):
        BlockCoder(3).pack(chunk, b"key")
    with pytest.raises(trinity.InputError, match="bits per value"):
        BlockCoder(0)


@pytest.mark.skipif(not has("lmcache, sortedcontainers"), reason="LEFT OUT: LMCache is not installed (docs/integrations.md)")
def test_lmcache_stores_and_loads_through_the_serde(tmp_path):
    done = python(Path(__file__).with_name("lmcache_l2.py"), tmp_path / "kv", tmp_path / "out.json", interpreter=VLLM)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads((tmp_path / "out.json").read_text())
    assert "trinity" in found["registered"]
    assert found["stored"] and found["loaded"] == [True, True]
    assert max(found["errors"]) < 0.03
    assert max(found["file_bytes"]) <= found["estimate_bytes"] < found["plain_bytes"] / 5
    # Another process, then half of the files flipped, cut, of another key.
    assert found["again"] == [True, True]
    assert found["flipped"] == [False] and found["cut"] == [False] and found["swapped"] == [False]
    assert "checksum does not hold" in done.stdout + done.stderr and "another key" in done.stdout + done.stderr
    assert found["not_finite_stored"] is False
    assert "no option" in found["bad_option"] and "Unknown serde type" in found["bad_name"]

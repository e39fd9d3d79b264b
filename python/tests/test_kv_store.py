"""Coded KV blocks on disk: content keys, checksums, eviction; nothing wrong is ever served."""

from __future__ import annotations

import os
import shutil
import time

import numpy as np
import pytest

import trinity
from trinity.vllm import BlockStore, Refused, chain, parts


def _block(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {f"layer.{n}": random.normal(size=(64, 32)).astype(np.float16) for n in range(2)}


SHAPES = {f"layer.{n}": ("f16", (64, 32)) for n in range(2)}


def test_keys_are_of_all_tokens_before_and_of_what_the_model_is():
    keys = chain("m", list(range(10)), 4)
    assert len(keys) == 2 and len(set(keys)) == 2
    assert chain("m", [*range(8), 99], 4) == keys
    assert chain("m", [7, *range(1, 10)], 4)[1] != keys[1]
    assert not set(chain("n", list(range(10)), 4)) & set(keys)
    assert not set(chain("m", list(range(10)), 4, ["lora a"])) & set(keys)
    assert not set(chain("m", list(range(10)), 2)) & set(keys)


def test_blocks_come_back_within_their_error_and_to_the_bit_where_asked(tmp_path):
    for bits in 4.0, None:
        store = BlockStore(tmp_path / str(bits), "m", bits=bits)
        block = _block(1)
        assert store.put("a", block) and "a" in store and store.put("a", block) is None
        # Another process, with nothing in its memory.
        for reader in store, BlockStore(tmp_path / str(bits), "m", bits=bits):
            found = reader.get("a", SHAPES, into="numpy")
            for name, one in block.items():
                error = ((found[name].astype(np.float32) - one) ** 2).sum() / (one.astype(np.float32) ** 2).sum()
                assert error == 0 if bits is None else error < 0.02, name


def test_first_tokens_keep_every_bit(tmp_path):
    # Two of keys and values, three heads, sixteen tokens of 64 channels.
    random = np.random.default_rng(3)
    whole = random.normal(size=(2, 3, 16, 64)).astype(np.float16)
    whole[:, :, 0] *= 100
    where = parts(whole.shape, 16, 4)
    block = {name: whole[own].reshape(-1, 64) for name, own in where.items()}
    assert block["sink"].shape == (24, 64) and block[""].shape == (72, 64)
    store = BlockStore(tmp_path, "m", bits=4.0, memory_bytes=0)
    store.put("a", block, exact=["sink"])
    found = store.get("a", {name: ("f16", one.shape) for name, one in block.items()}, into="numpy")
    back = np.zeros_like(whole)
    for name, own in where.items():
        back[own] = found[name].reshape(back[own].shape)
    assert (back[:, :, :4] == whole[:, :, :4]).all()
    error = (back - whole)[:, :, 4:].astype(np.float32)
    assert 0 < (error**2).mean() < 0.05
    with pytest.raises(Refused, match="`sink`"):
        store.get("a", {"": ("f16", (72, 64))}, into="numpy")
    # Where it is not clear which side tokens are, and where the sink is the block, nothing is coded with a loss.
    assert parts((2, 16, 16, 64), 16, 4) == {"sink": ()} == parts((2, 3, 16, 64), 16, 16)


def test_what_is_damaged_of_another_key_model_format_or_shape_is_refused_and_gone(tmp_path):
    def fresh() -> BlockStore:
        shutil.rmtree(tmp_path / "kv", ignore_errors=True)
        store = BlockStore(tmp_path / "kv", "m", memory_bytes=0)
        store.put("a", _block(1))
        store.put("b", _block(2))
        return store

    path = tmp_path / "kv/a.kv"
    store = fresh()
    whole = path.read_bytes()
    places = [0, 5, 20, len(whole) // 2, len(whole) - 1]
    for at in places:
        store = fresh()
        broken = bytearray(path.read_bytes())
        broken[at] ^= 1
        path.write_bytes(broken)
        with pytest.raises(Refused):
            store.get("a", SHAPES, into="numpy")
        assert "a" not in store and store.stats["refused"] == 1
        assert store.get("b", SHAPES, into="numpy")
    for length in 0, 10, 40, len(whole) // 2, len(whole) - 1:
        store = fresh()
        path.write_bytes(whole[:length])
        with pytest.raises(Refused):
            store.get("a", SHAPES, into="numpy")
    store = fresh()
    shutil.copy(tmp_path / "kv/b.kv", path)
    with pytest.raises(Refused, match="another key"):
        store.get("a", SHAPES, into="numpy")
    store = fresh()
    with pytest.raises(Refused, match="another model"):
        BlockStore(tmp_path / "kv", "other", memory_bytes=0).get("a", SHAPES, into="numpy")
    for other in {"layer.0": ("bf16", (64, 32)), "layer.1": ("f16", (64, 32))}, {"layer.0": ("f16", (32, 64)), "layer.1": ("f16", (64, 32))}, {"layer.0": ("f16", (64, 32))}:
        store = fresh()
        with pytest.raises(Refused, match="`layer"):
            store.get("a", other, into="numpy")
    with pytest.raises(Refused, match="cannot be read"):
        store.get("c", SHAPES, into="numpy")


def test_the_oldest_go_where_there_is_no_room(tmp_path):
    size = BlockStore(tmp_path / "one", "m", bits=None).put("x", _block(0))
    assert size is not None
    store = BlockStore(tmp_path / "kv", "m", bits=None, capacity_bytes=max(10 * size, 1 << 20), memory_bytes=0)
    store.capacity_bytes = 4 * size
    for at in range(12):
        store.put(f"k{at}", _block(at))
        os.utime(tmp_path / f"kv/k{at}.kv", (at, at))
    kept = sorted(path.name for path in (tmp_path / "kv").glob("*.kv"))
    assert sum((tmp_path / "kv" / name).stat().st_size for name in kept) <= 4 * size
    assert "k11.kv" in kept and "k0.kv" not in kept and store.stats["evicted"] >= 8


def test_a_folder_that_cannot_be_written_leaves_blocks_out(tmp_path):
    said: list[str] = []
    store = BlockStore(tmp_path / "kv", "m", say=said.append)
    shutil.rmtree(tmp_path / "kv")
    (tmp_path / "kv").write_text("in the way")
    assert store.put("a", _block(1)) is None and store.stats["not_written"] == 1
    assert store.put("b", _block(2)) is None and store.stats["not_written"] == 2
    # Said once, and again after a block was written.
    assert len(said) == 1 and "cannot be written" in said[0]
    (tmp_path / "kv").unlink()
    (tmp_path / "kv").mkdir()
    assert store.put("a", _block(1))
    shutil.rmtree(tmp_path / "kv")
    assert store.put("b", _block(2)) is None and len(said) == 2
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(trinity.InputError, match="cannot be made"):
        BlockStore(tmp_path / "file", "m")
    with pytest.raises(trinity.InputError, match="bits per value"):
        BlockStore(tmp_path / "other", "m", bits=0)
    with pytest.raises(trinity.InputError, match="holds no block"):
        BlockStore(tmp_path / "other", "m", capacity_bytes=10)


def test_what_a_killed_engine_left_unfinished_goes(tmp_path):
    for name, age_s in (".old.1.2", 7200), (".young.1.2", 60), ("whole.kv", 7200):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    BlockStore(tmp_path, "m")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".young.1.2", "whole.kv"]


def test_zeros_and_infinities_are_kept_to_the_bit(tmp_path):
    store = BlockStore(tmp_path / "kv", "m", memory_bytes=0)
    odd = {"layer.0": np.zeros((64, 32), np.float16), "layer.1": np.full((64, 32), np.inf, np.float16)}
    assert store.put("a", odd)
    found = store.get("a", SHAPES, into="numpy")
    assert all((found[name] == one).all() for name, one in odd.items())

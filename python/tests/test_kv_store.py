"""Coded KV blocks on disk: content keys, checksums, eviction; nothing wrong is ever served."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import trinity
from folders import flipped
from processes import environment
from trinity.vllm import BlockStore, Refused, chain
from trinity.vllm._store import store_name


def _block(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {f"layer.{n}": random.normal(size=(64, 32)).astype(np.float16) for n in range(2)}


@pytest.fixture
def told(tmp_path) -> tuple[BlockStore, list[str]]:
    """A store with nothing in its memory, and what it says."""
    said: list[str] = []
    return BlockStore(tmp_path / "kv", "m", say=said.append, memory_bytes=0), said


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


def test_tensors_that_are_named_keep_every_bit(tmp_path):
    random = np.random.default_rng(3)
    block = {"sink": 100 * random.normal(size=(24, 64)), "keys": random.normal(size=(72, 64))}
    block = {name: one.astype(np.float16) for name, one in block.items()}
    store = BlockStore(tmp_path, "m", bits=4.0, memory_bytes=0)
    store.put("a", block, exact=["sink"])
    found = store.get("a", {name: ("f16", one.shape) for name, one in block.items()}, into="numpy")
    assert (found["sink"] == block["sink"]).all()
    error = (found["keys"] - block["keys"]).astype(np.float32)
    assert 0 < (error**2).mean() < 0.05
    with pytest.raises(Refused, match="`sink`"):
        store.get("a", {"keys": ("f16", (72, 64))}, into="numpy")


def test_blocks_are_served_together_and_each_that_is_not_says_why(told, tmp_path):
    store, _ = told
    for seed, key in enumerate("abcd"):
        store.put(key, _block(seed))
    (tmp_path / "kv/b.kv").write_bytes((tmp_path / "kv/b.kv").read_bytes()[:-1])
    other = {**SHAPES, "layer.1": ("f16", (32, 64))}
    asked = [("a", SHAPES), ("b", SHAPES), ("e", SHAPES), ("c", other), ("d", SHAPES)]
    found = store.get_many(asked, into="numpy")
    assert [type(one) for one in found] == [dict, Refused, Refused, Refused, dict]
    for one, key in (found[0], "a"), (found[4], "d"):
        alone = store.get(key, SHAPES, into="numpy")
        assert all((one[name] == alone[name]).all() for name in SHAPES)
    assert [text in str(one) for one, text in zip(found[1:4], ("checksum", "cannot be read", "`layer.1`"))] == [True] * 3
    assert store.stats["refused"] == 3 and "b" not in store and "c" not in store and store.get_many([]) == []


def test_a_tensor_that_is_no_container_spoils_its_own_block_alone(told, tmp_path):
    store, _ = told
    for seed, key in enumerate("ab"):
        store.put(key, _block(seed))
    # Another's bytes under a digest that holds.
    path = tmp_path / "kv/b.kv"
    body = bytearray(path.read_bytes()[:-32])
    at = body.index(b"TRIN", len(b"TRINITY KV 1"))
    body[at : at + 4] = b"NIRT"
    path.write_bytes(_sealed(bytes(body)))
    good, bad = store.get_many([("a", SHAPES), ("b", SHAPES)], into="numpy")
    assert isinstance(good, dict) and isinstance(bad, Refused) and "cannot be decoded" in str(bad)


def _sealed(body: bytes) -> bytes:
    return body + hashlib.blake2b(body, digest_size=32).digest()


#: Headers of a version that has other names in them.
HEADERS = b'{"key": "a"}', b'{"key": "a", "identity": "m", "tensors": [{"name": "layer.0"}]}', b"[]", b"{"


def test_what_is_damaged_of_another_key_model_format_or_shape_is_refused_and_gone(tmp_path):
    path = tmp_path / "kv/a.kv"

    def refused(why: str, expected=SHAPES, identity: str = "m", as_file=lambda whole: whole) -> BlockStore:
        """A store, which refuses a block that was changed."""
        shutil.rmtree(tmp_path / "kv", ignore_errors=True)
        for key, seed in ("a", 1), ("b", 2):
            assert BlockStore(tmp_path / "kv", "m", memory_bytes=0).put(key, _block(seed))
        path.write_bytes(as_file(path.read_bytes()))
        store = BlockStore(tmp_path / "kv", identity, memory_bytes=0)
        with pytest.raises(Refused, match=why):
            store.get("a", expected, into="numpy")
        assert "a" not in store and store.stats["refused"] == 1
        return store

    for which in range(5):
        store = refused("", as_file=lambda whole, which=which: flipped(whole, (0, 5, 20, len(whole) // 2, len(whole) - 1)[which]))
        assert store.get("b", SHAPES, into="numpy")
    for length in 0, 10, 40, -1:
        refused("it is cut", as_file=lambda whole, length=length: whole[:length])
    refused("it is cut", as_file=lambda whole: whole[: len(whole) // 2])
    refused("another key", as_file=lambda _: (tmp_path / "kv/b.kv").read_bytes())
    refused("another model", identity="other")
    for other in {**SHAPES, "layer.0": ("bf16", (64, 32))}, {**SHAPES, "layer.0": ("f16", (32, 64))}, {"layer.0": ("f16", (64, 32))}:
        store = refused("`layer", other)
    with pytest.raises(Refused, match="cannot be read: it is gone"):
        store.get("c", SHAPES, into="numpy")
    for header in HEADERS:
        refused("its header is another", as_file=lambda _, own=header: _sealed(b"TRINITY KV 1\n" + len(own).to_bytes(4, "little") + own))


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


def _beside(folder, which: int, size: int, blocks: int = 8, **options) -> BlockStore:
    """A store of one model beside those of others; room for so many blocks in all, and half of one, since sizes differ a little."""
    identity = f"{which:032x}"
    store = BlockStore(folder / store_name(identity, 0), identity, bits=None, shared=folder, memory_bytes=0, **options)
    store.capacity_bytes = blocks * size + size // 2
    return store


def _kept(folder) -> list[str]:
    return sorted(path.stem for path in folder.rglob("*.kv"))


def test_the_capacity_is_that_of_all_models_in_a_folder_and_the_oldest_goes_whose_it_is(tmp_path):
    size = BlockStore(tmp_path / "one", f"{0:032x}", bits=None).put("x0", _block(0))
    folder = tmp_path / "kv"
    old, new = _beside(folder, 0, size), _beside(folder, 1, size)
    for at in range(8):
        old.put(f"o{at}", _block(at))
        os.utime(old.folder / f"o{at}.kv", (at, at))
    # What is read is used: it stays longer than what was written after it.
    assert old.get("o0", SHAPES, into="numpy")
    # What is not a store's is neither counted nor removed.
    for name in "mine/a.kv", "a.kv", f"{3:032x}-0.old/a.kv":
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x" * 10 * size)
    for at in range(6):
        new.put(f"n{at}", _block(at))
    assert sum(path.stat().st_size for store in (old, new) for path in store.folder.iterdir()) <= old.capacity_bytes
    kept = _kept(folder)
    assert {f"n{at}" for at in range(6)} <= set(kept) and "o0" in kept and "o1" not in kept and kept.count("a") == 3
    # A model that is not asked for any more goes wholly, in the end.
    for at in range(6, 16):
        new.put(f"n{at}", _block(at))
    assert not list(old.folder.iterdir())
    # Without others a store has its own folder alone.
    (folder / f"{1:032x}-0" / f"{5:032x}-0").mkdir()
    assert new.put("last", _block(1)) and BlockStore(folder, "m", memory_bytes=0).put("own", _block(1))


def test_what_another_engine_removed_makes_room_too(tmp_path, monkeypatch):
    """Two engines that count the same files and remove the oldest of them do not remove twice as many."""
    size = BlockStore(tmp_path / "one", f"{0:032x}", bits=None).put("x0", _block(0))
    folder = tmp_path / "kv"
    first, second = _beside(folder, 0, size, 20), _beside(folder, 1, size, 20)
    for at in range(20):
        (first, second)[at % 2].put(f"k{at:02}", _block(at))
        os.utime((first, second)[at % 2].folder / f"k{at:02}.kv", (at, at))
    counted = second._files()
    first.put("a", _block(1))
    removed = first.stats["evicted"]
    assert removed == 3 and "k02" not in _kept(folder) and "k03" in _kept(folder)
    # The other counted before that, and makes room after it.
    monkeypatch.setattr(second, "_files", lambda: counted)
    second.put("b", _block(2))
    assert second.stats["evicted"] == 0 and "k03" in _kept(folder)


def test_a_file_that_cannot_be_removed_is_left_and_the_next_goes(tmp_path, monkeypatch):
    size = BlockStore(tmp_path / "one", f"{0:032x}", bits=None).put("x0", _block(0))
    store = _beside(tmp_path / "kv", 0, size, 4)
    for at in range(4):
        store.put(f"k{at}", _block(at))
        os.utime(store.folder / f"k{at}.kv", (at, at))
    plain = Path.unlink

    def unlink(self, *args, **keywords):
        if self.stem == "k0":
            raise PermissionError(13, "not yours")
        plain(self, *args, **keywords)

    monkeypatch.setattr(Path, "unlink", unlink)
    store.put("k4", _block(4))
    assert _kept(store.folder) == ["k0", "k2", "k3", "k4"]


_ENGINE = """
import sys
import numpy as np
from trinity.vllm import BlockStore
from trinity.vllm._store import store_name
folder, which, capacity = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
identity = f"{which:032x}"
store = BlockStore(f"{folder}/{store_name(identity, 0)}", identity, bits=None, shared=folder, capacity_bytes=capacity)
random = np.random.default_rng(which)
for at in range(200):
    block = {"layer.0": random.normal(size=(64, 128)).astype(np.float16)}
    assert store.put(f"{which}.{at}", block)
    found = store.get_many([(f"{which}.{max(at - 3, 0)}", {"layer.0": ("f16", (64, 128))})], into="numpy")
print(store.stats["evicted"], store.stats["not_written"])
"""


def test_engines_that_share_a_folder_stay_within_its_capacity_and_do_not_empty_it(tmp_path):
    """Three processes write twelve times what there is room for."""
    capacity, folder = 1 << 20, tmp_path / "kv"
    words = [[sys.executable, "-c", _ENGINE, str(folder), str(which), str(capacity)] for which in range(3)]
    engines = [subprocess.Popen(one, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for one in words]
    most = 0
    while any(one.poll() is None for one in engines):
        used = 0
        for path in folder.rglob("*.kv"):
            with contextlib.suppress(OSError):
                used += path.stat().st_size
        most = max(most, used)
    said = [one.communicate() for one in engines]
    assert all(one.returncode == 0 for one in engines), said
    assert all(out.split()[1] == "0" for out, _ in said), said
    left = sum(path.stat().st_size for path in folder.rglob("*.kv"))
    # Each may have written a thirty-second of the capacity, or a block, that the others did not count yet.
    assert most <= 1.1 * capacity, (most, capacity)
    assert 0.75 * capacity < left <= 1.1 * capacity, (left, capacity)


def test_a_folder_that_cannot_be_written_leaves_blocks_out(told, tmp_path):
    store, said = told
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
    (tmp_path / "kv").write_text("in the way")
    assert store.put("b", _block(2)) is None and len(said) == 2
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(trinity.InputError, match="cannot be made"):
        BlockStore(tmp_path / "file", "m")
    for options, why in (
        ({"bits": 0}, "bits per value"), ({"capacity_bytes": 10}, "holds no block"), ({"codec": "nope"}, "codec .*no codec named"),
        ({"codec": "zstd"}, "codec .*cannot reach"), ({"codec": "line-fast", "bits": None}, "codec .*every bit.*cannot reach"),
        ({"codec": 5}, "codec .*expected the name"),
    ):  # fmt: skip
        with pytest.raises(trinity.InputError, match=why):
            BlockStore(tmp_path / "other", "m", **options)
        assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("shared", [False, True])
def test_a_folder_that_is_removed_under_an_engine_is_made_anew_and_counted_anew(tmp_path, shared):
    said: list[str] = []
    above = tmp_path / "kv"
    size = BlockStore(tmp_path / "one", f"{0:032x}", bits=None).put("x", _block(0))
    store = _beside(above, 0, size, 4, say=said.append)
    store.memory_bytes = 1 << 20
    for at in range(4):
        assert store.put(f"k{at}", _block(at))
    shutil.rmtree(above if shared else store.folder)
    # What is gone is not there, and no room is made of it.
    assert "k0" not in store
    for at in range(4):
        assert store.put(f"n{at}", _block(at))
    assert _kept(store.folder) == ["n0", "n1", "n2", "n3"] and store.stats["evicted"] == 0
    assert len(said) == 1 and "was removed" in said[0] and "made anew" in said[0]
    with pytest.raises(Refused, match="gone"):
        store.get("k0", SHAPES, into="numpy")
    assert store.get("n3", SHAPES, into="numpy") and store.put("n4", _block(4)) and store.stats["evicted"] >= 1


def test_a_folder_is_not_made_anew_on_another_file_system(told, tmp_path):
    store, said = told
    (tmp_path / "kv").rmdir()
    store._device += 1
    assert store.put("a", _block(1)) is None and store.put("b", _block(2)) is None
    assert len(said) == 1 and "mount it again" in said[0] and not (tmp_path / "kv").exists()
    (tmp_path / "kv").mkdir()
    assert store.put("a", _block(1)) and len(said) == 1


def _in_the_way(path: Path, what: str) -> None:
    if what == "pipe":
        os.mkfifo(path)
    elif what == "socket":
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as own, contextlib.chdir(path.parent):
            own.bind(path.name)
    elif what.startswith("link to "):
        path.symlink_to(what.removeprefix("link to "))
    else:
        path.mkdir()
        if what == "folder":
            (path / "another's").write_text("precious")


@pytest.mark.parametrize("what", ["empty folder", "link to nothing", "link to .", "link to /dev/zero"])
def test_what_is_in_a_blocks_place_and_holds_nothing_is_replaced(told, tmp_path, what):
    store, said = told
    _in_the_way(tmp_path / "kv/a.kv", what)
    assert "a" not in store and store.takes("a")
    assert store.put("a", _block(1)) and "a" in store and store.get("a", SHAPES, into="numpy")
    # A link is replaced as any file is.
    assert len(said) == (what == "empty folder") and all("empty folder" in one for one in said)


@pytest.mark.parametrize("what", ["folder", "pipe", "socket"])
def test_what_is_in_a_blocks_place_and_may_be_anothers_stays_and_is_said_once(told, tmp_path, what):
    store, said = told
    place = tmp_path / "kv/a.kv"
    _in_the_way(place, what)
    for _ in range(3):
        # The scheduler does not find it, the worker does not copy it, and nothing waits for a pipe.
        assert "a" not in store and not store.takes("a") and store.put("a", _block(1)) is None
        with pytest.raises(Refused, match="something else"):
            store.get("a", SHAPES, into="numpy")
    assert len(said) == 1 and "is left as it is" in said[0] and str(place) in said[0] and store.stats["not_written"] == 1
    assert place.exists() and (what != "folder" or (place / "another's").read_text() == "precious")
    # Other blocks are kept, room is made without it, and the block is kept once its place is free.
    assert store.put("b", _block(2)) and [path.name for path, *_ in store._files()] == ["b.kv"]
    store.capacity_bytes, store._counted = 1, None
    assert store.put("c", _block(3)) and place.exists() and "b" not in store
    place.rename(tmp_path / "kv/moved")
    assert store.put("a", _block(1)) and "a" in store and len(said) == 1
    store.remove("a")
    _in_the_way(place, what)
    assert not store.takes("a") and len(said) == 2


def test_a_folder_that_cannot_be_looked_into_has_no_blocks(tmp_path, monkeypatch):
    store = BlockStore(tmp_path / "kv", "m")
    store.put("a", _block(1))

    def stale(*_, **__):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(os, "stat", stale)
    assert "a" not in store


def test_a_full_disk_leaves_blocks_out_and_the_log_says_what_does_not_go(tmp_path, monkeypatch):
    said: list[str] = []
    store = BlockStore(tmp_path, "m", say=said.append, capacity_bytes=3 << 20)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        assert store.put("a", _block(1)) is None and store.put("b", _block(2)) is None
    assert len(said) == 1 and "capacity_bytes is 3,145,728" in said[0] and not list(tmp_path.iterdir())
    assert store.put("a", _block(1)) and store.get("a", SHAPES, into="numpy")


def test_what_a_killed_engine_left_unfinished_goes(tmp_path):
    for name, age_s in (".old.1.2", 7200), (".young.1.2", 60), ("whole.kv", 7200):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    BlockStore(tmp_path, "m")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".young.1.2", "whole.kv"]


def test_zeros_and_infinities_are_kept_to_the_bit(told, tmp_path):
    store, _ = told
    odd = {"layer.0": np.zeros((64, 32), np.float16), "layer.1": np.full((64, 32), np.inf, np.float16)}
    assert store.put("a", odd)
    found = store.get("a", SHAPES, into="numpy")
    assert all((found[name] == one).all() for name, one in odd.items())

"""Blocks between a paged cache and a store, with kernels that a CPU stands in for. Without an engine and a GPU; test_cuda.py has the real ones."""

from __future__ import annotations

import logging

import pytest

torch = pytest.importorskip("torch", reason="LEFT OUT: PyTorch is not installed (cargo xtask test --all)")

import line_kernels  # noqa: E402
from kv_blocks import BLOCK, COUNT, HEADS, LAYERS, WIDTH, kept, learned, moves, nmse, paged, spoil, worker  # noqa: E402
from trinity.torch import _rooms  # noqa: E402
from trinity.vllm import BlockStore, Refused  # noqa: E402
from trinity.vllm._device import DeviceCoder  # noqa: E402
from trinity.vllm._layout import by_block  # noqa: E402
from trinity.vllm._store import Stream  # noqa: E402


@pytest.fixture
def kernels(monkeypatch) -> line_kernels.Device:
    device = line_kernels.Device()
    monkeypatch.setattr(_rooms, "device_of", lambda _: device)
    monkeypatch.setattr(_rooms, "_stream", lambda _: 0)
    return device


@pytest.fixture
def coder(kernels) -> DeviceCoder:
    return DeviceCoder(3.0, "line-fast", torch.device("cpu"))


def _pages(count: int, spread: float = 1.0) -> torch.Tensor:
    """Pages of 128 tokens by 64 channels, one a row, whose means are most of what they are."""
    generator = torch.Generator().manual_seed(5)
    means = 6 * torch.randn(64, generator=generator)
    return (means + spread * torch.randn(count, 128, 64, generator=generator)).reshape(count, -1)


def _renewed() -> _rooms.Rooms:
    rooms = _rooms.Rooms(128 * 64, 4.0, torch.float32, torch.device("cpu"), cols=64)
    rooms.renew(_pages(2))
    return rooms


def test_a_page_twice_as_wide_as_those_before_it_fits_its_room(kernels):
    rooms = _renewed()
    assert rooms.coder.means is not None
    for spread in (1.0, 2.0, 4.0):
        pages = _pages(2, spread)
        back = rooms.unpack(rooms.pack(pages))
        assert float((pages - back).square().mean()) < 0.012 * spread**2
    # Means that were stated would be as many steps, of whatever size: nothing fits then.
    stated = _rooms.Rooms(128 * 64, 4.0, torch.float32, torch.device("cpu"), cols=64, with_means=True)
    stated.adopt(stated.choose(_pages(2)))
    assert stated.unpack(stated.pack(_pages(2, 4.0))).isnan().any()


def test_a_plan_that_is_off_is_found_out_and_not_chosen_for_every_page(kernels):
    rooms = _renewed()
    rooms.pack(_pages(2))
    assert not rooms.is_off
    rooms._gains.fill_(1.5)
    assert not rooms.is_off, "a plan is kept for a page or two"
    rooms.pack(_pages(2))
    rooms._gains.fill_(1.5)
    assert rooms.is_off
    rooms.renew(_pages(2))
    assert not rooms.is_off and rooms.chosen == 2
    # Zeros have no means, and what is no number has none that count.
    for page in (torch.zeros(1, 128 * 64), _pages(1) + float("nan")):
        rooms.renew(page)
        assert rooms.coder.means is None


def test_matrices_that_have_no_stream_have_a_plan_chosen_anew(kernels):
    coder = DeviceCoder(4.0, "line-fast", torch.device("cpu"))
    block = lambda spread: {"a": _pages(1, spread).reshape(128, 64)}  # noqa: E731
    for spread, streams in ((1.0, True), (4.0, False)):
        found = coder.encode([block(spread)] * 70, ())
        assert all(isinstance(one["a"], Stream) == streams for one in found)
    assert all(isinstance(one["a"], Stream) for one in coder.encode([block(4.0)], ()))


def _coded(coder: DeviceCoder, own: Worker, count: int = COUNT) -> None:
    """What a worker does on a GPU, without its streams of work."""
    packed = [own._packed(own._copied(moved), moved.index) for moved in moves(count)]
    for moved, tensors in zip(moves(count), coder.encode([one for one, _ in packed], {name for _, exact in packed for name in exact})):
        own.store.put(moved.key, tensors, exact=packed[0][1])


@pytest.mark.parametrize(("bits", "kind"), [(None, "vllm"), (None, "halves"), (None, "beside"), (None, "before"), (4.0, "halves")])
def test_blocks_come_back_into_the_cache_they_came_from(tmp_path, bits, kind):
    caches = paged(1, kind=kind)
    own = kept(tmp_path, caches, bits=bits)
    assert own.store.stats["plain_bytes"] == sum(one.nbytes for one in caches)
    back = paged(None, kind=kind)
    assert worker(tmp_path, back, bits).load(moves()) == []
    for got, meant in zip(back, caches):
        got, meant = by_block(got, COUNT), by_block(meant, COUNT)
        error = (got.float() - meant.float()).square().sum() / meant.float().square().sum()
        assert torch.equal(got, meant) if bits is None else 0 < float(error) < 0.02


def test_a_block_whose_place_is_taken_is_not_copied_and_the_others_are_kept(tmp_path):
    own = worker(tmp_path, paged(1))
    (tmp_path / "key 3.kv/another's").mkdir(parents=True)
    copied: list[str] = []
    read = own._copied
    own._copied = lambda moved: copied.append(moved.key) or read(moved)
    own.save(moves())
    own.shutdown()
    assert own.store.stats["written"] == COUNT - 1 and "key 3" not in copied and len(copied) == COUNT - 1
    ((moved, why),) = worker(tmp_path, paged(None)).load(moves())
    assert moved.key == "key 3" and "something else" in str(why) and (tmp_path / "key 3.kv/another's").is_dir()


def test_what_kernels_coded_is_read_by_a_cpu_to_the_same_values_and_as_well(tmp_path, kernels, coder):
    caches = paged(2)
    own, there = kept(tmp_path / "host", caches), worker(tmp_path / "device", caches)
    # How finely a plan's first matrices fill their rooms is what the next ones learn.
    coder.encode([there._packed(there._copied(moved), moved.index)[0] for moved in moves()], ())
    _coded(coder, there)
    assert len(kernels.launches) == 0 and there.store.stats["written"] == COUNT
    # Each block has its rate, and is as near as one that a CPU planned for itself.
    values = 2 * LAYERS * BLOCK * HEADS * WIDTH
    sizes = [path.stat().st_size for path in sorted((tmp_path / "device").glob("*.kv"))]
    assert max(sizes[1:]) < (3.0 / 8) * values + 2500, sizes
    back = [paged(None), paged(None)]
    assert own.load([]) == [] and worker(tmp_path / "host", back[0]).load(moves()) == [] and worker(tmp_path / "device", back[1]).load(moves()) == []
    bits = [8 * one.store.stats["written_bytes"] / (COUNT * values) for one in (own, there)]
    for at in range(COUNT):
        # At as many bits: a bit is a quarter of the error.
        host, device = (nmse(one, caches, at) * 4**rate for one, rate in zip(back, bits))
        assert 0 < device < 1.15 * host, (at, host, device)
    # By kernels: the same values, in one launch for each plan, whatever number of blocks.
    store = BlockStore(tmp_path / "device", "m", bits=3.0, memory_bytes=0)
    wanted = [(moved.key, there.expected(moved.index)) for moved in moves()]
    a, b = store.get_many(wanted), store.get_many(wanted, streams=coder.decode)
    for one, other in zip(a, b):
        assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    matrices = len([name for name in there.expected(1) if name.startswith(("keys", "values"))])
    assert sorted(kernels.launches) == sorted([1] * matrices + [COUNT - 1] * matrices)


def test_a_plan_is_kept_until_what_it_codes_is_other(coder):
    generator = torch.Generator().manual_seed(4)

    def block(spread: float) -> dict[str, torch.Tensor]:
        return {"keys 0": torch.randn(BLOCK, 128, generator=generator) * torch.exp(spread * torch.randn(128, generator=generator))}

    for _ in range(8):
        coded = coder.encode([block(0.1) for _ in range(8)], ())
        assert all(isinstance(one["keys 0"], Stream) for one in coded)
    (plan,) = coder._kept.values()
    assert plan.rooms.chosen == 1
    # Nearly all of each room is used.
    used = [len(one["keys 0"].bytes) / plan.rooms.bytes for one in coded]
    assert 0.93 < min(used) and max(used) <= 1
    for _ in range(30):
        coder.encode([block(3.0) for _ in range(8)], ())
    assert 1 < plan.rooms.chosen < 5


def test_what_kernels_cannot_take_is_coded_on_the_host(tmp_path, coder):
    block = {
        "odd": torch.randn(64, 100), "small": torch.randn(8, 128), "whole": torch.randn(64, 128).bfloat16(), "exact": torch.randn(64, 128),
        "good": torch.randn(64, 128), "spoiled": torch.full((64, 128), float("inf")),
    }  # fmt: skip
    (coded,) = coder.encode([block], ["exact"])
    assert {name for name, one in coded.items() if isinstance(one, Stream)} == {"good"}
    assert all(torch.equal(coded[name], one) for name, one in block.items() if name != "good")
    # Where no plan is short enough nothing is tried again.
    few = DeviceCoder(0.02, "line-fast", torch.device("cpu"))
    assert all(torch.equal(few.encode([{"a": block["good"]}], ())[0]["a"], block["good"]) for _ in range(2)) and few._left
    store = BlockStore(tmp_path, "m", bits=3.0, memory_bytes=0)
    store.put("a", coded, exact=["exact", "spoiled", "whole"])
    back = store.get("a", {name: ("bf16" if name == "whole" else "f32", one.shape) for name, one in block.items()})
    assert all(torch.equal(back[name], block[name]) for name in ("exact", "whole", "spoiled"))


def test_a_worker_reads_blocks_of_a_cpu_and_of_kernels_and_says_which_it_does_not_serve(tmp_path, coder):
    caches = paged(5)
    own = worker(tmp_path, caches)
    _coded(coder, own, 4)
    own.save(moves())
    own.shutdown()
    assert own.store.stats["written"] == COUNT
    damaged = own.store.folder / "key 2.kv"
    spoil(damaged)
    (own.store.folder / "key 5.kv").unlink()
    back = paged(None)
    reader = worker(tmp_path, back)
    reader._coder = coder
    failed = reader.load(moves())
    assert [moved.index for moved, _ in failed] == [2, 5]
    assert "checksum" in str(failed[0][1]) and "cannot be read" in str(failed[1][1]) and not damaged.exists()
    assert all(nmse(back, caches, at) < 0.06 for at in range(COUNT) if at not in (2, 5))
    assert not any(one[at].any() for one in back for at in (2, 5))


def test_a_stream_that_is_not_of_its_matrix_is_refused(tmp_path, coder):
    (coded,) = coder.encode([{"a": torch.randn(64, 128)}], ())
    stream = coded["a"]
    store = BlockStore(tmp_path, "m", bits=3.0, memory_bytes=0)
    for other in Stream(stream.bytes, stream.head, (128, 64)), Stream(stream.bytes[: len(stream.bytes) // 2], stream.head, (64, 128)), Stream(b"", 0, (64, 128)):
        for streams in None, coder.decode:
            store.put("a", {"a": other})
            if streams is not None and other.shape == (128, 64):
                # As many values: kernels do not see how they lie.
                store.remove("a")
                continue
            (found,) = store.get_many([("a", {"a": ("f32", other.shape)})], streams=streams)
            assert isinstance(found, Refused) and "cannot be decoded" in str(found) and "a" not in store


def test_blocks_that_are_not_finite_are_not_kept_and_named(tmp_path, caplog):
    caches = paged(6)
    caches[2][3, 0, 5] = float("nan")
    own = worker(tmp_path, caches)
    with caplog.at_level(logging.WARNING):
        own.save(moves())
        own.shutdown()
    assert own.store.stats["written"] == COUNT - 1 and "key 3" not in own.store
    assert "block 3 of request r is not kept: it has values that are not finite" in caplog.text


@pytest.mark.parametrize("kind", ["vllm", "halves", "beside", "before"])
def test_many_blocks_are_put_as_each_alone_is(tmp_path, coder, kind):
    caches = paged(7, kind=kind)
    basis = learned(paged(7)) if kind == "vllm" else None
    own = worker(tmp_path, caches, basis=basis)
    _coded(coder, own)
    backs = [paged(None, kind=kind), paged(None, kind=kind)]
    for back, by in zip(backs, (None, coder)):
        reader = worker(tmp_path, back, basis=basis)
        reader._coder, reader._at_once = by, 7
        assert reader.load(moves()[::-1]) == []
    assert all(torch.equal(a, b) for a, b in zip(*backs))
    # As blocks lie and as they are read, many at once or each alone.
    group = own.groups[0]
    raw = torch.stack([one for one in group.caches], 1)
    arranged = group.layout.arranged(raw)
    assert all(torch.equal(arranged[at], own._copied(moved)[0]) for at, moved in enumerate(moves()))
    assert torch.equal(group.layout.placed(arranged), raw)

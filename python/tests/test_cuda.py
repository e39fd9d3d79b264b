"""Tensors on a GPU: coded there to the CPU's bytes, many in one launch, without a copy or a wait.

Needs a GPU; without one these tests say that they are left out.
"""

from __future__ import annotations

import hashlib

import pytest

torch = pytest.importorskip("torch", reason="LEFT OUT: PyTorch is not installed (cargo xtask test --all)")
if not torch.cuda.is_available():
    pytest.skip("LEFT OUT: there is no GPU", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import folders  # noqa: E402
import kv_blocks as kv  # noqa: E402
import trinity.torch as tt  # noqa: E402
from trinity import InputError, RunError, _core  # noqa: E402
from ranks import answers  # noqa: E402
from trinity.torch._rooms import Rooms  # noqa: E402
from trinity.torch._shards import Shards  # noqa: E402


def made(*shape: int, seed: int = 1, scale: float = 1.0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    columns = torch.exp(torch.randn(shape[-1], generator=generator))
    return (torch.randn(*shape, generator=generator) * columns * scale).to(dtype).cuda()


def on_cpu(stream: torch.Tensor, x: torch.Tensor) -> bytes:
    """What a CPU writes under the plan that a stream states."""
    return _core.line_encode(bytes(stream.cpu().numpy()), x.float().cpu().reshape(-1).numpy())


@pytest.mark.parametrize("best", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_list_is_coded_to_the_bytes_of_a_cpu(dtype, best):
    tensors = [made(256, 512, seed=seed, dtype=dtype) for seed in (1, 1, 2, 3)]
    codec = tt.DeviceCodec(tensors[0], bits=3, best=best)
    # Not in the order of their addresses.
    tensors = tensors[::-1]
    coded = codec.encode_all(tensors)
    coded[0].check()
    decoded = codec.decode_all(coded, check=True)
    for x, one, back in zip(tensors, coded, decoded):
        stream = bytes(one.bytes.cpu().numpy())
        assert stream == on_cpu(one.bytes, x)
        rows, cols, memory = _core.line_decode(stream)
        wide = torch.frombuffer(memory, dtype=torch.float32).reshape(rows, cols)
        assert torch.equal(back.cpu(), wide.to(dtype))
        assert torch.equal(codec.decode(one.bytes), back)


@pytest.mark.parametrize("best", [False, True])
def test_a_plan_is_kept_for_tensors_of_every_scale(best):
    x = made(256, 512)
    codec = tt.DeviceCodec(x, bits=3, best=best, follow=True)
    others = [x, x * 1e-6, x * 3e7, torch.zeros_like(x), made(256, 512, seed=1) + 0.01]
    coded = codec.encode_all(others)
    coded[0].check()
    for one, y in zip(coded, others):
        assert bytes(one.bytes.cpu().numpy()) == on_cpu(one.bytes, y)
    bits = [one.bits_per_value for one in coded]
    assert bits[1] == pytest.approx(bits[0], rel=0.01) and bits[2] == pytest.approx(bits[0], rel=0.01)
    back = codec.decode_all(coded)
    assert torch.equal(back[3], torch.zeros_like(x))
    errors = [float((y - b).square().mean() / y.square().mean()) for y, b in zip(others[:3], back)]
    assert max(errors) < 1.02 * min(errors)


def test_a_graph_captures_lists_and_replays_them_on_new_values():
    x = made(256, 512, dtype=torch.bfloat16)
    codec = tt.DeviceCodec(x, bits=3, follow=True)
    inputs = [torch.empty_like(x) for _ in range(8)]
    for one in inputs:
        one.copy_(x)
    codec.decode_all(codec.encode_all(inputs))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        coded = codec.encode_all(inputs)
        decoded = codec.decode_all(coded)
    for seed in (5, 6):
        for at, one in enumerate(inputs):
            one.copy_(made(256, 512, seed=seed + at, scale=10.0**at, dtype=torch.bfloat16))
        graph.replay()
        torch.cuda.synchronize()
        for x, one, back in zip(inputs, coded, decoded):
            assert bytes(one.bytes.cpu().numpy()) == on_cpu(one.bytes, x)
            assert torch.equal(back, codec.decode(one.bytes))


def test_rooms_hold_what_they_are_given_and_say_what_is_not_finite():
    values = 256 * 512
    x = torch.stack([made(values // 256, 256, seed=seed).reshape(-1) * 10.0**seed for seed in range(6)])
    x[3] = 0
    # Nothing like the others: hardly compressible at the rate.
    x[4] = torch.sign(x[4])
    x[5, 77] = float("nan")
    rooms = Rooms(values, 1.5, torch.float32, x.device)
    rooms.adopt(rooms.choose(x[:3]))
    for _ in range(3):
        packed = rooms.pack(x)
        back = rooms.unpack(packed)
        lengths = packed[:, :8].contiguous().view(torch.int64).reshape(-1).tolist()
        assert lengths[5] == -1 and back[5].isnan().all()
        assert all(0 < length <= rooms.bytes - 16 for length in lengths[:5])
        assert torch.equal(back[3], torch.zeros_like(back[3]))
        for at in range(5):
            stream = packed[at, 16 : 16 + lengths[at]]
            assert bytes(stream.cpu().numpy()) == on_cpu(stream, x[at])
        for at in range(3):
            assert float((x[at] - back[at]).square().mean() / x[at].square().mean()) < 0.2


def test_what_does_not_fit_is_a_sentence():
    x = made(256, 512)
    codec = tt.DeviceCodec(x, bits=3)
    for wrong, why in (
        (lambda: tt.DeviceCodec(x.cpu()), "on cpu"),
        (lambda: codec.encode(x.cpu()), "and this is .* on cpu"),
        (lambda: codec.encode(x[:128]), r"and this is \(128, 512\)"),
        (lambda: codec.encode_all([x, x.bfloat16()]), "and this is .*bfloat16"),
        (lambda: codec.decode(codec.encode(x), out=torch.empty(512, 256, device="cuda").T), "in a row"),
        (lambda: tt.DeviceCodec(x[:128].contiguous(), plan=codec.plan), "256 × 512 values, and the tensor is"),
    ):
        with pytest.raises(InputError, match=why):
            wrong()
    # A transposed tensor is coded as it is read.
    turned = x.T.contiguous().T
    assert torch.equal(codec.encode(turned).bytes, codec.encode(x).bytes)
    # Values that are no numbers are kept as they are.
    spoiled = x.clone()
    spoiled[3, 4], spoiled[5, 6] = float("nan"), float("inf")
    coded = codec.encode(spoiled)
    coded.check()
    back = coded.decode()
    assert back[3, 4].isnan() and back[5, 6].isinf() and back.isfinite().sum() == back.numel() - 2
    # A stream under another plan is found out.
    other = tt.DeviceCodec(made(256, 512, seed=8) * torch.linspace(1, 90, 512, device="cuda"), bits=2)
    with pytest.raises(RunError, match="another plan"):
        codec.decode_all([other.encode(x)], check=True)
    with pytest.raises(RunError, match="header and directory take"):
        codec.decode(codec.encode(x).bytes[:16])
    rooms = Rooms(256 * 512, 3.0, torch.float32, x.device)
    with pytest.raises(InputError, match="the rooms are for"):
        rooms.pack(x.reshape(1, -1).bfloat16())
    with pytest.raises(InputError, match="not in a row"):
        rooms.pack(torch.zeros(4, 2 * 256 * 512, device="cuda")[:, ::2])


# Boundaries, caches, weights.


def _quiet_step(step) -> dict[str, int]:
    """What the profiler sees of a step in which a wait is an error: copies from the device, and kernels of ours."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]) as seen:
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    names = [event.name for event in seen.events()]
    return {
        "to_host": sum("Memcpy DtoH" in name for name in names),
        "from_host": sum("Memcpy HtoD" in name for name in names),
        "waits": sum("Synchronize" in name and "Stream" in name for name in names),
        "encode": sum("line_encode" in name for name in names),
        "decode": sum("line_decode" in name for name in names),
    }


def test_a_boundary_and_its_gradient_stay_on_the_device():
    x = made(8, 128, 256).requires_grad_()

    def step() -> torch.Tensor:
        x.grad = None
        out = tt.boundary(x, bits=3.5, grad_bits=8.0)
        out.square().mean().backward()
        return out

    for _ in range(12):
        out = step()
    seen = _quiet_step(step)
    assert seen["to_host"] == 0 and seen["encode"] >= 3
    assert float((out - x).square().mean() / x.square().mean()) < 0.02
    meant = 2 * out.detach() / out.numel()
    assert float((x.grad - meant).square().mean() / meant.square().mean()) < 1e-3


def _stages(rank: int) -> dict:
    x = made(8, 128, 256, seed=4)
    if rank == 0:
        x.requires_grad_()
        for _ in range(3):
            x.grad = None
            tt.send(x, 1, rooms=True, bits=3.5, grad_bits=8.0).backward()
        return {"grad": float((x.grad - 2 * x.detach()).square().mean() / (2 * x.detach()).square().mean())}
    for _ in range(3):
        got = tt.recv(0, like=torch.empty_like(x), bits=3.5, grad_bits=8.0)
        got.square().sum().backward()
    return {"activation": float((got - x).detach().square().mean() / x.square().mean())}


def test_stages_exchange_rooms():
    first, second = answers(_stages, 2)
    assert second["activation"] < 0.02
    # The gradient is of what arrived.
    assert first["grad"] < 0.03
    with pytest.raises(InputError, match="on a GPU, and this is"):
        tt.send(torch.randn(4, 4096), 1, rooms=True)
    with pytest.raises(InputError, match="no kernels that fill rooms"):
        tt.send(made(64, 256), 1, rooms=True, codec="trinity")


def _network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()


def _gradient(model: nn.Module) -> torch.Tensor:
    return torch.cat([one.grad.reshape(-1) for one in model.parameters()])


def _data_parallel(rank: int) -> dict:
    x = made(64, 256, seed=10 + rank)
    plain = _network(3)
    plain(x).square().mean().backward()
    mean = _gradient(plain).cpu()
    dist.all_reduce(mean)
    mean = mean / 2
    model = nn.parallel.DistributedDataParallel(_network(3), bucket_cap_mb=1)
    hook = tt.ddp_hook(bits=5.0)
    model.register_comm_hook(None, hook)
    for _ in range(12):
        model.zero_grad()
        model(x).square().mean().backward()
    got = _gradient(model).cpu()
    model(torch.full_like(x, float("inf") if rank else 1.0)).square().mean().backward()
    return {
        "bits": hashlib.sha256(got.numpy().tobytes()).hexdigest(),
        "error": float((got - mean).square().mean() / mean.square().mean()),
        "sent": hook.sent_bytes / hook.plain_bytes,
        "nan": bool(torch.isnan(_gradient(model)).any()),
        "on_device": sum(isinstance(one, Shards) for one in hook._shards.values()),
    }


def test_gradients_of_two_ranks_are_coded_on_the_device_and_alike():
    first, second = answers(_data_parallel, 2)
    assert first["bits"] == second["bits"]
    assert first["on_device"] >= 1
    assert first["error"] < 0.01
    assert first["sent"] < 5.1 / 32
    assert first["nan"] and second["nan"]


def _quiet_training(rank: int) -> dict:
    model = nn.parallel.DistributedDataParallel(_network(5))
    optimizer = torch.optim.AdamW(model.parameters())
    hook = tt.ddp_hook(bits=1.4, optimizer=optimizer, alone=True)
    model.register_comm_hook(None, hook)
    x = made(64, 256, seed=6)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    for _ in range(12):
        step()
    return {**_quiet_step(step), "plans": hook.plans}


def test_a_step_with_the_hook_waits_for_nothing():
    (seen,) = answers(_quiet_training, 1, backend="nccl")
    assert seen["to_host"] == 0 and seen["encode"] >= 2 and seen["decode"] >= 2
    assert seen["plans"] >= 2


def _scattered(rank: int) -> dict:
    given = made(2, 3000, seed=20 + rank).reshape(-1)
    found = {}
    for op, share in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, 2)):
        comm = tt._fsdp.CodedReduceScatter(6.0, True, "line-fast")
        out = torch.empty(3000, device="cuda")
        for _ in range(3):
            comm(out, given, dist.group.WORLD, op)
        meant = given.cpu()
        dist.all_reduce(meant)
        meant = meant.reshape(2, 3000)[rank].cuda() / share
        found[str(op)] = float((out - meant).square().mean() / meant.square().mean())
    return {"errors": found, "sent": comm.sent_bytes / comm.plain_bytes, "on_device": isinstance(comm._shards, Shards)}


def test_sharded_gradients_are_summed_on_the_device():
    for one in answers(_scattered, 2):
        assert one["on_device"]
        assert max(one["errors"].values()) < 0.01
        assert one["sent"] < 6.6 / 32


def test_a_cache_keeps_its_pages_on_the_device():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4}
    model = folders.llama(**sizes, max_position_embeddings=2048, tie_word_embeddings=False).cuda().bfloat16()
    config = model.config
    tokens = torch.randint(0, 256, (2, 400), device="cuda")
    with torch.no_grad():
        plain = model(tokens, past_key_values=transformers.DynamicCache(config=config)).logits
        cache = tt.CodedCache(bits=4, config=config, decoded_bytes=0)
        for at in range(0, 400, 50):
            coded = model(tokens[:, at : at + 50], past_key_values=cache).logits
    assert cache.coded_bytes() <= 4.02 / 16 * cache.plain_bytes()
    pages = [room for layer in cache.layers for page in layer.pages for part in page for room in part]
    assert pages and all(room.data.is_cuda for room in pages)
    lengths = [int(room.data[:8].view(torch.int64)) for room in pages]
    assert min(lengths) > 0.8 * len(pages[0]) * 0.9
    error = (coded.float() - plain[:, -50:].float()).square().mean() / plain[:, -50:].float().square().mean()
    assert float(error) < 0.05


def test_a_cache_in_a_basis_keeps_its_pages_on_the_device(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    import test_torch_basis as own

    monkeypatch.setattr("trinity.vllm._basis.MOST_CHANNELS", own.LAYERS * own.HEADS * own.WIDTH // 2)
    model = own._saved(tmp_path / "model", 1)
    own._learned(model, tmp_path / "model").save(tmp_path / "a.basis")
    model, tokens = model.cuda(), own._tokens(420, rows=2).cuda()
    plain = tt.CodedCache(bits=4, page=128, window=16, config=model.config)
    turned = tt.CodedCache(bits=4, page=128, window=16, config=model.config, basis=tmp_path / "a.basis")
    errors = own._error(model, tokens, plain), own._error(model, tokens, turned)
    assert 0 < errors[1] < 0.6 * errors[0], errors
    pages = [room for layer in turned.layers for page in layer.pages for part in page for piece in part for room in piece.page.coded]
    assert pages and all(room.data.is_cuda for room in pages)
    assert turned.coded_bytes() <= 1.02 * plain.coded_bytes()


# KV blocks of an engine's paged cache: the worker's side of the vLLM connector, without vLLM.


def _device_worker(folder, caches, **options):
    own = kv.worker(folder, caches, **options)
    assert own._coder is not None and own._coder.device == caches[0].device
    return own


def _kept(folder, caches, **options):
    return kv.kept(folder, caches, make=_device_worker, **options)


@pytest.mark.parametrize("codec", ["line-fast", "trinity-lite"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_blocks_are_coded_where_they_lie_and_read_by_a_cpu_to_the_same_values(tmp_path, dtype, codec):
    host = kv.paged(2, dtype)
    there = [one.cuda() for one in host]
    own = _kept(tmp_path / "device", there, codec=codec)
    # A CPU's streams of the same matrices: as many bits, and as near.
    by_cpu = kv.kept(tmp_path / "host", host, codec=codec)
    assert by_cpu._coder is None
    wanted = [(moved.key, own.expected(moved.index)) for moved in kv.moves()]
    store = kv.BlockStore(tmp_path / "device", "m", bits=3.0, codec=codec, memory_bytes=0)
    opened = [store._opened(*one) for one in wanted]
    streams = [one for block in opened for one in block.coded.values() if isinstance(one, kv.Stream)]
    assert len(streams) == 2 * kv.COUNT
    for one, back in zip(streams, own._coder.decode(streams)):
        rows, cols, memory = _core.line_decode(bytes(one.bytes))
        assert (rows, cols) == one.shape and torch.equal(back.cpu(), torch.frombuffer(memory, dtype=torch.float32).reshape(rows, cols))
    # And to the bytes of a CPU under the plan that a stream states.
    packed, _ = own._packed(own._copied(kv.moves()[3]), 3)
    for name, one in opened[3].coded.items():
        if isinstance(one, kv.Stream):
            assert _core.line_encode(bytes(one.bytes), packed[name].cpu().reshape(-1).numpy()) == one.bytes
    read = {}
    for name, reader, into in (
        ("by a gpu", _device_worker, [torch.zeros_like(one) for one in there]), ("by a cpu", kv.worker, kv.paged(None, dtype)),
    ):  # fmt: skip
        assert reader(tmp_path / "device", into, codec=codec).load(kv.moves()) == []
        read[name] = [one.cpu() for one in into]
    for a, b in zip(*read.values()):
        # Rotary positions are done again by products of floats.
        assert torch.allclose(a.float(), b.float(), rtol=2.0**-7, atol=2.0**-7 * float(b.float().square().mean().sqrt()))
    coded = kv.paged(None, dtype)
    assert kv.worker(tmp_path / "host", coded, codec=codec).load(kv.moves()) == []
    rates = [8 * one.store.stats["written_bytes"] / one.store.stats["plain_bytes"] for one in (own, by_cpu)]
    assert rates[0] <= 1.01 * rates[1]
    for at in range(kv.COUNT):
        assert kv.nmse(read["by a gpu"], host, at) < 1.3 * kv.nmse(coded, host, at), at
    # First tokens are what they were.
    assert all(torch.equal(a[0, :, :4], b[0, :, :4]) for a, b in zip(read["by a gpu"], host))


def test_a_gpu_reads_what_a_cpu_coded_and_leaves_out_what_is_damaged(tmp_path):
    host = kv.paged(3)
    kv.kept(tmp_path, host, count=4)
    own = _device_worker(tmp_path, [one.cuda() for one in host])
    own.save(kv.moves())
    own.shutdown()
    assert own.store.stats["written"] == kv.COUNT - 4
    for at in (1, 6):
        kv.spoil(own.store.folder / f"key {at}.kv")
    back = [torch.zeros_like(one).cuda() for one in host]
    failed = _device_worker(tmp_path, back).load(kv.moves())
    assert [moved.index for moved, _ in failed] == [1, 6] and all("checksum" in str(why) for _, why in failed)
    assert all(kv.nmse([one.cpu() for one in back], host, at) < 0.06 for at in range(kv.COUNT) if at not in (1, 6))
    assert not any(one[at].any() for one in back for at in (1, 6))


def test_a_step_waits_for_no_block_and_decodes_all_of_them_in_a_launch_for_each_plan(tmp_path, monkeypatch):
    there = [one.cuda() for one in kv.paged(4)]
    own = _kept(tmp_path, there)
    back = [torch.zeros_like(one) for one in there]
    reader = _device_worker(tmp_path, back)
    # Kernels are compiled, and decoders made, as they are seen first.
    assert reader.load(kv.moves()) == []
    first = [one.clone() for one in back]
    for one in back:
        one.zero_()
    seen = _quiet_step(lambda: reader.load(kv.moves()))
    assert all(torch.equal(a, b) for a, b in zip(first, back))
    # Keys and values of the first block, which has fewer tokens to code, and of all others.
    assert seen["decode"] == 4 and seen["to_host"] == 0 and seen["waits"] == 0
    # Streams in one copy, what keeps every bit and where blocks go in another.
    assert seen["from_host"] == 2
    # What is kept is copied on the device, and coded by another thread.
    left = []
    monkeypatch.setattr(own, "_submit", lambda blocks, work, *arguments: left.append((work, arguments)))
    for path in own.store.folder.glob("*.kv"):
        path.unlink()
    seen = _quiet_step(lambda: own.save(kv.moves()))
    # Two times eight blocks at most, and which they are.
    assert seen["to_host"] == seen["encode"] == seen["waits"] == 0 and seen["from_host"] == len(left) == 2
    # The engine may use the blocks again at once.
    for one in there:
        one.zero_()
    for work, arguments in left:
        work(*arguments)
    for one in back:
        one.zero_()
    assert reader.load(kv.moves()) == []
    assert all(kv.nmse([one.cpu() for one in back], [one.cpu() for one in first], at) < 0.03 for at in range(kv.COUNT))
    assert all(kept.rooms.chosen == 1 for kept in own._coder._kept.values())


def test_blocks_on_a_gpu_in_a_basis_and_such_that_are_not_finite(tmp_path, caplog):
    host = kv.paged(5)
    basis = kv.learned(host)
    with caplog.at_level("WARNING"):
        there = [one.cuda() for one in host]
        there[1][7, 0, 3] = float("inf")
        own = _device_worker(tmp_path, there, basis=basis)
        own.save(kv.moves())
        own.shutdown()
    assert "block 7 of request r is not kept" in caplog.text and own.store.stats["written"] == kv.COUNT - 1
    back = kv.paged(None)
    failed = kv.worker(tmp_path, back, basis=basis).load(kv.moves())
    assert [moved.index for moved, _ in failed] == [7]
    again = [torch.zeros_like(one) for one in there]
    assert [moved.index for moved, _ in _device_worker(tmp_path, again, basis=basis).load(kv.moves())] == [7]
    for at in range(kv.COUNT):
        if at != 7:
            assert kv.nmse(back, host, at) < 0.05
            assert kv.nmse([one.cpu() for one in again], host, at) < 0.05


def test_a_gpu_s_blocks_with_every_bit_or_a_codec_without_kernels_go_by_way_of_the_host(tmp_path):
    there = [one.cuda() for one in kv.paged(6)]
    for name, options in {"lossless": {"bits": None}, "trinity": {"codec": "trinity"}}.items():
        assert kv.kept(tmp_path / name, there, count=3, **options)._coder is None
        back = [torch.zeros_like(one) for one in there]
        assert kv.worker(tmp_path / name, back, **options).load(kv.moves()[:3]) == []
        for a, b in zip(back, there):
            assert torch.equal(a[:3], b[:3]) if name == "lossless" else float((a[:3] - b[:3]).float().square().sum()) < 0.06 * float(b[:3].float().square().sum())


@pytest.mark.parametrize("codec", ["line-fast", "line-uniform", "trinity-lite"])
def test_weights_that_stay_coded_are_decoded_on_the_device_to_a_cpus_bits(codec):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(512, 768), nn.ReLU(), nn.Linear(768, 512)).bfloat16()
    tt.compress_(model, bits=3.5, codec=codec, decode="use")
    there = [layer.weight.clone() for layer in (model[0], model[2])]
    model = model.cuda()
    x = torch.randn(4, 512, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        model(x)
        for layer, weight in zip((model[0], model[2]), there):
            assert layer.weight.is_cuda and torch.equal(layer.weight.cpu(), weight)
            assert layer.__dict__["_trinity_coded"]["weight"]._on_device is not None
        seen = _quiet_step(lambda: model(x))
    assert seen["to_host"] == 0 and seen["decode"] >= 2


class _ToHost(TorchDispatchMode):
    """Bytes of every copy from a device to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if torch.is_tensor(out) and not out.is_cuda and any(torch.is_tensor(one) and one.is_cuda for one in args):
            self.bytes.append(out.nbytes)
        return out


def _tied_model(dtype=torch.bfloat16):
    torch.manual_seed(5)
    model = nn.Sequential(nn.Embedding(1000, 256), nn.Linear(256, 768), nn.LayerNorm(768), nn.Linear(768, 4096))
    model.append(nn.Linear(256, 1000, bias=False))
    model[4].weight = model[0].weight
    return model.to(dtype).cuda()


@pytest.mark.parametrize("codec", ["line-fast", "trinity-lite"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_coded_where_they_lie(codec, dtype):
    model = _tied_model(dtype)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    with _ToHost() as copied:
        found = tt.compress_(model, bits=3, codec=codec, where="device", decode="use")
    # Bands of rows for plans: no large weight as a whole.
    largest = max(one.nbytes for one in before.values())
    assert 0 < max(copied.bytes) < largest / 2
    assert 2.95 < found["bits_per_value"] <= 3.01
    assert set(found["skipped"]) == {"1.bias", "2.weight", "2.bias", "3.bias"}
    # As far off as a CPU's plan of all values would be, or nearly.
    there = tt.compress_(_tied_model(dtype).cpu(), bits=3, codec=codec)
    assert found["nmse"] < 1.1 * there["nmse"]
    assert model[0].__dict__["_trinity_coded"]["weight"] is model[4].__dict__["_trinity_coded"]["weight"]
    for name, one in model.state_dict().items():
        error = (one.float() - before[name].float()).square().sum() / before[name].float().square().sum()
        assert one.is_cuda and (float(error) < 0.05 if one.ndim > 1 else torch.equal(one, before[name]))
    again = _tied_model(dtype)
    tt.compress_(again, bits=3, codec=codec, where="device")
    assert all(torch.equal(one, model.state_dict()[name]) for name, one in again.state_dict().items())


def test_a_weight_that_is_not_finite_stays_and_is_named():
    model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512)).cuda()
    with torch.no_grad():
        model[0].weight[3, 4] = float("nan")
    before = model[0].weight.detach().clone()
    found = tt.compress_(model, bits=3, codec="line-fast", where="device")
    assert found["skipped"]["0.weight"] == "a value is not finite"
    assert torch.equal(model[0].weight.nan_to_num(7.0), before.nan_to_num(7.0))
    assert [row["tensor"] for row in found["tensors"]] == ["1.weight"]


def test_what_a_gpu_cannot_code_is_refused_before_anything_changes():
    model = nn.Sequential(nn.Linear(512, 512)).cuda()
    before = model[0].weight.detach().clone()
    for options, words in (({"codec": "trinity"}, "no GPU has kernels for trinity"), ({"allocate": "linear"}, "on the host")):
        with pytest.raises(InputError, match=words):
            tt.compress_(model, bits=3, where="device", **options)
    assert torch.equal(model[0].weight, before)

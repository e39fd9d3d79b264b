"""Checkpoints of `torch.distributed.checkpoint`, coded: training that goes on from one, and what is off by how much."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="LEFT OUT: PyTorch is not installed (cargo xtask test --all)")

import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict  # noqa: E402

import trinity  # noqa: E402
import trinity.torch as tt  # noqa: E402
from folders import flipped  # noqa: E402
from ranks import answers  # noqa: E402
from trinity.torch import _checkpoint  # noqa: E402


def _net(seed: int):
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Embedding(64, 96), torch.nn.Linear(96, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
    return net, torch.optim.AdamW(net.parameters(), lr=3e-3)


def _train(net, optimizer, steps: range) -> float:
    loss = torch.tensor(0.0)
    for step in steps:
        # Tokens above 48 never come: their second moments stay zero.
        x = (torch.arange(64) * 7 + step * 11) % 48
        loss = torch.nn.functional.cross_entropy(net(x), (x * 5 + 3) % 48)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def _state(net, optimizer) -> dict:
    model, state = get_state_dict(net, optimizer)
    return {"model": model, "optimizer": state}


def _resumed(path: Path):
    net, optimizer = _net(9)
    state = _loaded(_state(net, optimizer), path)
    set_state_dict(net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return net, optimizer


def test_training_goes_on_from_a_checkpoint_to_the_bit_or_within_its_error(tmp_path):
    net, optimizer = _net(1)
    _train(net, optimizer, range(30))
    saved = {name: one.clone() for name, one in net.state_dict().items()}
    moments = {at: {key: one.clone() for key, one in state.items()} for at, state in enumerate(optimizer.state.values())}
    sizes = {}
    for error in None, 1e-3, 1e-2:
        writer = tt.CheckpointWriter(tmp_path / str(error), error=error)
        dcp.save(_state(net, optimizer), storage_writer=writer)
        sizes[error] = writer.coded_bytes
        files = sum(file.stat().st_size for file in (tmp_path / str(error)).iterdir())
        assert writer.coded_bytes < writer.plain_bytes and writer.coded_bytes <= files < 1.3 * writer.coded_bytes
    assert sizes[1e-2] < 0.75 * sizes[1e-3] and sizes[1e-3] < 0.5 * sizes[None]

    for error in 1e-3, 1e-2:
        other, its_optimizer = _resumed(tmp_path / str(error))
        for name, one in other.state_dict().items():
            most = error * float(saved[name].square().mean().sqrt())
            assert float((one - saved[name]).abs().max()) <= most * 1.000001, name
        for at, state in enumerate(its_optimizer.state.values()):
            was = moments[at]["exp_avg_sq"]
            assert torch.equal(state["exp_avg_sq"] == 0, was == 0)
            some = was > 0
            assert float((state["exp_avg_sq"][some] / was[some] - 1).abs().max()) <= error
            assert torch.equal(state["step"], moments[at]["step"])
    exact, its_optimizer = _resumed(tmp_path / "None")
    assert all(torch.equal(one, saved[name]) for name, one in exact.state_dict().items())
    expected = _train(net, optimizer, range(30, 50))
    assert _train(exact, its_optimizer, range(30, 50)) == expected
    near, its_optimizer = _resumed(tmp_path / "0.001")
    assert abs(_train(near, its_optimizer, range(30, 50)) - expected) < 0.02


def test_a_plain_reader_stops_and_damage_is_said(tmp_path):
    net, optimizer = _net(1)
    _train(net, optimizer, range(2))
    dcp.save(_state(net, optimizer), storage_writer=tt.CheckpointWriter(tmp_path / "c", exact=["*.bias"], error=1e-3))
    with pytest.raises(CheckpointException, match="trinity"):
        dcp.load(_state(net, optimizer), checkpoint_id=str(tmp_path / "c"))
    (file,) = (tmp_path / "c").glob("*.distcp")
    data = file.read_bytes()
    for damaged, why in (flipped(data, len(data) // 3), "checksum does not hold"), (data[: len(data) // 2], "cut"):
        file.write_bytes(damaged)
        assert why in _refused(_state(net, optimizer), tmp_path / "c")
    with pytest.raises(trinity.InputError, match="a share between 0 and 1"):
        tt.CheckpointWriter(tmp_path / "x", error=2.0)


def _loaded(state: dict, path: Path) -> dict:
    dcp.load(state, storage_reader=tt.CheckpointReader(path))
    return state


def _refused(state: dict, path: Path) -> str:
    with pytest.raises(CheckpointException) as said:
        _loaded(state, path)
    return str(said.value)


def _small(seed: int) -> dict:
    """What takes as many bytes in every checkpoint, and a number that is no tensor."""
    return {"w": torch.arange(8) + 16 * seed, "bits": torch.arange(300) % 7, "rate": 0.25 * seed}


def test_data_of_another_checkpoint_or_rank_is_not_loaded_as_this_one_s(tmp_path):
    for seed in 1, 2:
        dcp.save(_small(seed), storage_writer=tt.CheckpointWriter(tmp_path / str(seed)))
    (file,), (other,) = (list((tmp_path / name).glob("*.distcp")) for name in "12")
    mine = file.read_bytes()
    assert len(mine) == len(other.read_bytes()) != 0
    file.write_bytes(other.read_bytes())
    assert "another checkpoint's" in _refused(_small(3), tmp_path / "1")
    # Every byte counts, also of what is no tensor.
    for at in range(0, len(mine), 97):
        file.write_bytes(flipped(mine, at))
        assert "checksum does not hold" in _refused(_small(3), tmp_path / "1"), at
    file.unlink()
    assert "a part of the checkpoint is missing" in _refused(_small(3), tmp_path / "1")
    file.write_bytes(mine)
    state = _loaded(_small(3), tmp_path / "1")
    assert torch.equal(state["w"], _small(1)["w"]) and state["rate"] == 0.25
    for metadata in b"", (tmp_path / "1/.metadata").read_bytes()[:-9], b"nonsense":
        (tmp_path / "2/.metadata").write_bytes(metadata)
        assert ".metadata cannot be read" in _refused(_small(3), tmp_path / "2")
    assert "there is no checkpoint" in _refused(_small(3), tmp_path / "none")


def test_a_checkpoint_of_before_has_no_checksums_in_its_metadata(tmp_path, monkeypatch):
    monkeypatch.setattr(_checkpoint, "_CHECK", "")
    plain = _checkpoint._StorageInfo
    monkeypatch.setattr(_checkpoint, "_StorageInfo", lambda *place, transform_descriptors: plain(*place, transform_descriptors=transform_descriptors[:-1] or None))
    dcp.save(_small(1), storage_writer=tt.CheckpointWriter(tmp_path))
    monkeypatch.undo()
    state = _loaded(_small(3), tmp_path)
    assert torch.equal(state["bits"], _small(1)["bits"]) and state["rate"] == 0.25


def test_values_go_into_no_format_that_does_not_hold_them(tmp_path):
    large = {"f": torch.tensor([1.0, 1e30]), "i": torch.tensor([1, 300])}
    dcp.save(large, storage_writer=tt.CheckpointWriter(tmp_path))
    for name, holds, does_not in (("f", (torch.float64, torch.bfloat16, torch.complex64), (torch.int32, torch.bool, torch.float16)), ("i", (torch.int16, torch.float32), (torch.int8, torch.bool))):
        for dtype in holds:
            state = _loaded({name: torch.zeros(2, dtype=dtype)}, tmp_path)
            assert torch.allclose(state[name].to(torch.complex64), large[name].to(torch.complex64), rtol=0.01)
        for dtype in does_not:
            assert "does not hold its values" in _refused({name: torch.zeros(2, dtype=dtype)}, tmp_path)


def test_an_item_of_a_later_trinity_is_not_guessed_at():
    coded = _checkpoint._lossless(torch.randn(64))
    for kind, first, second, why in ((2, bytes(8) + coded, b"", "does not know"), (1, b"abc", b"", "what it says"), (1, bytes(8) + coded, _checkpoint._lossless(torch.zeros(5)), "what it says")):
        with pytest.raises(trinity.RunError, match=why):
            _checkpoint.unpack(_checkpoint._packed(kind, first, second))


def test_a_full_disk_is_a_sentence_and_leaves_no_checkpoint(tmp_path):
    resource = pytest.importorskip("resource", reason="LEFT OUT: this system has no limits of files")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(CheckpointException, match=r"0_0.distcp cannot be written: .*: the checkpoint is not whole"):
            dcp.save({"w": torch.randn(4000)}, storage_writer=tt.CheckpointWriter(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "there is no checkpoint" in _refused({"w": torch.zeros(4000)}, tmp_path)


def test_every_kind_of_tensor_is_packed_and_comes_back():
    random = torch.Generator().manual_seed(2)
    for tensor in (
        torch.randn(1000, generator=random).bfloat16(),
        torch.randn(33, 40, generator=random).half(),
        torch.full((512,), float("nan")),
        torch.zeros(300),
        torch.arange(400),
        torch.tensor(3.5),
        torch.empty(0, 4),
        torch.rand(700, generator=random) > 0.5,
    ):
        for logarithm in False, True:
            found = _checkpoint.unpack(_checkpoint.pack(tensor, 1e-2, logarithm)).to(tensor.dtype)
            assert found.shape == tensor.shape
            if tensor.is_floating_point() and tensor.numel() and bool(torch.isfinite(tensor).all()):
                rms = float(tensor.double().square().mean().sqrt())
                assert float((found.double() - tensor.double()).abs().max()) <= 1.01e-2 * rms
            else:
                assert torch.equal(found.nan_to_num(), tensor.nan_to_num())


def _shard(rank: int, folder: str, save: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    whole = torch.sin(torch.arange(96 * 64, dtype=torch.float32)).reshape(96, 64)
    if save:
        state = {"w": distribute_tensor(whole, mesh, [Shard(0)])}
        dcp.save(state, storage_writer=tt.CheckpointWriter(folder, error=1e-3))
    else:
        # Other shards than were saved.
        state = {"w": distribute_tensor(torch.zeros_like(whole), mesh, [Shard(1)])}
        dcp.load(state, storage_reader=tt.CheckpointReader(folder))
        assert float((state["w"].full_tensor() - whole).abs().max()) <= 1e-3


def test_shards_are_saved_by_two_ranks_and_loaded_as_others(tmp_path):
    for save in True, False:
        answers(_shard, 2, str(tmp_path / "c"), save)

"""Trinity in PyTorch: small models that train and run for real, coded beside uncoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="LEFT OUT: PyTorch is not installed (cargo xtask test --all)")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import folders  # noqa: E402
import trinity  # noqa: E402
import trinity.torch as tt  # noqa: E402
from processes import python  # noqa: E402
from ranks import answers  # noqa: E402
from trinity.torch import _plans  # noqa: E402


def test_tensors_of_every_format_come_back_as_tensors():
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64):
        x = (torch.arange(4096).reshape(64, 64) % 97 - 40).to(torch.float32).to(dtype)
        e = trinity.encode(x, lossless=True)
        back = trinity.decode(e)
        assert isinstance(back, torch.Tensor) and back.dtype == dtype and back.shape == x.shape
        assert bytes(back.reshape(-1).view(torch.uint8)) == bytes(x.reshape(-1).view(torch.uint8))
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    assert trinity.encode(x, bits=3) == trinity.encode(x.numpy(), bits=3)
    assert trinity.encode(x.T, bits=3) == trinity.encode(x.T.contiguous(), bits=3)
    assert trinity.decode(trinity.encode(x, bits=3), into="numpy").dtype == np.float32


def test_a_packed_tensor_has_the_size_it_was_given():
    x = torch.randn(5000, generator=torch.Generator().manual_seed(1))
    packed = tt.pack(x, 3.0)
    assert packed.numel() == 8 + 5000 * 3 // 8
    assert (tt.unpack(packed, (50, 100), torch.float32).reshape(-1) - x).pow(2).mean() < 0.05
    assert (tt.unpack(tt.pack(x[:40], 3.0), (40,), torch.float32) == x[:40]).all()
    x[7] = float("inf")
    assert tt.unpack(tt.pack(x, 3.0), (5000,), torch.float32).isnan().all()


# A task that a small network learns in a few hundred steps.


def _task(seed: int, size: int = 512) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 32, generator=generator)
    teacher = torch.randn(32, 8, generator=torch.Generator().manual_seed(99))
    return x, torch.tanh(x @ teacher)


def _network() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 8))


def _fit(model, optimizer: torch.optim.Optimizer, seed: int, steps: int) -> torch.Tensor:
    """The loss of the last of so many steps."""
    x, y = _task(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.detach()


def _learn(model: nn.Module, rank: int) -> torch.Tensor:
    """The loss after the steps that every way of data-parallel training takes here."""
    return _fit(model, torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9), rank, 150)


def _first_loss(rank: int) -> torch.Tensor:
    x, y = _task(rank)
    return nn.functional.mse_loss(_network()(x), y).detach()


def _train_data_parallel(rank: int, ranks: int) -> dict:
    losses = {"start": _first_loss(rank)}
    for name, hook in ("plain", None), ("coded", tt.ddp_hook(bits=2.6)), ("forgetful", tt.ddp_hook(bits=1.5, error_feedback=False)):
        model = nn.parallel.DistributedDataParallel(_network())
        if hook is not None:
            model.register_comm_hook(None, hook)
        losses[name] = _learn(model, rank)
        weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        everybody = [torch.empty_like(weights) for _ in range(ranks)]
        dist.all_gather(everybody, weights)
        assert all(bytes(other.view(torch.uint8)) == bytes(weights.view(torch.uint8)) for other in everybody), name
        if hook is not None:
            assert hook.sent_bytes < 0.12 * hook.plain_bytes, (hook.sent_bytes, hook.plain_bytes)
    return losses


def _learns(losses: dict) -> None:
    assert losses["coded"] < 0.2 * losses["start"]
    assert losses["coded"] < 1.5 * losses["plain"] + 0.01 * losses["start"], losses


@pytest.mark.parametrize("best", [False, True])
def test_a_plan_of_a_sample_serves_rows_of_every_scale(best):
    # Rows of their own scale ask for a plan of rows, which knows only those of the sample.
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(4096, 256, generator=generator) * torch.exp(3 * torch.randn(4096, 1, generator=generator))
    planned = _plans.Planned(4.0, best)
    stream = planned.encode(x.reshape(-1), x.numel() // 2)
    assert stream is not None and len(stream) <= x.numel() // 2
    back = _plans.decode(stream, x.numel()).reshape(x.shape)
    assert float((back - x).square().sum() / x.square().sum()) < 0.05


def test_a_tensor_too_small_for_any_plan_has_none():
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(9, 256, generator=generator) ** 11
    planned = _plans.Planned(0.1, True)
    assert planned.encode(x.reshape(-1), x.numel() // 80) is None


@pytest.mark.parametrize("ranks", [2, 4])
def test_data_parallel_training_with_coded_gradients_learns_and_agrees(ranks):
    _learns(answers(_train_data_parallel, ranks, ranks)[0])


def _overflow(rank: int) -> None:
    model = nn.parallel.DistributedDataParallel(_network())
    model.register_comm_hook(None, tt.ddp_hook(bits=3))
    x, y = _task(rank)
    for step in range(3):
        model.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        (loss * (float("inf") if step == 1 and rank == 0 else 1.0)).backward()
        gradients = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
        assert gradients.isfinite().all() == (step != 1), step


def test_a_gradient_that_is_not_finite_is_so_everywhere_and_forgotten_after():
    answers(_overflow, 2)


def _train_sharded(rank: int, ranks: int) -> dict:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    losses = {"start": _first_loss(rank)}
    for name, bits in ("plain", None), ("coded", 2.6):
        model = _network()
        mesh = init_device_mesh("cpu", (ranks,))
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        placed = [] if bits is None else tt.fsdp_(model, bits=bits)
        losses[name] = _learn(model, rank)
        sent, plain = (sum(getattr(one, count) for one in placed) for count in ("sent_bytes", "plain_bytes"))
        # The last layer is small: what every shard carries beside its values shows.
        assert bits is None or 0 < sent < 0.15 * plain, (sent, plain)
    return losses


def test_sharded_training_with_coded_gradients_learns():
    _learns(answers(_train_sharded, 2, 2)[0])
    with pytest.raises(trinity.InputError, match="no module is sharded"):
        tt.fsdp_(_network())


def _stages() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128)), nn.Sequential(nn.ReLU(), nn.Linear(128, 8))


def _train_with(boundary) -> float:
    first, second = _stages()
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=3e-3)
    return float(_fit(lambda x: second(boundary(first(x))), optimizer, 1, 60))


def test_training_through_a_coded_boundary_learns_as_without():
    plain = _train_with(lambda x: x)
    exact = _train_with(lambda x: tt.boundary(x, bits=None, grad_bits=None))
    coded = _train_with(lambda x: tt.boundary(x, bits=4, grad_bits=6))
    assert exact == plain
    assert coded < 1.3 * plain + 0.01, (coded, plain)


def test_a_gradient_is_compensated():
    gradient = torch.randn(64, 128, generator=torch.Generator().manual_seed(3))
    lost = {}
    for residual in (False, True):
        x = torch.zeros(64, 128, requires_grad=True)
        tt.boundary(x, bits=None, grad_bits=6, residual=residual).backward(gradient)
        lost[residual] = float((x.grad - gradient).pow(2).mean())
        assert 0 < lost[residual] < 0.01
    assert lost[True] != lost[False]


def _stage(rank: int) -> float:
    own = _stages()[rank]
    optimizer = torch.optim.Adam(own.parameters(), lr=3e-3)
    x, y = _task(1)
    for _ in range(60):
        optimizer.zero_grad()
        if rank == 0:
            tt.send(own(x), 1, bits=4).backward()
            loss = torch.zeros(())
        else:
            loss = nn.functional.mse_loss(own(tt.recv(0, grad_bits=6)), y)
            loss.backward()
        optimizer.step()
    return float(loss.detach())


def test_two_processes_train_one_pipeline_to_the_same_loss_as_one():
    alone = _train_with(lambda x: tt.boundary(x, bits=4, grad_bits=6))
    assert answers(_stage, 2)[1] == pytest.approx(alone, rel=1e-6)


def _trained() -> nn.Module:
    model = _network()
    _fit(model, torch.optim.Adam(model.parameters(), lr=3e-3), 1, 150)
    return model


def test_compressed_weights_give_nearly_the_same_answers():
    x, y = _task(1)
    plain = _trained()
    before = float(nn.functional.mse_loss(plain(x), y))
    start = float(nn.functional.mse_loss(_network()(x), y))
    answers = {}
    for decode in ("load", "use"):
        model = _trained()
        summary = tt.compress_(model, bits=4, decode=decode)
        assert summary["bits_per_value"] <= 4
        coded = {tensor["tensor"] for tensor in summary["tensors"] if tensor["exact"] is None}
        assert coded == {"0.weight", "2.weight", "4.weight"}
        assert summary["skipped"]["0.bias"] == "fewer than 256 values"
        answers[decode] = model(x)
        after = float(nn.functional.mse_loss(answers[decode], y))
        assert before < after < before + 0.1 * start, (before, after, start)
        fresh = _network()
        fresh.load_state_dict(model.state_dict())
        assert torch.equal(fresh(x), answers[decode])
    assert torch.equal(answers["load"], answers["use"])
    assert not [name for name, _ in model.named_parameters() if name.endswith("weight")]
    with pytest.raises(trinity.InputError, match="every tensor is a norm, a bias or a vector"):
        tt.compress_(nn.LayerNorm(4))


def test_weights_on_the_host_are_not_coded_on_a_device():
    model = nn.Sequential(nn.Linear(256, 256))
    before = model[0].weight.detach().clone()
    with pytest.raises(trinity.InputError, match=r"`0.weight` is on cpu, where nothing codes it"):
        tt.compress_(model, bits=3, where="device")
    with pytest.raises(trinity.InputError, match="expected 'host' or 'device'"):
        tt.compress_(model, bits=3, where="gpu")
    assert torch.equal(model[0].weight, before)


def test_tied_weights_stay_tied():
    model = _network()
    model[2].weight = nn.Parameter(torch.randn(128, 128))
    tied = nn.Sequential(model[2], nn.Linear(128, 128))
    tied[1].weight = tied[0].weight
    tt.compress_(tied, bits=4)
    assert tied[1].weight is tied[0].weight


def test_a_state_dictionary_goes_to_a_file_and_back(tmp_path):
    model = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.Linear(64, 8)).to(torch.bfloat16)
    # Copies: loading into the model would change what its own dictionary refers to.
    state = {name: one.clone() for name, one in model.state_dict().items()} | {"mask": torch.tensor([True, False])}
    tt.save_state_dict(tmp_path / "exact.tri", state)
    back = tt.load_state_dict(tmp_path / "exact.tri")
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], state[name]) and back[name].dtype == state[name].dtype for name in state)
    summary = tt.save_state_dict(tmp_path / "coded.tri", model, bits=5)
    coded = tt.load_state_dict(tmp_path / "coded.tri")
    model.load_state_dict(coded)
    assert torch.equal(coded["1.weight"], state["1.weight"]) and not torch.equal(coded["0.weight"], state["0.weight"])
    assert summary["nmse"] < 0.02  # over what was coded


def _language_model():
    pytest.importorskip("transformers", reason="LEFT OUT: transformers is not installed (cargo xtask test --all)")
    return folders.llama(vocab_size=97, tie_word_embeddings=False)


def test_a_coded_cache_answers_nearly_as_a_plain_one():
    from transformers import DynamicCache

    model = _language_model()
    tokens = torch.randint(0, 97, (2, 160), generator=torch.Generator().manual_seed(2))
    answers = {}
    caches = {
        "plain": DynamicCache(config=model.config),
        "empty pages": tt.CodedCache(bits=4, page=32, window=1000, config=model.config),
        "coded": tt.CodedCache(bits=6, page=32, window=16, config=model.config),
        "without config": tt.CodedCache(bits=6, page=32, window=16),
        "rough": tt.CodedCache(bits=2.5, page=32, window=16, config=model.config),
    }
    for name, cache in caches.items():
        with torch.no_grad():
            # A prompt, then token by token, as serving does.
            model(tokens[:, :100], past_key_values=cache)
            steps = [model(tokens[:, at : at + 1], past_key_values=cache).logits for at in range(100, 160)]
        answers[name] = torch.cat(steps, dim=1)
        assert cache.get_seq_length() == 160
    scale = answers["plain"].std()
    off = {name: float((found - answers["plain"]).pow(2).mean().sqrt() / scale) for name, found in answers.items()}
    assert off["empty pages"] < 1e-5 and 0 < off["coded"] < 0.05 and off["coded"] < off["rough"] < 0.5, off
    assert off["without config"] == off["coded"]
    assert caches["empty pages"].coded_bytes() == 0
    coded = caches["rough"]
    assert 0 < coded.coded_bytes() <= 2.5 / 32 * coded.plain_bytes()
    assert [len(layer.pages) for layer in coded.layers] == [4, 4]


def test_a_coded_cache_generates_crops_and_reorders():
    model = _language_model()
    tokens = torch.randint(0, 97, (1, 90), generator=torch.Generator().manual_seed(2))
    for options in {"do_sample": False}, {"num_beams": 3}:
        make = lambda bits: tt.CodedCache(bits=bits, page=16, window=8, config=model.config)
        exact = model.generate(tokens, max_new_tokens=12, pad_token_id=0, **options)
        coded = model.generate(tokens, max_new_tokens=12, pad_token_id=0, past_key_values=make(12), **options)
        assert coded.shape == exact.shape
        assert torch.equal(coded, exact)
    cache = tt.CodedCache(bits=4, page=16, window=8, config=model.config)
    with torch.no_grad():
        model(tokens, past_key_values=cache)
    cache.crop(-40)
    assert cache.get_seq_length() == 50
    layer = cache.layers[0]
    layer.batch_repeat_interleave(2)
    layer.batch_select_indices(torch.tensor([1]))
    assert layer.get_seq_length() == 50
    cache.reset()
    assert cache.get_seq_length() == 0


def test_mypy_accepts_the_package(tmp_path):
    pytest.importorskip("mypy")
    package = Path(trinity.__file__).parent
    research = Path(__file__).parents[1] / "research"
    files = [str(path) for part in (package / "torch", research / "train") for path in sorted(part.glob("*.py"))]
    # What PyTorch and transformers leave untyped differs from version to version.
    theirs = ["--allow-untyped-calls", "--no-warn-unused-ignores"]
    strict = ["--strict", *theirs, "--cache-dir", str(tmp_path), "--no-error-summary", "--follow-imports=silent"]
    assert python("-m", "mypy", *strict, *files, env={"MYPYPATH": f"{package.parent}:{research}"}).stdout == ""

"""Models of PyTorch and transformers, coded: every door, every kind of layer, and calibrations."""

from __future__ import annotations

import json
import math
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="LEFT OUT: PyTorch is not installed (cargo xtask test --all)")
transformers = pytest.importorskip("transformers", reason="LEFT OUT: transformers is not installed (cargo xtask test --all)")

from safetensors.torch import save_file  # noqa: E402
from torch import nn  # noqa: E402

import trinity  # noqa: E402
import trinity.torch as tt  # noqa: E402
from folders import gpt2, llama, mixtral  # noqa: E402


def _mixtral():
    return mixtral(intermediate_size=96, num_hidden_layers=1)


MODELS = {"llama": llama, "gpt2": gpt2, "mixtral": _mixtral}
TOKENS = torch.randint(0, 256, (2, 48), generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_through_every_door_gives_the_same_bytes(name, tmp_path, trinity_command):
    model = MODELS[name]()
    state = {key: one.clone() for key, one in model.state_dict().items()}
    tt.save_state_dict(tmp_path / "exact.tri", model)
    np.savez(tmp_path / "m.npz", **{key: one.numpy() for key, one in state.items()})
    trinity_command("encode", "m.npz", "--bits", "4", "-o", "command.tri")
    command = (tmp_path / "command.tri").read_bytes()
    tt.save_state_dict(tmp_path / "save.tri", state, bits=4)
    assert (tmp_path / "save.tri").read_bytes() == command
    trinity.save(tmp_path / "dict.tri", trinity.encode(state, bits=4))
    assert (tmp_path / "dict.tri").read_bytes() == command
    decoded = tt.load_state_dict(tmp_path / "command.tri")
    summary = tt.compress_(model, bits=4)
    for key, one in model.state_dict().items():
        assert torch.equal(one, decoded[key]), key
    assert summary["bytes"] == len(command)
    # An untouched model that is loaded from the file answers as the one that was coded in place.
    fresh = MODELS[name]()
    fresh.load_state_dict(decoded)
    assert torch.equal(fresh(TOKENS).logits, model(TOKENS).logits)


@pytest.mark.parametrize("name", MODELS)
def test_weights_that_stay_coded_are_decoded_where_they_are_used(name):
    loaded, used = MODELS[name](), MODELS[name]()
    tt.compress_(loaded, bits=5)
    summary = tt.compress_(used, bits=5, decode="use")
    with torch.no_grad():
        assert torch.equal(used(TOKENS).logits, loaded(TOKENS).logits)
    left = [key for key, one in used.named_parameters() if one.ndim > 1 and one.numel() >= 256]
    assert left == [], left
    kinds = {(row["kind"], row["treatment"]) for row in summary["kinds"]}
    assert ("embedding", "trinity") in kinds
    if name == "mixtral":
        assert any(kind == "experts" for kind, _ in kinds), kinds
    state = used.state_dict()
    assert all(torch.equal(one, state[key]) for key, one in loaded.state_dict().items())


def test_half_precision_and_a_second_call_follow():
    model = llama()
    tt.compress_(model, bits=5, decode="use")
    before = model(TOKENS).logits
    model.half()
    assert model.lm_head.weight.dtype == torch.float16
    model.float()
    with torch.no_grad():
        # Rotary frequencies went through half precision, too.
        assert float((model(TOKENS).logits - before).abs().max()) < 0.05 * float(before.std())
    # What is coded already is coded anew, from what it was decoded to; ties stay ties.
    summary = tt.compress_(model, bits=3, decode="use")
    assert summary["bits_per_value"] <= 3
    tt.compress_(model, bits=3, decode="load")
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert type(model.lm_head) is nn.Linear


def test_rules_hold_in_place():
    model = llama()
    before = {key: one.clone() for key, one in model.state_dict().items()}
    summary = tt.compress_(model, bits=3, exclude=["embed_tokens", "lm_head"], bits_for={"*.q_proj.weight": 6})
    after = model.state_dict()
    assert torch.equal(after["model.embed_tokens.weight"], before["model.embed_tokens.weight"])
    assert "excluded by" in summary["skipped"]["model.embed_tokens.weight"]
    errors = {tensor["tensor"]: tensor["nmse"] for tensor in summary["tensors"]}
    assert errors["model.layers.0.self_attn.q_proj.weight"] < 0.1 * errors["model.layers.0.self_attn.k_proj.weight"]


def test_a_missing_tie_is_filled_in_or_named(tmp_path):
    model = llama()
    state = model.state_dict()
    del state["lm_head.weight"]
    trinity.save(tmp_path / "m.tri", state, bits=6)
    filled = tt.load_state_dict(tmp_path / "m.tri", model)
    assert torch.equal(filled["lm_head.weight"], filled["model.embed_tokens.weight"])
    model.load_state_dict(filled)
    with pytest.raises(trinity.InputError, match="has no `lm_head.weight`, and the model ties it to nothing"):
        tt.load_state_dict(tmp_path / "m.tri", llama(tie_word_embeddings=False))


def test_the_command_scores_a_file_as_transformers_does(tmp_path, trinity_command):
    model = llama()
    model.config.save_pretrained(tmp_path)
    text = bytes(range(32, 127)) * 4
    (tmp_path / "text.txt").write_bytes(text)
    save_file({key: one.clone() for key, one in model.state_dict().items() if key != "lm_head.weight"}, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "tokenizer": "bytes"}))
    trinity_command("encode", "model.safetensors", "--bits", "4", "-o", "model.tri")
    row = json.loads(trinity_command("eval", "model.tri", "--original", "model.safetensors", "--text", "text.txt", "--json"))
    model.load_state_dict(tt.load_state_dict(tmp_path / "model.tri", model))
    tokens = torch.tensor([list(text)])
    with torch.no_grad():
        loss = model(tokens, labels=tokens).loss
    assert row["perplexity"] == pytest.approx(math.exp(float(loss)), rel=1e-4)


def _batches(count: int = 6) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(9)
    return [torch.randint(0, 64, (4, 64), generator=generator) for _ in range(count)]


#: Those that no calibration saw.
UNSEEN = torch.randint(0, 64, (8, 64), generator=torch.Generator().manual_seed(77))


def _coded(make, reference, tokens=UNSEEN, **options):
    """A copy of a model whose weights are coded, what was said of it, and its KL divergence on tokens."""
    model = make()
    model.load_state_dict(reference.state_dict())
    summary = tt.compress_(model, **options)
    with torch.no_grad():
        p, q = reference(tokens).logits.log_softmax(-1), model(tokens).logits.log_softmax(-1)
    return model, summary, float((p.exp() * (p - q)).sum(-1).mean())


def _trained(make=llama):
    """A model whose weights matter: it has learnt to repeat."""
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    for _ in range(60):
        half = torch.randint(0, 64, (8, 16), generator=generator)
        tokens = torch.cat([half, half], dim=1)
        optimizer.zero_grad()
        model.train()(tokens, labels=tokens).loss.backward()
        optimizer.step()
    optimizer.zero_grad()
    return model.eval()


def test_a_calibration_in_pytorch_lowers_what_the_model_loses(tmp_path, trinity_command, in_shards):
    reference = _trained()
    state = {key: one.clone() for key, one in reference.state_dict().items()}
    said = []
    found = trinity.calibrate(reference, _batches(), tmp_path / "c.tri", progress=lambda *one: said.append(one))
    assert said == [("calibrating", at, 6) for at in range(1, 7)]
    assert found["batches"] == 6 and found["costs"] and not found["never_called"]
    assert all(one.grad is None for one in reference.parameters())
    (_, _, plain), (model, _, lost) = (_coded(llama, reference, bits=3, calibrate=how) for how in (None, tmp_path / "c.tri"))
    assert lost < plain
    # The command takes it too, whole and in shards, to the same bytes.
    np.savez(tmp_path / "m.npz", **{key: one.numpy() for key, one in state.items()})
    encode = ["encode", "m.npz", "--bits", "3", "--calibrate", "c.tri"]
    trinity_command(*encode, "-o", "whole.tri")
    assert in_shards(2, *encode) == (tmp_path / "whole.tri").read_bytes()
    decoded = tt.load_state_dict(tmp_path / "whole.tri")
    assert all(torch.equal(one, decoded[key]) for key, one in model.state_dict().items())


def test_layers_whose_weights_are_inputs_by_outputs_are_calibrated_too(tmp_path):
    reference = _trained(gpt2)
    found = trinity.calibrate(reference, _batches(), tmp_path / "c.tri", progress=False)
    # Four `Conv1D` in each of two blocks; the output layer is the embedding.
    assert found["layers"] == 8 and found["without_moments"] == []
    # The same bits for every weight: what the moments alone are worth.
    options = {"bits": 3, "allocate": "equal", "exclude": ["wte", "wpe", "lm_head"]}
    plain, lost = (_coded(gpt2, reference, calibrate=how, **options)[2] for how in (None, tmp_path / "c.tri"))
    assert lost < 0.9 * plain, (lost, plain)


def test_the_calibration_of_a_tied_model_is_taken_by_its_file(tmp_path):
    model = llama()
    # Its file has no `lm_head.weight`.
    model.save_pretrained(tmp_path / "model")
    trinity.calibrate(model, _batches(2), tmp_path / "c.tri", progress=False)
    made = trinity.encode_file(tmp_path / "model", tmp_path / "m.tri", bits=4, calibrate=tmp_path / "c.tri", progress=False)
    assert "lm_head.weight" not in {tensor["tensor"] for tensor in made["tensors"]}
    model.load_state_dict(tt.load_state_dict(tmp_path / "m.tri", model))


def test_rules_hold_beside_a_calibration_and_one_of_another_model_is_refused(tmp_path):
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    trinity.calibrate(net, [torch.randn(256, 64)], tmp_path / "c.tri", progress=False)
    # A codec that takes no calibration, for one weight.
    coded = trinity.encode(net.state_dict(), bits=4, codec_for={"0.weight": "line-fast"}, calibrate=tmp_path / "c.tri")
    assert (coded["0.weight"].codec, coded["2.weight"].codec) == ("line-fast", "trinity")
    other = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 128))
    with pytest.raises(trinity.InputError, match=r"of another model: `0.weight` reads 64 inputs there, and has the shape \[64, 128\] here"):
        trinity.encode(other.state_dict(), bits=4, calibrate=tmp_path / "c.tri")


def test_what_stays_of_the_gain_is_told_on_batches_that_were_held_out(tmp_path):
    reference = _trained().train()
    before = {key: one.clone() for key, one in reference.state_dict().items()}
    said = []
    # An iterator, which nobody knows the end of.
    found = trinity.calibrate(reference, iter(_batches(17)), tmp_path / "c.tri", progress=lambda *one: said.append(one))
    gain = found["held_out"]
    assert (found["batches"], gain["batches"], gain["bits"], gain["measure"]) == (15, 2, 3.0, "nats per answer")
    assert 0 < gain["lost_calibrated"] < gain["lost_plain"], gain
    assert any("on 2 batches that were held out, at 3 bits per value: nats per answer lost" in what for what, _, _ in said), said
    # As the model would lose them: coded by hand, on those batches.
    _, _, lost = _coded(llama, reference.eval(), torch.cat(_batches(17)[15:]), bits=3, calibrate=tmp_path / "c.tri")
    assert gain["lost_calibrated"] == pytest.approx(lost, rel=1e-3)
    # The model is as it was, and nothing of what was held out went into the file.
    assert all(torch.equal(one, before[key]) for key, one in reference.state_dict().items())
    trinity.calibrate(reference, _batches(17)[:15], tmp_path / "d.tri", held_out=False, progress=False)
    assert (tmp_path / "d.tri").read_bytes() == (tmp_path / "c.tri").read_bytes()


def test_guided_moments_weigh_rows_by_what_an_error_behind_them_costs(tmp_path):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, 12))
    x = torch.randn(40, 24)
    found = trinity.calibrate(net, [x[:25], x[25:]], tmp_path / "c.tri", guided=True, held_out=False, progress=False)
    assert (found["rows"], found["layers"], found["never_called"]) == (40, 2, [])
    moments = trinity.decode(trinity.load(tmp_path / "c.tri"))
    # By hand: the same noise, and gradients at the outputs of both layers.
    generator = torch.Generator().manual_seed(0)
    for layer in net[0], net[2]:
        layer.requires_grad_(False)
    noise = torch.cat([torch.randn(25, 12, generator=generator), torch.randn(15, 12, generator=generator)])
    first = net[0](x).requires_grad_()
    read = first.tanh()
    second = net[2](read)
    at_first, at_second = torch.autograd.grad((second * noise).sum(), [first, second])
    for name, rows, gradient in ("0.weight", x, at_first), ("2.weight", read, at_second):
        weights = gradient.pow(2).mean(-1, keepdim=True)
        wanted = ((rows * weights).T @ rows / weights.sum()).detach().numpy()
        np.testing.assert_allclose(moments[name], wanted, rtol=1e-4, atol=1e-6)
    with pytest.raises(trinity.InputError, match="costs=False has none taken"):
        trinity.calibrate(net, [x], tmp_path / "d.tri", guided=True, costs=False, progress=False)


def test_guided_moments_leave_out_what_the_answer_does_not_depend_on(tmp_path):
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = nn.Linear(32, 16), nn.Linear(32, 16)

        def forward(self, x):
            self.idle(x)
            return self.used(x)

    found = trinity.calibrate(Idle(), [torch.randn(64, 32)], tmp_path / "c.tri", guided=True, progress=False)
    assert found["layers"] == 1 and found["without_moments"] == ["idle.weight"]


def test_no_gain_is_told_where_none_can_be(tmp_path):
    net = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32))
    batches = [torch.randn(32, 64) for _ in range(8)]
    found = trinity.calibrate(net, batches, tmp_path / "a.tri", progress=False)
    assert found["batches"] == 7 and found["held_out"]["measure"] == "relative squared error"
    assert trinity.calibrate(net, batches[:7], tmp_path / "b.tri", progress=False)["held_out"] is None
    assert trinity.calibrate(net, batches, tmp_path / "c.tri", held_out=False, progress=False)["held_out"] is None
    said = []
    small = trinity.calibrate(nn.Linear(8, 8), [torch.randn(4, 8)] * 8, tmp_path / "d.tri", progress=lambda *one: said.append(one[0]))
    assert small["held_out"] is None and any("what of the gain stays cannot be told" in what for what in said), said


def test_fused_experts_and_routers_are_calibrated_too(tmp_path):
    reference = _trained(_mixtral)
    before = reference.config._experts_implementation
    found = trinity.calibrate(reference, _batches(), tmp_path / "c.tri", progress=False)
    assert found["without_moments"] == [] and reference.config._experts_implementation == before
    known = trinity.read(tmp_path / "c.tri")
    experts = "model.layers.0.mlp.experts"
    assert known[f"{experts}.gate_up_proj"].shape == (64, 64) and known[f"{experts}.down_proj"].shape == (96, 96)
    # What the layer reads, by hand: every token goes to two experts.
    read = []
    with torch.no_grad():
        hook = reference.model.layers[0].mlp.register_forward_pre_hook(lambda _, args: read.append(args[0].reshape(-1, 64)))
        for batch in _batches():
            reference(batch)
        hook.remove()
    x = torch.cat(read)
    assert np.allclose(known[f"{experts}.gate_up_proj"], (x.T @ x / len(x)).numpy(), rtol=1e-3, atol=1e-4)
    assert np.allclose(known["model.layers.0.mlp.gate.weight"], known[f"{experts}.gate_up_proj"], rtol=1e-3, atol=1e-4)
    options = {"bits": 3, "allocate": "equal", "exclude": ["embed", "lm_head", "self_attn"]}
    plain, lost = (_coded(_mixtral, reference, calibrate=how, **options)[2] for how in (None, tmp_path / "c.tri"))
    assert lost < 0.9 * plain, (lost, plain)


class _Stack(nn.Module):
    """Experts as GPT-OSS has them: inputs × outputs, which cannot be calibrated."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(32, 2)
        self.experts = nn.Parameter(torch.randn(2, 32, 32))
        self.plain = nn.Parameter(torch.randn(32, 32))

    def forward(self, x):
        which = self.router(x).softmax(-1)
        return sum(which[:, at : at + 1] * (x @ self.experts[at]) for at in range(2)) @ self.plain


def test_weights_that_nothing_tells_of_are_named(tmp_path):
    found = trinity.calibrate(_Stack(), [torch.randn(64, 32)], tmp_path / "c.tri", progress=False)
    assert found["without_moments"] == ["experts"] and found["layers"] == 2
    # Parameters that lie in one memory, as those of a mapped file do, are told from each other.
    shared = _Stack()
    memory = torch.randn(sum(one.numel() for one in shared.parameters()))
    at = 0
    for one in shared.parameters():
        one.data = memory[at : at + one.numel()].view_as(one)
        at += one.numel()
    assert trinity.calibrate(shared, [torch.randn(64, 32)], tmp_path / "d.tri", progress=False)["layers"] == 2
    # A matrix that a product reads by rows is one that the file says so of.
    assert trinity.read(tmp_path / "c.tri")["plain"].shape == (32, 32)
    trinity.encode(_Stack().state_dict(), bits=4, calibrate=tmp_path / "c.tri")


@pytest.mark.parametrize("codec", ["gptq-128g", "awq-128g"])
def test_gptq_and_awq_take_weights_that_are_inputs_by_outputs(codec, tmp_path):
    reference = _trained(gpt2)
    trinity.calibrate(reference, _batches(), tmp_path / "c.tri", progress=False)
    lost, options = {}, {"bits": 3.5, "allocate": "equal", "exclude": ["wte", "wpe", "lm_head"]}
    for how, own in (tmp_path / "c.tri", codec), (None, "rtn"):
        _, made, lost[own] = _coded(gpt2, reference, codec=own, calibrate=how, **options)
        assert {row["treatment"] for row in made["kinds"] if row["kind"] == "linear"} == {own}
    assert lost[codec] < lost["rtn"], lost


def test_a_calibrated_model_is_shared_out_to_the_same_bytes(tmp_path):
    for make in llama, gpt2, _mixtral:
        model = make()
        path = tmp_path / f"{make.__name__}.tri"
        trinity.calibrate(model, _batches(2), path, progress=False)
        state = model.state_dict()
        alone = trinity.encode(state, bits=3, calibrate=path)
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            shared = trinity.encode(state, bits=3, calibrate=path, executor=pool)
        assert shared == alone
        assert shared != trinity.encode(state, bits=3)


def test_models_that_cannot_be_calibrated_say_why(tmp_path):
    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x):
            return x @ self.inner.weight.T

    batch = torch.randn(4, 8)
    for model, batches, why in (
        (nn.Conv2d(3, 8, 3), [], "no linear layer"), (nn.Linear(8, 8), [], "the dataloader has no batch"),
        (Around(), [batch], "none of the model's 1 linear layers was called"), (torch.jit.script(nn.Sequential(nn.Linear(8, 8))), [batch], "TorchScript"),
    ):  # fmt: skip
        with pytest.raises(trinity.InputError, match=why):
            trinity.calibrate(model, batches, tmp_path / "c.tri")


def test_torch_loads_what_it_saved(tmp_path):
    coded = {"x": trinity.encode(torch.randn(64, 64), bits=3)}
    torch.save(coded, tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt") == coded


def test_a_cache_keeps_decoded_pages_within_its_budget():
    model = llama()
    tokens = torch.randint(0, 256, (1, 200), generator=torch.Generator().manual_seed(2))

    def answers(**options):
        cache = tt.CodedCache(bits=6, page=32, window=16, config=model.config, **options)
        with torch.no_grad():
            model(tokens[:, :150], past_key_values=cache)
            out = [model(tokens[:, at : at + 1], past_key_values=cache).logits for at in range(150, 180)]
        return cache, torch.cat(out, dim=1)

    cache, kept = answers()
    bare, anew = answers(decoded_bytes=0)
    assert torch.equal(kept, anew)
    assert 0 < cache.decoded_bytes() <= cache.plain_bytes() and bare.decoded_bytes() == 0
    small, _ = answers(decoded_bytes=cache.decoded_bytes() // 2)
    assert 0 < small.decoded_bytes() <= cache.decoded_bytes() // 2
    cache.rest()
    assert cache.decoded_bytes() == 0
    with torch.no_grad():
        after = [model(tokens[:, 180:181], past_key_values=one).logits for one in (cache, bare)]
    assert torch.equal(*after) and cache.decoded_bytes() > 0


def test_a_cache_keeps_its_first_tokens_to_the_bit():
    model = llama()
    tokens = torch.randint(0, 256, (2, 120), generator=torch.Generator().manual_seed(2))
    plain = transformers.DynamicCache()
    cache = tt.CodedCache(bits=2, page=16, window=8, sink=4, config=model.config)
    with torch.no_grad():
        # Nine tokens at a time: the first of them come before there is a page.
        for at in range(0, 117, 9):
            model(tokens[:, at : at + 9], past_key_values=plain)
            model(tokens[:, at : at + 9], past_key_values=cache)
    assert cache.get_seq_length() == 117
    layer, own = cache.layers[0], plain.layers[0]
    empty = own.keys[..., :0, :]
    keys, values = layer.update(empty, empty)
    # The first layer reads tokens alone: its keys are what they were, but for the coding.
    assert keys.shape == own.keys.shape and torch.equal(keys[..., :4, :], own.keys[..., :4, :])
    assert torch.equal(values[..., :4, :], own.values[..., :4, :]) and torch.equal(keys[..., -8:, :], own.keys[..., -8:, :])
    assert not torch.equal(keys[..., 4:20, :], own.keys[..., 4:20, :])
    # Sequences move, and tokens that are taken back become plain ones, with the first ones in front.
    cache.reorder_cache(torch.tensor([1, 0]))
    moved, _ = layer.update(empty, empty)
    assert torch.equal(moved[0, :, :4], own.keys[1, :, :4]) and moved.shape == keys.shape
    cache.crop(-100)
    assert cache.get_seq_length() == 17 and torch.equal(layer.keys[1, :, :4], own.keys[0, :, :4])
    cache.reset()
    assert cache.get_seq_length() == 0


def test_a_plan_is_kept_from_step_to_step_and_the_size_holds():
    from trinity.torch import _wire

    planned = _wire.planner(2.6, "line-fast")
    generator = torch.Generator().manual_seed(3)
    for step in range(12):
        x = torch.randn(40000, generator=generator) * 10.0 ** (-step)
        packed = tt.pack(x, 2.6, "line-fast", planned)
        assert packed.numel() == _wire.capacity(x.numel(), 2.6, 4)
        back = tt.unpack(packed, x.shape, torch.float32)
        assert float((back - x).pow(2).mean() / x.pow(2).mean()) < 0.06, step
    assert planned.chosen == 1
    # Values of another law: the plan is checked by what it takes, and the size still holds.
    x = torch.randn(40000, generator=generator).pow(5)
    back = tt.unpack(tt.pack(x, 2.6, "line-fast", planned), x.shape, torch.float32)
    assert float((back - x).pow(2).mean() / x.pow(2).mean()) < 0.2
    assert (tt.unpack(tt.pack(torch.zeros(5000), 2.6, "line-fast", planned), (5000,), torch.float32) == 0).all()

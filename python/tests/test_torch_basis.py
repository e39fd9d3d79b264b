"""A coded cache in a basis of its model: what it saves, that it stays the cache it was, and whose basis is refused."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch", reason="LEFT OUT: PyTorch is not installed (cargo xtask test --all)")
transformers = pytest.importorskip("transformers", reason="LEFT OUT: transformers is not installed (cargo xtask test --all)")

import trinity  # noqa: E402
import trinity.torch as tt  # noqa: E402
from trinity.torch import _turned  # noqa: E402
from trinity.vllm._basis import FRAMES, Shape, Sums  # noqa: E402
from trinity.vllm._frame import NotUndone  # noqa: E402
from trinity.vllm._identity import named  # noqa: E402

LAYERS, HEADS, WIDTH = 6, 2, 32


def _config(**changes):
    own = {
        "vocab_size": 256, "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
        "num_key_value_heads": HEADS, "head_dim": WIDTH, "max_position_embeddings": 2048,
    }  # fmt: skip
    return transformers.LlamaConfig(**{**own, **changes})


def _saved(folder, seed: int, **changes):
    torch.manual_seed(seed)
    transformers.LlamaForCausalLM(_config(**changes)).save_pretrained(folder)
    return transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


def _tokens(count: int, rows: int = 1, seed: int = 3) -> torch.Tensor:
    return torch.randint(0, 256, (rows, count), generator=torch.Generator().manual_seed(seed))


def _states(model, tokens: torch.Tensor) -> torch.Tensor:
    """Layers, keys and values, tokens, heads, channels of one sequence."""
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad():
        model(tokens, past_key_values=cache)
    return torch.stack([torch.stack([one.keys[0], one.values[0]]) for one in cache.layers]).transpose(2, 3)


@pytest.fixture(scope="module", autouse=True)
def narrow():
    """Three layers of six go together: there are two spans."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trinity.vllm._basis.MOST_CHANNELS", LAYERS * HEADS * WIDTH // 2)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("model")


@pytest.fixture(scope="module")
def model(folder):
    return _saved(folder, 1)


def _learned(model, folder, frame: str = FRAMES[0]):
    block = _states(model, _tokens(1200, seed=8))
    if frame == FRAMES[0]:
        block[:, 0] = _turned.rope_of(model.config, WIDTH).undo(block[:, 0], 0)
    sums = Sums(Shape(LAYERS, HEADS, WIDTH, frame))
    sums.add(block / block.square().mean((2, 3, 4), keepdim=True).sqrt())
    return sums.basis(*named(str(folder), "None"))


@pytest.fixture(scope="module")
def basis(model, folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("basis") / "model.basis"
    _learned(model, folder).save(path)
    return path


def _run(model, tokens: torch.Tensor, cache, step: int = 50) -> torch.Tensor:
    with torch.no_grad():
        return torch.cat([model(tokens[:, at : at + step], past_key_values=cache).logits for at in range(0, tokens.shape[1], step)], 1)


def _error(model, tokens: torch.Tensor, cache) -> float:
    """Of all layers' pages."""
    _run(model, tokens, cache)
    plain = transformers.DynamicCache(config=model.config)
    _run(model, tokens, plain)
    lost = energy = 0.0
    for one, other in zip(cache.layers, plain.layers):
        first, count = one.sink, len(one.pages) * one.page
        assert count >= 2 * one.page
        for which, states in enumerate((other.keys, other.values)):
            meant = states[..., first : first + count, :]
            lost += float((torch.cat(one._decoded(which), -2) - meant).square().sum() / meant.square().sum())
            energy += 1
    return lost / energy


@pytest.mark.parametrize("codec", ["line-fast", "trinity"])
def test_a_basis_costs_less_error_at_as_many_bits(model, basis, codec):
    tokens = _tokens(420, rows=2)
    plain = tt.CodedCache(bits=3, codec=codec, page=64, window=16, config=model.config)
    turned = tt.CodedCache(bits=3, codec=codec, page=64, window=16, config=model.config, basis=basis)
    errors = _error(model, tokens, plain), _error(model, tokens, turned)
    assert 0 < errors[1] < 0.5 * errors[0], errors
    # Scales of layers and headers of pages count.
    assert turned.coded_bytes() <= 1.02 * plain.coded_bytes()
    assert turned.plain_bytes() == plain.plain_bytes() == 2 * sum(len(one.pages) for one in turned.layers) * 2 * 64 * HEADS * WIDTH * 4


def test_answers_hang_on_no_budget_and_come_back_after_a_rest(model, basis):
    tokens = _tokens(300)
    found = []
    for decoded_bytes in (0, 90_000, 256 << 20):
        cache = tt.CodedCache(bits=4, page=32, window=16, config=model.config, basis=basis, decoded_bytes=decoded_bytes)
        _run(model, tokens, cache)
        cache.rest()
        found.append(_run(model, tokens[:, :20], cache, 5))
        # Nothing that was decoded ahead is left over.
        assert not any(one._span._ahead for one in cache.layers)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    plain = transformers.DynamicCache(config=model.config)
    _run(model, tokens, plain)
    meant = _run(model, tokens[:, :20], plain, 5)
    assert float((found[0] - meant).square().mean() / meant.square().mean()) < 0.02


def test_sequences_move_and_tokens_go_as_in_a_plain_cache(model, basis):
    tokens = _tokens(200, rows=3)
    cache = tt.CodedCache(bits=8, page=32, window=16, config=model.config, basis=basis)
    plain = transformers.DynamicCache(config=model.config)
    for one in (cache, plain):
        _run(model, tokens, one)
        one.reorder_cache(torch.tensor([2, 0, 0]))
        one.batch_repeat_interleave(2)
        one.batch_select_indices(torch.tensor([0, 3, 5]))
    assert cache.get_seq_length() == plain.get_seq_length() == 200
    for shorter in (5, 60):
        for one in (cache, plain):
            one.crop(-shorter)
        assert cache.get_seq_length() == plain.get_seq_length()
    a, b = (_run(model, _tokens(90, rows=3, seed=5), one) for one in (cache, plain))
    assert float((a - b).square().mean() / b.square().mean()) < 1e-3
    cache.reset()
    assert torch.equal(_run(model, tokens[:, :60], cache), _run(model, tokens[:, :60], transformers.DynamicCache(config=model.config)))


def test_beyond_the_angles_keys_are_coded_as_they_are(folder, tmp_path):
    model = _saved(tmp_path / "short", 2, max_position_embeddings=2048)
    path = tmp_path / "short.basis"
    _learned(model, tmp_path / "short").save(path)
    cache = tt.CodedCache(bits=6, page=64, window=0, config=model.config, basis=path)
    for one in cache.layers:
        one._span._rope = _turned.Rope(torch.cat([one._span._rope.cos, one._span._rope.sin], -1)[:200], interleaved=False)
    assert _error(model, _tokens(400), cache) < 0.01
    assert [page[0][0].page.turned for page in cache.layers[0].pages] == [True] * 3 + [False] * 3


def test_another_model_s_basis_and_one_without_a_model_are_refused_with_a_sentence(model, basis, folder, tmp_path):
    whole = basis.read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    # Of this model, but of other layers; and of keys as attention keeps them, which nothing is undone for.
    own = _learned(model, folder)
    own.shape = dataclasses.replace(own.shape, layers=3)
    own._kept = {name: one for name, one in own._kept.items() if name.endswith("0")}
    own.save(tmp_path / "fewer")
    for path, config, why in (
        (basis, None, "config=model.config"),
        (basis, _config(), "does not say where its model came from"),
        (basis, _saved(tmp_path / "other", 7).config, f"is of the model {folder.name}, and other is served"),
        (tmp_path / "none", model.config, "is not there"),
        (tmp_path / "cut", model.config, "cannot be read"),
        (tmp_path / "fewer", model.config, "is of 3 layers .* and this engine has 6 layers"),
        (5, model.config, "expected the path"),
    ):
        with pytest.raises(trinity.InputError, match=why):
            tt.CodedCache(basis=path, config=config)
    _learned(model, folder, FRAMES[1]).save(tmp_path / "kept")
    cache = tt.CodedCache(bits=3, page=64, window=16, config=model.config, basis=tmp_path / "kept")
    assert _error(model, _tokens(300), cache) < 0.05 and cache.layers[0]._span._rope is None


def test_a_cache_is_of_its_model_and_a_basis_is_of_something(model, basis, folder, tmp_path):
    cache = tt.CodedCache(bits=3, page=64, window=16, config=model.config, basis=basis)
    other = _saved(tmp_path / "other", 2, num_key_value_heads=1)
    with pytest.raises(trinity.InputError, match="a basis of 2 heads of 32 channels, and the model that reads has 1 of 32"):
        _run(other, _tokens(20), cache)
    for layers, why in ((LAYERS + 1, f"is of {LAYERS} layers, and the model that reads has more"), (LAYERS - 1, f"a basis of {LAYERS} layers, and the model that reads has fewer")):
        cache = tt.CodedCache(bits=3, page=64, window=16, config=model.config, basis=basis)
        with pytest.raises(trinity.InputError, match=why):
            _run(_saved(tmp_path / str(layers), 2, num_hidden_layers=layers), _tokens(60), cache)
    for layers, heads in ((0, 0), (-LAYERS, HEADS), (LAYERS, 0)):
        own = _learned(model, folder)
        own.shape = dataclasses.replace(own.shape, layers=layers, heads=heads)
        own.save(tmp_path / "none", force=True)
        with pytest.raises(trinity.InputError, match="no whole basis"):
            tt.CodedCache(basis=tmp_path / "none", config=model.config)


def test_options_that_mean_nothing_are_sentences_before_a_token_is_read(model):
    for options, why in (
        ({"bits": None}, "bits=None: expected a number"), ({"bits": "3"}, "expected a number"), ({"bits": 0}, "above zero"), ({"bits": float("nan")}, "above zero"),
        ({"codec": 5}, "codec=5: expected the name"), ({"page": 0}, "a page has at least one"), ({"page": 1.5}, "a page has at least one"), ({"sink": "x"}, "a sink none or more"),
        ({"decoded_bytes": "x"}, "decoded_bytes='x'"), ({"decoded_bytes": -1}, "decoded_bytes=-1"), ({"config": {"a": 1}}, "expected the configuration of a model"),
    ):  # fmt: skip
        with pytest.raises(trinity.InputError, match=why):
            tt.CodedCache(**{"config": model.config, **options})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_models_of_every_number_format_have_a_cache(basis, folder, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    assert 0 < _error(model, _tokens(200), tt.CodedCache(bits=6, page=64, window=0, config=model.config, basis=basis)) < 0.01


def test_angles_that_are_not_known_are_not_guessed(model):
    assert _turned.rope_of(model.config, WIDTH).has(2048)
    scaled = _config(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0})
    for config, why in (scaled, "hang on how long"), (transformers.GPT2Config(), "no rotary embedding"):
        with pytest.raises(NotUndone, match=why):
            _turned.rope_of(config, WIDTH)
    steady = _config(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0})
    assert _turned.rope_of(steady, WIDTH).identity != _turned.rope_of(model.config, WIDTH).identity

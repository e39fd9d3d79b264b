"""A basis of a model's keys and values: what it saves, what it is held against, and files that are not whole. Without an engine."""

from __future__ import annotations

import importlib.util
import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="LEFT OUT: PyTorch is not installed (cargo xtask test --all)")

import trinity  # noqa: E402
from folders import flipped  # noqa: E402
from kv_blocks import angles  # noqa: E402
from trinity.vllm import BlockStore, Refused  # noqa: E402
from trinity.vllm import __main__ as command  # noqa: E402
from trinity.vllm._basis import FRAMES, MOST_CHANNELS, Basis, Parts, Shape, Sums  # noqa: E402
from trinity.vllm._form import Form  # noqa: E402
from trinity.vllm._frame import Rope  # noqa: E402

LAYERS, HEADS, WIDTH, BLOCK = 7, 2, 32, 128
SHAPE = Shape(LAYERS, HEADS, WIDTH, FRAMES[0])
ROPE = Rope(angles(1024, WIDTH), interleaved=False)


def _plain(start: int, tokens: int = BLOCK) -> torch.Tensor:
    """Keys and values whose channels of neighbouring layers move together, around means that are not zero."""
    mixing = torch.Generator().manual_seed(1)
    mixed = torch.randn(2, LAYERS * HEADS * WIDTH, 40, generator=mixing)
    means = torch.randn(2, 1, LAYERS * HEADS * WIDTH, generator=mixing)
    hidden = torch.randn(2, tokens, 40, generator=torch.Generator().manual_seed(start + 2))
    values = hidden @ mixed.transpose(1, 2) + 3 * means + 0.3 * torch.randn(2, tokens, LAYERS * HEADS * WIDTH, generator=torch.Generator().manual_seed(start))
    block = values.view(2, tokens, LAYERS, HEADS, WIDTH).permute(2, 0, 1, 3, 4)
    return block * torch.tensor([1.0, 30.0, 0.01, 2, 3, 4, 5]).view(LAYERS, 1, 1, 1, 1)


def _form(basis: Basis | None = None, rope: Rope | None = ROPE, dtype: torch.dtype = torch.float32) -> Form:
    return Form(LAYERS, dtype, BLOCK, HEADS, WIDTH, 4, rope, basis)


def _block(index: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    block = _plain(BLOCK * index)
    block[:, 0] = ROPE.apply(block[:, 0], BLOCK * index)
    return block.to(dtype)


@pytest.fixture(scope="module")
def basis() -> Basis:
    sums = Sums(SHAPE)
    for index in range(20, 20 + 2 * MOST_CHANNELS // BLOCK):
        block = _plain(BLOCK * index)
        sums.add(block / block.square().mean((2, 3, 4), keepdim=True).sqrt())
    return sums.basis("a model", "0123")


def _errors(form: Form, index: int, bits: float, folder) -> list[float]:
    block, store = _block(index), BlockStore(folder, "m", bits=bits)
    key = f"{form.basis is None} {index} {bits}"
    assert store.put(key, form.pack(block, index), exact=form.exact)
    back = form.unpack(BlockStore(folder, "m", bits=bits).get(key, form.expected(index)), index)
    if index == 0:
        assert torch.equal(back[:, :, :4], block[:, :, :4]), "first tokens keep every bit"
    return ((back - block).square().sum((2, 3, 4)) / block.square().sum((2, 3, 4))).mean(0).tolist()


def test_a_basis_costs_less_error_of_keys_and_of_values_at_as_many_bits(basis, tmp_path):
    for index, bits in (0, 3.0), (3, 2.0), (3, 4.0):
        plain, turned = _errors(_form(), index, bits, tmp_path), _errors(_form(basis), index, bits, tmp_path)
        assert all(mine < 0.5 * other for mine, other in zip(turned, plain)), (index, bits, turned, plain)


def test_what_is_turned_comes_back_whatever_is_turned_together(basis, monkeypatch):
    block = _plain(0)
    for at, one in enumerate(basis.forward(block)):
        which, span = divmod(at, len(basis.parts.spans))
        start, end = basis.parts.spans[span]
        back = basis.back(one, which, span).view(BLOCK, end - start, HEADS, WIDTH).transpose(0, 1)
        assert torch.allclose(back, block[start:end, which], rtol=1e-3, atol=1e-3 * float(block[start:end].abs().max()))
    # A layer of more channels than go together is turned by some of its heads at a time.
    assert Parts.of(Shape(2, 24, 64, FRAMES[0])) == Parts(((0, 1), (1, 2)), 2) and Parts.of(SHAPE).groups == 1
    monkeypatch.setattr("trinity.vllm._basis.MOST_CHANNELS", 16)
    sums = Sums(Shape(2, 4, 8, FRAMES[0]))
    sums.add(torch.randn(2, 2, 64, 4, 8, generator=torch.Generator().manual_seed(1)))
    own, block = sums.basis("wide", "0"), torch.randn(2, 2, 16, 4, 8)
    assert own.parts == Parts(((0, 1), (1, 2)), 2)
    back = torch.stack([own.back(one, at // 2, at % 2).view(16, 4, 8) for at, one in enumerate(own.forward(block))])
    assert torch.allclose(back.view(2, 2, 16, 4, 8).transpose(0, 1), block, atol=5e-3)


def test_a_file_comes_back_as_it_was_and_is_named_by_what_it_does(basis, tmp_path):
    basis.save(tmp_path / "a.basis")
    back = Basis.open(tmp_path / "a.basis")
    assert back.identity == basis.identity and back.about == basis.about and back.shape == SHAPE
    assert all(torch.equal(a, b) for a, b in zip(back.forward(_plain(0)), basis.forward(_plain(0))))
    with pytest.raises(trinity.InputError, match="exists"):
        basis.save(tmp_path / "a.basis")
    basis.save(tmp_path / "a.basis", force=True)
    # It is a container like others.
    assert set(trinity.load(tmp_path / "a.basis")) >= {"keys 0", "values 0", "means of keys 0"}


def test_another_model_s_and_other_shapes_are_refused_with_a_sentence(basis):
    basis.held_against("a.basis", "a model", "0123")
    with pytest.raises(trinity.InputError, match="a.basis is of the model a model, and another is served"):
        basis.held_against("a.basis", "another", "4567")
    basis.held_against_shape("a.basis", _form().shape)
    for other in Shape(LAYERS + 1, HEADS, WIDTH, FRAMES[0]), Shape(LAYERS, 1, 64, FRAMES[0]), Shape(LAYERS, HEADS, WIDTH, FRAMES[1]):
        with pytest.raises(trinity.InputError, match="7 layers of 2 heads of 32 channels, keys before rotary positions, and this engine has"):
            basis.held_against_shape("a.basis", other)
    with pytest.raises(trinity.InputError, match="as attention keeps them"):
        basis.held_against_shape("a.basis", _form(rope=None).shape)


def test_cut_damaged_and_foreign_files_are_refused_with_a_sentence(basis, tmp_path):
    path = tmp_path / "a.basis"
    basis.save(path)
    whole = path.read_bytes()
    for length in 0, 1, 100, len(whole) // 2, len(whole) - 1:
        path.write_bytes(whole[:length])
        with pytest.raises(trinity.InputError, match="basis .*a.basis (cannot be read|is a container|is no)"):
            Basis.open(path)
    for at in 0, 30, len(whole) // 3, len(whole) // 2, len(whole) - 1:
        path.write_bytes(flipped(whole, at, 4))
        with pytest.raises(trinity.InputError, match="help: python -m trinity.vllm basis"):
            Basis.open(path)
    path.write_bytes(whole)
    with pytest.raises(trinity.InputError, match="is not there"):
        Basis.open(tmp_path / "none")
    trinity.save(tmp_path / "other.tri", {"x": torch.ones(64, 64)}, lossless=True)
    with pytest.raises(trinity.InputError, match="something else"):
        Basis.open(tmp_path / "other.tri")
    # A whole container that says it is one, and is not.
    texts = {"trinity.kv_basis": "1", **basis.about, "shape": f"{LAYERS} x {HEADS} x {WIDTH}", "keys": FRAMES[0]}
    for name, change in {"later": {"trinity.kv_basis": "2"}, "shape": {"shape": f"{LAYERS} x {HEADS} x 16"}, "odd": {"shape": "some"}, "frame": {"keys": "sideways"}}.items():
        tensors = {key: one.flatten(0, -2) for key, one in basis._kept.items()}
        trinity.save(tmp_path / name, tensors, lossless=True, all=True, metadata={**texts, **change})
        with pytest.raises(trinity.InputError, match="no whole basis|of version 2"):
            Basis.open(tmp_path / name)
    tensors["keys 0"] = 2 * tensors["keys 0"]
    trinity.save(tmp_path / "long", tensors, lossless=True, all=True, metadata=texts)
    with pytest.raises(trinity.InputError, match="right angles"):
        Basis.open(tmp_path / "long")


def test_blocks_of_another_basis_are_never_served(basis, tmp_path):
    sums = Sums(SHAPE)
    sums.add(torch.randn(LAYERS, 2, 2 * MOST_CHANNELS, HEADS, WIDTH, generator=torch.Generator().manual_seed(9)))
    other = sums.basis("a model", "0123")
    assert other.identity != basis.identity
    store = BlockStore(tmp_path / "kv", "m", memory_bytes=0)
    for own in basis, other, None:
        store.put("a", _form(basis).pack(_block(1), 1), exact=_form().exact)
        if own is basis:
            assert store.get("a", _form(own).expected(1))
        else:
            with pytest.raises(Refused, match="`keys before"):
                store.get("a", _form(own).expected(1))
            assert "a" not in store
    # Where angles end, keys are as attention keeps them, and are not turned.
    form = _form(basis)
    assert form.expected(8) == _form().expected(8) and form.expected(7) != _form().expected(7)


def test_a_text_that_is_too_short_is_refused():
    sums = Sums(SHAPE)
    sums.add(_plain(0))
    with pytest.raises(trinity.InputError, match="needs 896 tokens of text at least, and 128 were read"):
        sums.basis("a model", "0123")


def _ended(monkeypatch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["trinity.vllm", "basis", "model", "b.txt", "-o", "a.basis", *options])
    with pytest.raises(SystemExit) as ended:
        command.main()
    return ended.value.code


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (trinity.InputError("b.txt is not there"), 2, "error: b.txt is not there"), (OSError(28, "No space left on device"), 1, "No space left on device"),
        (trinity.RunError("a.basis: No space left on device"), 1, "error: a.basis"), (None, 2, "vLLM is not installed here"),
    ],
)  # fmt: skip
def test_the_command_says_what_is_wrong_in_a_sentence(monkeypatch, capsys, raised, code, said):
    def learn(*_, **__):
        raise raised

    stand_in = types.ModuleType("trinity.vllm._learn")
    stand_in.learn = learn
    monkeypatch.setitem(sys.modules, "trinity.vllm._learn", stand_in)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if raised is None else name)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "ERROR")
    assert _ended(monkeypatch) == code and said in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value", "said"), [("--engine", "[1]", "expected names and values"), ("--engine", "{", "Expecting"), ("--tokens", "-5", "expected 1 or more")])
def test_options_that_mean_nothing_are_refused_before_an_engine_starts(monkeypatch, capsys, option, value, said):
    assert _ended(monkeypatch, option, value) == 2 and said in capsys.readouterr().err

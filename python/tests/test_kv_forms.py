"""What of a KV block is coded: layouts, rotary positions undone, layers together. Without an engine."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="LEFT OUT: PyTorch is not installed (cargo xtask test --all)")

import trinity  # noqa: E402
from kv_blocks import angles  # noqa: E402
from trinity.vllm._form import Form  # noqa: E402
from trinity.vllm._frame import NotUndone, Rope, asked, rope_of  # noqa: E402
from trinity.vllm._layout import layout, unknown  # noqa: E402


class RotaryEmbedding:
    """What vLLM's has of its kind."""

    def __init__(self, head_size: int, rotary_dim: int, is_neox_style: bool, wrong: bool = False) -> None:
        self.head_size, self.rotary_dim, self.is_neox_style, self.wrong = head_size, rotary_dim, is_neox_style, wrong
        self.cos_sin_cache = angles(64, rotary_dim).bfloat16()

    def forward_native(self, positions, query, key):
        """By complex numbers, unlike the code under test."""
        turned = self.rotary_dim
        cos, sin = self.cos_sin_cache[positions].float().chunk(2, -1)
        rest, own = key[:, turned:].float(), key[:, :turned].float()
        pairs = own.view(-1, turned // 2, 2) if not self.is_neox_style else torch.stack(own.chunk(2, -1), -1)
        spun = torch.view_as_complex(pairs.contiguous()) * torch.complex(cos, -sin if self.wrong else sin)
        spun = torch.view_as_real(spun)
        spun = spun.flatten(1) if not self.is_neox_style else torch.cat([spun[..., 0], spun[..., 1]], -1)
        return query, torch.cat([spun, rest], -1).to(key.dtype)


class UnknownEmbedding(RotaryEmbedding):
    """One that is not known by name."""


@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("turned", [32, 16])
def test_positions_are_undone_and_done_again_whatever_pairs_and_however_many(neox, turned):
    module = RotaryEmbedding(32, turned, neox)
    rope = asked(module, 32)
    keys = torch.randn(5, 3, 32)
    positions = torch.arange(7, 12)
    rows = [module.forward_native(positions, None, keys[:, head])[1] for head in range(3)]
    undone = rope.undo(torch.stack(rows, 1), 7)
    assert torch.allclose(undone, keys, atol=0.02)
    assert torch.allclose(rope.apply(undone, 7), torch.stack(rows, 1), atol=1e-5)
    # Rotations that also scale.
    scaled = Rope(angles(64, turned, 1.3), interleaved=not neox)
    assert torch.allclose(scaled.apply(scaled.undo(keys, 3), 3), keys, atol=1e-5)


def test_rotations_that_are_not_understood_are_left_alone_with_a_reason():
    for modules, width, why in (
        ([UnknownEmbedding(32, 32, True)], 32, "UnknownEmbedding is not known"),
        ([RotaryEmbedding(32, 32, True, wrong=True)], 32, "does otherwise"),
        ([RotaryEmbedding(32, 32, True)], 64, "heads of 32 channels, and the cache has 64"),
        ([], 32, "not found"),
        ([RotaryEmbedding(32, 32, True), RotaryEmbedding(32, 16, True)], 32, "several kinds"),
    ):
        with pytest.raises(NotUndone, match=why):
            rope_of(modules, width)
    twice = [RotaryEmbedding(32, 32, True), RotaryEmbedding(32, 32, True)]
    assert rope_of(twice, 32).identity == asked(twice[0], 32).identity


@pytest.mark.parametrize("shape", [(2, 16, 3, 8), (2, 3, 16, 8), (16, 2, 3, 8), (3, 2, 16, 8)])
def test_layouts_read_tokens_and_heads_and_write_them_back(shape):
    found = layout(shape, 16, 3, 8, None)
    wanted = torch.randn(2, 2, 16, 3, 8)
    sides = [(2, 16, 3, 8).index(side) for side in shape]
    blocks = [one.permute(*sides).contiguous() for one in wanted]
    assert torch.equal(found.read(blocks), wanted)
    back = [torch.zeros(shape), torch.zeros(*shape[:-1], 2 * shape[-1])[..., ::2]]
    found.write(wanted, back)
    assert all(torch.equal(a, b) for a, b in zip(back, blocks))


def test_a_layout_of_a_processor_s_own_order_and_one_that_is_not_clear():
    there = torch.randperm(2 * 16 * 8, generator=torch.Generator().manual_seed(3))
    found = layout((3, 16, 16), 16, 3, 8, there)
    wanted = torch.randn(1, 2, 16, 3, 8)
    memory = wanted[0].permute(2, 0, 1, 3).reshape(3, -1)[:, there].view(3, 16, 16)
    assert torch.equal(found.read([memory]), wanted)
    back = torch.zeros_like(memory)
    found.write(wanted, [back])
    assert torch.equal(back, memory)
    # As many heads as tokens: which is which is not said.
    assert layout((2, 16, 16, 8), 16, 16, 8, None) is None
    flat = unknown((2, 16, 16, 8))
    block = torch.randn(2, 16, 16, 8)
    back = torch.zeros_like(block)
    flat.write(flat.read([block]), [back])
    assert torch.equal(back, block)
    with pytest.raises(ValueError, match="does not understand"):
        unknown((3, 5, 8))


def _coded(form: Form, block: torch.Tensor, index: int, bits: float | None) -> torch.Tensor:
    parts = form.pack(block, index)
    assert {name: tuple(one.shape) for name, one in parts.items()} == {name: tuple(shape) for name, (_, shape) in form.expected(index).items()}
    codec = {"bits": bits, "codec": "line-fast"} if bits else {"lossless": True}
    found = {name: one if name in form.exact else trinity.decode(trinity.encode(one, **codec, class_="kv-cache", progress=False)) for name, one in parts.items()}
    return form.unpack(found, index)


def _block(dtype: torch.dtype, start: int, rope: Rope | None) -> torch.Tensor:
    """Seven layers of unlike sizes, two heads; keys that hang on what came before, as attention keeps them."""
    generator = torch.Generator().manual_seed(start + 1)
    tokens = torch.arange(start, start + 128)[:, None, None] / 40 + torch.rand(1, 2, 64, generator=generator) * 6
    block = torch.randn(7, 2, 128, 2, 64, generator=generator)
    block[:, 0] = 0.2 * block[:, 0] + 2 * tokens.sin()
    if rope is not None:
        block[:, 0] = rope.apply(block[:, 0], start)
    return (block * torch.tensor([1.0, 30.0, 0.01, 2, 3, 4, 5]).view(7, 1, 1, 1, 1)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_blocks_come_back_to_the_bit_or_within_the_same_share_of_each_layer(dtype):
    rope = Rope(angles(1024, 64), interleaved=False)
    for index in 0, 2:
        block = _block(dtype, index * 128, rope)
        exact = Form(7, dtype, 128, 2, 64, None, None)
        assert torch.equal(_coded(exact, block, index, None), block)
        form = Form(7, dtype, 128, 2, 64, 4, rope)
        back = _coded(form, block, index, 4.0)
        if index == 0:
            assert torch.equal(back[:, :, :4], block[:, :, :4]), "first tokens keep every bit"
        errors = (back.double() - block.double()).square().sum((2, 3, 4)) / block.double().square().sum((2, 3, 4))
        assert errors.max() < 0.02 and errors.max() < 3 * errors[:, 1].min(), errors


def test_keys_before_rotary_positions_cost_less():
    rope = Rope(angles(1024, 64), interleaved=False)
    block = _block(torch.float32, 256, rope)

    def error(with_: Rope | None) -> float:
        back = _coded(Form(7, torch.float32, 128, 2, 64, 4, with_), block, 2, 2.0)
        return float(((back - block)[:, 0].square().sum((1, 2, 3)) / block[:, 0].square().sum((1, 2, 3))).mean())

    undone, kept = error(rope), error(None)
    assert undone < 0.7 * kept, (undone, kept)
    # Angles are part of what a block is; beyond the last that is known keys stay as they are.
    form = Form(7, torch.float32, 128, 2, 64, 4, rope)
    other = Form(7, torch.float32, 128, 2, 64, 4, Rope(angles(1024, 32), interleaved=False))
    assert form.expected(1) != other.expected(1)
    assert list(form.expected(8)) == ["keys 0", "values 0", "scales"] and list(form.expected(7)) != list(form.expected(8))

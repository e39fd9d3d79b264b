"""Where a block of vLLM's cache has its keys and values, tokens, heads and channels.

Blocks are read as ``(2, tokens, heads, channels)``, keys first, whatever order an attention keeps them in. Where a
shape does not say what is what there is no `Layout`: such a block is coded as it lies. Attention on CPUs keeps keys and
values in an order of its own, which hangs on the processor and not on what the cache's shape says. vLLM itself is asked
for that order: numbers are written with its own operation, and looked up. Blocks are then coded token by token, and one
that was kept by one processor is right for another.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

#: Numbers below 2⁷ are exact in every format that a cache has.
_DIGIT = 7


class Layout:
    """One layer's block: how it is read, and how it is written."""

    def __init__(self, shape: Sequence[int], sides: Sequence[int], parts: Sequence[int], there: torch.Tensor | None = None) -> None:
        self.shape = tuple(int(side) for side in shape)
        values = torch.arange(torch.Size(parts).numel())
        # For each value as it is read, where it lies; and for each place, what is read there.
        if there is not None:
            # In each head's memory keys token by token, then values, but for an order of the processor's own.
            values = values.view(self.shape[0], -1)[:, there.argsort()].flatten()
        found = values.view(*parts).permute(*sides)
        self.heads, self.width = (int(side) for side in found.shape[-2:])
        found = found.reshape(2, -1, self.heads, self.width)
        self.tokens = int(found.shape[1])
        source = found.flatten()
        # By device, where each value lies, and what is read at each place.
        self._places = {torch.device("cpu"): (source, source.argsort())}

    def _on(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        if device not in self._places:
            source, target = self._places[torch.device("cpu")]
            self._places[device] = source.to(device), target.to(device)
        return self._places[device]

    def read(self, blocks: Sequence[torch.Tensor]) -> torch.Tensor:
        """A copy of one block of several layers: layers, keys and values, tokens, heads, channels."""
        found = blocks[0].new_empty(len(blocks), 2, self.tokens, self.heads, self.width)
        source, _ = self._on(found.device)
        for own, to in zip(blocks, found):
            torch.index_select(own.reshape(-1), 0, source, out=to.view(-1))
        return found

    def write(self, values: torch.Tensor, blocks: Sequence[torch.Tensor]) -> None:
        """Puts what `read` gave back into its places."""
        _, target = self._on(values.device)
        for own, into in zip(values, blocks):
            flat = own.reshape(-1)
            if into.is_contiguous():
                torch.index_select(flat, 0, target, out=into.view(-1))
            else:
                into.copy_(flat[target].view(into.shape))

    def arranged(self, raw: torch.Tensor) -> torch.Tensor:
        """What `read` gives, of any number of blocks as they lie: ``(…, their shape)``."""
        source, _ = self._on(raw.device)
        lead = raw.shape[: raw.dim() - len(self.shape)]
        return raw.reshape(*lead, -1).index_select(-1, source).view(*lead, 2, self.tokens, self.heads, self.width)

    def placed(self, values: torch.Tensor) -> torch.Tensor:
        """The way back from `arranged`."""
        _, target = self._on(values.device)
        lead = values.shape[:-4]
        return values.reshape(*lead, -1).index_select(-1, target).view(*lead, *self.shape)


def by_block(cache: torch.Tensor, blocks: int) -> torch.Tensor:
    """A layer's cache with its blocks outermost, of which it has so many (0: it is not known how many).

    Some attentions keep those of keys before all those of values; some want smaller ones, several to a block.

    >>> by_block(torch.zeros(2, 7, 16, 3, 8), 7).shape, by_block(torch.zeros(14, 3, 8, 16), 7).shape
    (torch.Size([7, 2, 16, 3, 8]), torch.Size([7, 2, 3, 8, 16]))
    """
    if blocks < 1 or cache.shape[0] == blocks:
        return cache
    if cache.shape[0] == 2 and cache.shape[1] == blocks:
        return cache.transpose(0, 1)
    if cache.shape[0] % blocks:
        raise ValueError(f"TrinityConnector does not understand a KV cache of {tuple(cache.shape)} for {blocks} blocks")
    return cache.unflatten(0, (blocks, -1))


def unknown(shape: Sequence[int]) -> Layout:
    """A block as it lies, in two halves, where it is not clear what is what in it."""
    width, values = int(shape[-1]), torch.Size(shape).numel()
    if values % (2 * width):
        raise ValueError(f"TrinityConnector does not understand a KV cache whose blocks are {tuple(shape)}")
    return Layout(shape, (0, 1, 2, 3), (2, values // (2 * width), 1, width))


def layout(shape: Sequence[int], block: int, heads: int, width: int, there: torch.Tensor | None) -> Layout | None:
    """The layout of a block of a shape, nothing where it is not clear; ``there`` is the order of a processor's memory.

    >>> layout((2, 16, 3, 8), 16, 3, 8, None).read([torch.arange(2 * 16 * 3 * 8).view(2, 16, 3, 8)]).shape
    torch.Size([1, 2, 16, 3, 8])
    >>> layout((3, 2, 16, 8), 16, 3, 8, None) is None, layout((16, 16, 2, 8), 16, 16, 8, None) is None
    (False, True)
    >>> layout((3, 16, 16), 16, 3, 8, None).read([torch.arange(3 * 16 * 16).view(3, 16, 16)])[0, :, 1, 2, 0]
    tensor([528, 536])
    """
    own = tuple(int(side) for side in shape)
    if there is not None:
        return Layout(own, (1, 2, 0, 3), (heads, 2, block, width), there) if own == (heads, block, 2 * width) else None
    pieces = block // max(own[-2], 1)
    if own[-3:] == (heads, block // max(pieces, 1), 2 * width) and own[:-3] in ((), (pieces,)):
        # vLLM's own: keys and values of a token and head beside each other, in one piece of a block or in several.
        return Layout(own, (3, 0, 2, 1, 4), (pieces, heads, own[-2], 2, width))
    sides = (2, block, heads, width)
    if len(own) != len(sides) or len(set(sides)) != len(sides) or set(own) != set(sides) or own[-1] != width:
        return None
    return Layout(own, [own.index(side) for side in sides], own)


def order(dtype: torch.dtype, block: int, width: int) -> torch.Tensor | None:
    """For each value in one head's memory of a block, its place among keys token by token, then values token by token.

    Nothing where attention is not that of CPUs: there shapes say it.
    """
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return None
    from vllm import _custom_ops as ops
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    numbers = torch.arange(block * width)
    found = torch.zeros(2 * block * width, dtype=torch.long)
    for shift in range(0, len(numbers).bit_length(), _DIGIT):
        digit = ((numbers >> shift) & ((1 << _DIGIT) - 1)).to(dtype).view(block, 1, width)
        memory = torch.zeros((1, 1, 2 * block, width), dtype=dtype)
        keys, values = memory.chunk(2, dim=2)
        ops.cpu_attn_reshape_and_cache(digit, digit.clone(), keys, values, torch.arange(block), _get_attn_isa(dtype, block, width))
        found += memory.flatten().long() << shift
    found[len(numbers) :] += len(numbers)
    if not torch.equal(found.sort().values, torch.arange(len(found))):
        raise ValueError(f"TrinityConnector does not understand where this vLLM keeps blocks of {block} tokens of {dtype}, {width} channels a head")
    return found

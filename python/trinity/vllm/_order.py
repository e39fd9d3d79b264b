"""Where vLLM's attention on CPUs puts the values of a block.

Its kernels keep keys and values in an order of their own, which hangs on the processor and not on what the cache's
shape says. vLLM itself is asked for that order: numbers are written with its own operation, and looked up. Blocks
are then coded token by token, and one that was kept by one processor is right for another.
"""

from __future__ import annotations

import torch

#: Numbers below 2⁷ are exact in every format that a cache has.
_DIGIT = 7


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

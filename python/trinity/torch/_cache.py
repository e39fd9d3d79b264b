"""A KV cache for ``transformers`` that keeps old tokens coded.

The first and the last tokens stay as they are; others are coded in pages, keys and values
apart. Pages of a model on a GPU are coded there and stay there; those of others lie
in host memory. Attention sees all of them, decoded: within a stated
budget decoded pages are kept from token to token, so that a conversation that goes
on runs as fast as with a plain cache. The coded form is for what is far, offloaded
or idle: `CodedCache.rest` gives the decoded pages up, and a sixth of the bytes wait
until the conversation goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from .. import _coded
from .._errors import InputError
from . import _rooms, _turned, _wire
from ._rooms import Coder, Rooms

#: Bits per value that keep every value of f32, and more.
_MOST_BITS = 64


class _Room:
    """A page of one sequence, coded on its GPU."""

    def __init__(self, coder: Coder | None, data: torch.Tensor, shape: tuple[int, int], dtype: torch.dtype) -> None:
        self.coder, self.data, self.shape, self.dtype = coder, data, shape, dtype

    def __len__(self) -> int:
        return self.data.numel()

    @property
    def values(self) -> int:
        return self.shape[0] * self.shape[1]


def _decode_rooms(pages: list[_Room]) -> list[torch.Tensor]:
    """Pages in one launch for each plan that they were coded under."""
    found: list[torch.Tensor | None] = [None] * len(pages)
    by_coder: dict[int, list[int]] = {}
    for at, page in enumerate(pages):
        by_coder.setdefault(id(page.coder), []).append(at)
    for places in by_coder.values():
        first = pages[places[0]]
        rows = _rooms.unpack(first.coder, torch.stack([pages[at].data for at in places]), (first.values, first.dtype))
        for at, row in zip(places, rows):
            found[at] = row.reshape(first.shape)
    return [one for one in found if one is not None]


def _decoded(pages: list[Any]) -> list[torch.Tensor]:
    """Pages that lie on a GPU, or in host memory."""
    return _decode_rooms(pages) if pages and isinstance(pages[0], _Room) else _coded._decode(pages, "torch", False)


class Budget:
    """Bytes that decoded pages may take, over all layers of a cache."""

    def __init__(self, total: int) -> None:
        self.total, self.used = total, 0

    def take(self, amount: int) -> bool:
        """Whether so many more fit; then they are taken."""
        if self.used + amount > self.total:
            return False
        self.used += amount
        return True

    def give(self, amount: int) -> None:
        self.used -= amount


class CodedLayer(DynamicLayer):
    """One layer's cache: the first tokens, pages of old ones, and a tail of new ones.

    A page has one coded tensor of keys and one of values for each sequence of
    the batch, tokens by channels.
    """

    is_sliding = False
    #: The tail, once there is one; `transformers` says no more of it than that.
    keys: Any
    values: Any

    def __init__(
        self, bits: float = 3.0, codec: str = "line-fast", page: int = 64, window: int = 64,
        sink: int = 4, budget: Budget | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.budget = budget or Budget(0)
        # The first pages, decoded: how many, and their keys and values.
        self._kept = 0
        self._plain: tuple[torch.Tensor, torch.Tensor] | None = None
        if not all(isinstance(one, Integral) for one in (page, window, sink)) or page < 1 or window < 0 or sink < 0:
            raise InputError(f"page={page!r}, window={window!r}, sink={sink!r}: a page has at least one token, a window and a sink none or more")
        if not isinstance(bits, Real) or not 0 < bits <= _MOST_BITS:
            raise InputError(f"bits={bits!r}: expected a number above zero, up to {_MOST_BITS}")
        if not isinstance(codec, str):
            raise InputError(f"codec={codec!r}: expected the name of one, see trinity.codecs()")
        self.bits, self.codec, self.page, self.window, self.sink = bits, codec, page, window, sink
        # Keys and values of the first tokens, once there is a page behind them.
        self._first: tuple[torch.Tensor, torch.Tensor] | None = None
        self.pages: list[tuple[list[Any], list[Any]]] = []
        self._heads: tuple[int, int] = (0, 0)
        # Of keys and values on a GPU: what codes their pages.
        self._rooms: dict[int, Rooms] = {}
        # The layers that pages are coded together with, where they are coded in a basis.
        self._span: _turned.Span | None = None

    def _coded_on_device(self, pages: torch.Tensor, which: int) -> list[_Room]:
        shape = (pages.shape[1], pages.shape[2])
        values, cols = shape[0] * shape[1], _rooms.columns(pages.shape)
        if which not in self._rooms or self._rooms[which].values != values:
            cols = shape[1] if values % cols else cols
            self._rooms[which] = Rooms(values, self.bits, pages.dtype, pages.device, best=_wire.ON_DEVICE[self.codec], cols=cols)
        rooms = self._rooms[which]
        rows = pages.reshape(pages.shape[0], -1).contiguous()
        if rooms.is_due:
            rooms.renew(rows)
        packed = rooms.pack(rows)
        if rooms.is_off:
            rooms.renew(rows)
            packed = rooms.pack(rows)
        return [_Room(rooms.coder, one, shape, pages.dtype) for one in packed]

    def _coded(self, pages: torch.Tensor, which: int) -> list[Any]:
        """A page of every sequence, of ``(sequences, tokens, channels)``."""
        if pages.is_cuda and self.codec in _wire.ON_DEVICE:
            return self._coded_on_device(pages, which)
        asked = _coded._asked(self.codec, ("bits", float(self.bits)), measure=False)
        return _coded._encode(["page"] * len(pages), list(pages), "kv-cache", asked, False)

    def _code_pages(self) -> None:
        """Codes as many pages as the tail has before the window."""
        if self._span is not None:
            return self._span.code(self, self.page, self.window, self._coded)
        while self._first is not None and self._tail() >= self.page + self.window:
            old = (states[..., : self.page, :].transpose(1, 2).flatten(2) for states in (self.keys, self.values))
            keys, values = (self._coded(one, which) for which, one in enumerate(old))
            self.pages.append((keys, values))
            # A copy: a view would keep the page's memory.
            self.keys, self.values = self.keys[..., self.page :, :].clone(), self.values[..., self.page :, :].clone()

    def rest(self) -> None:
        """Gives decoded pages up; the next token decodes them again."""
        if self._plain is not None:
            self.budget.give(sum(one.nbytes for one in self._plain))
        self._kept, self._plain = 0, None
        if self._span is not None:
            self._span.forget()

    def _all(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Every page of keys and of values; decoded ones are kept as the budget allows."""
        kept: list[list[torch.Tensor]] = [[], []] if self._plain is None else [[one] for one in self._plain]
        if self._kept == len(self.pages):
            return kept[0], kept[1]
        found = [self._decoded(which, self._kept) for which in (0, 1)]
        keys, values = [*kept[0], *found[0]], [*kept[1], *found[1]]
        if not self.budget.take(sum(one.nbytes for one in (*found[0], *found[1]))):
            return keys, values
        self._plain, self._kept = (torch.cat(keys, dim=-2), torch.cat(values, dim=-2)), len(self.pages)
        return [self._plain[0]], [self._plain[1]]

    def _decoded(self, which: int, first: int = 0) -> list[torch.Tensor]:
        """Pages of keys (0) or values (1) from one on, each as attention wants it."""
        coded = [one for page in self.pages[first:] for one in page[which]]
        flat = _decoded(coded) if self._span is None else self._span.decoded(coded, _decoded, self.dtype)
        heads, batch = self._heads[which], max(self._batch(), 1)
        stacked = []
        for at in range(0, len(flat), batch):
            rows = [one.reshape(one.shape[0], heads, -1).transpose(0, 1) for one in flat[at : at + batch]]
            stacked.append(torch.stack(rows).to(device=self.device, dtype=self.dtype))
        return stacked

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Takes new tokens, codes a page where the tail is long enough, and gives all tokens back."""
        if self._span is not None:
            self._span.takes(self, key_states, value_states)
        old_keys, old_values = self._whole()
        keys, values = torch.cat([*old_keys, key_states], dim=-2), torch.cat([*old_values, value_states], dim=-2)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self._heads = (key_states.shape[1], value_states.shape[1])
        done = self._before()
        self.keys, self.values = keys[..., done:, :], values[..., done:, :]
        if self._first is None and self._tail() >= self.sink + self.page + self.window:
            # Copies: views would keep all tokens' memory.
            self._first = self.keys[..., : self.sink, :].clone(), self.values[..., : self.sink, :].clone()
            self.keys, self.values = self.keys[..., self.sink :, :], self.values[..., self.sink :, :]
        self._code_pages()
        return keys, values

    def _whole(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The first tokens, every page and the tail, of keys and of values."""
        keys, values = self._all()
        first = ([], []) if self._first is None else ([self._first[0]], [self._first[1]])
        tail = ([self.keys], [self.values]) if self._tail() else ([], [])
        return [*first[0], *keys, *tail[0]], [*first[1], *values, *tail[1]]

    def _before(self) -> int:
        return len(self.pages) * self.page + (0 if self._first is None else int(self._first[0].shape[-2]))

    def _tail(self) -> int:
        return 0 if self.keys is None or self.keys.numel() == 0 else int(self.keys.shape[-2])

    def get_seq_length(self) -> int:
        """Tokens, coded or not."""
        return self._before() + self._tail()

    def coded_bytes(self) -> int:
        """Bytes of all pages."""
        return sum(len(one) for page in self.pages for part in page for one in part)

    def plain_bytes(self) -> int:
        """What the tokens of all pages take uncoded."""
        values = sum(one.values for page in self.pages for part in page for one in part)
        return values * self.dtype.itemsize if self.pages else 0

    def _uncode(self) -> None:
        """Puts the first tokens and every page back into the tail."""
        if self._first is not None:
            keys, values = self._whole()
            self.pages, self._first = [], None
            self.rest()
            self.keys, self.values = torch.cat(keys, dim=-2), torch.cat(values, dim=-2)

    def crop(self, tokens_to_remove: int) -> None:
        """Removes the last tokens; where they reach into pages, those become tokens again."""
        if abs(tokens_to_remove) >= self._tail():
            self._uncode()
        super().crop(tokens_to_remove)

    def reset(self) -> None:
        self.pages, self._first = [], None
        self.rest()
        super().reset()

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        self._move(beam_idx.tolist(), lambda one: one.index_select(0, beam_idx.to(one.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        sequences = [at for at in range(self._batch()) for _ in range(repeats)]
        self._move(sequences, lambda one: one.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        sequences = torch.arange(self._batch())[indices.cpu()].tolist() if self.pages else []
        self._move(sequences, lambda one: one[indices, ...])

    def _batch(self) -> int:
        return len(self.pages[0][0]) if self.pages else 0

    def _move(self, sequences: list[int], move: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Takes these sequences of every page, and what `move` makes of other tokens."""
        self.rest()
        self.pages = [tuple([part[at] for at in sequences] for part in page) for page in self.pages]  # type: ignore[misc]
        if self._first is not None:
            self._first = move(self._first[0]), move(self._first[1])
        if self._tail():
            self.keys, self.values = move(self.keys), move(self.values)


class CodedCache(DynamicCache):
    """A ``DynamicCache`` whose old tokens are coded at ``bits`` per value, in pages of ``page`` tokens.

    The first ``sink`` tokens, which attention leans on (docs/integrations.md has what that
    saves), the last ``window`` tokens, and those that fill no page yet, stay as they are.
    Decoded pages are kept while all of them take at most ``decoded_bytes`` (256 MiB
    unless said; 0 decodes every page for every token). A cache that waits should
    `rest`: then the coded pages are all that is left of them.
    Layers of other kinds (sliding windows, linear attention) are kept as
    ``transformers`` makes them for ``config``. Pages lie where the model is: on a GPU
    they are coded and decoded by its kernels, many in one launch, with room for
    exactly ``bits`` per value (codecs ``line-fast``, ``line`` and ``trinity-lite``; pages
    of others, and those of a model on the CPU, lie in host memory).

    ``basis`` names a file of ``python -m trinity.vllm basis``: keys, as they were before
    rotary positions, and values are coded along the model's own axes over several layers,
    at a quarter of the error or so (docs/integrations.md). ``config`` must be that of the
    model the file is of, as ``from_pretrained`` read it; others are refused.

    ::

        cache = trinity.torch.CodedCache(bits=2.9, config=model.config)
        model.generate(**inputs, past_key_values=cache)
    """

    def __init__(
        self,
        bits: float = 3.0,
        *,
        codec: str = "line-fast",
        page: int = 64,
        window: int = 64,
        sink: int = 4,
        decoded_bytes: int = 256 << 20,
        basis: str | os.PathLike[str] | None = None,
        config: Any = None,
    ) -> None:
        if config is not None and not hasattr(config, "get_text_config"):
            raise InputError(f"config={config!r}: expected the configuration of a model of transformers, model.config")
        if not isinstance(decoded_bytes, Real) or decoded_bytes < 0:
            raise InputError(f"decoded_bytes={decoded_bytes!r}: expected a number of bytes")
        super().__init__(config=config)
        self.budget = budget = Budget(decoded_bytes)
        make = lambda: CodedLayer(bits=bits, codec=codec, page=page, window=window, sink=sink, budget=budget)  # noqa: E731
        self.layers = [make() if type(layer) is DynamicLayer else layer for layer in self.layers]
        if basis is not None:
            for span in _turned.spans(basis, config, self.layers, CodedLayer):
                span.join()
        elif config is None:
            self.layer_class_to_replicate = make  # type: ignore[assignment]

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """A layer's new tokens; all of its tokens."""
        if self.layer_class_to_replicate is None and layer_idx >= len(self.layers):
            raise InputError(f"this cache is of {len(self.layers)} layers, and the model that reads has more: a cache is of the model whose config it was made with")
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)

    def rest(self) -> None:
        """Gives all decoded pages up, until the next token asks for them."""
        for layer in self._coded_layers():
            layer.rest()

    def decoded_bytes(self) -> int:
        """Bytes of decoded pages that are kept."""
        return self.budget.used

    def coded_bytes(self) -> int:
        """Bytes of all pages of all layers."""
        return sum(layer.coded_bytes() for layer in self._coded_layers())

    def plain_bytes(self) -> int:
        """What the tokens of all pages take uncoded."""
        return sum(layer.plain_bytes() for layer in self._coded_layers())

    def _coded_layers(self) -> list[CodedLayer]:
        return [layer for layer in self.layers if isinstance(layer, CodedLayer)]

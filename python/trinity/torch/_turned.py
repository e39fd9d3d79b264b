"""Pages of a KV cache in a basis of its model: keys, or values, of a few layers as one matrix.

The basis is the one of `trinity.vllm` (``python -m trinity.vllm basis``): principal axes over all heads of some layers,
of keys as they were before rotary positions. A page is coded when the last of its layers has the tokens, and decoded
for all of them when the first one asks.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from .._errors import InputError
from ..vllm._basis import FRAMES, Basis, Shape, refused
from ..vllm._frame import NotUndone, Rope
from ..vllm._identity import named

#: Rotary positions whose angles hang on nothing but the position.
_STEADY = ("default", "linear", "llama3", "yarn")
#: By how much turned keys may differ from those of the model's own code, over the largest.
_ROUNDING = 1e-3
#: Matrices of all sequences, keys or values, to pages; and pages to matrices.
Coded = Callable[[torch.Tensor, int], list[Any]]
Decoded = Callable[[list[Any]], list[torch.Tensor]]


class TurnedPage:
    """Tokens of one sequence in a span's layers, coded: keys and values, and each layer's root mean squares."""

    def __init__(self, coded: tuple[Any, Any], scales: torch.Tensor, start: int, turned: bool) -> None:
        self.coded, self.scales, self.start, self.turned = coded, scales, start, turned


class Piece:
    """One layer's share of a page: its keys (0) or its values (1)."""

    def __init__(self, page: TurnedPage, which: int, layer: int, layers: int) -> None:
        self.page, self.which, self.layer, self._layers = page, which, layer, layers

    def __len__(self) -> int:
        """Bytes: those of all layers' shares are the page's, scales among them."""
        whole = len(self.page.coded[self.which]) + self.page.scales.nbytes // 2
        return whole * (self.layer + 1) // self._layers - whole * self.layer // self._layers

    @property
    def values(self) -> int:
        return int(self.page.coded[self.which].values) // self._layers


class Layer(Protocol):
    """What a span has to know of a layer's cache: its tail of tokens, what lies before it, and how many pages it keeps decoded."""

    keys: Any
    values: Any
    pages: list[tuple[list[Any], list[Any]]]
    _first: tuple[torch.Tensor, torch.Tensor] | None
    _kept: int
    _span: Span | None

    def _tail(self) -> int: ...

    def _before(self) -> int: ...


class Span:
    """Layers that are turned together, one part of a basis."""

    def __init__(self, basis: Basis, rope: Rope | None, at: int, layers: Sequence[Layer]) -> None:
        self._basis, self._rope, self._at, self._layers = basis, rope, at, list(layers)
        # Decoded for layers that will ask for them next.
        self._ahead: dict[tuple[TurnedPage, int], dict[int, torch.Tensor]] = {}

    def takes(self, layer: Layer, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Refuses tokens of another model than the cache was made for."""
        shape, last = self._basis.shape, self._layers[-1]
        if layer is self._layers[0] is not last and layer._tail() and not last._tail() and not last._before():
            why = f"this cache has a basis of {shape.layers} layers, and the model that reads has fewer"
            raise InputError(f"{why}: a cache is of the model whose config it was made with")
        for states in (keys, values):
            if states.shape[-3::2] != (shape.heads, shape.width):
                raise InputError(
                    f"this cache has a basis of {shape.heads} heads of {shape.width} channels, and the model that reads has {states.shape[-3]} of"
                    f" {states.shape[-1]}: a cache is of the model whose config it was made with"
                )

    def join(self) -> None:
        for one in self._layers:
            one._span = self

    def code(self, layer: Layer, page: int, window: int, coded: Coded) -> None:
        """Codes pages once the span's last layer has their tokens."""
        if layer is not self._layers[-1]:
            return
        self._ahead.clear()
        while all(one._first is not None and one._tail() >= page + window and len(one.pages) == len(layer.pages) for one in self._layers):
            found = self._coded(page, layer._before(), coded)
            for at, one in enumerate(self._layers):
                keys, values = ([Piece(own, which, at, len(self._layers)) for own in found] for which in (0, 1))
                one.pages.append((keys, values))
                # A copy: a view would keep the page's memory.
                one.keys, one.values = one.keys[..., page:, :].clone(), one.values[..., page:, :].clone()

    def _coded(self, page: int, start: int, coded: Coded) -> list[TurnedPage]:
        turned = self._rope is None or self._rope.has(start + page)
        # Sequences, layers, keys and values, tokens, heads, channels.
        block = torch.stack([torch.stack([states[..., :page, :] for states in (one.keys, one.values)], 1) for one in self._layers], 1)
        block = block.transpose(-3, -2).float()
        if turned and self._rope is not None:
            block[:, :, 0] = self._rope.undo(block[:, :, 0], start)
        scales = block.square().mean(dim=(3, 4, 5)).sqrt()
        scales.masked_fill_(scales == 0, 1)
        block = block / scales[..., None, None, None]
        pages = [coded(torch.stack([self._matrix(one[:, which], which, turned) for one in block]), which) for which in (0, 1)]
        return [TurnedPage((keys, values), own, start, turned) for keys, values, own in zip(*pages, scales)]

    def _matrix(self, layers: torch.Tensor, which: int, turned: bool) -> torch.Tensor:
        return self._basis.forward_part(layers, which, self._at) if turned else layers.transpose(0, 1).flatten(1)

    def decoded(self, pieces: Sequence[Piece], decode: Decoded, dtype: torch.dtype) -> list[torch.Tensor]:
        """One layer's pages, tokens by channels."""
        if not pieces:
            return []
        own, which = pieces[0].layer, pieces[0].which
        missing = list(dict.fromkeys(piece.page for piece in pieces if own not in self._ahead.get((piece.page, which), {})))
        later = [at for at, one in enumerate(self._layers) if at > own and one._kept < len(one.pages)]
        for page, matrix in zip(missing, decode([page.coded[which] for page in missing]) if missing else []):
            rows = self._rows(page, matrix, which, dtype)
            self._ahead[page, which] = {at: rows[at] for at in (own, *later)}
        found = [self._ahead[piece.page, which][own] for piece in pieces]
        for page in {piece.page for piece in pieces}:
            held = self._ahead[page, which]
            del held[own]
            if not held:
                del self._ahead[page, which]
        return found

    def _rows(self, page: TurnedPage, matrix: torch.Tensor, which: int, dtype: torch.dtype) -> list[torch.Tensor]:
        layers, width = len(self._layers), self._basis.shape.width
        rows = self._basis.back(matrix.to(page.scales.device), which, self._at) if page.turned else matrix.to(page.scales.device)
        block = rows.view(rows.shape[0], layers, -1, width).transpose(0, 1) * page.scales[:, which, None, None, None]
        if which == 0 and page.turned and self._rope is not None:
            block = self._rope.apply(block, page.start)
        most = min(torch.finfo(dtype).max, torch.finfo(block.dtype).max)
        return [one.flatten(1) for one in block.clamp_(-most, most).to(dtype)]

    def forget(self) -> None:
        self._ahead.clear()


def spans(path: str | os.PathLike[str], config: Any, layers: Sequence[Any], wanted: type) -> list[Span]:
    """The spans of a cache's layers, of a basis that is this model's; an `InputError` says why it is not."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"basis={path!r}: expected the path of a file of python -m trinity.vllm basis")
    if config is None:
        raise InputError("a basis is of one model: CodedCache(basis=..., config=model.config) says which one has this cache")
    text = config.get_text_config(decoder=True)
    basis = Basis.open(path)
    name = str(getattr(config, "_name_or_path", "") or "")
    if not name:
        raise InputError("this configuration does not say where its model came from, and a basis is of one model: use that of a model of from_pretrained")
    basis.held_against(path, *named(name, str(getattr(config, "_commit_hash", None))))
    if not all(type(one) is wanted for one in layers):
        raise refused(path, "is of caches that keep all tokens of all layers, and this model has layers of another kind")
    heads = int(getattr(text, "num_key_value_heads", None) or text.num_attention_heads)
    width = int(getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads)
    rope: Rope | None = None
    if basis.shape.frame == FRAMES[0]:
        try:
            rope = rope_of(text, width)
        except NotUndone as why:
            raise refused(path, f"is of keys before rotary positions, and those of this model are not known: {why}") from None
    basis.held_against_shape(path, Shape(len(layers), heads, width, basis.shape.frame))
    return [Span(basis, rope, at, layers[start:end]) for at, (start, end) in enumerate(basis.parts.spans)]


def rope_of(config: Any, width: int) -> Rope:
    """A model's angles, held against what its own code does to keys; `NotUndone` with the reason."""
    kind = str(getattr(config, "model_type", ""))
    try:
        module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    except ImportError:
        raise NotUndone(f"transformers has no model `{kind}`") from None
    rotary = next((one for name, one in sorted(vars(module).items()) if name.endswith("RotaryEmbedding") and one.__module__ == module.__name__), None)
    apply = getattr(module, "apply_rotary_pos_emb", None)
    if rotary is None or apply is None:
        raise NotUndone(f"`{kind}` has no rotary embedding of its own")
    parameters = getattr(config, "rope_parameters", None) or {}
    steady = str(parameters.get("rope_type", "default"))
    if steady not in _STEADY:
        raise NotUndone(f"angles of `{steady}` hang on how long a text is")
    try:
        positions = torch.arange(int(config.max_position_embeddings))[None]
        cos, sin = rotary(config)(torch.zeros(1, 1, 1), positions)
        keys = torch.randn(1, 2, 16, width, generator=torch.Generator().manual_seed(1))
        _, turned = apply(keys, keys, cos[:, -16:], sin[:, -16:])
    except Exception as error:
        raise NotUndone(f"`{kind}` computes them otherwise than Llama does ({type(error).__name__})") from None
    pairs = cos.shape[-1] // 2
    for interleaved, own in ((False, slice(0, pairs)), (True, slice(0, 2 * pairs, 2))):
        rope = Rope(torch.cat([cos[0, :, own], sin[0, :, own]], -1), interleaved=interleaved)
        found = rope.apply(keys[0].transpose(0, 1)[None], positions.shape[1] - 16)[0].transpose(0, 1)
        if found.shape == turned[0].shape and float((found - turned[0]).abs().max()) <= _ROUNDING * float(turned.abs().max()):
            return rope
    raise NotUndone(f"`{kind}` turns keys in a way that is not known")

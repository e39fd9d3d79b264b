"""A basis for keys and for values of one model: principal axes across heads and layers, learned ahead, kept in a file.

Rows of a few layers are turned into it before they are coded, and back after: a codec that spends its bits where values
are large has then fewer large ones. Axes are learned on keys as they were before rotary positions, each layer over its own
root mean square. A file says of which model it is, and is held against the model that is served; it is a `.tri`
container with every bit kept, so that what is cut or damaged is found. Knows tensors; knows nothing of engines.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import _coded, _core
from .._errors import InputError, RunError

#: Channels that are turned together, at most: so many products for each value, and so large a file.
MOST_CHANNELS = 1024
_VERSION = "1"
_KINDS = ("keys", "values")
#: What the texts of a file say.
_MARK, _MODEL, _NAME, _SHAPE, _FRAME, _TOKENS = "trinity.kv_basis", "model", "name", "shape", "keys", "tokens"
#: How keys were when the axes were learned.
FRAMES = ("before rotary positions", "as attention keeps them")
#: By how much products of axes may differ from those of an orthonormal basis.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class Shape:
    """What a basis is of: layers, heads of one, channels of one, and how keys are when they are turned."""

    layers: int
    heads: int
    width: int
    frame: str

    def __str__(self) -> str:
        return f"{self.layers} layers of {self.heads} heads of {self.width} channels, keys {self.frame}"


@dataclass(frozen=True)
class Parts:
    """What is turned together: all heads of some layers, or, where one layer has too many channels, some of its heads."""

    #: The first layer of each, and the one behind its last.
    spans: tuple[tuple[int, int], ...]
    #: Groups of heads of a layer: one, or several where spans are of one layer.
    groups: int

    @classmethod
    def of(cls, shape: Shape) -> Parts:
        """Of as many channels as may be turned together.

        >>> Parts.of(Shape(30, 3, 64, FRAMES[0])).spans[:2], Parts.of(Shape(32, 8, 128, FRAMES[0])).groups, Parts.of(Shape(2, 32, 128, FRAMES[0])).groups
        (((0, 5), (5, 10)), 1, 4)
        """
        channels = shape.heads * shape.width
        groups = next((count for count in range(1, shape.heads + 1) if shape.heads % count == 0 and channels // count <= MOST_CHANNELS), shape.heads)
        together = max(MOST_CHANNELS // channels, 1) if groups == 1 else 1
        count = -(-shape.layers // together)
        return cls(tuple((shape.layers * at // count, shape.layers * (at + 1) // count) for at in range(count)), groups)

    def sides(self, shape: Shape) -> list[int]:
        """Channels that go together, of each span."""
        return [(end - start) * shape.heads * shape.width // self.groups for start, end in self.spans]

    def split(self, block: torch.Tensor) -> Iterator[tuple[int, int, torch.Tensor]]:
        """Of ``(layers, keys and values, tokens, heads, channels)``, kind and span of each part, and its layers' own."""
        for which in (0, 1):
            for at, (start, end) in enumerate(self.spans):
                yield which, at, block[start:end, which]

    def of_span(self, layers: torch.Tensor) -> torch.Tensor:
        """Of a span's ``(layers, tokens, heads, channels)``: ``(groups, tokens, channels)``."""
        return layers.transpose(0, 1).reshape(layers.shape[1], self.groups, -1).transpose(0, 1)


def bytes_of(shape: Shape) -> int:
    """What the file of a basis takes at most, but for its names.

    >>> bytes_of(Shape(30, 3, 64, FRAMES[0]))
    22141440
    """
    parts = Parts.of(shape)
    return sum(2 * 2 * parts.groups * side * (side + 1) for side in parts.sides(shape))


class Basis:
    """Axes of keys and of values, by kind and span ``(groups, axes, channels)``, and means along them; see `Basis.open` and `Sums.basis`."""

    def __init__(self, axes: Sequence[Sequence[torch.Tensor]], means: Sequence[Sequence[torch.Tensor]], shape: Shape, about: Mapping[str, str]) -> None:
        #: In half precision: both sides have the same numbers, which stand at right angles to some parts of a million.
        self._kept = {f"{_KINDS[which]} {at}": one.half() for which in (0, 1) for at, one in enumerate(axes[which])}
        self._kept |= {f"means of {_KINDS[which]} {at}": one.half() for which in (0, 1) for at, one in enumerate(means[which])}
        self.shape, self.parts = shape, Parts.of(shape)
        #: The name of the model, a hash of it, and how many tokens were read.
        self.about = dict(about)
        digest = hashlib.blake2b(str(shape).encode(), digest_size=16)
        for name, one in self._kept.items():
            digest.update(name.encode() + one.contiguous().numpy().tobytes())
        #: A hash of what it does to values.
        self.identity = digest.hexdigest()
        self._axes = [[one.half().float() for one in own] for own in axes]
        self._means = [[one.half().float()[:, None] for one in own] for own in means]
        #: The same on other devices, as they were asked for, in half precision: half of the memory there.
        self._there: dict[torch.device, tuple[list[list[torch.Tensor]], list[list[torch.Tensor]]]] = {}

    def _on(self, device: torch.device, which: int, at: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Axes and means of a kind and span where values are."""
        if device.type == "cpu":
            return self._axes[which][at], self._means[which][at]
        if device not in self._there:
            axes, means = ([[one.half().to(device) for one in own] for own in all_of] for all_of in (self._axes, self._means))
            self._there[device] = axes, means
        axes, means = self._there[device]
        return axes[which][at].float(), means[which][at].float()

    def forward(self, block: torch.Tensor) -> list[torch.Tensor]:
        """Coefficients of ``(layers, keys and values, tokens, heads, channels)``: a matrix of tokens for each span's keys, then values."""
        return [self.forward_part(layers, which, at) for which, at, layers in self.parts.split(block)]

    def forward_part(self, layers: torch.Tensor, which: int, at: int) -> torch.Tensor:
        """Coefficients of one span's ``(layers, tokens, heads, channels)``, keys (0) or values (1): a row a token."""
        axes, means = self._on(layers.device, which, at)
        turned = (self.parts.of_span(layers) @ axes.transpose(-1, -2)).sub_(means)
        return turned.transpose(0, 1).reshape(layers.shape[1], -1)

    def back(self, matrix: torch.Tensor, which: int, at: int) -> torch.Tensor:
        """The rows again, of one of the matrices that `forward` gives: channels of a span's layers side by side."""
        tokens, groups = matrix.shape[0], self.parts.groups
        axes, means = self._on(matrix.device, which, at)
        rows = matrix.view(tokens, groups, -1).transpose(0, 1) + means
        return (rows @ axes).transpose(0, 1).reshape(tokens, -1)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes the file; one that is there stays unless ``force``."""
        texts = {_MARK: _VERSION, **self.about, _SHAPE: f"{self.shape.layers} x {self.shape.heads} x {self.shape.width}", _FRAME: self.shape.frame}
        tensors = {name: one.flatten(0, -2) for name, one in self._kept.items()}
        _coded.save(path, tensors, lossless=True, metadata=texts, all=True, force=force, progress=False)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Basis:
        """Reads a file; an `InputError` says what is wrong with it."""
        texts, tensors = _read(Path(path))
        try:
            layers, heads, width = (int(side) for side in texts[_SHAPE].split(" x "))
            shape = Shape(layers, heads, width, texts[_FRAME])
            if min(layers, heads, width) < 1:
                raise ValueError(f"it is of {shape}")
            parts = Parts.of(shape)
            sides = list(enumerate(parts.sides(shape)))
            axes = [[tensors[f"{kind} {at}"].float().reshape(parts.groups, side, side) for at, side in sides] for kind in _KINDS]
            means = [[tensors[f"means of {kind} {at}"].float().reshape(parts.groups, side) for at, side in sides] for kind in _KINDS]
            about = {name: texts[name] for name in (_NAME, _MODEL, _TOKENS)}
        except (KeyError, ValueError, RuntimeError, ZeroDivisionError) as error:
            raise refused(path, f"is no whole basis of a KV cache: {error}") from None
        if shape.frame not in FRAMES or not all(bool(one.isfinite().all()) for own in (*axes, *means) for one in own):
            raise refused(path, "is no whole basis of a KV cache: its numbers are not those of one")
        products = [one @ one.transpose(-1, -2) - torch.eye(one.shape[-1]) for own in axes for one in own]
        if max(float(one.abs().max()) for one in products) > _ROUNDING:
            raise refused(path, "is no basis of a KV cache: its axes do not stand at right angles")
        return cls(axes, means, shape, about)

    def held_against(self, path: str | os.PathLike[str], name: str, model: str) -> None:
        """Refuses to turn the cache of another model."""
        if self.about[_MODEL] != model:
            raise refused(path, f"is of the model {self.about[_NAME]}, and {name} is served, whose configuration or weights are others")

    def held_against_shape(self, path: str | os.PathLike[str], shape: Shape) -> None:
        """Refuses a cache of another shape, or whose keys are not as they were when it was learned."""
        if self.shape != shape:
            raise refused(path, f"is of {self.shape}, and this engine has {shape}")


def refused(path: str | os.PathLike[str], why: str) -> InputError:
    """What is wrong with a file, and how to come by one that is right."""
    said, way = f"basis {os.fspath(path)} {why}", "python -m trinity.vllm basis MODEL TEXT -o FILE makes one of the model that is served"
    return InputError.advised(said, way)


def _read(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    if not path.is_file():
        raise refused(path, "is not there")
    try:
        coded, texts = _core.load(str(path), None)
        tensors = {one[1]: _coded.decode(_coded.Encoded._of(one, "torch")) for one in coded}
    except (InputError, RunError) as error:
        raise refused(path, f"cannot be read: {str(error).splitlines()[0]}") from None
    if texts.get(_MARK) != _VERSION:
        raise refused(path, f"is of version {texts[_MARK]}, and this Trinity reads {_VERSION}" if _MARK in texts else "is a container of something else")
    return texts, tensors


class Sums:
    """What a basis is learned from: sums over tokens of keys and values, each layer's over its own root mean square."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self.tokens = shape, 0
        self._parts = Parts.of(shape)
        self._sums: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}

    def add(self, block: torch.Tensor) -> None:
        """Tokens in all layers: ``(layers, keys and values, tokens, heads, channels)`` in f32, over the scales of their block."""
        for which, at, layers in self._parts.split(block):
            rows = self._parts.of_span(layers)
            own = rows.sum(1, dtype=torch.float64), (rows.transpose(-1, -2) @ rows).double()
            before = self._sums.get((which, at))
            self._sums[which, at] = own if before is None else (before[0] + own[0], before[1].add_(own[1]))
        self.tokens += int(block.shape[2])

    def basis(self, name: str, model: str) -> Basis:
        """The principal axes, the largest first, and what the means are along them."""
        most = max((one.shape[-1] for _, one in self._sums.values()), default=1)
        if self.tokens < 2 * most:
            raise InputError(f"a basis of {most} channels needs {2 * most} tokens of text at least, and {self.tokens} were read: a longer text")
        axes: list[list[torch.Tensor]] = [[], []]
        means: list[list[torch.Tensor]] = [[], []]
        for (which, _), (total, products) in sorted(self._sums.items()):
            mean = total / self.tokens
            _, vectors = torch.linalg.eigh(products / self.tokens - mean[..., :, None] * mean[..., None, :])
            own = vectors.flip(-1).transpose(-1, -2).contiguous()
            axes[which].append(own)
            means[which].append((own @ mean[..., None])[..., 0])
        return Basis(axes, means, self.shape, {_NAME: name, _MODEL: model, _TOKENS: str(self.tokens)})

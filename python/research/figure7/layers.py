"""Which weights of a PyTorch model are coded, what their inputs are worth, and how decoded ones get back in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

#: Smaller weights are left exact, as norms, biases and vectors are.
LEAST = 4096
#: Positions of an input that moments are taken from, at most, in one call.
POSITIONS = 4096
_KINDS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d, nn.Embedding)


def coded(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Layers whose weights are coded; of layers that share one, the first. Tables that follow from a formula, which
    nobody trains, are none."""
    seen = set()
    for name, layer in model.named_modules():
        if isinstance(layer, _KINDS) and layer.weight.requires_grad and layer.weight.numel() >= LEAST:
            if id(layer.weight) not in seen:
                seen.add(id(layer.weight))
                yield name, layer


def matrices(model: nn.Module) -> dict[str, np.ndarray]:
    """The weights of coded layers: one row an output (an entry of a table), all that goes into it in columns."""
    return {name: layer.weight.detach().flatten(1).numpy().copy() for name, layer in coded(model)}


def put(model: nn.Module, decoded: dict[str, np.ndarray]) -> None:
    with torch.no_grad():
        for name, layer in coded(model):
            layer.weight.copy_(torch.from_numpy(decoded[name]).view_as(layer.weight))


def _columns(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """What a layer multiplies its matrix with, a row for each position."""
    if isinstance(layer, nn.Linear):
        return x.flatten(0, -2)
    if isinstance(layer, nn.Conv1d):
        pad, kernel, stride = layer.padding[0], layer.kernel_size[0], layer.stride[0]
        windows = nn.functional.pad(x, (pad, pad)).unfold(2, kernel, stride)
        return windows.permute(0, 2, 1, 3).flatten(2).flatten(0, 1)
    patches = nn.functional.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    return patches.transpose(1, 2).flatten(0, 1)


def moments(model: nn.Module, run: Callable[[], Any]) -> dict[str, np.ndarray]:
    """Second moments of the inputs of coded layers while `run` runs the model. Tables, transposed and depthwise
    convolutions have none: their columns are not inputs."""
    sums: dict[str, torch.Tensor] = {}
    counts: dict[str, int] = {}

    def hook(name: str) -> Callable[..., None]:
        def take(layer: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
            x = _columns(layer, args[0].detach())
            x = x[:: -(-len(x) // POSITIONS)].float()
            sums[name] = sums.get(name, 0) + x.T @ x
            counts[name] = counts.get(name, 0) + len(x)

        return take

    plain = [
        (name, layer)
        for name, layer in coded(model)
        if isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d)) and getattr(layer, "groups", 1) == 1
    ]
    hooks = [layer.register_forward_pre_hook(hook(name)) for name, layer in plain]
    with torch.no_grad():
        run()
    for one in hooks:
        one.remove()
    return {name: (total / counts[name]).numpy() for name, total in sums.items()}


def exact_bytes(model: nn.Module, width: int) -> int:
    """Bytes of the parameters that are left as they are, at so many bytes a value."""
    ours = {id(layer.weight) for _, layer in coded(model)}
    return width * sum(p.numel() for p in model.parameters() if p.requires_grad and id(p) not in ours)

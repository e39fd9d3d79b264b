"""Weights, coded: in a model as it runs, and in a file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
from torch import nn

from .. import _coded
from .._coded import Encoded, Progress, StrPath
from .._errors import InputError

_CODED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def _coded_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, module in model.named_modules():
        if isinstance(module, _CODED):
            yield name, module


class _OnUse:
    """Decodes a module's weight for the length of its forward pass."""

    def __init__(self, encoded: Encoded, weight: torch.Tensor) -> None:
        self.encoded = encoded
        self.device, self.dtype = weight.device, weight.dtype

    def weight(self) -> torch.Tensor:
        decoded: torch.Tensor = self.encoded.decode(into="torch")
        return decoded.to(device=self.device, dtype=self.dtype)

    def before(self, module: nn.Module, args: Any) -> None:
        module.weight = self.weight()

    def after(self, module: nn.Module, args: Any, output: Any) -> None:
        del module.weight

    def into_state(self, module: nn.Module, state: dict[str, Any], prefix: str, local: Any) -> None:
        # A state dictionary is as it was: whoever loads it need not know of codecs.
        state[prefix + "weight"] = self.weight()


def compress_(
    model: nn.Module,
    bits: float = 3.0,
    *,
    codec: str | None = None,
    allocate: Literal["equal", "linear", "equal-slope"] = "equal-slope",
    decode: Literal["load", "use"] = "load",
    progress: Progress = False,
) -> dict[str, Any]:
    """Replaces the weights of linear and convolution layers by coded ones, in place.

    ``bits`` is the mean over all of them, shared out for the least total
    relative error (``allocate="equal-slope"``) or alike. With ``decode="load"``
    every weight is decoded once, and the model runs as fast as before; with
    ``decode="use"`` it stays coded in memory and is decoded for each forward
    pass (no gradients then). Tied weights stay tied. Returns the summary of
    `trinity.save`.
    """
    owners: dict[int, list[nn.Module]] = {}
    named: dict[str, torch.Tensor] = {}
    for name, module in _coded_modules(model):
        weight: Any = module.weight
        shared = owners.setdefault(id(weight), [])
        if not shared:
            named[f"{name}.weight" if name else "weight"] = weight.detach()
        shared.append(module)
    if not named:
        raise InputError("the model has no linear and no convolution layers")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "weights.tri")
        keywords: dict[str, Any] = {"bits": bits, "codec": codec, "allocate": allocate, "class_": "weight"}
        summary = _coded.save(path, named, progress=progress, **keywords)
        coded = _coded.load(path, into="torch")
    assert summary is not None
    del summary["output"]
    for (name, weight), modules in zip(named.items(), list(owners.values())):
        if decode == "load":
            with torch.no_grad():
                decoded = coded[name].decode().to(device=weight.device)
                modules[0].weight.copy_(decoded)  # type: ignore[operator, union-attr]
            continue
        use = _OnUse(coded[name], weight)
        for module in modules:
            del module.weight
            module.register_forward_pre_hook(use.before)
            # Also where the forward pass raises.
            module.register_forward_hook(use.after, always_call=True)
            module._register_state_dict_hook(use.into_state)
    return summary


def save_state_dict(
    path: StrPath, state: Mapping[str, Any] | nn.Module, *, bits: float | None = None, **keywords: Any
) -> dict[str, Any]:
    """A state dictionary, or a model's, to a ``.tri`` file; keywords are those of `trinity.save`.

    Norms, biases and integers stay exact. Without a target every bit does.
    """
    tensors = dict(state.state_dict() if isinstance(state, nn.Module) else state)
    if bits is None and not keywords.keys() & {"nmse", "qp", "lossless"}:
        keywords["lossless"] = True
    summary = _coded.save(path, tensors, bits=bits, **keywords)
    assert summary is not None
    return summary


def load_state_dict(path: StrPath, *, progress: Progress = False) -> dict[str, torch.Tensor]:
    """The state dictionary of a ``.tri`` file (or of any tensor file), for ``model.load_state_dict``."""
    return _coded.read(path, into="torch", progress=progress)

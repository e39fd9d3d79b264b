"""Weights, coded: in a model as it runs, and in a file."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import nn

from .. import _coded, _core
from .._arrays import torch_dtype
from .._coded import Encoded, Progress, StrPath
from .._errors import InputError
from .._progress import Bar
from ._resident import OnUse, resident
from ._rooms import device_of

#: Where a module keeps its coded parameters, and the buffer that follows `.half()` and `.to()`.
_CODED = "_trinity_coded"
_LIKE = "_trinity_like"


class _OnDevice:
    """A coded tensor in the memory of a GPU, decoded there on the current stream to the bits of a CPU."""

    def __init__(self, slabs: list[tuple[int, bytes]], like: Encoded, device: torch.device) -> None:
        self.shape, self.dtype, self.device = like.shape, torch_dtype(like.dtype), device
        gpu = device_of(device)
        self._slabs: list[tuple[int, Any, torch.Tensor | None]] = []
        for values, stream in slabs:
            decoder = gpu.decoder(stream, like.dtype) if stream else None
            data = torch.frombuffer(bytearray(stream), dtype=torch.uint8).to(device) if stream else None
            self._slabs.append((values, decoder, data))

    def decode(self) -> torch.Tensor:
        out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        stream = torch.cuda.current_stream(self.device).cuda_stream
        parts = out.view(-1).split([values for values, _, _ in self._slabs])
        for part, (_, decoder, data) in zip(parts, self._slabs):
            if data is None:
                part.zero_()
                continue
            workspace = torch.empty(decoder.sizes()[1], dtype=torch.uint8, device=self.device)
            decoder.decode(data.data_ptr(), data.numel(), part.data_ptr(), workspace.data_ptr(), stream)
        return out


class _Contained(OnUse):
    """A parameter in a container."""

    def __init__(self, encoded: Encoded) -> None:
        self.encoded = encoded
        self._on_device: _OnDevice | None = None

    @functools.cached_property
    def _slabs(self) -> list[tuple[int, bytes]] | None:
        """For a GPU's decoders; none where it has no kernels for them."""
        return _core.line_slabs(self.encoded.bytes)

    def decode(self) -> torch.Tensor:
        decoded: torch.Tensor = self.encoded.decode(into="torch")
        return decoded

    def _decoded(self, like: torch.Tensor) -> torch.Tensor:
        if not like.is_cuda or self._slabs is None:
            return self.decode()
        if self._on_device is None or self._on_device.device != like.device:
            self._on_device = _OnDevice(self._slabs, self.encoded, like.device)
        return self._on_device.decode()


def _property(name: str) -> property:
    def get(module: Any) -> torch.Tensor:
        own: torch.Tensor = module.__dict__[_CODED][name].tensor(getattr(module, _LIKE))
        return own

    def put(module: Any, value: Any) -> None:
        _uncode(module, name, value)

    return property(get, put)


@functools.cache
def _coded_class(kind: type, names: tuple[str, ...]) -> type:
    """The class of a module, with some of its parameters decoded as they are read."""
    made = type(kind.__name__, (kind,), {name: _property(name) for name in names})
    made.__module__, made.__qualname__ = kind.__module__, kind.__qualname__
    return made


def _into_state(module: nn.Module, state: dict[str, Any], prefix: str, local: Any) -> None:
    # A state dictionary is as it was: whoever loads it need not know of codecs.
    for name in module.__dict__.get(_CODED, {}):
        state[prefix + name] = getattr(module, name)


def _code(module: nn.Module, name: str, use: OnUse) -> None:
    """Puts a coded parameter in the place of a plain one."""
    plain: Any = module._parameters.pop(name)
    if _CODED not in module.__dict__:
        module.__dict__[_CODED] = {}
        module.register_buffer(_LIKE, torch.empty(0, dtype=plain.dtype, device=plain.device), persistent=False)
        module.__dict__["_trinity_class"] = type(module)
        module.__dict__["_trinity_hook"] = module._register_state_dict_hook(_into_state)
    module.__dict__[_CODED][name] = use
    module.__class__ = _coded_class(module.__dict__["_trinity_class"], tuple(module.__dict__[_CODED]))


def _replace(holders: list[tuple[nn.Module, str]], use: OnUse, decode: str = "use") -> None:
    """Puts a coded parameter, or what it is decoded to, in the place of a plain one."""
    if decode == "load":
        module, attribute = holders[0]
        parameter: Any = module._parameters[attribute]
        with torch.no_grad():
            parameter.copy_(use.decode())
        return
    for module, attribute in holders:
        if attribute in module._parameters:
            _code(module, attribute, use)


def _uncode(module: nn.Module, name: str, value: Any) -> None:
    """Puts a plain parameter in the place of a coded one."""
    coded: dict[str, OnUse] = module.__dict__[_CODED]
    del coded[name]
    kind: type = module.__dict__["_trinity_class"]
    module.__class__ = _coded_class(kind, tuple(coded)) if coded else kind
    if not coded:
        module.__dict__.pop("_trinity_hook").remove()
        del module.__dict__[_CODED], module.__dict__["_trinity_class"], module._buffers[_LIKE]
        module._non_persistent_buffers_set.discard(_LIKE)
    setattr(module, name, value)


def _restored(model: nn.Module) -> None:
    """Makes plain parameters of coded ones, so that they can be coded anew; tied ones stay tied."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, use in list(module.__dict__.get(_CODED, {}).items()):
            if id(use) not in made:
                made[id(use)] = nn.Parameter(getattr(module, name).clone(), requires_grad=False)
            _uncode(module, name, made[id(use)])


def _owners(model: nn.Module) -> dict[str, list[tuple[nn.Module, str]]]:
    """Who holds the parameter of a name of the state dictionary: also those that are tied to it."""
    holders: dict[int, list[tuple[nn.Module, str]]] = {}
    named: dict[str, int] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, parameter in module._parameters.items():
            if parameter is not None:
                named[f"{prefix}.{name}" if prefix else name] = id(parameter)
                own = holders.setdefault(id(parameter), [])
                if all(module is not other or name != theirs for other, theirs in own):
                    own.append((module, name))
    return {name: holders[identity] for name, identity in named.items()}


def compress_(
    model: nn.Module,
    bits: float = 3.0,
    *,
    codec: str | None = None,
    allocate: Literal["equal", "linear", "equal-slope"] | None = None,
    exclude: Any = (),
    bits_for: Mapping[str, float] | None = None,
    codec_for: Mapping[str, str] | None = None,
    calibrate: StrPath | None = None,
    decode: Literal["load", "use"] = "load",
    where: Literal["host", "device"] = "host",
    progress: Progress = False,
) -> dict[str, Any]:
    """Replaces a model's weights by coded ones, in place: those that ``trinity encode`` codes.

    Linear and convolution layers, ``Conv1D`` of transformers, embeddings, output
    layers and experts that share one parameter are coded, to the bytes that the
    model's file would hold; norms, biases and vectors stay. ``bits`` holds for the
    whole state dictionary; ``exclude``, ``bits_for`` and ``codec_for`` are those
    of `trinity.plan`, ``calibrate`` the file of a `trinity.calibrate`. Tied weights
    stay tied.

    With ``decode="load"`` every weight is decoded once, and the model runs as fast
    as before; with ``decode="use"`` it stays coded in memory and is decoded when it
    is read (no gradients then); on a GPU those of ``line-fast``, ``line-uniform`` and
    ``trinity-lite`` lie coded in its memory and are decoded by its kernels, to the
    same bits. ``.half()`` and ``.to()`` work as before, and so does another call. Returns the summary of `trinity.save`; its ``skipped`` has
    what was not coded, and why.

    With ``where="device"`` weights on a GPU are coded there, by ``line-fast`` or
    ``trinity-lite``: no weight is copied to the host. Plans then see bands of rows
    and not all values, so that the bytes are not those of a file; a calibration and
    shared rates, which need the values, are for the host. The summary then has rates
    and errors of what was coded, and no table of kinds.
    """
    if where not in ("host", "device"):
        raise InputError(f"where={where!r}: expected 'host' or 'device'")
    if where == "device" and (calibrate is not None or allocate not in (None, "equal")):
        raise InputError("a calibration and shared rates are of weights on the host: leave out where=, or calibrate= and allocate=")
    _restored(model)
    owners = _owners(model)
    if where == "device":
        return _compress_resident(owners, bits, codec, (exclude, bits_for, codec_for), decode, progress)
    state = {name: one for name, one in model.state_dict().items() if torch.is_tensor(one)}
    if not owners:
        raise InputError("the model has no parameters")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "weights.tri")
        summary = _coded.save(
            path, state, bits=bits, codec=codec, allocate=allocate, exclude=exclude, bits_for=bits_for,
            codec_for=codec_for, calibrate=calibrate, class_=None, progress=progress,
        )
        coded = _coded.load(path, into="torch")
    assert summary is not None
    del summary["output"]
    summary["skipped"] = {}
    uses: dict[bytes, _Contained] = {}
    done: set[int] = set()
    for tensor in summary["tensors"]:
        name, why = tensor["tensor"], tensor["exact"]
        is_tied = why is not None and why.startswith("tied to ")
        if why is not None and not is_tied:
            summary["skipped"][name] = why
            continue
        if name not in owners:
            summary["skipped"][name] = "a buffer, and no parameter"
            continue
        holders = owners[name]
        if id(holders[0]) in done:
            continue
        done.add(id(holders[0]))
        _replace(holders, uses.setdefault(coded[name].bytes, _Contained(coded[name])), decode)
    return summary


def _compress_resident(
    owners: dict[str, list[tuple[nn.Module, str]]],
    bits: float,
    codec: str | None,
    rules: Any,
    decode: str,
    progress: Progress,
) -> dict[str, Any]:
    """`compress_` on the weights' own device."""
    asked = _coded._asked(codec or "line-fast", ("bits", float(bits)), all=False, rules=rules)
    with Bar(progress) as bar:
        made, summary = resident(owners, asked, bar.report)
    for name, use in made.items():
        _replace(owners[name], use, decode)
    return summary


def keep_coded(model: nn.Module, coded: Mapping[str, Encoded]) -> None:
    """Puts what was coded lossily in the place of a model's parameters; they are decoded when they are read."""
    uses: dict[bytes, _Contained] = {}
    for name, holders in _owners(model).items():
        one = coded.get(name)
        if one is None or one.codec == "zstd" or (one.exact is not None and not one.exact.startswith("tied to ")):
            continue
        _replace(holders, uses.setdefault(one.bytes, _Contained(one)))


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


def load_state_dict(
    path: StrPath, model: nn.Module | None = None, *, progress: Progress = False
) -> dict[str, torch.Tensor]:
    """The state dictionary of a ``.tri`` file (or of any tensor file), for ``model.load_state_dict``.

    With a ``model``, names that the file lacks are filled in where the model ties
    them to one that the file has (a checkpoint often leaves out an output layer
    that is the embedding); one that is tied to nothing in the file is an error.
    """
    state: dict[str, torch.Tensor] = _coded.read(path, into="torch", progress=progress)
    if model is None:
        return state
    own = {name: one for name, one in model.state_dict(keep_vars=True).items() if torch.is_tensor(one)}
    for name, tensor in own.items():
        if name in state:
            continue
        tied = [other for other, one in own.items() if one is tensor and other in state]
        if not tied:
            raise InputError(f"{os.fspath(path)} has no `{name}`, and the model ties it to nothing that the file has")
        state[name] = state[tied[0]]
    return state

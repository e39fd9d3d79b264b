"""Coded models for ``from_pretrained`` of transformers: a ``.tri`` file beside its ``config.json``.

`register` (or the first use of `save_pretrained` or ``TrinityConfig``) makes the quantization method ``trinity`` known. A
folder that `save_pretrained` wrote has

- ``config.json`` with ``quantization_config.quant_method = "trinity"``,
- ``model.tri``, the weights, as ``trinity encode`` would write them,
- ``model.safetensors``, every name of the model and not one value: transformers that does not know the method
  refuses the folder instead of running a model of random weights. It says which ``model.tri`` the folder was saved with.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from .. import _coded
from .._coded import Progress, StrPath
from .._errors import InputError, RunError
from . import _weights

#: The file that holds a folder's weights.
WEIGHTS = "model.tri"
METHOD = "trinity"
#: What `model.safetensors` calls the `model.tri` that lies beside it.
_DIGEST = "trinity.digest"
#: A `.tri` file begins with these, where its index begins, and how long that is; the index has a checksum of all there is.
_HEAD = struct.Struct("<8sQQ8x")
#: What a folder's description may say, besides the method.
_KNOWN = {"quant_method", "file", "decode", "bits_per_value", "nmse", "bytes", "version"}
#: The version of a folder; what a later one says is not guessed at.
VERSION = 1


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """What the system says of a full disk, as a sentence."""
    try:
        yield
    except OSError as error:
        raise RunError.advised(f"{folder} cannot be written: {error.strerror or error}", "the folder is not whole: make room, and save it again") from None


def _digest(weights: Path) -> str:
    """A hash of a `.tri` file's header and index, and with them of all of it."""
    with open(weights, "rb") as file:
        head = file.read(_HEAD.size)
        _, at, length = _HEAD.unpack(head.ljust(_HEAD.size, b"\0"))
        file.seek(min(at, weights.stat().st_size))
        return hashlib.blake2b(head + file.read(min(length, weights.stat().st_size)), digest_size=16).hexdigest()


def _write_names(path: Path, names: list[str], digest: str) -> None:
    """A safetensors file of these names, none of which holds a value, beside the weights of that digest."""
    header: dict[str, Any] = {name: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for name in names}
    header["__metadata__"] = {"format": "pt", METHOD: WEIGHTS, _DIGEST: digest}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text)


def _saved_with(names: Path) -> str | None:
    """The digest of the weights that a folder was saved with, where it says so."""
    from safetensors import safe_open

    with safe_open(names, framework="pt") as file:
        return (file.metadata() or {}).get(_DIGEST)


def _fitted(weights: Path, state: dict[str, torch.Tensor], model: Any) -> dict[str, str]:
    """The model's names of a file's tensors; an `InputError` where they are not those of this model.

    Transformers compares no shapes of models that are quantized already. As it does, this takes a base model's weights
    out of those of a model with a head.
    """
    own = model.state_dict()
    base = f"{getattr(model, 'base_model_prefix', '') or ''}."
    with_head = base != "." and not any(name.startswith(base) for name in own) and any(name.startswith(base) for name in state)
    names = {name: found for name in state for found in (name, base + name, name.removeprefix(base)) if found in own}
    missing = sorted(own.keys() - set(names.values()) - set(getattr(model, "all_tied_weights_keys", {}) or {}))
    if missing:
        raise InputError.advised(f"{weights} has no `{missing[0]}`", "it is of another model, or of another class of it")
    ignored = [re.compile(one) for one in getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()]
    for name in state.keys() - names.keys():
        if not (with_head and not name.startswith(base)) and not any(one.search(name) for one in ignored):
            raise InputError.advised(f"{weights} has `{name}`, which {type(model).__name__} has not", "it is of another model, or of another class of it")
    kind = type(model).__name__
    for name, wanted in names.items():
        one, its = state[name], own[wanted]
        if one.shape != its.shape:
            raise InputError.advised(f"{weights}: `{name}` is {tuple(one.shape)}, and that of {kind} is {tuple(its.shape)}", "it is of another model")
        if one.is_floating_point() != its.is_floating_point():
            raise InputError.advised(f"{weights}: `{name}` is {one.dtype}, and that of {kind} is {its.dtype}", "its values are of another kind")
        if its.is_floating_point() and torch.finfo(its.dtype).max < torch.finfo(one.dtype).max and bool((one.abs() > torch.finfo(its.dtype).max).any()):
            raise InputError.advised(f"{weights}: `{name}` has values that {its.dtype} does not hold", "ask for another dtype")
    return names


def save_pretrained(
    model: nn.Module,
    folder: StrPath,
    bits: float = 3.0,
    *,
    decode: Literal["load", "use"] = "load",
    progress: Progress = False,
    **keywords: Any,
) -> dict[str, Any]:
    """A model of transformers to a folder that ``from_pretrained`` reads, its weights coded at ``bits`` per value.

    Keywords are those of `trinity.save` (``exclude``, ``bits_for``, ``calibrate`` and the rest). ``decode`` is what
    becomes of the weights when the folder is loaded: decoded once (``"load"``: a plain model), or kept coded in memory
    and decoded when they are read (``"use"``); ``from_pretrained(folder, quantization_config=TrinityConfig(decode=...))``
    chooses anew. Whoever loads it calls `trinity.torch.register` first. A tokenizer is saved as ever, by itself.
    Returns the summary of `trinity.save`.
    """
    if not hasattr(model, "config") or not hasattr(model.config, "save_pretrained"):
        raise InputError.advised(
            f"{type(model).__name__} is no model of transformers: it has no config", "trinity.torch.save_state_dict saves any module"
        )
    target = Path(os.fspath(folder))
    with _writing(target):
        target.mkdir(parents=True, exist_ok=True)
    exact = {"nmse", "qp", "lossless"} & keywords.keys()
    summary = _weights.save_state_dict(target / WEIGHTS, model, bits=None if exact else bits, progress=progress, **keywords)
    state = [name for name, one in model.state_dict().items() if torch.is_tensor(one)]
    own = model.config.to_dict()  # type: ignore[union-attr,operator]
    coded = {key: summary[key] for key in ("bits_per_value", "nmse", "bytes")}
    own["quantization_config"] = {"quant_method": METHOD, "version": VERSION, "file": WEIGHTS, "decode": decode, **coded}
    own["architectures"] = [getattr(model, "_trinity_architecture", type(model).__name__)]
    if own.get("dtype") is None:
        own["dtype"] = str(next(iter(model.parameters())).dtype).removeprefix("torch.")
    with _writing(target):
        _write_names(target / "model.safetensors", state, _digest(target / WEIGHTS))
        (target / "config.json").write_text(json.dumps(own, indent=2, sort_keys=True, default=str) + "\n")
        generation = getattr(model, "generation_config", None)
        if generation is not None:
            generation.save_pretrained(target)
    return summary


def _classes() -> tuple[type, type]:
    """The configuration and the quantizer, made when transformers is there."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file
    from transformers.quantizers.base import HfQuantizer
    from transformers.utils.quantization_config import QuantizationConfigMixin

    class TrinityConfig(QuantizationConfigMixin):  # type: ignore[misc, unused-ignore]
        """How a coded model is loaded: ``decode`` is ``"load"`` or ``"use"``."""

        quant_method = METHOD  # type: ignore[assignment]

        def __init__(self, decode: str = "load", file: str = WEIGHTS, version: int = VERSION, **stated: Any) -> None:
            unknown = sorted(stated.keys() - _KNOWN)
            if unknown:
                raise InputError.advised(f"quantization_config has the key `{unknown[0]}`, which this version does not know", "load it with the trinity that wrote it")
            if version != VERSION:
                raise InputError.advised(f"the folder is of version {version!r} and this trinity reads {VERSION}", "load it with the trinity that wrote it")
            if decode not in ("load", "use"):
                raise InputError.advised(f"decode is `{decode}`", "it is load or use")
            if not isinstance(file, str) or not file or Path(file).name != file:
                raise InputError.advised(f"the file of the weights is {file!r}, and no name of one in the folder", "a folder holds its own weights")
            self.quant_method = METHOD
            self.decode, self.file, self.version = decode, file, version
            self.stated = {key: value for key, value in stated.items() if key != "quant_method"}

        @property
        def dequantize(self) -> bool:
            # A model that was decoded is a plain one, and saves as one.
            return self.decode == "load"

        def get_loading_attributes(self) -> dict[str, Any]:
            return {"decode": self.decode}

        def to_dict(self) -> dict[str, Any]:
            own = {"quant_method": METHOD, "version": self.version, "file": self.file, "decode": self.decode}
            return {**own, **self.stated}

    class TrinityQuantizer(HfQuantizer):  # type: ignore[misc, unused-ignore]
        """Reads a model's weights out of a ``.tri`` file."""

        requires_calibration = False

        def __init__(self, quantization_config: Any, **keywords: Any) -> None:
            super().__init__(quantization_config, **keywords)
            self._decoded: tempfile.TemporaryDirectory[str] | None = None
            self._weights: Path | None = None
            #: The model's names of what is in the file.
            self._names: dict[str, str] = {}
            if not self.pre_quantized:
                raise InputError.advised(
                    "from_pretrained reads models that are coded already", "load the model and call trinity.torch.save_pretrained, or compress_"
                )

        def _process_model_before_weight_loading(self, model: Any, checkpoint_files: Any = None, **keywords: Any) -> Any:
            folder = Path(checkpoint_files[0]).parent
            self._weights = folder / self.quantization_config.file  # type: ignore[attr-defined]
            if not self._weights.is_file():
                raise InputError.advised(f"{folder} has no {self.quantization_config.file}", "copy the whole folder; transformers' cache has it beside config.json")  # type: ignore[attr-defined]
            state = _weights.load_state_dict(self._weights)
            self._names = _fitted(self._weights, state, model)
            saved_with = _saved_with(checkpoint_files[0])
            if saved_with not in (None, _digest(self._weights)):
                raise InputError.advised(f"{self._weights} is not the file that this folder was saved with", "copy the whole folder, or save it again")
            # The loader of transformers has the rest: number formats, devices, ties.
            self._decoded = tempfile.TemporaryDirectory(prefix="trinity-")
            plain = os.path.join(self._decoded.name, "model.safetensors")
            try:
                save_file({self._names[name]: one.clone() for name, one in state.items() if name in self._names}, plain, metadata={"format": "pt"})
            except (OSError, SafetensorError) as error:
                self._decoded.cleanup()
                where = os.path.dirname(self._decoded.name)
                raise RunError.advised(f"{where} has no room for the decoded weights: {error}", "make room there, or set TMPDIR to a folder that has it") from None
            checkpoint_files[:] = [plain]
            return model

        def _process_model_after_weight_loading(self, model: Any, **keywords: Any) -> Any:
            if self._decoded is not None:
                self._decoded.cleanup()
            if self.quantization_config.decode == "use":  # type: ignore[attr-defined]
                assert self._weights is not None
                coded = _coded.load(self._weights, into="torch")
                _weights.keep_coded(model, {self._names[name]: one for name, one in coded.items() if name in self._names})
            return model

        def is_serializable(self, *arguments: Any, **keywords: Any) -> bool:
            return False

        @property
        def is_trainable(self) -> bool:
            return False

    return TrinityConfig, TrinityQuantizer


def register() -> type:
    """Makes ``from_pretrained`` know the method ``trinity``; returns its configuration's class."""
    from transformers.quantizers import auto

    known = auto.AUTO_QUANTIZATION_CONFIG_MAPPING.get(METHOD)
    if known is not None:
        own: type = known
        return own
    config, quantizer = _classes()
    auto.AUTO_QUANTIZATION_CONFIG_MAPPING[METHOD] = config
    auto.AUTO_QUANTIZER_MAPPING[METHOD] = quantizer  # type: ignore[assignment]
    # Whose loading attributes may be given anew; without it the folder's own hold.
    changeable = getattr(auto, "LOADING_ATTRIBUTES_CONFIG_TYPES", None)
    if isinstance(changeable, tuple):
        auto.LOADING_ATTRIBUTES_CONFIG_TYPES = (*changeable, config)
    return config

"""Arrays of others as flat bytes, and flat bytes as arrays: no copy where the layout allows.

NumPy arrays, PyTorch tensors, and whatever speaks DLPack or the array
interface. The number formats that NumPy lacks come from ml_dtypes or torch.
"""

from __future__ import annotations

import sys
from typing import Any, Literal

import numpy as np

from ._errors import InputError

Kind = Literal["numpy", "torch"]

#: A tensor for the extension module: name, class, number format, shape, bytes.
Plain = tuple[str, "str | None", str, list[int], Any]

_NUMPY = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
}
_NAMES = {ours: theirs for theirs, ours in _NUMPY.items()}
#: Formats that NumPy itself has.
_OWN = {"f64", "f32", "f16", "i8", "u8", "i16", "i32", "i64"}
_DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(_NAMES[name]) for name in _OWN}
_BY_DTYPE: dict[Any, str] = {dtype: name for name, dtype in _DTYPES.items()}


def torch_module() -> Any:
    """PyTorch where it is imported already: a tensor of it can exist only then."""
    return sys.modules.get("torch")


def is_torch(x: object) -> bool:
    torch = torch_module()
    return torch is not None and isinstance(x, torch.Tensor)


def kind_of(x: object) -> Kind:
    """The library an array is of, to which it is decoded again."""
    return "torch" if is_torch(x) else "numpy"


def _unknown(what: object) -> InputError:
    known = ", ".join(_NUMPY)
    return InputError(f"number format {what} is none that a codec knows; expected one of {known}")


def _torch_bytes(x: Any) -> tuple[str, list[int], Any]:
    torch = torch_module()
    name = _NUMPY.get(str(x.dtype).removeprefix("torch."))
    if name is None:
        raise _unknown(x.dtype)
    flat = x.detach()
    if flat.device.type != "cpu":
        flat = flat.cpu()
    flat = flat.contiguous().reshape(-1)
    return name, list(x.shape), flat.view(torch.uint8).numpy()


def _numpy_bytes(x: np.ndarray[Any, Any]) -> tuple[str, list[int], Any]:
    name = _BY_DTYPE.get(x.dtype)
    if name is None:
        # Formats of ml_dtypes have names; big-endian ones are brought into order.
        name = _NUMPY.get(x.dtype.name)
        if name is None:
            raise _unknown(x.dtype)
        x = x.astype(x.dtype.newbyteorder("<")) if x.dtype.byteorder == ">" else x
    shape = list(x.shape)
    if not x.flags.c_contiguous:
        x = np.ascontiguousarray(x)
    return name, shape, x.reshape(-1).view(np.uint8)


def plain(x: Any, name: str, class_: str | None = None) -> Plain:
    """An array as the extension module takes it."""
    if isinstance(x, np.ndarray):
        dtype, shape, data = _numpy_bytes(x)
    elif is_torch(x):
        dtype, shape, data = _torch_bytes(x)
    elif hasattr(x, "__dlpack__"):
        dtype, shape, data = _numpy_bytes(np.from_dlpack(x))
    else:
        array = np.asarray(x)
        if array.dtype == object:
            raise InputError(f"`{name}` is a {type(x).__name__}, and no array of numbers")
        dtype, shape, data = _numpy_bytes(array)
    return (name, class_, dtype, shape, data)


#: Formats that no codec knows and a file carries as bytes, by the names of safetensors.
CARRIED = {"bool": "BOOL", "uint16": "U16", "uint32": "U32", "uint64": "U64", "complex64": "C64"}


def for_file(x: Any, name: str, class_: str | None, texts: dict[str, str]) -> Plain:
    """An array of a file: one in a format that no codec knows becomes bytes, with a text that says so."""
    dtype = str(getattr(x, "dtype", "")).removeprefix("torch.")
    if dtype not in CARRIED:
        return plain(x, name, class_)
    if is_torch(x):
        x = x.detach().cpu().numpy()
    shape = list(x.shape)
    texts[f"carried.{name}"] = f"{CARRIED[dtype]} {shape}"
    data = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    return (name, class_, "u8", [data.size], data)


def width(name: str) -> int:
    """Bytes of a value in a format of ours."""
    known = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i16": 2}
    return known.get(name, 1)


def numpy_dtype(name: str) -> np.dtype[Any]:
    own = _DTYPES.get(name)
    if own is not None:
        return own
    try:
        import ml_dtypes
    except ImportError:
        raise InputError.advised(f"NumPy has no {_NAMES[name]}", "install ml_dtypes, or decode into torch") from None
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _NAMES[name]))
    return dtype


def torch_dtype(name: str) -> Any:
    import torch

    return getattr(torch, _NAMES[name])


def array(memory: Any, dtype: str, shape: list[int], kind: Kind) -> Any:
    """Bytes that Rust made, as an array of them: nothing is copied."""
    if kind == "torch":
        import torch

        if len(memory) == 0:
            return torch.empty(shape, dtype=torch_dtype(dtype))
        return torch.frombuffer(memory, dtype=torch.uint8).view(torch_dtype(dtype)).reshape(shape)
    return np.frombuffer(memory, dtype=numpy_dtype(dtype)).reshape(shape)

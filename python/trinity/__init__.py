"""Trinity: tensor codecs, and what they buy a cluster.

>>> import numpy as np, trinity
>>> x = np.sin(np.arange(256 * 256, dtype=np.float32)).reshape(256, 256)
>>> e = trinity.encode(x, bits=3)
>>> e.bits_per_value <= 3, trinity.decode(e).dtype
(True, dtype('float32'))
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ._calibrate import calibrate
from ._coded import Encoded, decode, encode, encode_file, load, plan, read, save
from ._core import __build__, __version__
from ._errors import Error, InputError, RunError
from ._studies import (
    Rows,
    codecs,
    compare,
    config,
    configs,
    estimate,
    evaluate,
    explain,
    explore,
    sweep,
    tensors_info,
    validate,
)

__all__ = [
    "Encoded",
    "Error",
    "InputError",
    "Rows",
    "RunError",
    "__build__",
    "__version__",
    "calibrate",
    "codecs",
    "compare",
    "config",
    "configs",
    "decode",
    "encode",
    "encode_file",
    "estimate",
    "evaluate",
    "explain",
    "explore",
    "load",
    "plan",
    "read",
    "save",
    "sweep",
    "tensors_info",
    "validate",
]

#: Modules that are imported when they are asked for: PyTorch is heavy, and clusters are few people's.
_LATER = ("executors", "lmcache", "torch", "vllm")


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER])


if "torch" in sys.modules:
    from ._coded import allow_loading

    allow_loading()

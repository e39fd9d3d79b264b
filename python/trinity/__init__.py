"""Trinity: tensor codecs, and what they buy a cluster.

>>> import numpy as np, trinity
>>> x = np.sin(np.arange(256 * 256, dtype=np.float32)).reshape(256, 256)
>>> e = trinity.encode(x, bits=3)
>>> e.bits_per_value <= 3, trinity.decode(e).dtype
(True, dtype('float32'))
"""

from __future__ import annotations

from ._coded import Encoded, decode, encode, encode_file, load, read, save
from ._core import __version__
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
    "__version__",
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
    "read",
    "save",
    "sweep",
    "tensors_info",
    "validate",
]

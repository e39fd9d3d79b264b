"""Matrices through a codec and back, as one file, with every bit counted.

Knows names, matrices and second moments of what they are multiplied with; knows nothing of models.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping

import numpy as np
import trinity

Matrix = np.ndarray

#: Values that share a scale in `rtn-128g` and AWQ.
GROUP = 128
#: Exponents that AWQ tries, from none to nearly all of the activations' size (Lin et al. 2024).
EXPONENTS = [step / 5 for step in range(5)]
#: Rows that the exponent of a matrix is judged by, at most.
JUDGED = 256
#: What columns are scaled by before `trinity`: errors of an entropy-coded uniform quantizer are alike in every column,
#: so a column is worth as much as the root of its input's second moment.
WORTH = 1.0

#: Each method with the codec of the wheel behind it; `scaled` ones know what inputs are worth.
METHODS = {
    "trinity": "trinity",
    "h265": "h265",
    "rtn-128g": "rtn-128g",
    "awq+rtn-128g": "rtn-128g",
    "awq+trinity": "trinity",
}


def through(codec: str, bits: float, tensors: Mapping[str, Matrix]) -> tuple[dict[str, Matrix], int]:
    """What a `.tri` file at so many bits per value gives back, and its bytes: index, checksums and scales included.

    Vectors among the tensors are kept exact and paid for by the rest.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "weights.tri")
        trinity.save(path, tensors, bits=bits, codec=codec, class_="weight", progress=False)
        return trinity.read(path, progress=False), os.path.getsize(path)


def rounded(matrix: Matrix, width: float) -> Matrix:
    """Rounded to nearest in groups of 128 of a row, symmetric, as `rtn-128g` with so many bits a value has it."""
    top = max(2.0 ** (width - 1) - 1, 0.5)
    rows, cols = matrix.shape
    padded = np.pad(matrix, ((0, 0), (0, -cols % GROUP))).reshape(rows, -1, GROUP)
    scale = np.abs(padded).max(axis=2, keepdims=True) / top
    scale[scale == 0] = 1
    return (np.clip(np.rint(padded / scale), -top, top) * scale).reshape(rows, -1)[:, :cols]


def scales(moments: Matrix, exponent: float) -> Matrix:
    """What columns are multiplied by, around one, as stored."""
    size = np.sqrt(np.maximum(np.diagonal(moments), 1e-12)) ** exponent
    size = np.maximum(size, size.max() * 1e-4)
    return (size / np.sqrt(size.max() * size.min())).astype(np.float16).astype(np.float32)


def output_error(error: Matrix, moments: Matrix) -> float:
    """The squared error of what comes out, for inputs with these moments."""
    return float(((error @ moments) * error).sum())


def awq_scales(matrix: Matrix, moments: Matrix, bits: float) -> Matrix:
    """The scales after which rounding costs least, by what comes out."""
    width = float(np.ceil(bits - 0.13))
    some = matrix[:: -(-len(matrix) // JUDGED)]

    def cost(exponent: float) -> float:
        by = scales(moments, exponent)
        return output_error(rounded(some * by, width) / by - some, moments)

    return scales(moments, min(EXPONENTS, key=cost))


def code(
    method: str, bits: float, matrices: Mapping[str, Matrix], moments: Mapping[str, Matrix]
) -> tuple[dict[str, Matrix], int]:
    """Matrices after a method at so many bits per value, and the bytes that takes.

    `moments` has the second moments of the inputs of those whose columns are inputs; others are not scaled.
    """
    codec = METHODS[method]
    if not method.startswith("awq+"):
        return through(codec, bits, matrices)
    by = {}
    for name, own in moments.items():
        weigh = awq_scales(matrices[name], own, bits) if codec == "rtn-128g" else scales(own, WORTH)
        by[name] = weigh
    tensors: dict[str, Matrix] = {name: m * by[name] if name in by else m for name, m in matrices.items()}
    # One f16 a column, in the file like everything else; what it takes, the matrices do without.
    tensors |= {f"{name}.scale": own.astype(np.float16) for name, own in by.items()}
    values, every = (sum(one.size for one in some.values()) for some in (matrices, tensors))
    decoded, size = through(codec, bits * values / every, tensors)
    return {name: decoded[name] / by[name] if name in by else decoded[name] for name in matrices}, size

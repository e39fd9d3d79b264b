"""MPEG's neural-network coder (ISO/IEC 15938-17) on one matrix of raw float32.

python nncodec.py FILE ROWS COLS QP[,QP...] REPEATS

Prints for each QP: QP, bits per value, NMSE, CPU seconds of encoding and of
decoding (least of the repeats). The coding core of the package is called as its
own `compress` calls it (dependent quantization, optimized context parameters,
unary part of 11, profile 1), so that its frameworks need not be installed; the
headers it would write around the core are not counted.
"""

import sys
import time

import numpy as np
from nncodec.extensions import deepCABAC

DENSITY, UNARY, PROFILE, DEPENDENT = 2, 10, 1, 1
HDSP_OFF = (deepCABAC.HdspMode.AlwaysOff, np.array((0, 0), dtype=np.int8))


def encode(values, qp):
    levels = np.zeros(values.shape, dtype=np.int32)
    quantizer = deepCABAC.Encoder()
    quantizer.initCtxModels(UNARY, 0)
    used = quantizer.quantLayer(values, levels, DEPENDENT, DENSITY, qp, 0.0, UNARY, 0, PROFILE)
    coder = deepCABAC.Encoder()
    coder.iae_v(6 + DENSITY, used)
    coder.initCtxModels(UNARY + 1, 1)
    empty = (~levels.any(axis=1)).astype(np.int32)
    coder.encodeLayer(levels, DEPENDENT, 0, PROFILE, 0, int(empty.any()), empty, *HDSP_OFF, 0, 0)
    return coder.finish()


def decode(stream, shape):
    decoder = deepCABAC.Decoder()
    decoder.setStream(stream)
    qp = decoder.iae_v(6 + DENSITY)
    decoder.initCtxModels(UNARY + 1)
    levels = np.zeros(shape, dtype=np.int32)
    decoder.decodeLayer(levels, DEPENDENT, 0, PROFILE, 0, *HDSP_OFF, 0, 0)
    values = np.zeros(shape, dtype=np.float32)
    decoder.dequantLayer(values, levels, DENSITY, qp, 0)
    return values


def timed(repeats, work, *arguments):
    least = float("inf")
    for _ in range(repeats):
        before = time.process_time()
        result = work(*arguments)
        least = min(least, time.process_time() - before)
    return result, least


def main():
    path, rows, cols, qps, repeats = sys.argv[1:]
    values = np.fromfile(path, dtype="<f4").reshape(int(rows), int(cols))
    energy = float(np.sum(values.astype(np.float64) ** 2))
    for qp in map(int, qps.split(",")):
        stream, encode_s = timed(int(repeats), encode, values, qp)
        decoded, decode_s = timed(int(repeats), decode, stream, values.shape)
        error = float(np.sum((values.astype(np.float64) - decoded) ** 2))
        print(qp, 8 * len(stream) / values.size, error / energy, encode_s, decode_s, flush=True)


main()

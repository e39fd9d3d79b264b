"""The line-rate codec's kernels as a CPU does what they do, for tests of what calls them."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
from trinity import _core
from trinity.vllm._device import step_at


def _read(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size)


def _with_step(plan: bytes, step: float) -> bytes:
    at = step_at(plan)
    return plan[:at] + struct.pack(">f", step) + plan[at + 4 :]


class _Encoder:
    def __init__(self, plan: bytes, relative: float) -> None:
        self.plan, self.relative = plan, relative
        self.values = 4 * np.prod(_core.line_plan_info(plan)[:2])

    def sizes(self, count: int = 1) -> tuple[int, int, int]:
        return int(self.values), 0, 1

    def encode_within(self, values, out, room, workspace, stream) -> None:
        gains = np.frombuffer(_read(room[1], 4 * len(values)), np.float32)
        for source, target, gain in zip(values, out, gains):
            own = np.frombuffer(_read(source, int(self.values)), np.float32)
            ctypes.memmove(target, struct.pack("<q", -1), 8)
            if not np.isfinite(own).all():
                continue
            step = self.relative * float(np.sqrt(np.mean(np.square(own, dtype=np.float64)))) * float(gain)
            for coarser in (*[1.05] * 20, 16.0, 16.0):
                coded = _core.line_encode(_with_step(self.plan, step), own)
                if len(coded) <= room[0] - _core.ROOM_HEAD_BYTES:
                    whole = struct.pack("<qq", len(coded), 0) + coded
                    ctypes.memmove(target, whole, len(whole))
                    break
                step *= coarser


class _Decoder:
    def __init__(self, device: Device, plan: bytes) -> None:
        self.device, self.plan = device, plan
        self.values = int(4 * np.prod(_core.line_plan_info(plan)[:2]))

    def sizes(self, count: int = 1) -> tuple[int, int]:
        return self.values, 1

    def decode_within(self, packed, room, out, workspace, stream) -> None:
        for source, target in zip(packed, out):
            length, _ = struct.unpack("<qq", _read(source, 16))
            whole = bytes(_core.line_decode(_read(source + 16, length))[2]) if length >= 0 else b"\xff" * self.values
            ctypes.memmove(target, whole, len(whole))

    def decode_many(self, sources, lengths, out, workspace, stream) -> None:
        self.device.launches.append(len(sources))
        for source, length, target in zip(sources, lengths, out):
            _, _, memory = _core.line_decode(_read(source, length))
            whole = bytes(memory)
            ctypes.memmove(target, whole, len(whole))


class Device:
    """What `trinity._core.CudaDevice` is, as far as rooms and streams of many matrices go."""

    def __init__(self) -> None:
        #: Matrices of each launch that decoded.
        self.launches: list[int] = []

    def encoder(self, plan, dtype, most_bits, relative, multiprocessors=None) -> _Encoder:
        assert dtype == "f32"
        return _Encoder(plan, relative)

    def decoder(self, plan, dtype, multiprocessors=None) -> _Decoder:
        assert dtype == "f32"
        return _Decoder(self, plan)

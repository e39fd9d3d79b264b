"""Matrices of gradients or activations as bytes, and back: what a rank puts on the wire.

A coder keeps what it needs from step to step (a plan, a gain) and can give it
away for a checkpoint. Every payload is what would be sent, to the last byte, so
that bits are counted by looking at its length. Knows nothing of ranks.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Protocol

import torch

from .. import _coded, _core
from .._errors import RunError
from ..torch import DeviceCodec

#: Values that share a scale in rounding to nearest.
GROUP = 128


class Coder(Protocol):
    """What the loop asks of a coder."""

    def encode(self, x: torch.Tensor) -> torch.Tensor: ...
    def decode(self, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor: ...
    def state(self) -> dict[str, Any]: ...
    def load(self, state: dict[str, Any]) -> None: ...


class _Stateless:
    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: dict[str, Any]) -> None:
        assert not state


def _bytes(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().reshape(-1).view(torch.uint8)


class Cast(_Stateless):
    """Values in another number format: f32, bf16."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return _bytes(x.to(self.dtype))

    def decode(self, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        return payload.view(self.dtype).view(shape).float()


class Fp8(_Stateless):
    """E4M3 with a scale for every row, in single precision."""

    LARGEST = 448.0

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-30) / self.LARGEST
        return torch.cat((_bytes(scale), _bytes((x / scale).to(torch.float8_e4m3fn))))

    def decode(self, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        head = 4 * shape[0]
        scale = payload[:head].clone().view(torch.float32)
        return payload[head:].view(torch.float8_e4m3fn).view(shape).float() * scale[:, None]


class Rtn(_Stateless):
    """Round to nearest in groups of 128, symmetric, a bf16 scale for each."""

    def __init__(self, bits: int) -> None:
        self.bits, self.top = bits, 2 ** (bits - 1) - 1

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        row = x.reshape(-1)
        groups = torch.nn.functional.pad(row, (0, -row.numel() % GROUP)).view(-1, GROUP)
        # Rounded up, so that no value is beyond the last level.
        scale = (groups.abs().amax(1) / self.top * (1 + 2**-8)).to(torch.bfloat16)
        divisor = scale.float().clamp_min(1e-30)[:, None]
        levels = (groups / divisor).round().clamp(-self.top - 1, self.top).to(torch.int16) + self.top + 1
        per_byte = 8 // self.bits
        parts = levels.to(torch.uint8).view(-1, per_byte)
        packed = parts[:, 0]
        for at in range(1, per_byte):
            packed = packed | (parts[:, at] << (at * self.bits))
        return torch.cat((_bytes(scale), packed))

    def decode(self, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        groups = -(-shape.numel() // GROUP)
        scale = payload[: 2 * groups].clone().view(torch.bfloat16).float()
        packed = payload[2 * groups :]
        mask, per_byte = (1 << self.bits) - 1, 8 // self.bits
        parts = torch.stack([(packed >> (at * self.bits)) & mask for at in range(per_byte)], 1)
        levels = parts.view(-1, GROUP).float() - (self.top + 1)
        return (levels * scale[:, None]).reshape(-1)[: shape.numel()].view(shape)


class Sign(_Stateless):
    """One bit a value and the mean magnitude of every part, in single precision."""

    def __init__(self, spans: list[tuple[int, int]]) -> None:
        self.spans = spans

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        row = x.reshape(-1)
        means = torch.stack([row[first:last].abs().mean() for first, last in self.spans])
        ones = torch.nn.functional.pad((row >= 0).to(torch.uint8), (0, -row.numel() % 8)).view(-1, 8)
        packed = ones[:, 0]
        for at in range(1, 8):
            packed = packed | (ones[:, at] << at)
        return torch.cat((_bytes(means), packed))

    def decode(self, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        head = 4 * len(self.spans)
        means = payload[:head].clone().view(torch.float32)
        ones = torch.stack([(payload[head:] >> at) & 1 for at in range(8)], 1).reshape(-1)[: shape.numel()]
        values = ones.float() * 2 - 1
        for (first, last), mean in zip(self.spans, means):
            values[first:last] *= mean
        return values.view(shape)


class RateControl:
    """Holds a rate over many steps: what one step took too much, the next ones save.

    ``octaves`` is by how much, in octaves, steps should grow after a payload.
    """

    #: Steps over which a debt is paid back.
    HORIZON = 16.0

    def __init__(self, bits: float) -> None:
        self.bits = bits
        self.debt = 0.0

    def octaves(self, found: float) -> float:
        self.debt = max(-self.bits, min(self.bits, self.debt + found - self.bits))
        aim = self.bits - self.debt / self.HORIZON
        # Bits per octave of the step: near one at high rates, less where most levels are zero.
        slope = self.bits / (self.bits + 0.4)
        return max(-1.0, min(1.0, 0.7 * (found - aim) / slope))


def _with_rows(head: bytes, rows: int) -> bytes:
    """A plan for a matrix of as many columns and other rows: they stand after the magic (FORMAT.md)."""
    at = 3
    while head[at] & 0x80:
        at += 1
    varint = bytearray()
    while rows >= 0x80:
        varint.append(rows & 0x7F | 0x80)
        rows >>= 7
    varint.append(rows)
    return head[:3] + bytes(varint) + head[at + 1 :]


class Line:
    """The line-rate codec at a rate, on the CPU or on the GPU, wherever the values are.

    A plan is chosen rarely, on the CPU, from some of the rows. In between a gain,
    sent with every payload, moves the step so that the rate is held.
    """

    #: Rows that a plan is chosen from, in bands from all over the matrix.
    ROWS, BAND = 2048, 128
    #: Payloads after which a plan is chosen anew, and the deviation from the rate that also asks for one.
    AGES = (1, 3, 10, 30, 100)
    OLD = 250
    TOO_FAR = 0.3
    #: Octaves that a gain may move from where the plan's means and classes were found.
    DRIFT = 0.4

    def __init__(self, bits: float, best: bool = False) -> None:
        self.best = best
        self.rate = RateControl(bits)
        self.gain = 1.0
        self.head = b""
        self.age = self.planned = 0
        self._off = False
        self._device: DeviceCodec | None = None

    def state(self) -> dict[str, Any]:
        return {
            "gain": self.gain, "head": self.head, "age": self.age, "planned": self.planned,
            "debt": self.rate.debt, "off": self._off,
        }  # fmt: skip

    def load(self, state: dict[str, Any]) -> None:
        self.gain, self.head, self.age = state["gain"], state["head"], state["age"]
        self.planned, self.rate.debt, self._off = state["planned"], state["debt"], state["off"]
        self._device = None

    def _due(self) -> bool:
        since = self.age - self.planned
        off = self._off or abs(math.log2(self.gain)) > self.DRIFT
        return not self.head or self.age in self.AGES or since >= self.OLD or (off and since >= 3)

    def _choose(self, x: torch.Tensor) -> None:
        rows, cols = x.shape
        sample = x
        if rows > 2 * self.ROWS:
            starts = torch.linspace(0, rows - self.BAND, self.ROWS // self.BAND).long().tolist()
            sample = torch.cat([x[at : at + self.BAND] for at in starts])
        # A sample of nothing but zeros has no step.
        host = sample.detach().float().cpu().contiguous()
        if not bool(host.any()):
            host = host + torch.linspace(-1, 1, host.numel()).view(host.shape)
        head = _core.line_plan(host.reshape(-1).numpy(), host.shape[0], cols, self.rate.bits, self.best)
        self.head, self.gain, self.planned = _with_rows(head, rows), 1.0, self.age
        self._device = None

    def _plan(self, values: int) -> bytes:
        # Who reads a head wants to see that a stream of its size can follow.
        return self.head + bytes(values // 256)

    def _on_device(self, x: torch.Tensor) -> DeviceCodec:
        if self._device is None:
            self._device = DeviceCodec(x, plan=self.head)
        return self._device

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        if self._due():
            self._choose(x)
        scaled = x / self.gain if self.gain != 1.0 else x
        if x.is_cuda:
            coded = self._on_device(scaled).encode(scaled)
            stream = coded.bytes
            if self.age % 50 == 0:
                coded.check()
        else:
            made = _core.line_encode(self._plan(x.numel()), scaled.contiguous().reshape(-1).numpy())
            stream = torch.frombuffer(bytearray(made), dtype=torch.uint8)
        gain = torch.frombuffer(bytearray(struct.pack("<f", self.gain)), dtype=torch.uint8)
        payload = torch.cat((stream, gain.to(stream.device)))
        self._hold(8.0 * payload.numel() / x.numel())
        return payload

    def _hold(self, found: float) -> None:
        self.age += 1
        self._off = abs(found - self.rate.bits) > self.TOO_FAR * self.rate.bits
        octaves = self.rate.octaves(found)
        # As a single-precision number, which is what is sent.
        (self.gain,) = struct.unpack("<f", struct.pack("<f", self.gain * 2.0**octaves))

    def decode(self, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        (gain,) = struct.unpack("<f", bytes(payload[-4:].cpu().numpy()))
        if payload.is_cuda and self._device is not None:
            return self._device.decode(payload[:-4]).view(shape) * gain
        rows, cols, memory = _core.line_decode(payload[:-4].cpu().numpy().tobytes())
        if rows * cols != shape.numel():
            raise RunError(f"a stream of {rows} × {cols} values came where {tuple(shape)} were expected")
        return torch.frombuffer(memory, dtype=torch.float32).view(shape).to(payload.device) * gain


class Video(_Stateless):
    """H.265 or H.264 at a rate, on the CPU; the codec searches its quantization parameter every time."""

    def __init__(self, codec: str, bits: float) -> None:
        self.codec, self.bits = codec, bits

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        asked = _coded._asked(self.codec, ("bits", self.bits), measure=False)
        (coded,) = _coded._encode(["gradient"], [x.detach().cpu()], None, asked, False)
        return torch.frombuffer(bytearray(coded.bytes), dtype=torch.uint8).to(x.device)

    def decode(self, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        coded = _coded.Encoded(payload.cpu().numpy().tobytes(), "torch")
        decoded: torch.Tensor = coded.decode()
        return decoded.float().view(shape).to(payload.device)

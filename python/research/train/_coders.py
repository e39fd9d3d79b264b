"""Matrices of gradients or activations as bytes, and back: what a rank puts on the wire.

A coder keeps what it needs from step to step (a plan, a gain) and can give it
away for a checkpoint. Every payload is what would be sent, to the last byte, so
that bits are counted by looking at its length. Knows nothing of ranks.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from trinity import _coded, _core
from trinity import RunError
from trinity.torch import DeviceCodec
from ._wire import as_bytes

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


class Clock:
    """Seconds and values of all coding since `begin`; a device is waited for before and after."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.begin()

    def begin(self) -> None:
        self.encode_s = self.decode_s = 0.0
        self.encoded = self.decoded = 0

    def now(self) -> float:
        """Seconds of the clock, once the device has done all it was asked."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    @contextmanager
    def encoding(self, values: int) -> Iterator[None]:
        began = self.now()
        yield
        self.encode_s += self.now() - began
        self.encoded += values

    @contextmanager
    def decoding(self, values: int) -> Iterator[None]:
        began = self.now()
        yield
        self.decode_s += self.now() - began
        self.decoded += values


class Timed:
    """A coder whose seconds a clock counts."""

    def __init__(self, coder: Coder, clock: Clock) -> None:
        self.coder, self.clock = coder, clock

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        with self.clock.encoding(x.numel()):
            return self.coder.encode(x)

    def decode(self, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        with self.clock.decoding(shape.numel()):
            return self.coder.decode(payload, shape)

    def aim(self, bits: float) -> None:
        """Another rate, where a coder holds one."""
        if isinstance(self.coder, (Line, Turned, Video)):
            self.coder.aim(bits)

    def state(self) -> dict[str, Any]:
        return self.coder.state()

    def load(self, state: dict[str, Any]) -> None:
        self.coder.load(state)


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """In single precision, whatever a model around it computes in."""
    with torch.autocast(a.device.type, enabled=False):
        return a @ b


class Cast(_Stateless):
    """Values in another number format: f32, bf16."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return as_bytes(x.to(self.dtype))

    def decode(self, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        return payload.view(self.dtype).view(shape).float()


class Fp8(_Stateless):
    """E4M3 with a scale for every row, in single precision."""

    LARGEST = 448.0

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-30) / self.LARGEST
        return torch.cat((as_bytes(scale), as_bytes((x / scale).to(torch.float8_e4m3fn))))

    def decode(self, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        head = 4 * shape[0]
        scale = payload[:head].clone().view(torch.float32)
        return payload[head:].view(torch.float8_e4m3fn).view(shape).float() * scale[:, None]


def _packed(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Numbers of so many bits, eight bits of them in a byte, the first one lowest."""
    parts = values.view(-1, 8 // bits)
    packed = parts[:, 0]
    for at in range(1, 8 // bits):
        packed = packed | (parts[:, at] << (at * bits))
    return packed


def _parts(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """The way back from `_packed`."""
    return torch.stack([(packed >> (at * bits)) & ((1 << bits) - 1) for at in range(8 // bits)], 1).reshape(-1)


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
        return torch.cat((as_bytes(scale), _packed(levels.to(torch.uint8), self.bits)))

    def decode(self, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        groups = -(-shape.numel() // GROUP)
        scale = payload[: 2 * groups].clone().view(torch.bfloat16).float()
        levels: torch.Tensor = _parts(payload[2 * groups :], self.bits).view(-1, GROUP).float() - (self.top + 1)
        values: torch.Tensor = (levels * scale[:, None]).reshape(-1)[: shape.numel()]
        return values.view(shape)


class Sign(_Stateless):
    """One bit a value and the mean magnitude of every part, in single precision."""

    def __init__(self, spans: list[tuple[int, int]]) -> None:
        self.spans = spans

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        row = x.reshape(-1)
        means = torch.stack([row[first:last].abs().mean() for first, last in self.spans])
        ones = torch.nn.functional.pad((row >= 0).to(torch.uint8), (0, -row.numel() % 8))
        return torch.cat((as_bytes(means), _packed(ones, 1)))

    def decode(self, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        head = 4 * len(self.spans)
        means = payload[:head].clone().view(torch.float32)
        values = _parts(payload[head:], 1)[: shape.numel()].float() * 2 - 1
        for (first, last), mean in zip(self.spans, means):
            values[first:last] *= mean
        return values.view(shape)


class _AtRate:
    """A coder that holds a rate over many steps: what one step took too much, the next ones save."""

    #: Steps over which a debt is paid back.
    HORIZON = 16.0

    def __init__(self, bits: float) -> None:
        self.bits = bits
        self.debt = 0.0

    def aim(self, bits: float) -> None:
        """Holds another rate from the next payload on."""
        self.bits = bits

    def octaves(self, found: float) -> float:
        """By how much, in octaves, steps should grow after a payload."""
        self.debt = max(-self.bits, min(self.bits, self.debt + found - self.bits))
        aim = self.bits - self.debt / self.HORIZON
        # Bits per octave of the step: near one at high rates, less where most levels are zero.
        slope = self.bits / (self.bits + 0.4)
        return max(-1.0, min(1.0, 0.7 * (found - aim) / slope))


class Line(_AtRate):
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
    #: Bits per value that a tile may take on a GPU: values that no plan foresaw are escapes or exceptions.
    ROOM_BITS = 56.0

    def __init__(self, bits: float, best: bool = False) -> None:
        super().__init__(bits)
        self.best = best
        self.gain = 1.0
        self.head = b""
        self.age = self.planned = 0
        self._off = False
        self._device: DeviceCodec | None = None

    def state(self) -> dict[str, Any]:
        return {
            "gain": self.gain, "head": self.head, "age": self.age, "planned": self.planned,
            "debt": self.debt, "off": self._off,
        }  # fmt: skip

    def load(self, state: dict[str, Any]) -> None:
        self.gain, self.head, self.age = state["gain"], state["head"], state["age"]
        self.planned, self.debt, self._off = state["planned"], state["debt"], state["off"]
        self._device = None

    def _due(self) -> bool:
        since = self.age - self.planned
        off = self._off or abs(math.log2(self.gain)) > self.DRIFT
        return not self.head or self.age in self.AGES or since >= self.OLD or (off and since >= 3)

    def plan_anew(self) -> None:
        """Chooses a plan for the next payload: it will not be like those before."""
        self.head = b""

    def _choose(self, x: torch.Tensor, whole: bool = False) -> None:
        rows, cols = x.shape
        sample = x
        if rows > 2 * self.ROWS and not whole:
            starts = torch.linspace(0, rows - self.BAND, self.ROWS // self.BAND).long().tolist()
            sample = torch.cat([x[at : at + self.BAND] for at in starts])
        # A sample of nothing but zeros has no step.
        host = sample.detach().float().cpu().contiguous()
        if not bool(host.any()):
            host = host + torch.linspace(-1, 1, host.numel()).view(host.shape)
        flat = host.reshape(-1).numpy()
        self.head = _core.line_plan_of_sample(flat, (host.shape[0], cols, rows), self.bits, self.best)
        self.gain, self.planned = 1.0, self.age
        self._device = None

    def _on_device(self, x: torch.Tensor) -> DeviceCodec:
        if self._device is None:
            self._device = DeviceCodec(x, plan=self.head, room_bits=self.ROOM_BITS)
        return self._device

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        if self._due():
            self._choose(x)
        scaled = x / self.gain if self.gain != 1.0 else x
        if x.is_cuda:
            coded = self._on_device(scaled).encode(scaled)
            try:
                coded.check()
            except RunError:
                # Values unlike those that the plan was chosen from: choose it from all of them.
                self._choose(x, whole=True)
                coded = self._on_device(x).encode(x)
                coded.check()
            stream = coded.bytes
        else:
            # Who reads a head wants to see that a stream of its size can follow.
            plan = self.head + bytes(x.numel() // 256)
            made = _core.line_encode(plan, scaled.contiguous().reshape(-1).numpy())
            stream = torch.frombuffer(bytearray(made), dtype=torch.uint8)
        gain = torch.frombuffer(bytearray(struct.pack("<f", self.gain)), dtype=torch.uint8)
        payload = torch.cat((stream, gain.to(stream.device)))
        self._hold(8.0 * payload.numel() / x.numel())
        return payload

    def _hold(self, found: float) -> None:
        self.age += 1
        self._off = abs(found - self.bits) > self.TOO_FAR * self.bits
        octaves = self.octaves(found)
        # As a single-precision number, which is what is sent.
        (self.gain,) = struct.unpack("<f", struct.pack("<f", self.gain * 2.0**octaves))

    def decode(self, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        gain = float(struct.unpack("<f", bytes(payload[-4:].cpu().numpy()))[0])
        if payload.is_cuda and self._device is not None:
            return self._device.decode(payload[:-4]).view(shape) * gain
        rows, cols, memory = _core.line_decode(payload[:-4].cpu().numpy().tobytes())
        if rows * cols != shape.numel():
            raise RunError(f"a stream of {rows} × {cols} values came where {tuple(shape)} were expected")
        return torch.frombuffer(memory, dtype=torch.float32).view(shape).to(payload.device) * gain


class Turned:
    """The line-rate codec on rows about their mean, turned into the basis of their covariance.

    Channels of activations and of their gradients move together; in the basis in which they do not, few
    coefficients hold nearly all, and a step of one size loses far less at the same bits. The sender finds mean
    and basis from what it is about to send, rarely, and sends them ahead of the first payload that needs them.
    ``rows`` divides each row by its size, which is sent too; ``whiten`` from 0 to 1 says how much of the
    coefficients' sizes is taken out as well.
    """

    #: Payloads after which the basis is found anew: more often while a model is young.
    AGES = (1, 4, 12, 40, 100)
    OLD = 200
    #: A coefficient counts as at least this part of their mean size when it is scaled.
    FLOOR = 0.02

    def __init__(self, bits: float, best: bool = False, rows: bool = False, whiten: float = 0.0) -> None:
        self.bits, self.rows, self.whiten, self.side = bits, rows, whiten, 0.0
        self.line = Line(bits, best)
        self.age = self.found = 0
        #: Mean, analysis and synthesis: of the sender, and as the receiver has them.
        self.own: tuple[torch.Tensor, ...] | None = None
        self.known: tuple[torch.Tensor, ...] | None = None

    def state(self) -> dict[str, Any]:
        return {
            "line": self.line.state(), "bits": self.bits, "side": self.side, "age": self.age, "found": self.found,
            "own": self.own, "known": self.known,
        }  # fmt: skip

    def load(self, state: dict[str, Any]) -> None:
        self.line.load(state["line"])
        self.side = state["side"]
        self.aim(state["bits"])
        self.age, self.found, self.own, self.known = (state[key] for key in ("age", "found", "own", "known"))

    def aim(self, bits: float) -> None:
        """Holds another rate, all that is sent counted, from the next payload on."""
        self.bits = bits
        self.line.aim(max(0.02, bits - self.side))

    def _side(self, rows: int, cols: int) -> float:
        """Bits per value of everything beside the line-rate codec's stream, in the long run."""
        return 16.0 / cols * self.rows + (16.0 * cols + 64.0) / rows / self.OLD

    def _find(self, x: torch.Tensor) -> torch.Tensor:
        """Mean, basis and scales of rows, as the bytes that are sent."""
        mean = x.mean(0)
        about = (x - mean).double()
        sizes, basis = torch.linalg.eigh(about.T @ about / len(x))
        # Large coefficients first.
        sizes, basis = sizes.flip(0).clamp_min(0).sqrt(), basis.flip(1)
        scale = sizes.clamp_min(self.FLOOR * float(sizes.mean()) + 1e-30) ** self.whiten
        return torch.cat((as_bytes(mean), as_bytes(scale.float()), as_bytes(basis.to(torch.bfloat16))))

    @staticmethod
    def _side_bytes(cols: int) -> int:
        return 8 * cols + 2 * cols * cols

    def _read(self, side: torch.Tensor, cols: int) -> tuple[torch.Tensor, ...]:
        mean = side[: 4 * cols].clone().view(torch.float32)
        scale = side[4 * cols : 8 * cols].clone().view(torch.float32)
        basis = side[8 * cols :].clone().view(torch.bfloat16).view(cols, cols).float()
        return mean, basis / scale, basis.T.contiguous() * scale[:, None]

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        rows, cols = x.shape
        size = None
        if self.rows:
            # As it is sent; a row of zeros stays one.
            size = x.square().mean(1).sqrt().clamp_min(1e-30).to(torch.bfloat16)
            x = x / size.float()[:, None]
        parts = [] if size is None else [as_bytes(size)]
        fresh = self.own is None or self.age in self.AGES or self.age - self.found >= self.OLD
        if fresh:
            side = self._find(x)
            self.own, self.found = self._read(side, cols), self.age
            self.line.plan_anew()
            self.side = self._side(rows, cols)
            self.aim(self.bits)
            parts.append(side)
        assert self.own is not None
        mean, analysis, _ = (each.to(x.device) for each in self.own)
        stream = self.line.encode(_product(x - mean, analysis))
        self.age += 1
        head = torch.tensor([int(fresh)], dtype=torch.uint8, device=x.device)
        return torch.cat((head, *parts, stream))

    def decode(self, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        rows, cols = shape
        fresh, at = bool(payload[0]), 1
        size = None
        if self.rows:
            size, at = payload[at : at + 2 * rows].clone().view(torch.bfloat16).float(), at + 2 * rows
        if fresh:
            self.known = self._read(payload[at : at + self._side_bytes(cols)], cols)
            at += self._side_bytes(cols)
        if self.known is None:
            raise RunError("a payload came whose basis was never sent")
        mean, _, synthesis = (each.to(payload.device) for each in self.known)
        decoded = _product(self.line.decode(payload[at:], shape), synthesis) + mean
        return decoded if size is None else decoded * size[:, None]


class Video(_AtRate):
    """H.265 or H.264 at a rate, on the CPU.

    The quantization parameter is looked for once and moved from payload to payload as the rate asks: six of
    them are an octave. At parameter 0 samples of 8 bits have no more to give, and the rate is what it is.
    """

    LEAST, MOST = 0, 51
    #: Payloads tried before the first is sent, and how far from the rate it may be.
    TRIES = 6
    NEAR = 0.1

    def __init__(self, codec: str, bits: float) -> None:
        super().__init__(bits)
        self.codec = codec
        self.qp: float | None = None

    def state(self) -> dict[str, Any]:
        return {"qp": self.qp, "debt": self.debt}

    def load(self, state: dict[str, Any]) -> None:
        self.qp, self.debt = state["qp"], state["debt"]

    def _at(self, x: torch.Tensor, qp: float) -> bytes:
        asked = _coded._asked(self.codec, ("qp", round(qp)), measure=False)
        (coded,) = _coded._encode(["gradient"], [x.detach().cpu()], None, asked, False)
        return coded.bytes

    def _first(self, x: torch.Tensor) -> float:
        """A parameter near the rate, by halving."""
        least, most = float(self.LEAST), float(self.MOST)
        qp = (least + most) / 2
        for _ in range(self.TRIES):
            found = 8.0 * len(self._at(x, qp)) / x.numel()
            if abs(found - self.bits) <= self.NEAR * self.bits:
                break
            least, most = (qp, most) if found > self.bits else (least, qp)
            qp = (least + most) / 2
        return qp

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        if self.qp is None:
            self.qp = self._first(x)
        stream = self._at(x, self.qp)
        octaves = self.octaves(8.0 * len(stream) / x.numel())
        self.qp = max(self.LEAST, min(self.MOST, self.qp + 6.0 * octaves))
        return torch.frombuffer(bytearray(stream), dtype=torch.uint8).to(x.device)

    def decode(self, payload: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        coded = _coded.Encoded(payload.cpu().numpy().tobytes(), "torch")
        decoded: torch.Tensor = coded.decode()
        return decoded.float().view(shape).to(payload.device)

"""Tensors on a GPU through the line-rate codec: the same bytes as on a CPU, and at what speed.

Needs a GPU and PyTorch: ``python python/benches/device.py``. Exit code 1 where a
byte differs, or where encoding and decoding a tensor from Python runs at less
than 0.9 of the speed of the bare kernels.
"""

from __future__ import annotations

import json
import sys
import time

import torch

import trinity
from trinity import _core
from trinity.torch import DeviceCodec

BAR = 0.9
ROUNDS = 20


def tensor(rows: int, cols: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(7)
    scale = torch.exp(torch.randn(1, cols, generator=generator, device="cuda"))
    return (torch.randn(rows, cols, generator=generator, device="cuda") * scale * 0.02).to(dtype)


def same_bytes() -> list[dict[str, object]]:
    """Streams of the GPU beside those of the CPU, in every number format."""
    found = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2):
        for best in (False, True):
            x = tensor(512, 768, dtype)
            codec = DeviceCodec(x, bits=4, best=best)
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                coded = codec.encode(x)
                decoded = coded.decode()
                coded.check()
            stream.synchronize()
            host = x.float().cpu().numpy().reshape(-1)
            expected = _core.line_encode(codec.plan, host)
            rows, cols, memory = _core.line_decode(expected)
            wide = torch.frombuffer(memory, dtype=torch.float32).reshape(rows, cols)
            found.append(
                {
                    "dtype": str(dtype),
                    "best": best,
                    "bits_per_value": coded.bits_per_value,
                    "same_bytes": bytes(coded.bytes.cpu().numpy()) == expected,
                    "same_values": bool(torch.equal(decoded.cpu().float(), wide.to(dtype).float())),
                }
            )
    return found


def speed(work: object, repeat: int = ROUNDS) -> float:
    """Seconds of one round, the device waited for at the end of all."""
    work()  # type: ignore[operator]
    torch.cuda.synchronize()
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repeat):
            work()  # type: ignore[operator]
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / repeat)
    return best


def speeds(rows: int, cols: int) -> dict[str, object]:
    x = tensor(rows, cols, torch.bfloat16)
    codec = DeviceCodec(x, bits=3)
    out = torch.empty_like(x)
    # The bare kernels: everything allocated ahead.
    _, bound, workspace_bytes = codec._encoder.sizes()
    data, workspace = codec._buffer(bound), codec._buffer(workspace_bytes)
    second = codec._buffer(codec._decoder.sizes()[1])
    length = torch.empty(1, dtype=torch.int64, device="cuda")
    stream = torch.cuda.current_stream().cuda_stream
    pointers = x.data_ptr(), data.data_ptr(), length.data_ptr(), workspace.data_ptr(), stream

    def bare() -> None:
        codec._encoder.encode(*pointers)
        codec._decoder.decode(data.data_ptr(), bound, out.data_ptr(), second.data_ptr(), stream)

    bare_s = speed(bare)
    python_s = speed(lambda: codec.encode(x).decode())
    gigabytes = x.numel() * x.element_size() / 1e9
    return {
        "shape": [rows, cols],
        "bits_per_value": codec.encode(x).bits_per_value,
        "bare_gb_s": gigabytes / bare_s,
        "python_gb_s": gigabytes / python_s,
        "ratio": bare_s / python_s,
    }


def lists(count: int, rows: int, cols: int, best: bool) -> dict[str, object]:
    """Many tensors in one launch, each with an address of its own."""
    tensors = [tensor(rows, cols, torch.bfloat16) for _ in range(count)][::-1]
    codec = DeviceCodec(tensors[0], bits=3, best=best)
    coded = codec.encode_all(tensors)
    out = [torch.empty_like(x) for x in tensors]
    gigabytes = count * rows * cols * 2 / 1e9
    return {
        "tensors": count,
        "shape": [rows, cols],
        "best": best,
        "encode_gb_s": gigabytes / speed(lambda: codec.encode_all(tensors)),
        "decode_gb_s": gigabytes / speed(lambda: codec.decode_all(coded, out)),
    }


def page(tile_values: int, best: bool) -> dict[str, object]:
    """One page of a cache, 64 tokens of 512 channels, replayed from a CUDA graph: microseconds."""
    x = tensor(64, 512, torch.bfloat16)
    codec = DeviceCodec(x, bits=3, best=best, tile_values=tile_values)
    coded, out = codec.encode(x), torch.empty_like(x)
    codec.decode(coded, out)
    torch.cuda.synchronize()
    found: dict[str, object] = {"tile_values": tile_values, "best": best, "bits_per_value": coded.bits_per_value}
    for name, work in (("encode", lambda: codec.encode(x)), ("decode", lambda: codec.decode(coded, out))):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = work()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        graph.replay()
        begin.record()
        for _ in range(100):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        found[f"{name}_us"] = begin.elapsed_time(end) * 10
        del kept
    return found


def main() -> int:
    began = time.perf_counter()
    report = {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "trinity": trinity.__version__,
        "device": torch.cuda.get_device_name(),
        "same": same_bytes(),
        "lists": [lists(64, 512, 4096, best) for best in (False, True)],
        "pages": [page(tile, best) for tile in (4096, 2048, 1024) for best in (False, True)],
        "speeds": [speeds(1024, 1024), speeds(4096, 4096), speeds(16384, 8192)],
    }
    report["seconds"] = round(time.perf_counter() - began, 1)
    print(json.dumps(report, indent=1))
    same = all(line["same_bytes"] and line["same_values"] for line in report["same"])
    fast = all(line["ratio"] >= BAR for line in report["speeds"])
    return 0 if same and fast else 1


if __name__ == "__main__":
    sys.exit(main())

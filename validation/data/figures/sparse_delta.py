"""The sparse-delta notes' own benchmark: 1024 x 4096 values, a tenth changed, 64 chunks, zstd, one thread."""
import ctypes, json, os, time, torch
lib = ctypes.CDLL(os.path.abspath("libzstd.so.1"))
for name, args, res in [("ZSTD_compressBound", [ctypes.c_size_t], ctypes.c_size_t),
    ("ZSTD_compress", [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int], ctypes.c_size_t),
    ("ZSTD_decompress", [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t], ctypes.c_size_t)]:
    f = getattr(lib, name); f.argtypes = args; f.restype = res
def compress(raw):
    bound = lib.ZSTD_compressBound(len(raw)); out = ctypes.create_string_buffer(bound)
    n = lib.ZSTD_compress(out, bound, raw, len(raw), 3)
    return out.raw[:n], len(raw)
def decompress(item):
    packed, size = item; out = bytearray(size)
    view = (ctypes.c_char * size).from_buffer(out)
    n = lib.ZSTD_decompress(view, size, packed, len(packed)); assert n == size
    del view
    return out
torch.manual_seed(1)
N = 64
base = torch.randn(1024, 4096).cuda(); mask = torch.rand_like(base) > 0.9
delta = (torch.randn_like(base) * 0.01) * mask; final = base + delta
idx = delta.flatten().nonzero(as_tuple=True)[0].to(torch.int64); val = delta.flatten()[idx].to(torch.float32)
ic = [compress(bytes(c.cpu().numpy().tobytes())) for c in torch.tensor_split(idx.cpu(), N)]
vc = [compress(bytes(c.cpu().numpy().tobytes())) for c in torch.tensor_split(val.cpu(), N)]
raw = sum(s for _, s in ic + vc); packed = sum(len(p) for p, _ in ic + vc)
def apply(w, i, v): w.view(-1).scatter_add_(0, i, v)
def once(pipelined):
    w = base.clone(); torch.cuda.synchronize(); start = time.perf_counter()
    if pipelined:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for a, b in zip(ic, vc):
                i = torch.frombuffer(decompress(a), dtype=torch.int64).cuda(non_blocking=True)
                v = torch.frombuffer(decompress(b), dtype=torch.float32).cuda(non_blocking=True)
                apply(w, i, v)
        stream.synchronize()
    else:
        for a, b in zip(ic, vc):
            i = torch.frombuffer(decompress(a), dtype=torch.int64).cuda()
            v = torch.frombuffer(decompress(b), dtype=torch.float32).cuda()
            apply(w, i, v)
    torch.cuda.synchronize(); took = time.perf_counter() - start
    assert torch.allclose(w, final, atol=1e-6)
    return took
def alone():
    start = time.perf_counter()
    for a, b in zip(ic, vc): decompress(a); decompress(b)
    return time.perf_counter() - start
for _ in range(5): once(False); once(True)
rows = []
for turn in range(30):
    rows.append({"turn": turn, "synchronous_ms": 1e3 * once(False), "pipelined_ms": 1e3 * once(True), "decompress_ms": 1e3 * alone()})
out = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "values": base.numel(), "changed": idx.numel(), "chunks": N,
       "raw_mib": raw / 2**20, "compressed_mib": packed / 2**20, "runs": rows}
json.dump(out, open(os.environ["OUT"] + "/sparse_delta.json", "w"), indent=1)
m = lambda k: sorted(r[k] for r in rows)[15]
print("sync", m("synchronous_ms"), "pipelined", m("pipelined_ms"), "decompress", m("decompress_ms"), raw, packed)

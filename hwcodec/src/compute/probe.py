"""What PyTorch on this host makes of single operations, as JSON on stdout.

Dispatch: operations on tensors too small to matter, so that the host's work is
all that shows; one at a time, and mixed as in a decoder block, where the
host's caches are colder. Floors: small operations in a graph, where the
device's fixed cost shows. Operations: large tensors, so that its rate does.
Attention: forward and backward by head size, and one query on a long cache.
"""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

QUICK = "--quick" in sys.argv
BUDGET_S = 12.0 if QUICK else 55.0
BEGAN = time.perf_counter()
DEVICE = "cuda"
BF16 = torch.bfloat16
torch.manual_seed(1)
found = {"version": torch.__version__, "dispatch": [], "operations": [], "attention": [], "floors": [],
         "skipped": []}


def late():
    return time.perf_counter() - BEGAN > BUDGET_S


def host_s(call, count=400, rounds=3):
    """Wall seconds of one call where the host is the slower side."""
    for _ in range(20):
        call()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - start) / count)
        torch.cuda.synchronize()
    return statistics.median(times)


def device_s(call, count=5, rounds=3):
    """Seconds on the device, `count` calls in a row."""
    for _ in range(2):
        call()
    times = []
    for _ in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3 / count)
    return statistics.median(times)


def graph_s(call, count=20):
    """Seconds of one call in a replayed graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    graph.replay()
    seconds = device_s(graph.replay, count=2) / count
    del graph
    return seconds


def guarded(what, call):
    try:
        return call()
    except Exception as error:  # noqa: BLE001
        found["skipped"].append({"what": what, "why": str(error).splitlines()[0][:200] if str(error) else repr(error)})
        torch.cuda.synchronize()
        return None


def timed(kind, name, timer, call, what=None, **said):
    """Times a call, and notes it where it ran."""
    seconds = guarded(what or name, lambda: timer(call))
    if seconds is not None:
        found[kind].append({"operation": name, **said, "seconds": seconds})


def both_ways(rounds, length, forward, after):
    """Medians of host seconds of each of `length` steps, recorded forward and backward."""
    there, back = [], []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        x = forward()
        middle = time.perf_counter()
        gradient = torch.ones_like(x)
        torch.cuda.synchronize()
        turned = time.perf_counter()
        x.backward(gradient)
        back.append((time.perf_counter() - turned) / length)
        there.append((middle - start) / length)
        after()
    return statistics.median(there), statistics.median(back)


def dispatch():
    small = torch.randn(8, 64, device=DEVICE, dtype=BF16)
    heads = torch.randn(1, 4, 8, 64, device=DEVICE, dtype=BF16)
    weight = torch.randn(64, 64, device=DEVICE, dtype=BF16)
    scale = torch.ones(64, device=DEVICE, dtype=BF16)
    cos = torch.ones(8, 64, device=DEVICE, dtype=BF16)
    cache = torch.zeros(1, 4, 32, 64, device=DEVICE, dtype=BF16)
    module = torch.nn.Linear(64, 64, bias=False, device=DEVICE, dtype=BF16)

    def write_cache():
        cache[:, :, 8:16] = heads

    operations = {
        "add": lambda: small + small,
        "mul": lambda: small * small,
        "mul broadcast": lambda: heads * cos,
        "neg": lambda: -small,
        "cat": lambda: torch.cat((small, small), -1),
        "silu": lambda: F.silu(small),
        "to float": lambda: small.float(),
        "linear": lambda: F.linear(small, weight),
        "linear module": lambda: module(small),
        "rms norm": lambda: F.rms_norm(small, (64,), scale, 1e-5),
        "attention": lambda: F.scaled_dot_product_attention(heads, heads, heads, is_causal=True),
        "view": lambda: small.view(1, 8, 1, 64).transpose(1, 2),
        "slice": lambda: small[..., :32],
        "cache write": write_cache,
    }
    with torch.no_grad():
        for name, call in operations.items():
            timed("dispatch", name, host_s, call, **{"pass": "forward"})

    length = 100
    leaf = small.clone().requires_grad_()
    head_leaf = heads.clone().requires_grad_()
    weight_leaf, scale_leaf = weight.clone().requires_grad_(), scale.clone().requires_grad_()
    chains = {
        "add": (leaf, lambda x: x + x),
        "mul": (leaf, lambda x: x * small),
        "silu": (leaf, F.silu),
        "linear": (leaf, lambda x: F.linear(x, weight_leaf)),
        "rms norm": (leaf, lambda x: F.rms_norm(x, (64,), scale_leaf, 1e-5)),
        "attention": (head_leaf, lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True)),
        "rotate": (leaf, lambda x: torch.cat((-x[..., 32:], x[..., :32]), -1)),
        "view": (leaf, lambda x: x.view(1, 8, 64).view(8, 64)),
    }
    for name, (start_at, step) in chains.items():

        def chain():
            x = start_at
            for _ in range(length):
                x = step(x)
            return x

        times = guarded(name, lambda: both_ways(5, length, chain, torch.cuda.synchronize))
        if times is not None:
            for of, seconds in zip(("recorded", "backward"), times):
                found["dispatch"].append({"operation": name, "pass": of, "seconds": seconds})


class Block(torch.nn.Module):
    """A decoder block as plain code writes it: nothing fused but norm and attention."""

    def __init__(self, width, heads):
        super().__init__()
        linear = lambda: torch.nn.Linear(width, width, bias=False, device=DEVICE, dtype=BF16)
        self.q, self.k, self.v, self.o, self.gate, self.up, self.down = (linear() for _ in range(7))
        self.first, self.second = (torch.nn.Parameter(torch.ones(width, device=DEVICE, dtype=BF16)) for _ in range(2))
        self.heads, self.width = heads, width

    def rotate(self, x, cos, sin):
        x = x.float()
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), -1)
        return (x * cos + turned * sin).to(BF16)

    def forward(self, x, cos, sin, cache=None):
        batch, tokens, width = x.shape
        split = lambda y: y.view(batch, tokens, self.heads, -1).transpose(1, 2)
        normed = F.rms_norm(x, (width,), self.first, 1e-5)
        q, k, v = split(self.q(normed)), split(self.k(normed)), split(self.v(normed))
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        if cache is not None:
            cache[0][:, :, :tokens] = k
            cache[1][:, :, :tokens] = v
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, tokens, width))
        normed = F.rms_norm(x, (width,), self.second, 1e-5)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


# Operations of one block, by the names they were timed under.
FORWARD = {"linear module": 7, "rms norm": 2, "view": 4, "slice": 4, "to float": 4, "neg": 2, "cat": 2,
           "mul broadcast": 4, "add": 4, "attention": 1, "silu": 1, "mul": 1}
CACHED = {"cache write": 2, "slice": 2}
RECORDED = {"linear": 7, "rms norm": 2, "view": 4, "rotate": 2, "mul": 9, "add": 4, "attention": 1, "silu": 1}


def mixture():
    """A stack of blocks, against the sum of its operations timed one at a time."""
    blocks = torch.nn.ModuleList(Block(256, 4) for _ in range(8))
    x = torch.randn(1, 8, 256, device=DEVICE, dtype=BF16)
    cos, sin = (torch.randn(8, 64, device=DEVICE) for _ in range(2))
    caches = [[torch.zeros(1, 4, 8, 64, device=DEVICE, dtype=BF16) for _ in range(2)] for _ in blocks]
    timed = {(d["operation"], d["pass"]): d["seconds"] for d in found["dispatch"]}

    def parts(counts, of):
        return sum(count * timed[name, of] for name, count in counts.items())

    def add(of, seconds, parts_s):
        for name, value in (("mixture", seconds), ("mixture parts", parts_s)):
            found["dispatch"].append({"operation": name, "pass": of, "seconds": value})

    def once():
        y = x
        for block, cache in zip(blocks, caches):
            y = block(y, cos, sin, cache)
        return y

    def uncached():
        y = x
        for block in blocks:
            y = block(y, cos, sin)
        return y

    with torch.no_grad():
        add("forward", host_s(once, count=15, rounds=5) / len(blocks), parts(FORWARD, "forward") + parts(CACHED, "forward"))
    for of, seconds in zip(("recorded", "backward"), both_ways(8, len(blocks), uncached, lambda: blocks.zero_grad(set_to_none=True))):
        add(of, seconds, parts(RECORDED, of))


def floors():
    """Operations of a decoding step, a few tokens each, in a graph."""
    rows, width, heads = 4, 4096, 32
    x = torch.randn(rows, width, device=DEVICE, dtype=BF16)
    per_head = x.view(rows, 1, heads, width // heads).transpose(1, 2)
    single = per_head.float()
    cos = torch.randn(1, width // heads, device=DEVICE)
    half = width // heads // 2
    scale = torch.ones(width, device=DEVICE, dtype=BF16)
    cache = torch.zeros(rows, heads, 64, width // heads, device=DEVICE, dtype=BF16)
    table = torch.randn(32000, width, device=DEVICE, dtype=BF16)
    token = torch.randint(0, 32000, (rows,), device=DEVICE)

    def write_cache():
        cache[:, :, 8:9] = per_head

    calls = {
        "add": lambda: x + x,
        "silu": lambda: F.silu(x),
        "rms norm": lambda: F.rms_norm(x, (width,), scale, 1e-5),
        "to float": lambda: per_head.float(),
        "to bf16": lambda: single.to(BF16),
        "mul broadcast float": lambda: single * cos,
        "neg": lambda: -single[..., half:],
        "cat": lambda: torch.cat((single[..., half:], single[..., :half]), -1),
        "cache write": write_cache,
        "embedding": lambda: F.embedding(token, table),
    }
    with torch.no_grad():
        for name, call in calls.items():
            timed("floors", name, lambda call: graph_s(call, count=50), call, f"small {name}", bytes=2.0 * x.numel())


def operations():
    tokens, width, heads = 16384, 4096, 32
    x = torch.randn(tokens, width, device=DEVICE, dtype=BF16)
    y = torch.randn(tokens, width, device=DEVICE, dtype=BF16)
    per_head = x.view(8, tokens // 8, heads, width // heads).transpose(1, 2)
    cos = torch.randn(tokens // 8, width // heads, device=DEVICE, dtype=BF16)
    cos32 = cos.float()
    half = width // heads // 2
    single = per_head.float()
    size = x.numel()
    scale = torch.ones(width, device=DEVICE, dtype=BF16)

    def add(name, bytes_, call):
        timed("operations", name, device_s, call, bytes=bytes_)

    with torch.no_grad():
        add("add", 6 * size, lambda: x + y)
        add("silu", 4 * size, lambda: F.silu(x))
        add("rms norm", 4 * size, lambda: F.rms_norm(x, (width,), scale, 1e-5))
        add("mul broadcast", 4 * size, lambda: per_head * cos)
        add("mul broadcast float", 8 * size, lambda: single * cos32)
        add("rotate", 4 * size, lambda: torch.cat((-per_head[..., half:], per_head[..., :half]), -1))
        add("rotate float", 8 * size, lambda: torch.cat((-single[..., half:], single[..., :half]), -1))
        add("to float", 6 * size, lambda: per_head.float())
        add("to bf16", 6 * size, lambda: single.to(BF16))
    del single
    leaf = x.clone().requires_grad_()
    scale_leaf = scale.clone().requires_grad_()
    normed = F.rms_norm(leaf, (width,), scale_leaf, 1e-5)
    add("rms norm backward", 6 * size, lambda: torch.autograd.grad(normed, (leaf, scale_leaf), y, retain_graph=True))
    activated = F.silu(leaf)
    add("silu backward", 6 * size, lambda: torch.autograd.grad(activated, leaf, y, retain_graph=True))
    del normed, activated
    logits = torch.randn(4096, 32000, device=DEVICE, dtype=BF16, requires_grad=True)
    target = torch.randint(0, 32000, (4096,), device=DEVICE)

    def loss():
        logits.grad = None
        F.cross_entropy(logits.float(), target).backward()

    # float: 2+4; log-softmax 4+4; its gradient 4+4+4 after 4 of zeros; back to bf16 4+2.
    add("cross entropy fp32", 36 * logits.numel(), loss)
    parameters = [torch.randn(1 << 24, device=DEVICE, dtype=BF16, requires_grad=True) for _ in range(8)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.AdamW(parameters, lr=1e-6, fused=True)
    add("adamw fused bf16", 14 * 8 * (1 << 24), optimizer.step)


def attention():
    def point(batch, heads, kv_heads, dim, queries, keys, times):
        found["attention"].append(dict(kernel="framework", batch=batch, heads=heads, kv_heads=kv_heads, head_dim=dim,
                                       queries=queries, keys=keys, forward_s=times[0], backward_s=times[1]))

    for dim in (64, 128, 96, 100, 80, 256):
        for tokens in (256, 512, 1024, 2048, 4096, 8192, 16384):
            for heads, kv_heads in ((32, 32), (32, 8)):
                if late() or (kv_heads == 8 and (dim != 128 or tokens not in (1024, 8192))):
                    continue
                batch = max(1, 8192 // tokens)

                def both():
                    # As a network has them: heads beside each other in a token.
                    q = torch.randn(batch, tokens, heads, dim, device=DEVICE, dtype=BF16).transpose(1, 2).requires_grad_()
                    k, v = (torch.randn(batch, tokens, kv_heads, dim, device=DEVICE, dtype=BF16).transpose(1, 2)
                            .requires_grad_() for _ in range(2))
                    extra = {"enable_gqa": True} if kv_heads != heads else {}
                    run = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, **extra)
                    with torch.no_grad():
                        forward = device_s(run, count=3)
                    out = run()
                    gradient = torch.randn_like(out)
                    backward = device_s(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True), count=2)
                    return forward, backward

                times = guarded(f"attention {dim} {tokens}", both)
                if times is not None:
                    point(batch, heads, kv_heads, dim, tokens, tokens, times)

    caches = [(1, 512), (1, 2048), (1, 8192), (4, 8192), (16, 2048), (64, 1024), (64, 2048), (256, 512), (8, 16384)]
    for dim, heads, kv_heads in ((128, 32, 32), (128, 32, 8), (64, 16, 16), (100, 32, 32), (96, 16, 16)):
        for batch, keys in caches:
            if late():
                continue

            def decode():
                q = torch.randn(batch, heads, 1, dim, device=DEVICE, dtype=BF16)
                k, v = (torch.randn(batch, kv_heads, keys, dim, device=DEVICE, dtype=BF16) for _ in range(2))
                extra = {"enable_gqa": True} if kv_heads != heads else {}
                with torch.no_grad():
                    return graph_s(lambda: F.scaled_dot_product_attention(q, k, v, **extra), count=4)

            seconds = guarded(f"decode {dim} {batch}x{keys}", decode)
            if seconds is not None:
                point(batch, heads, kv_heads, dim, 1, keys, (seconds, None))


for part in (dispatch, mixture, floors, operations, attention):
    guarded(part.__name__, part)
    print(part.__name__, round(time.perf_counter() - BEGAN, 1), "s", file=sys.stderr)
found["attention_skipped_late"] = late()
json.dump(found, sys.stdout)

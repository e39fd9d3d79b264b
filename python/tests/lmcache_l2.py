"""LMCache's own L2 path around the serde `trinity`: its L1, its adapter of files, its wrapper. Run by test_lmcache.py.

    python lmcache_l2.py FOLDER OUT.json
"""

from __future__ import annotations

import json
import os
import select
import sys
from pathlib import Path

import torch
from folders import flipped
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.config import L1ManagerConfig, L1MemoryManagerConfig
from lmcache.v1.distributed.l1_manager import L1Manager
from lmcache.v1.distributed.l2_adapters.fs_l2_adapter import FSL2Adapter, FSL2AdapterConfig
from lmcache.v1.distributed.l2_adapters.serde_wrapper import SerdeL2AdapterWrapper
from lmcache.v1.distributed.serde import SerdeConfig, create_serde_processor, get_registered_serde_types

import trinity.lmcache

SHAPE, DTYPE = torch.Size([2, 4, 256, 64]), torch.bfloat16
LAYOUT = MemoryLayoutDesc(shapes=[SHAPE], dtypes=[DTYPE])


def _key(number: int) -> ObjectKey:
    return ObjectKey(chunk_hash=number.to_bytes(32, "little"), model_name="model", kv_rank=0)


def _wait(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(60_000), "LMCache did not answer in a minute"


class Cache:
    """What a server has of LMCache: memory, files, and a serde between them."""

    def __init__(self, folder: Path) -> None:
        memory = L1MemoryManagerConfig(size_in_bytes=256 << 20, use_lazy=False, shm_name="")
        self.l1 = L1Manager(L1ManagerConfig(memory_config=memory))
        self.serde = create_serde_processor(SerdeConfig(type="trinity", kwargs={"bits": 3}))
        self.l2 = SerdeL2AdapterWrapper(FSL2Adapter(FSL2AdapterConfig(str(folder))), self.serde, self.l1)
        self.tag = 0

    def _objects(self, keys: list[ObjectKey]) -> list:
        self.tag += 1
        found = self.l1.reserve_write(keys, [True] * len(keys), LAYOUT, tag=f"test {self.tag}")
        return [found[key][1] for key in keys]

    def store(self, keys: list[ObjectKey], tensors: list[torch.Tensor]) -> bool:
        objects = self._objects(keys)
        for one, tensor in zip(objects, tensors):
            one.tensor.copy_(tensor)
        task = self.l2.submit_store_task(keys, objects)
        done: dict = {}
        while task not in done:
            _wait(self.l2.get_store_event_fd())
            done.update(self.l2.pop_completed_store_tasks())
        return bool(done[task].is_successful() if hasattr(done[task], "is_successful") else done[task].success)

    def load(self, keys: list[ObjectKey]) -> tuple[list[bool], list[torch.Tensor]]:
        objects = self._objects(keys)
        task = self.l2.submit_load_task(keys, objects)
        while (bitmap := self.l2.query_load_result(task)) is None:
            _wait(self.l2.get_load_event_fd())
        return [bool(bitmap.test(at)) for at in range(len(keys))], [one.tensor.clone() for one in objects]


def main(folder: Path, out: Path) -> None:
    trinity.lmcache.register()
    trinity.lmcache.register()
    torch.manual_seed(1)
    tensors = [(torch.randn(SHAPE) * torch.rand(SHAPE[-1])).to(DTYPE) for _ in range(2)]
    keys = [_key(1), _key(2)]
    cache = Cache(folder)
    found: dict = {"registered": get_registered_serde_types(), "stored": cache.store(keys, tensors)}
    found["loaded"], values = cache.load(keys)
    found["errors"] = [float((a.float() - b.float()).pow(2).sum() / b.float().pow(2).sum()) for a, b in zip(values, tensors)]
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    found["file_bytes"] = [path.stat().st_size for path in files]
    found["estimate_bytes"] = cache.serde.estimate_serialized_size(LAYOUT)
    found["plain_bytes"] = tensors[0].numel() * 2
    second = Cache(folder)
    found["again"], _ = second.load(keys)
    whole = [path.read_bytes() for path in files]
    for name, bytes_, key in ("flipped", flipped(whole[0], len(whole[0]) // 2), 1), ("cut", whole[0][: len(whole[0]) // 2], 1), ("swapped", whole[1], 1):
        files[0].write_bytes(bytes_)
        found[name], _ = second.load([_key(key)])
    tensors[0][0, 0, 0, 0] = float("nan")
    found["not_finite_stored"] = second.store([_key(9)], tensors[:1])
    for name, config in ("bad_option", SerdeConfig("trinity", {"bit": 3})), ("bad_name", SerdeConfig("trinty", {})):
        try:
            create_serde_processor(config)
            found[name] = ""
        except ValueError as error:
            found[name] = str(error)
    out.write_text(json.dumps(found))
    sys.stdout.flush()
    # Threads of the adapters would be waited for.
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""The connector: which blocks of a prompt are kept, which are brought back, and what happens where one cannot be.

Blocks of prompts are coded after the step that computed them, in a thread of their own, from a copy. A block that is
not served is recomputed by vLLM (``kv_load_failure_policy = "recompute"``, which is insisted on), and nothing that was
computed in the same step on top of it is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole
from vllm.logger import init_logger

import trinity

from ._order import order
from ._store import BlockStore, Refused, chain, parts

logger = init_logger("vllm.trinity")

_OPTIONS = {"folder", "bits", "codec", "sink", "capacity_bytes", "memory_bytes", "threads"}
#: Tokens of a prompt's beginning that keep every bit: at 3 bits a fifth of the loss, for 0.07 bit (docs/integrations.md).
_SINK = 4
#: Blocks that may wait to be coded; beyond that a step waits, so that memory stays bounded.
_WAITING = 64
_DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


@dataclass
class Moved:
    """A block on its way: of which request, which of its blocks, under which key, where in the paged cache."""

    request: str
    index: int
    key: str
    block: int


@dataclass
class Step(KVConnectorMetadata):
    """What the worker is to do around one forward pass."""

    loads: list[Moved] = field(default_factory=list)
    saves: list[Moved] = field(default_factory=list)
    #: The first block that a request computes in this step.
    computes_from: dict[str, int] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)


def fingerprint(model: str) -> str:
    """A hash of a model's configuration and of the beginnings and ends of its weights; of its name, where it is no folder."""
    folder, digest = Path(model), hashlib.blake2b(digest_size=16)
    digest.update(model.encode() if not folder.is_dir() else b"folder")
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.name == "config.json":
                digest.update(path.read_bytes())
            elif path.suffix in {".safetensors", ".bin", ".gguf", ".tri"}:
                size = path.stat().st_size
                digest.update(f"{path.name} {size}".encode())
                with open(path, "rb") as file:
                    digest.update(file.read(1 << 16))
                    file.seek(max(size - (1 << 16), 0))
                    digest.update(file.read(1 << 16))
    return digest.hexdigest()


def _lasting(config: Any) -> Any:
    """A configuration without where it was read from, and by which version of transformers."""
    if isinstance(config, dict):
        return {str(key): _lasting(one) for key, one in config.items() if not str(key).startswith("_") and key != "transformers_version"}
    return config


def _served(vllm_config: Any) -> dict[str, str]:
    """What an engine makes of a model: options may change what its files say, and so its keys and values."""
    model, load = vllm_config.model_config, getattr(vllm_config, "load_config", None)
    own: Any = getattr(model, "hf_config", None)
    config = json.dumps(_lasting(own.to_dict()), sort_keys=True, default=str) if hasattr(own, "to_dict") else ""
    return {
        "config": hashlib.blake2b(config.encode(), digest_size=16).hexdigest(),
        "quantization": str(getattr(model, "quantization", None)),
        "revision": str(getattr(model, "revision", None)),
        "weights": str(getattr(load, "load_format", None)),
    }


class TrinityConnector(KVConnectorBase_V1):  # type: ignore[misc, unused-ignore]
    """KV blocks of prompts, coded, in a folder that engines share and that outlives them."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        config = self._kv_transfer_config
        extra = dict(config.kv_connector_extra_config or {})
        unknown = sorted(extra.keys() - _OPTIONS)
        if unknown:
            raise ValueError(f"TrinityConnector has no option `{unknown[0]}`; it has {', '.join(sorted(_OPTIONS))}")
        if "folder" not in extra:
            raise ValueError("TrinityConnector needs kv_connector_extra_config.folder: where blocks are kept")
        if getattr(config, "kv_load_failure_policy", "recompute") != "recompute":
            raise ValueError('TrinityConnector needs kv_load_failure_policy = "recompute": a damaged block is computed anew')
        groups = getattr(kv_cache_config, "kv_cache_groups", ()) or ()
        if len(groups) > 1:
            raise ValueError(f"TrinityConnector knows models with one kind of KV cache, and this one has {len(groups)}")
        self._block = vllm_config.cache_config.block_size
        model, parallel = vllm_config.model_config, vllm_config.parallel_config
        bits = extra.get("bits", 3.0)
        bits = None if bits in (None, "lossless") else float(bits)
        codec = extra.get("codec")
        # Where every bit is kept there is nothing to spare.
        self._sink = 0 if bits is None else int(extra.get("sink", _SINK))
        if not 0 <= self._sink <= self._block:
            raise ValueError(f"TrinityConnector: a sink of {self._sink} tokens, and a block has {self._block}")
        what = {
            "model": fingerprint(model.model), **_served(vllm_config), "dtype": str(vllm_config.cache_config.cache_dtype), "of": str(model.dtype),
            "block": self._block, "ranks": [parallel.tensor_parallel_size, parallel.pipeline_parallel_size],
            "bits": bits, "codec": codec, "sink": self._sink, "order": "tokens", "trinity": trinity.__version__,
        }
        identity = hashlib.blake2b(json.dumps(what, sort_keys=True).encode(), digest_size=16).hexdigest()
        #: Where ranks hold different heads, their blocks are different ones; the scheduler asks for rank 0's.
        self._rank = getattr(parallel, "rank", 0) if role == KVConnectorRole.WORKER else 0
        folder = Path(os.fspath(extra["folder"])) / f"{identity}-{self._rank}"
        sizes = {name: int(extra[name]) for name in ("capacity_bytes", "memory_bytes") if name in extra}
        self._identity = identity
        self._store = BlockStore(folder, identity, bits=bits, codec=codec, say=logger.warning, **sizes)
        # Scheduler.
        self._keys: dict[str, list[str]] = {}
        self._blocks: dict[str, list[int]] = {}
        self._loading: dict[str, list[Moved]] = {}
        #: Blocks of a request that the engine has itself: those of ours come behind.
        self._local: dict[str, int] = {}
        self._finished: list[str] = []
        # Worker.
        self._caches: dict[str, torch.Tensor] = {}
        #: By layer, where values of a head stand in memory, and the way back; only where shapes do not say it.
        self._orders: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        self._pool = ThreadPoolExecutor(int(extra.get("threads", 1)), thread_name_prefix="trinity-kv")
        self._waiting: list[Future[Any]] = []
        self._failed_blocks: set[int] = set()
        #: The first block of a request that could not be loaded: what is computed on top of it is not kept.
        self._poisoned: dict[str, int] = {}

    # The scheduler's side.

    def _keys_of(self, request: Any) -> list[str]:
        known = self._keys.get(request.request_id)
        if known is None:
            extras = [str(one.identifier) for one in (getattr(request, "mm_features", None) or [])]
            lora = getattr(request, "lora_request", None)
            extras += [f"lora {lora.lora_name} {lora.lora_path}"] if lora is not None else []
            salt = getattr(request, "cache_salt", None)
            extras += [f"salt {salt}"] if salt else []
            tokens = request.prompt_token_ids
            # Embeddings instead of tokens have no content to go by.
            known = [] if tokens is None else chain(self._identity, tokens, self._block, extras)
            self._keys[request.request_id] = known
        return known

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        keys = self._keys_of(request)
        # The last token is always computed: its logits are wanted.
        most = (len(request.prompt_token_ids or []) - 1) // self._block
        first = num_computed_tokens // self._block
        if num_computed_tokens % self._block:
            return 0, False
        self._local[request.request_id] = found = first
        while found < min(most, len(keys)) and keys[found] in self._store:
            found += 1
        return (found - first) * self._block, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens == 0:
            return
        own = blocks.get_block_ids()[0]
        keys = self._keys_of(request)
        first, count = self._local.get(request.request_id, 0), num_external_tokens // self._block
        self._loading[request.request_id] = [
            Moved(request.request_id, at, keys[at], own[at]) for at in range(first, first + count)
        ]

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        step = Step(finished=self._finished)
        self._finished = []
        scheduled = scheduler_output.num_scheduled_tokens
        for new in scheduler_output.scheduled_new_reqs:
            self._blocks[new.req_id] = list(new.block_ids[0])
            self._plan(step, new.req_id, new.num_computed_tokens, scheduled[new.req_id])
        cached = scheduler_output.scheduled_cached_reqs
        for at, request in enumerate(cached.req_ids):
            blocks = cached.new_block_ids[at]
            if request in cached.resumed_req_ids:
                self._blocks[request] = list(blocks[0]) if blocks else []
            elif blocks:
                self._blocks.setdefault(request, []).extend(blocks[0])
            self._plan(step, request, cached.num_computed_tokens[at], scheduled[request])
        return step

    def _plan(self, step: Step, request: str, computed: int, scheduled: int) -> None:
        step.loads.extend(self._loading.pop(request, []))
        keys, blocks = self._keys.get(request, []), self._blocks.get(request, [])
        first, last = computed // self._block, (computed + scheduled) // self._block
        step.computes_from[request] = first
        for at in range(first, min(last, len(keys), len(blocks))):
            if keys[at] not in self._store:
                step.saves.append(Moved(request, at, keys[at], blocks[at]))

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        for kept in (self._keys, self._blocks, self._loading, self._local):
            kept.pop(request.request_id, None)
        self._finished.append(request.request_id)
        return False, None

    # The worker's side.

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self._caches = dict(kv_caches)
        for name, cache in self._caches.items():
            if cache.dtype not in _DTYPES:
                raise ValueError(f"TrinityConnector knows KV caches of f32, f16 and bf16, and {name} is {cache.dtype}")
        known: dict[Any, torch.Tensor | None] = {}
        for name, cache in self._caches.items():
            # Heads, tokens, and the channels of keys and of values.
            if cache.dim() != 4 or cache.shape[2] != self._block or cache.shape[3] % 2:
                continue
            kind = (cache.dtype, self._block, int(cache.shape[3]) // 2)
            if kind not in known:
                known[kind] = order(*kind)
            there = known[kind]
            if there is not None:
                self._orders[name] = (there, there.argsort())

    def _wholes(self, moved: Moved) -> dict[str, torch.Tensor]:
        """A block in every layer, by name: where its shape says what is where, the cache itself, else a copy token by token."""
        found = {}
        for name, cache in self._caches.items():
            own = cache[moved.block]
            if name in self._orders:
                heads = own.shape[0]
                own = own.reshape(heads, -1)[:, self._orders[name][1]].view(heads, 2, self._block, -1)
            found[name] = own
        return found

    def _views(self, wholes: dict[str, torch.Tensor], index: int) -> dict[str, torch.Tensor]:
        """The parts of a block, by name; those of a prompt's first block that keep every bit end in `sink`."""
        found = {}
        for name, own in wholes.items():
            for part, where in parts(own.shape, self._block, self._sink if index == 0 else 0).items():
                found[f"{name} {part}".rstrip()] = own[where]
        return found

    def _put_back(self, moved: Moved, wholes: dict[str, torch.Tensor]) -> None:
        """Writes copies into the cache, in the order that attention wants."""
        for name, (there, _) in self._orders.items():
            own = self._caches[name][moved.block]
            own.copy_(wholes[name].reshape(own.shape[0], -1)[:, there].view(own.shape))

    def start_load_kv(self, forward_context: Any, **keywords: Any) -> None:
        step = self._get_connector_metadata()
        assert isinstance(step, Step)
        for request in step.finished:
            self._poisoned.pop(request, None)
        for request, first in step.computes_from.items():
            if request in self._poisoned and first <= self._poisoned[request]:
                del self._poisoned[request]
        for moved in step.loads:
            wholes = self._wholes(moved)
            views = self._views(wholes, moved.index)
            expected = {name: (_DTYPES[own.dtype], _matrix(own.shape)) for name, own in views.items()}
            try:
                found = self._store.get(moved.key, expected)
            except Refused as why:
                logger.warning("block %d of request %s is computed anew: %s", moved.index, moved.request, why)
                self._failed_blocks.add(moved.block)
                self._poisoned[moved.request] = min(moved.index, self._poisoned.get(moved.request, moved.index))
                continue
            for name, values in found.items():
                views[name].copy_(values.reshape(views[name].shape))
            self._put_back(moved, wholes)

    def wait_for_layer_load(self, layer_name: str) -> None:
        return

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **keywords: Any) -> None:
        return

    def wait_for_save(self) -> None:
        step = self._get_connector_metadata()
        assert isinstance(step, Step)
        for moved in step.saves:
            if moved.request in self._poisoned or moved.key in self._store:
                continue
            # A copy, since the engine may use the block again at once.
            views = self._views(self._wholes(moved), moved.index)
            held = {name: own.clone().cpu().reshape(_matrix(own.shape)) for name, own in views.items()}
            self._waiting = [one for one in self._waiting if not one.done()]
            while len(self._waiting) >= _WAITING:
                self._waiting.pop(0).result()
            self._waiting.append(self._pool.submit(self._keep, moved.key, held))

    def _keep(self, key: str, held: dict[str, torch.Tensor]) -> None:
        try:
            self._store.put(key, held, exact=[name for name in held if name.endswith(" sink")])
        except Exception:
            # What is not kept is computed again: serving goes on.
            logger.exception("block %s is not kept", key)

    def get_block_ids_with_load_errors(self) -> set[int]:
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    def shutdown(self) -> None:
        self._pool.shutdown(wait=True)
        if self._role == KVConnectorRole.WORKER:
            logger.info("trinity: %s", self._store.stats)


def _matrix(shape: Any) -> tuple[int, int]:
    """Rows of a head's channels: what a codec of KV caches wants."""
    rows = 1
    for side in shape[:-1]:
        rows *= int(side)
    return rows, int(shape[-1])

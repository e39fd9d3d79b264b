"""The connector: which blocks of a prompt are kept, which are brought back, and what happens where one cannot be.

A block that is not served is recomputed by vLLM (``kv_load_failure_policy = "recompute"``, which is insisted on), and
nothing that was computed in the same step on top of it is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole
from vllm.logger import init_logger

import trinity

from ._basis import Basis
from ._form import Form
from ._frame import NotUndone, Rope, rope_of
from ._identity import Adapters, model_of, served
from ._layout import by_block, layout, order, unknown
from ._store import BlockStore, chain, store_name
from ._worker import Group, Moved, Taken, Worker

logger = init_logger("vllm.trinity")

_OPTIONS = {"folder", "bits", "basis", "codec", "sink", "rope", "capacity_bytes", "memory_bytes", "threads"}
#: Tokens of a prompt's beginning that keep every bit: at 3 bits a fifth of the loss, for 0.07 bit (docs/integrations.md).
_SINK = 4
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
#: Whether keys are coded as they were before rotary positions.
_ROPES = ("undo", "keep")
Number = TypeVar("Number", int, float)


@dataclass
class Step(KVConnectorMetadata):
    """What the worker is to do around one forward pass."""

    loads: list[Moved] = field(default_factory=list)
    saves: list[Moved] = field(default_factory=list)
    #: The first block that a request computes in this step.
    computes_from: dict[str, int] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)


class TrinityConnector(KVConnectorBase_V1):  # type: ignore[misc, unused-ignore]
    """KV blocks of prompts, coded, in a folder that engines share and that outlives them."""

    #: What is done with blocks instead of keeping them.
    taken: Taken | None = None

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        config = self._kv_transfer_config
        extra = dict(config.kv_connector_extra_config or {})
        unknown = sorted(extra.keys() - _OPTIONS)
        if unknown:
            raise ValueError(f"TrinityConnector has no option `{unknown[0]}`; it has {', '.join(sorted(_OPTIONS))}")
        if extra.get("folder") is None:
            raise ValueError("TrinityConnector needs kv_connector_extra_config.folder: where blocks are kept")
        for name in "folder", "basis":
            if extra.get(name) is not None and not isinstance(extra[name], (str, os.PathLike)):
                raise ValueError(f"TrinityConnector: {name}={extra[name]!r}, expected a path")
        if getattr(config, "kv_load_failure_policy", "recompute") != "recompute":
            raise ValueError('TrinityConnector needs kv_load_failure_policy = "recompute": a damaged block is computed anew')
        groups = getattr(kv_cache_config, "kv_cache_groups", ()) or ()
        if len(groups) > 1:
            raise ValueError(f"TrinityConnector knows models with one kind of KV cache, and this one has {len(groups)}")
        self._block = vllm_config.cache_config.block_size
        parallel = vllm_config.parallel_config
        bits = None if extra.get("bits", 3.0) in (None, "lossless") else _number(extra, "bits", float, 3.0)
        codec = extra.get("codec")
        # Where every bit is kept there is nothing to spare.
        self._sink = None if bits is None else _number(extra, "sink", int, _SINK)
        if self._sink is not None and not 0 <= self._sink <= self._block:
            raise ValueError(f"TrinityConnector: a sink of {self._sink} tokens, and a block has {self._block}")
        self._undo = extra.get("rope", _ROPES[0])
        if self._undo not in _ROPES:
            raise ValueError(f"TrinityConnector: rope={self._undo!r}, expected one of {', '.join(_ROPES)}")
        self._basis = _basis_of(extra.get("basis"), bits, vllm_config)
        self._basis_path = extra.get("basis")
        self._heads = _head_sizes(groups)
        what = {
            **served(vllm_config), "dtype": str(vllm_config.cache_config.cache_dtype), "block": self._block,
            "ranks": [parallel.tensor_parallel_size, parallel.pipeline_parallel_size],
            "bits": bits, "codec": codec, "sink": self._sink, "rope": self._undo, "form": "layers",
            "basis": None if self._basis is None else self._basis.identity, "trinity": trinity.__version__,
        }
        identity = hashlib.blake2b(json.dumps(what, sort_keys=True).encode(), digest_size=16).hexdigest()
        #: Where ranks hold different heads, their blocks are different ones; the scheduler asks for rank 0's.
        self._rank = getattr(parallel, "rank", 0) if role == KVConnectorRole.WORKER else 0
        folder = Path(extra["folder"])
        sizes = {name: _number(extra, name, int, 0) for name in ("capacity_bytes", "memory_bytes") if name in extra}
        self._identity = identity
        own = folder / store_name(identity, self._rank)
        self._store = BlockStore(own, identity, bits=bits, codec=codec, shared=folder, say=logger.warning, **sizes)
        # Scheduler.
        self._adapters = Adapters(logger.warning)
        self._keys: dict[str, list[str]] = {}
        self._blocks: dict[str, list[int]] = {}
        self._loading: dict[str, list[Moved]] = {}
        #: Blocks of a request that the engine has itself: those of ours come behind.
        self._local: dict[str, int] = {}
        self._finished: list[str] = []
        # Worker.
        self._threads = _number(extra, "threads", int, 1)
        if self._threads < 1:
            raise ValueError(f"TrinityConnector: threads={self._threads}, expected 1 or more")
        self._blocks_of_cache = int(getattr(kv_cache_config, "num_blocks", 0) or 0)
        self.worker: Worker | None = None
        self._failed_blocks: set[int] = set()
        #: The first block of a request that could not be loaded: what is computed on top of it is not kept.
        self._poisoned: dict[str, int] = {}

    # The scheduler's side.

    def _keys_of(self, request: Any) -> list[str]:
        if request.request_id not in self._keys:
            tokens, extras = request.prompt_token_ids, self._extras(request)
            # Embeddings instead of tokens have no content to go by.
            known = [] if tokens is None or extras is None else chain(self._identity, tokens, self._block, extras)
            self._keys[request.request_id] = known
        return self._keys[request.request_id]

    def _extras(self, request: Any) -> list[str] | None:
        """What decides about a request's values beside its tokens; nothing where that is not known."""
        extras = [str(one.identifier) for one in (getattr(request, "mm_features", None) or [])]
        lora = getattr(request, "lora_request", None)
        if lora is not None:
            own = self._adapters.identity(lora)
            if own is None:
                return None
            extras.append(own)
        salt = getattr(request, "cache_salt", None)
        return [*extras, f"salt {salt}"] if salt else extras

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
        kinds: dict[Any, list[torch.Tensor]] = {}
        for name, cache in kv_caches.items():
            if cache.dtype not in _DTYPES:
                raise ValueError(f"TrinityConnector knows KV caches of f32, f16 and bf16, and {name} is {cache.dtype}")
            own = by_block(cache, self._blocks_of_cache)
            kinds.setdefault((own.dtype, tuple(own.shape[1:])), []).append(own)
        groups = [self._group(caches) for caches in kinds.values()]
        self.worker = Worker(self._store, groups, logger, threads=self._threads, taken=self.taken)

    def _group(self, caches: list[torch.Tensor]) -> Group:
        dtype, shape = caches[0].dtype, caches[0].shape[1:]
        there = None
        heads, width = self._heads or ((int(shape[0]), int(shape[2]) // 2) if len(shape) == 3 and shape[1] == self._block else (0, 0))
        if width and tuple(shape[-3::2]) == (heads, 2 * width):
            # Heads, tokens, and the channels of keys and of values: attention on CPUs has an order of its own in each head.
            there = order(dtype, int(shape[-2]), width)
        known = layout(shape, self._block, heads, width, there)
        if known is None:
            logger.warning("trinity: blocks of %s are coded as they lie: which of their sides are tokens and heads is not clear", tuple(shape))
            known = unknown(shape)
            sink = None if self._sink is None else known.tokens if self._sink else 0
            return Group(caches, known, self._checked(Form(len(caches), dtype, known.tokens, known.heads, known.width, sink)))
        rope = self._rope(known.width)
        form = Form(len(caches), dtype, known.tokens, known.heads, known.width, self._sink, rope, self._basis)
        return Group(caches, known, self._checked(form))

    def _checked(self, form: Form) -> Form:
        if self._basis is not None:
            self._basis.held_against_shape(str(self._basis_path), form.shape)
        return form

    def _rope(self, width: int) -> Rope | None:
        if self._undo == "keep" or self._sink is None:
            return None
        try:
            return rope_of(_rotary_modules(), width)
        except NotUndone as why:
            logger.warning("trinity: keys are coded as attention keeps them: %s", why)
            return None

    def start_load_kv(self, forward_context: Any, **keywords: Any) -> None:
        step = self._get_connector_metadata()
        assert isinstance(step, Step)
        for request in step.finished:
            self._poisoned.pop(request, None)
        for request, first in step.computes_from.items():
            if request in self._poisoned and first <= self._poisoned[request]:
                del self._poisoned[request]
        if self.worker is None:
            return
        for moved, why in self.worker.load(step.loads):
            logger.warning("block %d of request %s is computed anew: %s", moved.index, moved.request, why)
            self._failed_blocks.add(moved.block)
            self._poisoned[moved.request] = min(moved.index, self._poisoned.get(moved.request, moved.index))

    def wait_for_layer_load(self, layer_name: str) -> None:
        return

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **keywords: Any) -> None:
        return

    def wait_for_save(self) -> None:
        step = self._get_connector_metadata()
        assert isinstance(step, Step)
        if self.worker is not None:
            self.worker.save([moved for moved in step.saves if moved.request not in self._poisoned])

    def get_block_ids_with_load_errors(self) -> set[int]:
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    def shutdown(self) -> None:
        if self.worker is not None:
            self.worker.shutdown()
        if self._role == KVConnectorRole.WORKER:
            logger.info("trinity: %s", self._store.stats)


def _number(extra: dict[str, Any], name: str, kind: type[Number], otherwise: Number) -> Number:
    """An option that is a number, or a sentence that it is none."""
    try:
        return kind(extra.get(name, otherwise))
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"TrinityConnector: {name}={extra[name]!r}, expected a {'whole ' if kind is int else ''}number") from None


def _basis_of(path: Any, bits: float | None, vllm_config: Any) -> Basis | None:
    """The basis that the options name, once it is known to be of this model."""
    if path is None:
        return None
    if bits is None:
        raise ValueError("TrinityConnector: a basis is for blocks at a rate, and bits is null: every bit is kept as it is")
    basis = Basis.open(path)
    basis.held_against(path, *model_of(vllm_config))
    return basis


def _head_sizes(groups: Any) -> tuple[int, int] | None:
    """Heads of a cache and their channels, where vLLM says so."""
    spec = getattr(groups[0], "kv_cache_spec", None) if groups else None
    heads, width = getattr(spec, "num_kv_heads", None), getattr(spec, "head_size", None)
    return (int(heads), int(width)) if heads and width else None


def _rotary_modules() -> list[Any]:
    """The rotary embeddings that this process's model was built with."""
    try:
        from vllm.model_executor.layers.rotary_embedding import _ROPE_DICT
    except ImportError:
        return []
    return list(_ROPE_DICT.values())

"""The worker's side: blocks out of the paged cache and into it, on the host or on the GPU that it lies on.

Blocks are copied in the step that computed them, coded in a thread of their own, and loaded before the step that reads
them. On a GPU, where codec and rate have kernels, they are packed, coded and decoded there: a step queues copies of
what is kept, and what is loaded, and waits for nothing of either. Knows tensors, stores and devices; knows nothing of
engines.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from ._form import Form
from ._layout import Layout
from ._store import BlockStore, Expected, Refused

#: Blocks that may wait to be coded, and bytes of them on a GPU; beyond that a step waits, so that memory stays bounded.
_WAITING, _WAITING_BYTES = 64, 256 << 20
#: Blocks that are coded at once, and decoded at once on the host.
_TOGETHER = 8
#: Bytes of decoded values on a GPU at once.
_DECODED_BYTES = 256 << 20


@dataclass
class Moved:
    """A block on its way: of which request, which of its blocks, under which key, where in the paged cache."""

    request: str
    index: int
    key: str
    block: int


@dataclass
class Group:
    """Layers whose blocks are of one shape and number format, and are coded together."""

    caches: list[torch.Tensor]
    layout: Layout
    form: Form

    @property
    def values(self) -> int:
        form = self.form
        return 2 * form.layers * form.tokens * form.heads * form.width


#: What is done with blocks that were copied, in a thread of its own.
Taken = Callable[[Moved, list[torch.Tensor]], None]


class Worker:
    """Moves blocks between the paged cache of ``groups`` and a store.

    ``taken`` is done with copies of blocks on the host instead of keeping them.
    """

    def __init__(self, store: BlockStore, groups: Sequence[Group], log: logging.Logger, *, threads: int = 1, taken: Taken | None = None) -> None:
        self.store, self.groups, self._log = store, list(groups), log
        self._taken = taken or self._keep
        #: Bytes of a block in the cache.
        self._plain = sum(group.values * group.caches[0].element_size() for group in self.groups)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="trinity-kv")
        #: What waits to be coded, and how many blocks of it each is.
        self._waiting: list[tuple[Future[Any], int]] = []
        self._most, self._at_once = _WAITING, _TOGETHER
        self._coder: Any = None
        self._side: Any = None
        devices = {cache.device for group in self.groups for cache in group.caches}
        if taken is None and len(devices) == 1 and self.store.bits is not None:
            self._on_device(*devices)

    def _on_device(self, device: torch.device) -> None:
        """Codes blocks where they lie, where there are kernels for that."""
        if device.type != "cuda":
            return
        from ._device import CODECS, DeviceCoder

        if self.store.bits is None or self.store.codec not in CODECS:
            return
        self._coder = DeviceCoder(self.store.bits, self.store.codec, device)
        self._side = torch.cuda.Stream(device)
        values = sum(group.values for group in self.groups)
        self._most = min(max(_WAITING_BYTES // self._plain, 1), _WAITING)
        self._at_once = min(max(_DECODED_BYTES // (4 * values), 1), _WAITING)

    def expected(self, index: int) -> Expected:
        """What a prompt's block of that index is coded as."""
        return {f"{name} {at}": one for at, group in enumerate(self.groups) for name, one in group.form.expected(index).items()}

    def _packed(self, held: Sequence[torch.Tensor], index: int) -> tuple[dict[str, torch.Tensor], list[str]]:
        """Matrices of a copied block, and the names of those that keep every bit."""
        tensors: dict[str, torch.Tensor] = {}
        exact: list[str] = []
        for at, (group, block) in enumerate(zip(self.groups, held)):
            tensors |= {f"{name} {at}": one for name, one in group.form.pack(block, index).items()}
            exact += [f"{name} {at}" for name in group.form.exact]
        return tensors, exact

    def load(self, loads: Sequence[Moved]) -> list[tuple[Moved, Refused]]:
        """Puts blocks of the store into the cache, as many decoded at once as memory allows; those that are not served, and why."""
        failed = []
        for start in range(0, len(loads), self._at_once):
            part = loads[start : start + self._at_once]
            found = self.store.get_many([(moved.key, self.expected(moved.index)) for moved in part], streams=self._coder and self._coder.decode)
            served = [(moved, tensors) for moved, tensors in zip(part, found) if not isinstance(tensors, Refused)]
            failed += [(moved, why) for moved, why in zip(part, found) if isinstance(why, Refused)]
            put = self._put if self._coder is None else self._put_on_device
            for at, group in enumerate(self.groups):
                put(group, [(moved, {name: tensors[f"{name} {at}"] for name in group.form.expected(moved.index)}) for moved, tensors in served])
        return failed

    def _put(self, group: Group, served: Sequence[tuple[Moved, dict[str, torch.Tensor]]]) -> None:
        for moved, tensors in served:
            block = group.form.unpack(tensors, moved.index)
            group.layout.write(block.to(group.caches[0].device), [cache[moved.block] for cache in group.caches])

    def _put_on_device(self, group: Group, served: Sequence[tuple[Moved, dict[str, torch.Tensor]]]) -> None:
        """Blocks that are coded as the same tensors go together: few launches for many of them."""
        alike: dict[tuple[str, ...], list[tuple[Moved, dict[str, torch.Tensor]]]] = {}
        for one in served:
            alike.setdefault(tuple(one[1]), []).append(one)
        # What was decoded on the host, and where blocks go, in one copy.
        places = [torch.tensor([moved.block for moved, _ in own]) for own in alike.values()]
        hosts = [(own, name) for _, own in served for name, one in own.items() if one.device != self._coder.device]
        there = self._coder.to_device([*places, *(own[name] for own, name in hosts)])
        for (own, name), one in zip(hosts, there[len(places) :]):
            own[name] = one
        for own, place in zip(alike.values(), there):
            blocks = group.layout.placed(group.form.unpack_many([tensors for _, tensors in own], [moved.index for moved, _ in own]))
            for at, cache in enumerate(group.caches):
                cache.index_copy_(0, place, blocks[:, at])

    def save(self, saves: Sequence[Moved]) -> None:
        """Copies blocks, since the engine may use them again at once, and has them coded."""
        wanted = [moved for moved in saves if self.store.takes(moved.key)]
        if self._coder is None:
            for moved in wanted:
                self._submit(1, self._taken, moved, [one.cpu() for one in self._copied(moved)])
            return
        for start in range(0, len(wanted), _TOGETHER):
            part = wanted[start : start + _TOGETHER]
            try:
                (place,) = self._coder.to_device([torch.tensor([moved.block for moved in part])])
                # As they lie: to arrange them is the other thread's work.
                held = [[cache.index_select(0, place) for cache in group.caches] for group in self.groups]
            except torch.OutOfMemoryError:
                self._log.warning("%d blocks are not kept: there is no memory on %s for copies of them", len(part), self._coder.device)
                return
            ready = torch.cuda.Event()
            ready.record()
            self._submit(len(part), self._keep_on_device, part, held, ready)

    def _copied(self, moved: Moved) -> list[torch.Tensor]:
        return [group.layout.read([cache[moved.block] for cache in group.caches]) for group in self.groups]

    def _submit(self, blocks: int, work: Callable[..., None], *arguments: Any) -> None:
        self._waiting = [one for one in self._waiting if not one[0].done()]
        while self._waiting and sum(count for _, count in self._waiting) + blocks > self._most:
            self._waiting.pop(0)[0].result()
        self._waiting.append((self._pool.submit(work, *arguments), blocks))

    def _not_finite(self, moved: Moved) -> None:
        self._log.warning("block %d of request %s is not kept: it has values that are not finite", moved.index, moved.request)

    @contextlib.contextmanager
    def _going_on(self, *moved: Moved) -> Iterator[None]:
        """What is not kept is computed again: serving goes on."""
        try:
            yield
        except Exception:
            self._log.exception("%s not kept", ", ".join(f"block {one.key}" for one in moved) + (" is" if len(moved) == 1 else " are"))

    def _keep(self, moved: Moved, held: list[torch.Tensor]) -> None:
        with self._going_on(moved):
            if self.store.bits is not None and not all(bool(one.isfinite().all()) for one in held):
                self._not_finite(moved)
                return
            tensors, exact = self._packed(held, moved.index)
            self.store.put(moved.key, tensors, exact=exact, plain=self._plain)

    def _keep_on_device(self, part: list[Moved], held: list[list[torch.Tensor]], ready: Any) -> None:
        good: list[tuple[Moved, dict[str, torch.Tensor], list[str]]] = []
        coded: list[dict[str, Any]] = []
        with self._going_on(*part):
            with torch.cuda.stream(self._side):
                self._side.wait_event(ready)
                for own in held:
                    for one in own:
                        one.record_stream(self._side)
                # For each group of layers: blocks, layers, keys and values, tokens, heads, channels.
                blocks = [group.layout.arranged(torch.stack(own, 1)) for group, own in zip(self.groups, held)]
                finite = torch.stack([one.isfinite().flatten(1).all(1) for one in blocks]).all(0).tolist()
                good = [(moved, *self._packed([one[at] for one in blocks], moved.index)) for at, moved in enumerate(part) if finite[at]]
                coded = self._coder.encode([tensors for _, tensors, _ in good], {name for *_, exact in good for name in exact})
            for moved, is_finite in zip(part, finite):
                if not is_finite:
                    self._not_finite(moved)
        for (moved, _, exact), tensors in zip(good, coded):
            with self._going_on(moved):
                self.store.put(moved.key, tensors, exact=exact, plain=self._plain)

    def shutdown(self) -> None:
        """Waits for what is not kept yet."""
        self._pool.shutdown(wait=True)

"""Learns a basis of a model's keys and values: vLLM reads a text, and what it computed is summed up instead of kept.

The engine that will be served says what its cache is, so that layouts, rotary positions and quantization are those of
serving.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

from .. import _coded
from .._errors import InputError
from ._basis import Basis, Sums, bytes_of
from ._connector import TrinityConnector
from ._identity import model_of
from ._worker import Moved

#: Tokens of a text that are read: some ten thousand for a few hundred channels.
TOKENS = 16_384
#: Bytes that say whether a file is a text.
_SAMPLE = 1 << 16
#: Tokens of a prompt, at most.
_WINDOW = 1024
#: Workers' connectors of the engine that this process runs.
_LEARNERS: list[TrinityLearner] = []


class TrinityLearner(TrinityConnector):
    """A connector that keeps no block."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.model = model_of(vllm_config)
        self.sums: Sums | None = None
        self.taken = self._learn
        if role == KVConnectorRole.WORKER:
            _LEARNERS.append(self)

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        super().register_kv_caches(kv_caches)
        assert self.worker is not None
        if len(self.worker.groups) != 1:
            raise InputError(f"a basis is for models whose layers have caches of one kind, and this one has {len(self.worker.groups)}")

    def _learn(self, moved: Moved, held: list[torch.Tensor]) -> None:
        assert self.worker is not None
        form = self.worker.groups[0].form
        coded, _ = form.scaled(held[0], moved.index)
        if bool(coded.isfinite().all()):
            self.sums = self.sums or Sums(form.shape)
            self.sums.add(coded)


def learn(
    model: str, text: str | os.PathLike[str], output: str | os.PathLike[str], *, tokens: int = TOKENS, engine: Mapping[str, Any] | None = None, force: bool = False
) -> Basis:
    """Makes the file that the connector's option ``basis`` names, of a model and a text like those it will read.

    ``engine`` are options of ``vllm.LLM``: the ones that the model is served with, where they change what it computes.
    """
    source = Path(text)
    if not source.is_file():
        raise InputError(f"{source} is not there: a basis is learned from a text")
    with open(source, "rb") as file:
        if b"\0" in file.read(_SAMPLE):
            raise InputError(f"{source} is no text: a basis is learned from one like those that the model will read")
    target = _coded._may_write(output, force)
    # The sums are in this process, and so is the engine that makes them.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM, SamplingParams

    _LEARNERS.clear()
    with tempfile.TemporaryDirectory() as folder:
        kept = {
            "kv_connector": "TrinityLearner", "kv_connector_module_path": "trinity.vllm._learn", "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"folder": folder},
        }
        own = {"enforce_eager": True, "max_model_len": _WINDOW + 1, "disable_hybrid_kv_cache_manager": True, **(engine or {})}
        try:
            llm = LLM(model=model, kv_transfer_config=kept, **own)
        except TypeError as why:
            if "unexpected keyword" not in str(why):
                raise
            raise InputError(f"these options are none of vllm.LLM: {why}") from None
        _has_room(target, _LEARNERS)
        ids = llm.get_tokenizer().encode(source.read_text(encoding="utf-8", errors="replace"))[:tokens]
        window = max(min(_WINDOW, own["max_model_len"] - 1), 1)
        prompts = [{"prompt_token_ids": ids[at : at + window]} for at in range(0, len(ids), window)]
        llm.generate(prompts, SamplingParams(max_tokens=1, temperature=0, detokenize=False), use_tqdm=False)
        llm.llm_engine.engine_core.shutdown()
    if len(_LEARNERS) != 1:
        raise InputError(f"a basis is learned by one worker, and this engine has {len(_LEARNERS)} in its process: leave out what spreads a model over several")
    (learner,) = _LEARNERS
    if learner.sums is None:
        raise InputError(f"{source} has {len(ids)} tokens, and none of them fill a block of {learner._block}: a longer text")
    basis = learner.sums.basis(*learner.model)
    basis.save(target, force=force)
    return basis


def _has_room(target: Path, learners: list[TrinityLearner]) -> None:
    """Refuses before a text is read what could not be written after it."""
    wanted = sum(bytes_of(one.worker.groups[0].form.shape) for one in learners if one.worker is not None)
    free = shutil.disk_usage(target.parent).free
    if free < wanted:
        raise InputError(f"{target.parent} has {free:,} bytes left, and the basis may take {wanted:,}: name a file on another disk")

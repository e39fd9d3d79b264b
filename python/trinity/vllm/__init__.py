"""Coded KV blocks for vLLM: finished blocks of prompts go to disk, coded, and come back for prefix hits.

``TrinityConnector`` is found by name where this package is installed (an entry point registers it)::

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "TrinityConnector", "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"folder": "/var/kv", "bits": 3}}'

`BlockStore` is what keeps blocks, and knows nothing of vLLM. ``python -m trinity.vllm basis MODEL TEXT -o FILE``
learns what the option ``basis`` names.
"""

from __future__ import annotations

from ._store import BlockStore, Refused, chain

__all__ = ["BlockStore", "Refused", "chain", "register"]

#: The name that ``kv_connector`` has.
NAME = "TrinityConnector"


def register() -> None:
    """Tells vLLM of the connector; vLLM calls it through its entry point ``vllm.general_plugins``."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    if NAME not in KVConnectorFactory._registry:
        KVConnectorFactory.register_connector(NAME, "trinity.vllm._connector", NAME)

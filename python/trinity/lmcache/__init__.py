"""A serde for LMCache: KV chunks coded on their way to L2, and decoded on their way back.

LMCache takes serdes by name and looks for none by itself: `register` tells it of ``trinity`` in the process
that has the storage manager, and ``python -m trinity.lmcache`` is its own command with that done::

    python -m trinity.lmcache server --l2-adapter '{"type": "fs", "base_path": "/var/kv",
        "serde": {"type": "trinity", "bits": 3}}'

`BlockCoder` is what codes chunks, and knows nothing of LMCache.
"""

from __future__ import annotations

from ._blocks import BlockCoder, Refused

__all__ = ["BlockCoder", "NAME", "Refused", "register"]

#: The name that ``"serde": {"type": …}`` has.
NAME = "trinity"


def register() -> None:
    """Tells LMCache of the serde; a second call does nothing."""
    from lmcache.v1.distributed.serde import get_registered_serde_types, register_serde_factory

    from ._serde import create

    if NAME not in get_registered_serde_types():
        register_serde_factory(NAME, create)

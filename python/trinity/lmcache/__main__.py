"""LMCache's own command, with the serde registered: ``python -m trinity.lmcache server …``."""

from __future__ import annotations

from lmcache.cli.main import main

from . import register

if __name__ == "__main__":
    register()
    main()

"""A wheel, looked into (`look PROCESSOR WHEEL`) or, once installed, used (`use`)."""

import shutil
import sys
import zipfile

MACHINES = {"x86_64": 62, "aarch64": 183}


def look(processor: str, wheel: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (library,) = [name for name in names if name.endswith(".so")]
        assert library == "trinity/_core.abi3.so", library
        head = archive.read(library)[:20]
        assert head[:4] == b"\x7fELF", "no library for Linux"
        machine = int.from_bytes(head[18:20], "little")
        assert machine == MACHINES[processor], f"for machine {machine}, not {processor}"
        for name in ("trinity/__init__.py", "trinity/py.typed", "trinity/_core.pyi"):
            assert name in names, f"no {name}"


def use() -> None:
    assert shutil.which("cargo") is None and shutil.which("rustc") is None, "Rust is on the path"
    import numpy as np
    import trinity

    values = np.random.default_rng(1).normal(size=(128, 128)).astype(np.float32)
    coded = trinity.encode(values, bits=3)
    back = trinity.decode(coded)
    error = float(np.mean((back - values) ** 2) / np.mean(values**2))
    assert back.shape == values.shape and error < 0.05, error
    print(f"trinity {trinity.__version__} from the wheel: {coded!r}")


if __name__ == "__main__":
    look(*sys.argv[2:]) if sys.argv[1] == "look" else use()

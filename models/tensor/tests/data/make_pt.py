"""Makes state.pt, lone.pt and evil.pt with PyTorch (2.x): what people save, and what nobody should load.

    python3 -m venv v && v/bin/pip install torch && v/bin/python make_pt.py
"""
import collections
import pathlib
import torch

here = pathlib.Path(__file__).parent
base = torch.arange(24, dtype=torch.float32).reshape(4, 6) / 8
torch.save(
    {
        "epoch": 3,
        "lr": 1e-3,
        "model": collections.OrderedDict(
            [
                ("plain", base),
                ("transposed", base.t()),
                ("cut", base[1:3, 2:5]),
                ("half", (base - 1).to(torch.bfloat16)),
                ("steps", torch.tensor(7, dtype=torch.int64)),
                ("mask", torch.tensor([True, False, True])),
                ("parameter", torch.nn.Parameter(torch.tensor([[1.5, -2.0]], dtype=torch.float16))),
                ("empty", torch.zeros(0, 3)),
            ]
        ),
        "linear": torch.nn.Linear(2, 1).state_dict() | {"weight": torch.ones(1, 2), "bias": torch.zeros(1)},
        "list": [torch.tensor([5], dtype=torch.int8)],
    },
    here / "state.pt",
)
torch.save(torch.tensor([[1.0, 2.0]]), here / "lone.pt")


class Evil:
    def __reduce__(self):
        import os

        return os.system, ("touch /tmp/owned",)


torch.save({"weight": torch.ones(2), "extra": Evil()}, here / "evil.pt")

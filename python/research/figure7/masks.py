"""MobileSAM: are the masks the same?

Pictures are those that scikit-image carries; each is asked for what lies at the points of a grid.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import torch

COMPARED = ["astronaut", "chelsea", "coffee", "rocket"]
CALIBRATING = ["camera", "ihc"]
#: Points along a side of the grid.
GRID = 3
SIDE = 1024


def picture(name: str) -> np.ndarray:
    import skimage
    from skimage import io

    folder = Path(skimage.__file__).parent / "data"
    (path,) = [path for path in folder.glob(f"{name}.*") if path.suffix in (".png", ".jpg")]
    pixels = io.imread(path)
    if pixels.dtype != np.uint8:
        pixels = (pixels > 0).astype(np.uint8) * 255
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[:, :, None], 3, 2)
    return np.ascontiguousarray(pixels[:, :, :3])


class Subject:
    name = "mobile-sam"
    width = 4
    measures = ("intersection over union of masks", "pixels the same")

    def __init__(self, cache: Path) -> None:
        # The package's own description of the model, which lies beside its weights.
        sys.path.insert(0, str(cache / self.name))
        import mobile_sam

        sys.path.pop(0)
        self.model = mobile_sam.sam_model_registry["vit_t"]()
        self.model.load_state_dict(torch.load(cache / self.name / "mobile_sam.pt", weights_only=True))
        self.model.eval()
        self.compared = [self._input(name) for name in COMPARED]
        self.calibrating = [self._input(name) for name in CALIBRATING]

    def _input(self, name: str) -> tuple[torch.Tensor, tuple[int, int]]:
        """A picture as the encoder takes it, and its size there."""
        pixels = torch.from_numpy(picture(name)).permute(2, 0, 1)[None].float()
        scale = SIDE / max(pixels.shape[2:])
        height, width = (int(side * scale + 0.5) for side in pixels.shape[2:])
        sized = torch.nn.functional.interpolate(pixels, (height, width), mode="bilinear", antialias=True)
        return self.model.preprocess(sized), (height, width)

    def inputs(self) -> str:
        return hashlib.sha256(b"".join(x.numpy().tobytes() for x, _ in self.compared)).hexdigest()

    def _masks(self, x: torch.Tensor, size: tuple[int, int]) -> np.ndarray:
        """The mask at each point of the grid, a quarter of the picture's size."""
        height, width = size
        steps = (np.arange(GRID) + 0.5) / GRID
        points = torch.tensor([[[width * u, height * v]] for v in steps for u in steps], dtype=torch.float32)
        with torch.no_grad():
            embedded = self.model.image_encoder(x)
            sparse, dense = self.model.prompt_encoder((points, torch.ones(len(points), 1)), None, None)
            masks, _ = self.model.mask_decoder(
                image_embeddings=embedded, image_pe=self.model.prompt_encoder.get_dense_pe(),
                sparse_prompt_embeddings=sparse, dense_prompt_embeddings=dense, multimask_output=False,
            )  # fmt: skip
        return (masks[:, 0, : height // 4, : width // 4] > 0).numpy()

    def calibrate(self) -> None:
        for x, size in self.calibrating:
            self._masks(x, size)

    def run(self) -> list[np.ndarray]:
        return [self._masks(x, size) for x, size in self.compared]

    def compare(self, uncoded: list[np.ndarray], own: list[np.ndarray]) -> tuple[float, float]:
        over = []
        for a, b in zip(uncoded, own):
            both, either = (a & b).sum((1, 2)), (a | b).sum((1, 2))
            over += list(np.where(either == 0, 1.0, both / np.maximum(either, 1)))
        same = [(a == b).mean() for a, b in zip(uncoded, own)]
        return float(np.mean(over)), float(np.mean(same))

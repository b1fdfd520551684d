"""The three networks of MTCNN, with the keys of the state dicts that the package facenet-pytorch carries.

Source: Zhang et al. 2016, "Joint face detection and alignment using multitask cascaded convolutional networks", Fig. 2.
"""

from dataclasses import dataclass

import torch
from packaged import load_packaged, resized
from torch import Tensor, nn


class Parts(nn.ModuleDict):
    """Layers in a row, then some beside each other: probabilities of a face, offsets of its box, landmarks."""

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        ends = []
        for name, part in self.items():
            if isinstance(part, nn.Linear) and image.ndim == 4:
                image = image.permute(0, 3, 2, 1).flatten(1)
            if "_" in name:
                ends.append(part(image))
            else:
                image = part(image)
        faces, box, *landmarks = ends
        return box, faces.softmax(1)[:, 1], *landmarks


def convolution(number: int, d_in: int, d_out: int, side: int, pool: int | None = None) -> dict[str, nn.Module]:
    """A convolution, its activation, and a pool."""
    parts = {f"conv{number}": nn.Conv2d(d_in, d_out, side), f"prelu{number}": nn.PReLU(d_out)}
    return parts | ({f"pool{number}": nn.MaxPool2d(pool, stride=2, ceil_mode=True)} if pool else {})


def dense(number: int, d_in: int, d_out: int, *ends: int) -> dict[str, nn.Module]:
    """A linear layer, its activation, and the linear layers behind it."""
    parts = {f"dense{number}": nn.Linear(d_in, d_out), f"prelu{number}": nn.PReLU(d_out)}
    return parts | {f"dense{number + 1}_{at}": nn.Linear(d_out, width) for at, width in enumerate(ends, 1)}


class PNet(Parts):
    """Fully convolutional: (box offsets, probability of a face) for each 12x12 window, 2 pixels apart."""

    def __init__(self):
        ends = {"conv4_1": nn.Conv2d(32, 2, 1), "conv4_2": nn.Conv2d(32, 4, 1)}
        super().__init__(convolution(1, 3, 10, 3, 2) | convolution(2, 10, 16, 3) | convolution(3, 16, 32, 3) | ends)


class RNet(Parts):
    """(Box offsets, probability of a face) of a 24x24 window."""

    def __init__(self):
        maps = convolution(1, 3, 28, 3, 3) | convolution(2, 28, 48, 3, 3) | convolution(3, 48, 64, 2)
        super().__init__(maps | dense(4, 576, 128, 2, 4))


class ONet(Parts):
    """(Box offsets, probability of a face, five landmarks) of a 48x48 window."""

    def __init__(self):
        maps = convolution(1, 3, 32, 3, 3) | convolution(2, 32, 64, 3, 3) | convolution(3, 64, 64, 3, 2)
        super().__init__(maps | convolution(4, 64, 128, 2) | dense(5, 1152, 256, 2, 4, 10))


@dataclass(frozen=True)
class Face:
    """A window (row, column, side) of the picture, and the probabilities that P-, R- and O-Net give it."""

    window: tuple[int, int, int]
    probabilities: tuple[float, float, float]


@dataclass(frozen=True)
class Detector:
    """The cascade, for the one best window at one scale."""

    pnet: nn.Module
    rnet: nn.Module
    onet: nn.Module

    @torch.no_grad()
    def best_face(self, photograph: Tensor, side: int = 96) -> Face:
        """The window of about `side` pixels that P-Net prefers, judged by the other two."""
        image = (photograph - 127.5) / 128
        scale = side // 12
        box, faces = self.pnet(resized(image, *(length // scale for length in image.shape[2:])))
        row, column = divmod(int(faces.argmax()), faces.shape[-1])
        left, top, right, bottom = (side * box[0, :, row, column]).tolist()
        side = round(side + (right - left + bottom - top) / 2)
        row, column = round(2 * scale * row + top), round(2 * scale * column + left)
        crop = image[:, :, row : row + side, column : column + side]
        judged = (faces.max(), self.rnet(resized(crop, 24, 24))[1], self.onet(resized(crop, 48, 48))[1])
        return Face((row, column, side), tuple(map(float, judged)))


def load_detector() -> Detector:
    """The trained cascade."""
    networks = {"pnet": PNet(), "rnet": RNet(), "onet": ONet()}
    return Detector(
        **{name: load_packaged(net, "facenet_pytorch", f"data/{name}.pt") for name, net in networks.items()}
    )

"""The three networks of MTCNN, with the keys of the state dicts that the package facenet-pytorch carries.

Source: Zhang et al. 2016, "Joint face detection and alignment using multitask cascaded convolutional networks", Fig. 2.
"""

from dataclasses import dataclass

import torch
from packaged import load_packaged, resized
from torch import Tensor, nn


def _max_pool(side: int) -> nn.MaxPool2d:
    return nn.MaxPool2d(side, stride=2, ceil_mode=True)


class PNet(nn.Module):
    """Fully convolutional: (box offsets, probability of a face) for each 12x12 window, 2 pixels apart."""

    def __init__(self):
        super().__init__()
        self.conv1, self.prelu1, self.pool1 = nn.Conv2d(3, 10, 3), nn.PReLU(10), _max_pool(2)
        self.conv2, self.prelu2 = nn.Conv2d(10, 16, 3), nn.PReLU(16)
        self.conv3, self.prelu3 = nn.Conv2d(16, 32, 3), nn.PReLU(32)
        self.conv4_1, self.conv4_2 = nn.Conv2d(32, 2, 1), nn.Conv2d(32, 4, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = self.pool1(self.prelu1(self.conv1(image)))
        x = self.prelu3(self.conv3(self.prelu2(self.conv2(x))))
        return self.conv4_2(x), self.conv4_1(x).softmax(1)[:, 1]


class RNet(nn.Module):
    """(Box offsets, probability of a face) of a 24x24 window."""

    def __init__(self):
        super().__init__()
        self.conv1, self.prelu1, self.pool1 = nn.Conv2d(3, 28, 3), nn.PReLU(28), _max_pool(3)
        self.conv2, self.prelu2, self.pool2 = nn.Conv2d(28, 48, 3), nn.PReLU(48), _max_pool(3)
        self.conv3, self.prelu3 = nn.Conv2d(48, 64, 2), nn.PReLU(64)
        self.dense4, self.prelu4 = nn.Linear(576, 128), nn.PReLU(128)
        self.dense5_1, self.dense5_2 = nn.Linear(128, 2), nn.Linear(128, 4)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = self.pool1(self.prelu1(self.conv1(image)))
        x = self.pool2(self.prelu2(self.conv2(x)))
        x = self.prelu3(self.conv3(x)).permute(0, 3, 2, 1).flatten(1)
        x = self.prelu4(self.dense4(x))
        return self.dense5_2(x), self.dense5_1(x).softmax(1)[:, 1]


class ONet(nn.Module):
    """(Box offsets, probability of a face, five landmarks) of a 48x48 window."""

    def __init__(self):
        super().__init__()
        self.conv1, self.prelu1, self.pool1 = nn.Conv2d(3, 32, 3), nn.PReLU(32), _max_pool(3)
        self.conv2, self.prelu2, self.pool2 = nn.Conv2d(32, 64, 3), nn.PReLU(64), _max_pool(3)
        self.conv3, self.prelu3, self.pool3 = nn.Conv2d(64, 64, 3), nn.PReLU(64), _max_pool(2)
        self.conv4, self.prelu4 = nn.Conv2d(64, 128, 2), nn.PReLU(128)
        self.dense5, self.prelu5 = nn.Linear(1152, 256), nn.PReLU(256)
        self.dense6_1, self.dense6_2, self.dense6_3 = nn.Linear(256, 2), nn.Linear(256, 4), nn.Linear(256, 10)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.pool1(self.prelu1(self.conv1(image)))
        x = self.pool2(self.prelu2(self.conv2(x)))
        x = self.pool3(self.prelu3(self.conv3(x)))
        x = self.prelu4(self.conv4(x)).permute(0, 3, 2, 1).flatten(1)
        x = self.prelu5(self.dense5(x))
        return self.dense6_2(x), self.dense6_1(x).softmax(1)[:, 1], self.dense6_3(x)


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

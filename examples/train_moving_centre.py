"""Train a head whose centre moves: images of Fashion-MNIST, shifted at random, and a head that undoes the shift.

Each image is shrunk to 7x7 and placed on a canvas of 11x11, up to 2 pixels from its middle. A token has three
channels: its pixel, and the centre of mass of the whole image, which says where the image lies. One head reads one key
for each query. Its centre is an affine function of the query's channels (claim DEFORM), and begins at 0 everywhere. It
is trained to return the image in the middle of the canvas. A head whose centre is trained too, but does not move with
the content, is trained beside it. The data set is the Debian package dataset-fashion-mnist. On one thread of a CPU:

    apt-get install dataset-fashion-mnist
    OMP_NUM_THREADS=1 python examples/train_moving_centre.py
"""

import argparse
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conv2attn.lab.data import read_images_of
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.theorem import deformable_as_attention

FARTHEST, SIDE = 2, 7
BATCH, LEARNING_RATE, ALPHA = 32, 0.02, 0.5


@final
@dataclass(frozen=True)
class Result:
    """On shifted test images: mean squared errors, and by how many pixels a centre moves with a pixel of shift."""

    untouched: float
    fixed: float
    moving: float
    slope: float


def shifted(images: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (b, 3, 11, 11) of images shifted at random, the images in the middle (b, 1, 11, 11), and the shifts."""
    middle = F.pad(images, (FARTHEST,) * 4)
    shifts = torch.randint(-FARTHEST, FARTHEST + 1, (len(images), 2), generator=generator)
    moved = torch.stack([each.roll((int(a), int(b)), (1, 2)) for each, (a, b) in zip(middle, shifts, strict=True)])
    places = torch.arange(SIDE + 2 * FARTHEST) - (SIDE - 1) / 2 - FARTHEST
    mass = moved.sum((1, 2, 3))
    centre = torch.stack([(moved.sum((1, 3)) @ places) / mass, (moved.sum((1, 2)) @ places) / mass], 1)
    channels = centre[:, :, None, None].expand(-1, -1, *moved.shape[2:])
    return torch.cat([moved, channels], 1), middle, shifts


def one_head(alpha: float = ALPHA) -> MultiHeadSelfAttention:
    """A soft head that reads the pixel channel at a centre that does not move yet."""
    offsets, pixel = nn.Conv2d(3, 2, 1), nn.Conv2d(3, 1, 1, bias=False)
    nn.init.zeros_(offsets.weight), nn.init.zeros_(offsets.bias)
    pixel.weight = nn.Parameter(torch.tensor([1.0, 0, 0]).reshape(1, 3, 1, 1))
    return deformable_as_attention(offsets, pixel, alpha=alpha, trainable=True)


def train(head: MultiHeadSelfAttention, images: Tensor, steps: int, moves: bool, generator: torch.Generator) -> None:
    """Minimises the squared error; a head that does not move trains its bias and its sharpness alone."""
    head.weight.requires_grad_(False)
    head.query.requires_grad_(moves)
    trained = [each for each in head.parameters() if each.requires_grad]
    optimiser = torch.optim.Adam(trained, LEARNING_RATE)
    for _ in range(steps):
        chosen = torch.randint(len(images), (BATCH,), generator=generator)
        tokens, middle, _ = shifted(images[chosen], generator)
        loss = F.mse_loss(head(tokens), middle)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


@torch.no_grad()
def centres(head: MultiHeadSelfAttention, tokens: Tensor) -> Tensor:
    """The centre (b, 2) of the head for the query in the middle of the canvas; see claim DEFORM."""
    middle = tokens[:, :, tokens.shape[2] // 2, tokens.shape[3] // 2]
    weighs = middle @ head.query[0].mT + head.query_bias[0]  # |delta|^2 first, then delta
    heads = head.encoding.operators().numbers()
    alpha = heads.alphas[0] - weighs[:, :1]
    return (heads.alphas[0] * torch.tensor(heads.centers[0]) + weighs[:, 1:] / 2) / alpha


def run(images: Tensor, test: Tensor, steps: int = 300, seed: int = 0) -> Result:
    """Trains both heads on `images` (b, 1, 7, 7), and measures them on shifted images of `test`."""
    generator = torch.Generator().manual_seed(seed)
    fixed, moving = one_head(), one_head()
    train(fixed, images, steps, False, generator)
    train(moving, images, steps, True, generator)
    tokens, middle, shifts = shifted(test, generator)
    with torch.no_grad():
        errors = [F.mse_loss(each, middle).item() for each in (tokens[:, :1], fixed(tokens), moving(tokens))]
    apart = [each - each.mean(0) for each in (centres(moving, tokens), shifts.float())]
    return Result(*errors, ((apart[0] * apart[1]).sum() / apart[1].square().sum()).item())


def shrunk(pixels: Tensor) -> Tensor:
    """Bytes (b, 1, 28, 28) as images (b, 1, 7, 7) within [0, 1]."""
    return F.avg_pool2d(pixels.float() / 255, 28 // SIDE)


def main() -> None:
    """Train both heads and print their errors on 1,000 test images."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    images = read_images_of("fashion-mnist")
    result = run(shrunk(images.pixels), shrunk(images.test_pixels[:1000]), options.steps, options.seed)
    print(f"squared error: as shifted {result.untouched:.4f}, fixed centre {result.fixed:.4f}, ", end="")
    print(f"moving centre {result.moving:.4f}; the centre moves by {result.slope:.2f} pixels with a pixel of shift")


if __name__ == "__main__":
    main()

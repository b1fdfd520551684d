"""Start an attention network at a trained CNN, train on, and come back to a CNN.

Converts examples/resnet18.pt to attention, lowers the sharpness of its heads from 128, where no gradient reaches them,
to one where they can move, trains centres, sharpness and weights on Fashion-MNIST, and recovers the nearest CNN. It
prints one table and draws one figure. The data set is the Debian package dataset-fashion-mnist:

    apt-get install dataset-fashion-mnist
    OMP_NUM_THREADS=1 python examples/train_from_convolution.py --figure from-convolution.png
"""

import argparse
import copy
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import conv2attn
from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.checkpoints.examples import prepare
from conv2attn.experiments.data import read_images_of
from conv2attn.models import attention_layers
from conv2attn.report import Document, Table
from conv2attn.report.text import to_text

HERE = Path(__file__).parent


@torch.no_grad()
def accuracy(network: nn.Module, pixels: Tensor, labels: Tensor) -> float:
    """The share of images whose largest logit is their label's."""
    right = [network(prepare(p)).argmax(1) == t for p, t in zip(pixels.split(50), labels.split(50), strict=True)]
    return torch.cat(right).double().mean().item()


def train(network: nn.Module, pixels: Tensor, labels: Tensor, steps: int, batch: int, rate: float) -> None:
    """Adam on all parameters, a hundred times faster on centres and sharpness; batch norms keep their statistics."""
    layers = attention_layers(network).values()
    positions = [parameter for layer in layers for parameter in layer.encoding.parameters()]
    held = {id(parameter) for parameter in positions}
    weights = [parameter for parameter in network.parameters() if id(parameter) not in held]
    optimiser = torch.optim.Adam([{"params": weights}, {"params": positions, "lr": 100 * rate}], lr=rate)
    order = torch.randperm(len(pixels)).repeat(1 + steps * batch // len(pixels))
    for step in range(steps):
        chosen = order[step * batch : (step + 1) * batch]
        loss = cross_entropy(network(prepare(pixels[chosen])), labels[chosen])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        print(f"step {step + 1}/{steps}  loss {loss.item():.4f}", flush=True)


def recovered(network: nn.Module, original: nn.Module) -> nn.Module:
    """The network with the nearest convolution of the original's kernel in place of each attention layer."""
    network = copy.deepcopy(network)
    for name, layer in attention_layers(network).items():
        parent, _, child = name.rpartition(".")
        kernel = original.get_submodule(name).kernel_size
        setattr(network.get_submodule(parent), child, conv2attn.recover(layer, kernel_size=kernel).module)
    return network


def draw(before: dict[str, Tensor], layers: dict[str, MultiHeadSelfAttention], path: Path) -> None:
    """Where the heads of each layer moved from their taps, drawn five times as long."""
    from matplotlib.figure import Figure

    columns = 5
    figure = Figure(figsize=(2 * columns, 2 * -(-len(layers) // columns)), layout="constrained")
    panels = figure.subplots(-(-len(layers) // columns), columns, squeeze=False).ravel()
    for panel, (name, layer) in zip(panels, layers.items(), strict=False):
        start, moved = before[name], layer.encoding.center.detach() - before[name]
        panel.plot(start[:, 1], start[:, 0], "s", color="0.7", markersize=2)
        panel.quiver(
            *start.flip(1).T,
            *(5 * moved).flip(1).T,
            angles="xy",
            scale_units="xy",
            scale=1,
            color="#D55E00",
            width=0.01,
        )
        reach = start.abs().max().item() + 1
        panel.set(aspect="equal", xlim=(-reach, reach), ylim=(reach, -reach), xticks=[], yticks=[])
        panel.set_title(f"{name}: at most {moved.norm(dim=1).max():.3f}", fontsize=6)
    for panel in panels[len(layers) :]:
        panel.remove()
    figure.suptitle("Movement of the heads in pixels, drawn five times as long", fontsize=8)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Convert, soften, train, recover; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alpha", type=float, default=3.0)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=3e-5)
    parser.add_argument("--test-images", type=int, default=1000)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    images = read_images_of("fashion-mnist")
    test = images.test_pixels[: options.test_images, 0], images.test_labels[: options.test_images]
    original = conv2attn.load(HERE / "resnet18.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # heads at alpha 128 do not move, which is what softening is for
        attention = conv2attn.convert(original, trainable=True).requires_grad_()
    softening = conv2attn.soften(attention, alpha=options.alpha)
    network = softening.network
    rows = [
        ["the CNN", accuracy(original, *test)],
        ["converted to attention", accuracy(attention, *test)],
        [f"softened to alpha {options.alpha:g}", accuracy(network, *test)],
    ]
    print(softening.to_text(), flush=True)
    layers = attention_layers(network)
    before = {name: layer.encoding.center.detach().clone() for name, layer in layers.items()}
    train(network, images.pixels[:, 0], images.labels, options.steps, options.batch, options.rate)
    rows.append([f"trained for {options.steps} steps of {options.batch}", accuracy(network, *test)])
    rows.append(["recovered: the nearest CNN", accuracy(recovered(network, original), *test)])
    table = Table(("network", "accuracy"), tuple((name, f"{share:.4f}") for name, share in rows))
    print(to_text(Document(("Trained on from a convolution:",), (table,))))
    if options.figure:
        draw(before, layers, options.figure)


if __name__ == "__main__":
    main()

"""Networks to convert: each a way in which convolutions occur in networks, with what is said of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from networks.networks import (
    OWN_FORWARDS,
    Beside,
    Block,
    Calls,
    Containers,
    Mixed,
    Named,
    Square,
    Unreached,
    changed,
    convolution_and_embedding,
    encoder_and_decoder,
    frozen,
    hooked,
    own_forward_of_an_instance,
    shared,
    sharing_parameters,
    with_parts,
)
from networks.parametrisations import PARAMETRISATIONS, parametrised, sharing_an_original
from torch import nn
from whole import ENGINES, image_of, whole

IMAGE = image_of(2, 3, 8, 9)


@dataclass(frozen=True)
class Case:
    """A network and inputs for it.

    Args:
        build: makes the network, with weights of whole numbers where that is possible.
        inputs: what it is called with; the first is the example.
        left: those that are not converted.
        left_unseen: those that are not converted without an example.
        calls: the functional convolutions that are converted with an example.
        engines: those that compute exactly what the original does.
    """

    build: Callable[[], nn.Module]
    inputs: tuple[Any, ...] = (IMAGE, image_of(2, 3, 11, 13), image_of(1, 3, 10, 14))
    left: frozenset[str] = frozenset()
    left_unseen: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    engines: tuple[str, ...] = ENGINES


def case(build: Callable[[], nn.Module], **said: Any) -> Case:
    """A case in which names are given as words."""
    names = {key: frozenset(value.split()) for key, value in said.items() if isinstance(value, str)}
    return Case(lambda: whole(build()), **{**said, **names})


INTEGERS = ({"dilation": 2}, {"stride": 2}, {"padding": 1}, {"dilation": (2,)})
MODES = ("zeros", "reflect", "circular", "replicate")
CASES = {
    "plain": case(
        lambda: Beside(
            [
                nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.ConvTranspose2d(4, 2, (1, 2))),
                nn.Sequential(nn.Sequential(), Square(3)),
                frozen(),
                Containers(),
            ]
        )
    ),
    "blocks": case(
        lambda: nn.Sequential(Block(), nn.Dropout(0.5), Block(4, 2), nn.AdaptiveMaxPool2d(2), nn.Flatten()),
        engines=("auto", "conv"),
    ),
    "attributes changed": case(
        lambda: Beside(
            [
                *(changed(nn.Conv2d(3, 4, 3), **each) for each in INTEGERS),
                *(changed(nn.ConvTranspose2d(3, 4, 3), **each) for each in INTEGERS if "padding" not in each),
                changed(nn.ConvTranspose2d(3, 4, 3, stride=2), output_padding=1),
                *(changed(nn.Conv2d(3, 4, 3, padding=1, padding_mode=mode), padding=(2, 2)) for mode in MODES),
            ]
        )
    ),
    "a single image": case(lambda: nn.Sequential(nn.Conv2d(3, 4, 3)), inputs=(IMAGE[0],)),
    "keywords": case(Named, inputs=({"image": IMAGE, "scale": 3}, {"image": image_of(2, 3, 5, 6)})),
    "parts": case(with_parts, left="3.0", left_unseen="3.0"),
    "shared": case(lambda: Beside([shared(), sharing_parameters()])),
    "tied": case(lambda: Beside([encoder_and_decoder(3), encoder_and_decoder(5), convolution_and_embedding()])),
    "unreached": case(lambda: Unreached(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3))),
    "hooks that change": case(hooked),
    "calls": case(
        Calls,
        calls="(root):conv1d (root):conv2d (root):conv_transpose2d inner:conv2d",
        left_unseen="inner",
    ),
    "mixed": case(lambda: nn.Sequential(Mixed(), nn.ReLU()), calls="0:conv2d"),
    "own forwards": case(
        lambda: Beside([own_forward_of_an_instance(), *(nn.Sequential(each(), nn.ReLU()) for each in OWN_FORWARDS)]),
        calls="0.0:conv2d 1.0:conv2d 2.0:conv2d 3.0:conv2d 4.0:conv2d 5.0:conv2d 6.0:conv_transpose2d",
        left_unseen="0.0 1.0 2.0 3.0 4.0 5.0 6.0",
    ),
    "an own forward alone": case(OWN_FORWARDS[1], calls="(root):conv2d", left_unseen="(error)"),
    "an own transposed forward alone": case(OWN_FORWARDS[-1], calls="(root):conv_transpose2d", left_unseen="(error)"),
    "parametrised": Case(
        lambda: Beside([*map(parametrised, [*PARAMETRISATIONS][:4]), sharing_an_original()]),
        engines=("auto",),
    ),
    "parametrised by hooks": Case(lambda: Beside(map(parametrised, [*PARAMETRISATIONS][4:])), engines=("auto",)),
}

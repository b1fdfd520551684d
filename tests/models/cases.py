"""Networks to convert: each a way in which convolutions occur in networks, with what is said of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from models.networks import (
    OWN_FORWARDS,
    Block,
    Calls,
    Containers,
    Mixed,
    Named,
    Square,
    Unreached,
    convolution_and_embedding,
    encoder_and_decoder,
    frozen,
    hooked,
    own_forward_of_an_instance,
    shared,
    sharing_parameters,
    with_a_part,
)
from models.parametrisations import PARAMETRISATIONS, parametrised, sharing_an_original
from torch import nn
from whole import ENGINES, image_of, whole

IMAGE = image_of(2, 3, 8, 9)


@dataclass(frozen=True)
class Case:
    """A network and inputs for it.

    Args:
        build: makes the network, with weights of whole numbers where that is possible.
        inputs: what it is called with; the first is the example.
        in_place: the convolutions that stay modules of their class.
        left: those that are not converted.
        left_unseen: those that are not converted without an example.
        calls: the functional convolutions that are converted with an example.
        engines: those that compute exactly what the original does.
    """

    build: Callable[[], nn.Module]
    inputs: tuple[Any, ...] = (IMAGE, image_of(2, 3, 11, 13), image_of(1, 3, 10, 14))
    in_place: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    left_unseen: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    engines: tuple[str, ...] = ENGINES


def case(build: Callable[[], nn.Module], **said: Any) -> Case:
    """A case in which names are given as words."""
    names = {key: frozenset(value.split()) for key, value in said.items() if isinstance(value, str)}
    return Case(lambda: whole(build()), **{**said, **names})


CASES = {
    "one": case(lambda: nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.ConvTranspose2d(4, 2, (1, 2)))),
    "blocks": case(
        lambda: nn.Sequential(Block(), nn.Dropout(0.5), Block(4, 2), nn.AdaptiveMaxPool2d(2), nn.Flatten()),
        engines=("auto", "conv"),
    ),
    "containers": case(Containers),
    "an empty sequential": case(lambda: nn.Sequential(nn.Sequential(), nn.Conv2d(3, 3, 3))),
    "frozen": case(frozen),
    "a single image": case(lambda: nn.Sequential(nn.Conv2d(3, 4, 3)), inputs=(IMAGE[0],)),
    "keywords": case(Named, inputs=({"image": IMAGE, "scale": 3}, {"image": image_of(2, 3, 5, 6)})),
    "a buffer of its own": case(lambda: with_a_part("own buffer")),
    "a parameter of its own": case(lambda: with_a_part("parameter"), in_place="0"),
    "a module of its own": case(lambda: with_a_part("module"), in_place="0"),
    "a buffer called as a part of attention": case(lambda: with_a_part("buffer"), in_place="0"),
    "a subclass that adds": case(lambda: nn.Sequential(Square(3))),
    "shared": case(shared),
    "shared parameters": case(sharing_parameters),
    "tied to its transpose, square": case(lambda: encoder_and_decoder(3), in_place="0 1"),
    "tied to its transpose, wide": case(lambda: encoder_and_decoder(5), in_place="0 1"),
    "tied to another module": case(convolution_and_embedding, in_place="0"),
    "unreached": case(Unreached),
    "hooks that change": case(hooked),
    "own forward of an instance": case(own_forward_of_an_instance, calls="0:conv2d", left_unseen="0"),
    "calls": case(
        Calls,
        calls="(root):conv1d (root):conv2d (root):conv_transpose2d inner:conv2d",
        left_unseen="(root):conv1d (root):conv2d (root):conv_transpose2d inner",
        in_place="conv",
    ),
    "mixed": case(lambda: nn.Sequential(Mixed(), nn.ReLU()), calls="0:conv2d", left_unseen="0:conv2d"),
    **{
        f"own forward, {name}": case(
            lambda build=build: nn.Sequential(build(), nn.ReLU()),
            calls="0:conv_transpose2d" if name == "transposed" else "0:conv2d",
            left_unseen="0",
        )
        for name, build in OWN_FORWARDS.items()
    },
    **{
        f"own forward alone, {name}": case(
            build, calls="(root):conv_transpose2d" if name == "transposed" else "(root):conv2d", left_unseen="(error)"
        )
        for name, build in OWN_FORWARDS.items()
    },
    **{
        f"parametrised, {kind}": Case(lambda kind=kind: parametrised(kind), engines=("auto",))
        for kind in PARAMETRISATIONS
    },
    "parametrised, shared original": case(sharing_an_original, in_place="0 1", engines=("auto",)),
}

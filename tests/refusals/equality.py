"""Questions of whether two networks are equal that cannot be asked."""

import torch
from equality.certificate.edges.several_sizes import SIZES
from equality.edges.inputs_of_calls import WIDTH, cross, drawn
from equality.edges.nested_outputs import IMAGES
from torch import nn

from conv2attn import certify, convert
from conv2attn.equality import symmetric
from conv2attn.errors import Conv2AttnError, UsageError

CONV, TOKENS, PLAIN = nn.Conv2d(3, 4, 3), drawn(1, 5, WIDTH), nn.Sequential(nn.Conv2d(3, 4, 3))


def of_call(*inputs, **options):
    """Compares a call of two networks."""
    certify(cross(False), cross(True), *inputs, **options)


def under_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        certify(CONV, convert(CONV), input_size=(3, 4, 5))


REFUSALS = {
    UsageError: {
        "also_modes|input_size": [
            lambda asked=asked: certify(CONV, CONV, **{"input_size": SIZES[0]} | asked)
            for asked in (
                {"also_modes": ["training"]},
                {"also_modes": "gradients"},
                {"also_sizes": [(3, 0, 4)]},
                {"also_sizes": [7]},
            )
        ],
        "one size": lambda: symmetric(nn.Conv2d(3, 3, 1), flip=True, input_size=SIZES[0], also_sizes=SIZES[1:]),
        r"C2A007 images of 3x8x9 are one image without a batch\. Pass images\[None\]": lambda: certify(
            CONV, convert(CONV), images=torch.rand(3, 8, 9)
        ),
        "C2A004 autocast is on": under_autocast,
        "C2A001 input_range=1000": lambda: certify(CONV, convert(CONV), input_size=(3, 4, 5), input_range=10**400),
        "C2A004 inputs were passed together with images": lambda: of_call(TOKENS, images=TOKENS),
        "C2A006 forward is a list": lambda: of_call(TOKENS, forward=[1]),
        "C2A009 .* missing 1 required positional argument: 'memory'": lambda: of_call(TOKENS),
        "C2A006 no input is a tensor of floating-point numbers": lambda: of_call([1, 2]),
        "C2A006 an input is an empty, sparse": lambda: of_call(TOKENS, drawn(1, 7, WIDTH).to_sparse()),
        "C2A009": lambda: certify(PLAIN, convert(PLAIN), images=IMAGES.to(torch.float8_e4m3fn)),
        "C2A004 none of shift, flip and permute is passed": lambda: symmetric(CONV, input_size=(3, 6, 8)),
        "C2A004 2 of shift, flip and permute": lambda: symmetric(CONV, shift=(1, 0), flip=(0, 1), input_size=(3, 6, 8)),
        "C2A006 permute=True is not a whole number of 64 bits": lambda: symmetric(
            CONV, permute=True, input_size=(3, 6, 8)
        ),
        "C2A006 shift=1 is not a sequence": lambda: symmetric(CONV, shift=1, input_size=(3, 6, 8)),
        "C2A001 shift=1.5 is not a whole number": lambda: symmetric(CONV, shift=(1.5, 0), input_size=(3, 6, 8)),
        r"C2A007 shift=\(1,\) is not a number for each of 2 axes": lambda: symmetric(
            CONV, shift=(1,), input_size=(3, 6, 8)
        ),
        r"C2A007 a shift by \(1, 0\) of .* pixels of an output": lambda: symmetric(
            CONV, shift=(1, 0), input_size=(3, 6, 8)
        ),
    },
    Conv2AttnError: {
        "C2A": [
            lambda images=images: certify(nn.Sequential(CONV), convert(nn.Sequential(CONV)), images=images)
            for images in (torch.rand(5), torch.rand(2, 3))
        ]
    },
}

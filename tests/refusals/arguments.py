"""Arguments of public functions that are of another kind."""

import numpy as np
import torch
from test_arguments import ENCODER, NETWORK, TAKING, TOKENS
from torch import nn

import conv2attn
from conv2attn import convert, load, save, to_mha
from conv2attn.errors import UsageError
from conv2attn.lab.explore import explore

CONV, IMAGE = nn.Conv2d(3, 4, 3), torch.ones(1, 3, 9, 9)

REFUSALS = {
    UsageError: {
        "C2A006": [
            lambda: load(5),
            lambda: load(None),
            lambda: load(b"net.pt"),
            lambda: load("net.pt", arch=5),
            lambda: load("net.pt", arch="torchvision:resnet18", arch_args=[1]),
            lambda: load("net.pt", model=nn.Linear),
            lambda: load("net.pt", max_size="1"),
            lambda: load("net.pt", allow=5),
            lambda: save(convert(NETWORK), 5),
            lambda: save("net.pt", "new.pt"),
            *(lambda call=call, given=given: call(given) for call in TAKING.values() for given in ("resnet18.pt", 3)),
        ],
        "C2A001 eps='x' is not a number": lambda: conv2attn.check_span(np.full((9, 9, 9), 1 / 9), eps="x"),
        "C2A001 extra_tokens='1' is not a whole number": lambda: conv2attn.heads(ENCODER, TOKENS, extra_tokens="1"),
        "C2A006 inputs are of class int": lambda: conv2attn.assert_equivalent(NETWORK, NETWORK, 3),
        "C2A006 layer is": lambda: to_mha(CONV),
        r"C2A001 side=\(5, 6\) is not a whole number": lambda: to_mha(convert(CONV), (5, 6)),
        "C2A001 tolerance=-1 is not a number of at least 0": lambda: conv2attn.assert_equivalent(
            NETWORK, NETWORK, IMAGE, tolerance=-1
        ),
        "C2A004 example_input was passed together with images or input_size": lambda: conv2attn.certify(
            NETWORK, NETWORK, example_input=(3, 9, 9), input_size=(3, 9, 9)
        ),
        r"Load it first: conv2attn\.load\('resnet18\.pt'\)": lambda: convert("resnet18.pt"),
        r"C2A005 the size of the .*Pass input_size, such as \(3, 224, 224\), or example_input": lambda: (
            conv2attn.certify(NETWORK, NETWORK)
        ),
        "C2A008 every attention layer is skipped": lambda: conv2attn.soften(convert(NETWORK), alpha=5, skip="*"),
        "C2A002 up_to='bits'": lambda: conv2attn.assert_same(NETWORK, NETWORK, IMAGE, up_to="bits"),
        "C2A120 example_input has 5 axes, but the page draws only images": [
            lambda image=image: explore(nn.Conv3d(1, 2, 3), image)
            for image in (torch.ones(1, 1, 4, 5, 6), (1, 4, 5, 6))
        ],
    },
}

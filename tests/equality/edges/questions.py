"""A lint on the usual questions of code about its layers: one that is found narrows the claim, with its line."""

import inspect

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.equality import certify
from conv2attn.verdicts import Strength, Verdict

SIZE = (3, 6, 7)


class Blocks(nn.Module):
    """Two layers, one in a list, and a block between them."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv, self.more = nn.Conv2d(3, 3, 1), nn.ModuleList([nn.Conv2d(3, 3, 1), nn.ReLU()])
        self.block = nn.Sequential(nn.Identity(), nn.Tanh())

    def through(self, image):
        for layer in self.more:
            image = layer(image)
        return self.block(self.conv(image))


class Isinstance(Blocks):
    def forward(self, image):
        return self.through(image) * (2 if isinstance(self.conv, nn.Linear) else 1)  # here


class Types(Blocks):
    def forward(self, image):
        return self.through(image) if type(self.conv) is not nn.Linear else image  # here


class OfALoop(Blocks):
    def forward(self, image):
        for number, layer in enumerate(self.more):
            image = layer(image) if hasattr(layer, "forward") else image + number  # here
        return image


class OfAnItem(Blocks):
    def forward(self, image):
        return self.through(image) if callable(getattr(self.more[0], "forward")) else image  # noqa: B009 - here


class OfAName(Blocks):
    def forward(self, image):
        layer = self.conv
        return layer(image) if layer.__class__.__name__ != "Linear" else image  # here


class Matching(Blocks):
    def forward(self, image):
        match self.conv:  # here
            case nn.Linear():
                return image
        return self.through(image)


class Formatted(Blocks):
    def forward(self, image):
        return self.through(image) if f"{self.conv}" else image  # here


class Inside(Blocks):
    def forward(self, image):
        return self.through(image) * min(1, sum(1 for _ in self.parameters()))  # here


class AllModules(Blocks):
    def forward(self, image):
        return self.through(image) * min(1, len([*self.block.modules(), *self.more.modules()]))  # here


class InAMethod(Blocks):
    def forward(self, image):
        return self.asking(self.through(image))

    def asking(self, image):
        return image * min(1, len(self.state_dict()))  # here


class Within(Blocks):
    def __init__(self):
        super().__init__()
        self.inner = Isinstance()

    def forward(self, image):
        return self.inner(self.through(image))


def asking(image, layer):
    return image * (2 if isinstance(layer, nn.Linear) else 1)  # the line of a function


class InAFunction(Blocks):
    def forward(self, image):
        return asking(self.through(image), self.conv)


class InAFunctionByName(Blocks):
    def forward(self, image):
        return asking(self.through(image), layer=self.more[0])


class OfAnAttribute(Blocks):
    """Calls a function that is an attribute of its own."""

    def __init__(self):
        super().__init__()
        self.ask = asking

    def forward(self, image):
        return self.ask(self.through(image), self.conv)


class OfTheBlock(Blocks):
    """Calls a method of a module of its own that is no forward."""

    def __init__(self):
        super().__init__()
        self.inner = InAMethod()

    def forward(self, image):
        return self.inner.asking(self.through(image))


ASKING = [Isinstance, Types, OfALoop, OfAnItem, OfAName, Matching, Formatted, Inside, AllModules, InAMethod]


def place(kind):
    lines, first = inspect.getsourcelines(kind)
    if kind in (InAFunction, InAFunctionByName, OfAnAttribute):
        return f"questions.py:{inspect.getsourcelines(asking)[1] + 1}"
    return f"questions.py:{first + next(at for at, line in enumerate(lines) if '# ' in line and 'here' in line)}"


@pytest.mark.parametrize("kind", [*ASKING, Within, InAFunction, InAFunctionByName, OfAnAttribute, OfTheBlock])
def test_a_question_about_a_layer_narrows_the_claim_to_what_was_run(kind):
    original = kind()
    found = certify(original, conv2attn.convert(original), input_size=SIZE)
    assert (found.verdict, found.strength) == (Verdict.HOLDS, Strength.SAMPLED), found.to_text()
    assert place({Within: Isinstance, OfTheBlock: InAMethod}.get(kind, kind)) in found.to_text()
    assert "on the inputs that were run, of 3x6x7" in found.claim
    assert all(row.strength is Strength.PROVED for row in found.rows)


class OfNumbers(Blocks):
    """Questions about tensors, numbers, blocks and modules that are no layers, and calls in loops."""

    def forward(self, image):
        size = image.shape if isinstance(asking(image, self.block), torch.Tensor) else type(image)
        for layer in self.children():
            image = layer(image) if not isinstance(layer, nn.ModuleList) else image
        known = hasattr(self, "block") and isinstance(self.block, nn.Sequential) and f"{size}" and len(self.more)
        dtype = next(self.block.parameters(), image).dtype
        return self.more[0](image).to(dtype) if known and isinstance(self.more[1], nn.ReLU) else image


class CallsATensor(Blocks):
    """Reads a method of a tensor that is an attribute of its own."""

    def __init__(self):
        super().__init__()
        self.gain = torch.ones(2)

    def forward(self, image):
        return self.through(image) * self.gain.max() if self.gain.numel() else self.gain(image)


class Plain(Blocks):
    def forward(self, image):
        return self.through(image)


@pytest.mark.parametrize("kind", [Plain, OfNumbers, CallsATensor])
def test_other_questions_narrow_nothing(kind):
    original = kind()
    if kind is OfNumbers:
        original.conv, original.block = nn.Identity(), nn.Sequential(nn.Tanh())
    found = certify(original, conv2attn.convert(original), input_size=SIZE)
    assert (found.verdict, found.strength) == (Verdict.HOLDS, Strength.PROVED), found.to_text()

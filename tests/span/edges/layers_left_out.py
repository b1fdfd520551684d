"""No layer that attends is passed over: what is not a square of tokens, what is compiled, what has no attention."""

import numpy as np
import pytest
import torch
from attentions import OFFSETS, hard
from commands import call
from torch import nn

import conv2attn
from conv2attn import capture, check_span
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.networks.positions import Unread
from conv2attn.verdicts import Verdict


class Pooled(nn.Module):
    """One head whose keys are every second token: no query of it is a key of it."""

    def forward(self, x):
        keys = x[:, ::2]
        return nn.functional.scaled_dot_product_attention(x[:, None], keys[:, None], keys[:, None])[:, 0]


class Shifts(nn.Module):
    """Nine heads that are shifts."""

    def forward(self, x):
        heads = torch.from_numpy(hard((4, 4), OFFSETS)).float()
        attention = torch.softmax(1e9 * heads[None], -1)
        return torch.einsum("bhqk,bkc->bqc", attention, x)


class OfColumns(Shifts):
    """The same of images (batch, channels, tokens)."""

    def forward(self, x):
        return super().forward(x.mT)


def test_a_layer_whose_queries_are_not_its_keys_is_named():
    seen = capture(nn.Sequential(Shifts(), Pooled()), torch.randn(1, 16, 4))
    report = check_span(seen, grid=(4, 4))
    assert [(row.name, row.verdict) for row in report.rows] == [("0", Verdict.HOLDS), ("1", Verdict.UNDECIDED)]
    assert "1, interior: not read: 16 queries attend to 8 keys" in report.to_text()
    assert report.exit_code == 3


def test_a_module_that_attends_without_a_softmax_is_named():
    class LinearAttention(nn.Module):
        def forward(self, x):
            return x @ (x.mT @ x)

    seen = capture(nn.Sequential(Shifts(), LinearAttention()), torch.randn(1, 16, 4))
    assert list(seen) == ["0", "1"]
    assert isinstance(seen["1"], Unread)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_compiled_modules_are_named_and_do_not_crash():
    class Attention(nn.Module):
        def forward(self, x):
            return torch.softmax(x @ x.mT, -1) @ x

    compiled = torch.jit.trace(Attention(), torch.randn(1, 16, 4))
    seen = capture(nn.Sequential(Shifts(), compiled), torch.randn(1, 16, 4))
    assert isinstance(seen["1"], Unread)
    assert "torch.jit" in seen["1"].reason


@pytest.mark.parametrize(("only", "names"), [("first", ["first"]), ("s*", ["second"])])
def test_only_some_layers(tmp_path, only, names):
    np.savez(tmp_path / "heads.npz", first=hard((4, 4), OFFSETS), second=hard((4, 4), OFFSETS))
    result = call("check-span", str(tmp_path / "heads.npz"), "--only", only, "--format", "json")
    assert result.exit_code == 0
    assert [f'"name": "{name}"' in result.stdout for name in ("first", "second")] == [
        name in names for name in ("first", "second")
    ]


def test_layers_of_our_own_that_run_are_chosen_by_name_and_judged_on_their_padded_keys():
    padded, plain = conv2attn.convert(nn.Conv2d(1, 1, 3, padding=1)), conv2attn.convert(nn.Conv2d(1, 1, 3))
    network, image = nn.Sequential(padded, plain), torch.randn(1, 1, 5, 5)
    notes = [row.notes[1:] for row in check_span(network, example_input=image).rows]
    assert notes == [("checked on its padded keys, 7x7",), ()]
    assert [row.name for row in check_span(network, example_input=image, only="1").rows] == ["1"]
    with pytest.raises(UsageError, match=r"C2A008 the pattern 'x\*' fits no layer that attends\. There are: 0, 1"):
        check_span(network, example_input=image, only="x*")
    with pytest.raises(UsageError, match="C2A501 every layer that attends is skipped"):
        check_span(network, example_input=image, skip="*")


@pytest.mark.parametrize("only", ["*", "0", "2", "[01]", "[02]"])
def test_attention_beside_layers_of_our_own_is_seen_whatever_its_class_is_called(only):
    ours, image = conv2attn.convert(nn.Conv2d(1, 1, 3, padding=1)), torch.randn(1, 1, 4, 4)
    network = nn.Sequential(ours, nn.Flatten(2), OfColumns())
    expected = {"[01]": ["0"]}.get(only, [name for name in ("0", "2") if name in only or only == "*"])
    assert [row.name for row in check_span(network, example_input=image, only=only).rows] == expected
    assert [layer.name for layer in conv2attn.heads(network, image, only=only).layers] == expected
    with pytest.raises(UsageError, match=r"C2A008 the pattern '1' fits no layer that attends\. There are: 0, 2"):
        check_span(network, example_input=image, only=[only, "1"])
    with pytest.raises(UsageError, match="C2A501 every layer that attends is skipped"):
        check_span(network, example_input=image, only=only, skip=["0", "2"])


class Called(nn.Module):
    """A convolution by a call of a function, whose weight the attention in its place takes at each call."""

    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(2, 3, 3, 3))

    def forward(self, x):
        return nn.functional.conv2d(x, self.kernel, padding=1)


@pytest.mark.parametrize("asked", [{"grid": (5, 6)}, {"example_input": torch.zeros(2, 3, 5, 6)}])
def test_attention_that_takes_its_weights_at_each_call_is_read_without_them(asked):
    network = conv2attn.convert(Called(), (3, 5, 6))
    report = check_span(network, **asked)
    assert (report.verdict, len(report.rows)) == (Verdict.HOLDS, 1)
    assert "its weights are an argument of each call" in report.to_text()
    (layer,) = conv2attn.heads(network, **asked).layers
    assert (len(layer.heads), layer.convolutions) == (9, ())


def test_what_needs_weights_refuses_attention_that_takes_them_at_each_call():
    network = conv2attn.convert(Called(), (3, 5, 6))
    with pytest.raises(UnsupportedError, match=r"C2A603 .*: no bound is known for attention whose"):
        conv2attn.soften(network, alpha=3)
    with pytest.raises(UsageError, match="C2A505 no layer of the Called has values and outputs that are read"):
        conv2attn.recover(network, grid=(5, 6))
    with pytest.raises(UnsupportedError, match="C2A103 attention that replaces a functional convolution"):
        conv2attn.recover(network.attending_calls.layers[0])


def test_a_picture_of_nothing_is_not_drawn(tmp_path):
    np.save(tmp_path / "rectangles.npy", np.full((2, 16, 9), 1 / 9))
    arguments = ["heads", f"{tmp_path}/rectangles.npy", "--grid", "4x4", "--plot", f"{tmp_path}/heads.png"]
    result = call(*arguments)
    assert result.exit_code == 3
    assert "was not read" in result.output
    assert not (tmp_path / "heads.png").exists()

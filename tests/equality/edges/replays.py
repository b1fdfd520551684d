"""Saved inputs that were spoilt, or that other networks are given: refused in a sentence, or shown as they are."""

import math

import pytest
import torch
from equality.planted import image
from torch import nn

import conv2attn
from conv2attn.equality import replay_counterexamples
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.verdicts import Verdict

# What was saved may be spoilt, or of other networks.


def saved(**changes):
    """One saved input of a layer."""
    return {"layer": "(root)", "image": torch.ones(2, 5, 6), "place": (1, 2, 3), **changes}


SPOILT = {
    "nothing": {},
    "no list": {"witnesses": 3},
    "an empty list": {"witnesses": []},
    "a text": {"witnesses": ["a"]},
    "a text behind": {"witnesses": [saved(), "a"]},
    **{
        f"{key}: {number}": {"witnesses": [saved(**{key: given})]}
        for key, wrong in {
            "layer": [1, None, "nowhere", "a:conv2d", "(network)"],
            "image": [
                3,
                [1.0],
                torch.ones(2, 5, 6).long(),
                torch.full((2, 5, 6), math.inf),
                torch.ones(4, 5, 6),
                torch.ones(2, 5, 6).to_sparse(),
                torch.ones(2, 5, 6, device="meta"),
            ],
            "place": [
                None,
                [0, 1, 2],
                (0,),
                (0, -1, 0),
                (0, True, 0),
                ("a", "b", "c"),
                (3, 0, 0),
                (0, 0, 6),
                (0, 10**9, 0),
            ],
            "part": ["others", 3, torch.ones(2), "call"],
        }.items()
        for number, given in enumerate(wrong)
    },
    "an image of another format": {"witnesses": [saved(image=torch.ones(2, 5, 6).double())]},
    "an image of a network that it does not take": {
        "witnesses": [saved(layer="(network)", part="outputs", image=torch.ones(7))]
    },
    "an image of another format for a network": {
        "witnesses": [saved(layer="(network)", part="outputs", image=torch.ones(2, 5, 6).double())]
    },
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_cannot_be_replayed_is_refused_in_a_sentence(name):
    original = nn.Conv2d(2, 3, 3, padding=1)
    with pytest.raises((CheckpointError, UsageError), match=r"f\.pt") as error:
        replay_counterexamples(SPOILT[name], "f.pt", original, conv2attn.convert(original))
    assert "\n" not in str(error.value)


def test_an_original_that_does_not_run_is_a_usage_error_and_a_second_is_refuted():
    content, original = {"witnesses": [saved()]}, nn.Conv2d(2, 3, 3, padding=1)
    with pytest.raises(UsageError, match=r"does not run on the input in f\.pt: "):
        replay_counterexamples(content, "f.pt", nn.Conv2d(4, 3, 3, padding=1), original)
    others = {
        "another shape": conv2attn.convert(nn.Conv2d(2, 3, 3, padding=2)),
        "other channels": conv2attn.convert(nn.Conv2d(4, 3, 3, padding=1)),
        "another format": conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1)).double(),
    }
    for name, other in others.items():
        report = replay_counterexamples(content, "f.pt", original, other)
        assert (report.verdict, "\n" in report.shown[0].sentence) == (Verdict.REFUTED, False), name


class Nothing(nn.Module):
    """A network whose output is no tensor."""

    def forward(self, images):
        return "nothing"


@pytest.mark.parametrize("network", [Nothing(), nn.Flatten()])
def test_networks_without_layers_show_nothing(network):
    content = {"witnesses": [{"layer": "(network)", "part": "outputs", "image": image()[0].double()}]}
    (shown,) = replay_counterexamples(content, "f.pt", network, network).shown
    assert (shown.layer, shown.verdict) == ("(network) outputs", Verdict.UNDECIDED)
    assert shown.sentence == "this input shows no difference"


@pytest.mark.parametrize(
    ("tolerance", "sentence"),
    [(None, "it is of a tolerance, and none is given"), (1e9, "this input shows no difference beyond the tolerance")],
)
def test_an_input_saved_beside_a_tolerance_is_replayed_beside_one(tolerance, sentence):
    original = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU())
    content = {"witnesses": [{"layer": "(network)", "part": "tolerance", "image": torch.ones(2, 5, 6)}]}
    (shown,) = replay_counterexamples(content, "f.pt", original, conv2attn.convert(original, alpha=1), tolerance).shown
    assert (shown.verdict, shown.sentence) == (Verdict.UNDECIDED, sentence)


def test_a_tolerance_is_of_the_outputs_and_not_of_a_layer_between_others():
    original = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU())
    soft = conv2attn.convert(original, alpha=1)
    content = {"witnesses": [saved(layer="0", image=torch.randn(2, 5, 6))]}
    verdicts = [replay_counterexamples(content, "f.pt", original, soft, e).verdict for e in (None, 1e3)]
    assert verdicts == [Verdict.REFUTED, Verdict.UNDECIDED]


def test_the_dtype_to_pass_is_that_of_the_saved_input():
    original = nn.Conv2d(2, 3, 3, padding=1).double()
    with pytest.raises(UsageError, match=r"Pass dtype float32"):
        replay_counterexamples({"witnesses": [saved()]}, "f.pt", original, conv2attn.convert(original))

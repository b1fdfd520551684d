"""Networks checked again from files: what stands between their layers, forged certificates, and files of any kind."""

import copy
import json
import math

import pytest
import torch
from equivalence.stored import Stored, last_ulp, state, stored, without, wrapped
from torch import nn

import conv2attn
from conv2attn.equivalence import recheck
from conv2attn.errors import CheckpointError, Conv2AttnError, UsageError
from conv2attn.verdicts import Verdict


@pytest.fixture
def network(tmp_path):
    """Two layers converted and one left out, with a batch normalisation between."""
    return stored("network", tmp_path)


NETWORKS = {
    "nothing": (lambda content: None, "converted", Verdict.HOLDS),
    "a wrapper": (wrapped("model", "module."), "original", Verdict.HOLDS),
    "another wrapper": (wrapped("state_dict", "module._orig_mod."), "original", Verdict.HOLDS),
    "no counter, as in old files": (without("1.num_batches_tracked"), "original", Verdict.HOLDS),
    "a counter": (state("1.num_batches_tracked", lambda number: number + 1), "converted", Verdict.UNDECIDED),
    "the sign of a zero that is no layer's": (state("1.bias", lambda x: -x), "converted", Verdict.UNDECIDED),
    "a statistic": (state("1.running_var", last_ulp), "original", Verdict.UNDECIDED),
    "a layer that was left out": (state("3.weight", last_ulp), "converted", Verdict.UNDECIDED),
    "a bias that is gone": (without("0.bias"), "original", Verdict.REFUTED),
    "a tensor more": (lambda content: content.update(more=torch.ones(1)), "original", Verdict.UNDECIDED),
    "two heads": (state("0.encoding.center", lambda center: center.flip(0)), "converted", Verdict.REFUTED),
    "another architecture": (lambda content: content.update(architecture="another"), "converted", Verdict.REFUTED),
    "a layer of another name": (
        lambda content: content["layers"].update(a=content["layers"].pop("2")),
        "converted",
        Verdict.UNDECIDED,
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_what_stands_between_the_layers_is_the_same_bit_for_bit(network, name):
    change, which, verdict = NETWORKS[name]
    found = network.forge(change, which).look()
    assert found.verdict is verdict, found
    assert found.checked == 2 or verdict is not Verdict.HOLDS


class Chain(nn.Module):
    """Modules one after the other, in an order of its own."""

    def __init__(self, order, **modules):
        super().__init__()
        self.order = order
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, given):
        for name in self.order:
            given = getattr(self, name)(given)
        return given


def chain(*order):
    """A convolution and two normalisations that differ; the last two swap their names with their places."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        modules = [nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2), nn.BatchNorm2d(2)]
        nn.init.normal_(modules[1].bias)
    return Chain(order, **dict(zip(order, modules, strict=True))).eval()


def buffered(number):
    net = chain("conv", "one", "two")
    net.register_buffer("unread", torch.tensor(number))
    return net


def tied():
    conv = nn.Conv2d(2, 2, 3)
    return Chain(("a", "b"), a=conv, b=conv)


def grouped(groups):
    """A convolution in two groups, or its zeros filled in."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        conv, dense = nn.Conv2d(2, 2, 3, groups=2), nn.Conv2d(2, 2, 3)
    if groups == 2:
        return Chain("c", c=conv)
    full = torch.zeros(2, 2, 3, 3)
    full[0, 0], full[1, 1] = conv.weight.data[:, 0]
    dense.load_state_dict({"weight": full, "bias": conv.bias})
    return Chain("c", c=dense)


def normed():
    return Chain("c", c=nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 2, 3)))


PROVED = {
    "a normalisation renamed": (chain("conv", "one", "two"), chain("conv", "another", "two"), Verdict.UNDECIDED),
    "two names exchanged": (chain("conv", "one", "two"), chain("conv", "two", "one"), Verdict.UNDECIDED),
    "a convolution renamed": (chain("conv", "one", "two"), chain("other", "one", "two"), Verdict.UNDECIDED),
    "a buffer that nothing reads": (buffered(1.0), conv2attn.convert(buffered(2.0)), Verdict.UNDECIDED),
    "one layer under two names": ((shared := tied()), conv2attn.convert(shared), Verdict.UNDECIDED),
    "groups filled in": (grouped(2), grouped(1), Verdict.HOLDS),
    "groups filled in, attending": (grouped(2), conv2attn.convert(grouped(1)), Verdict.HOLDS),
    "attention back to a convolution": (conv2attn.convert(grouped(1)), grouped(2), Verdict.HOLDS),
    "a weight computed from others": ((parted := normed()), conv2attn.convert(parted), Verdict.UNDECIDED),
}


@pytest.mark.parametrize("name", PROVED)
def test_what_is_proved_is_never_refuted(tmp_path, name):
    """Names say nothing: a tensor under another name, or that no graph reads, is no contradiction."""
    original, converted, verdict = PROVED[name]
    made = Stored(tmp_path, original, converted, input_size=(2, 7, 6))
    assert made.body["verdict"] == "holds"
    found = made.look()
    assert (found.verdict, found.wrong) == (verdict, ()), found


@pytest.mark.parametrize("which", ["original", "converted"])
def test_a_file_that_changed_is_refuted_before_it_is_read(network, which):
    network.paths[which].write_bytes(b"something else")
    found = network.look()
    assert (found.verdict, found.checked) == (Verdict.REFUTED, 0)
    assert f"{network.paths[which]} changed" in found.wrong[0]


def test_files_that_moved_can_be_named(network, tmp_path):
    moved = [str(network.paths[which].rename(tmp_path / f"{which}.moved")) for which in ("original", "converted")]
    assert network.look(*moved).verdict is Verdict.HOLDS
    with pytest.raises(CheckpointError, match="is not there"):
        network.look()


def test_files_of_a_device_that_is_not_here_are_read(network, monkeypatch):
    content = {which: torch.load(network.paths[which], weights_only=True) for which in ("original", "converted")}
    with monkeypatch.context() as patched:
        patched.setattr(torch.serialization, "location_tag", lambda storage: "cuda:99")
        for which, held in content.items():
            torch.save(held, network.paths[which])
    network.sign()
    assert network.look().verdict is Verdict.HOLDS


class Foreign:
    """What only an unsafe load would make."""

    def __reduce__(self):
        return pytest.fail, ("executed",)


@pytest.mark.parametrize("content", [5, [1], {"more": Foreign()}, {1: torch.ones(1)}, {"state_dict": None}, "text"])
def test_files_that_hold_no_networks_are_refused_and_nothing_is_executed(network, content):
    torch.save(content, network.paths["original"])
    network.sign()
    with pytest.raises(UsageError, match="cannot be checked again") as error:
        network.look()
    assert "\n" not in str(error.value)


FIELDS = {
    "an undecided verdict": ({"verdict": "undecided"}, Verdict.UNDECIDED),
    "a refuted verdict": ({"verdict": "refuted"}, Verdict.REFUTED),
    "a tolerance": ({"claim": "the outputs differ by at most 1 for all finite inputs"}, Verdict.UNDECIDED),
    "other graphs": ({"context": {"digests": ["one", "other"], "conditions": []}}, Verdict.REFUTED),
    "no graphs": ({"context": {"digests": ["", ""], "conditions": []}}, Verdict.REFUTED),
    "no layers": ({"layers": []}, Verdict.UNDECIDED),
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_certificate_is_no_better_than_it_says(network, name):
    body, verdict = FIELDS[name]
    network.body.update(body)
    network.sign()
    assert network.look().verdict is verdict


def test_networks_of_other_names_are_not_checked_again(network):
    for which, name in (("original", "a.weight"), ("converted", "b.weight")):
        torch.save({name: torch.ones(2)}, network.paths[which])
    network.body["layers"] = []
    network.sign()
    found = network.look()
    assert (found.verdict, found.wrong, len(found.unknown)) == (Verdict.UNDECIDED, (), 1)


def test_a_layer_that_is_in_no_file_is_not_counted_as_checked(tmp_path):
    made = Stored(tmp_path, grouped(2), grouped(2), input_size=(2, 7, 6))
    assert made.look().verdict is Verdict.HOLDS
    made.body["layers"][0]["name"] = "elsewhere"
    made.sign()
    assert made.look().verdict is Verdict.UNDECIDED


FORM = {"stride": [3, 3], "room": [3, 3], "spacing": [3, 3], "mode": "reflect", "starts": None, "groups": 2}


@pytest.mark.parametrize("part", FORM)
def test_no_part_of_the_evidence_can_be_changed_unseen(tmp_path, part):
    made = stored("2d", tmp_path)
    form = made.body["layers"][0]["forms"][0]
    form[part] = [[0, 0], *form["starts"][1:]] if part == "starts" else FORM[part]
    made.sign()
    found = outcome(made)
    assert found in (Verdict.REFUTED, Verdict.UNDECIDED) or "cannot be checked again" in found


def outcome(made):
    """The verdict, or the sentence of the error."""
    try:
        return made.look().verdict
    except Conv2AttnError as error:
        return str(error)


def places(body, path=()):
    """The paths of all fields."""
    if isinstance(body, dict | list):
        for key in list(body) if isinstance(body, dict) else range(min(1, len(body))):
            yield (*path, key)
            yield from places(body[key], (*path, key))


WRONG = [None, True, -1, 3.5, math.nan, "text", [[]], {}, 10**400]


def test_a_corrupted_certificate_is_refused_in_a_sentence(tmp_path):
    """Each field in turn is something else: no raw error, and nothing holds that says it does not."""
    made = stored("1d", tmp_path)
    body = made.body
    for path in list(places(body)):
        for wrong in WRONG:
            made.body = copy.deepcopy(body)
            *way, last = path
            place = made.body
            for key in way:
                place = place[key]
            place[last] = wrong
            made.paths["certificate"].write_text(json.dumps(made.body))
            found = outcome(made)
            assert isinstance(found, Verdict) or "\n" not in found, (path, wrong)


@pytest.mark.parametrize("text", ["no json", "[" * 100_000, "{}", "[]", "3", "\0", "{" + '"a":[' * 10_000])
def test_what_is_no_certificate_is_refused_in_a_sentence(network, text):
    network.paths["certificate"].write_text(text)
    with pytest.raises(UsageError, match=r"c\.json is no certificate of two files"):
        network.look()
    with pytest.raises(CheckpointError, match="none is not a regular file"):
        recheck("none")


def test_the_report_of_a_second_look(network):
    found = network.forge(state("0.bias", lambda x: x + 1)).look()
    body = json.loads(found.to_json())
    assert (body["verdict"], body["wrong"], body["schema"]) == ("refuted", ["0: bias differs"], "conv2attn.recheck/1")
    assert found.to_text() == "".join(line.removeprefix("- ") + "\n" for line in found.to_markdown().splitlines())
    assert found.exit_code == 1

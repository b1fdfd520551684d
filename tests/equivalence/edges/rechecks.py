"""The second look at a stored certificate: it finds what was changed behind it, and refutes nothing that is proved."""

import copy
import hashlib
import json
import math
import shutil

import pytest
import torch
from click.testing import CliRunner
from equivalence.planted import ulp
from equivalence.soft import SOFT, line
from torch import nn

import conv2attn
from conv2attn.cli import main
from conv2attn.equivalence import certify, recheck
from conv2attn.errors import CheckpointError, Conv2AttnError, UsageError
from conv2attn.models.zoo.resnet import ResNetPlan, build
from conv2attn.verdicts import Strength, Verdict

with torch.random.fork_rng():
    torch.manual_seed(0)
    KINDS = {
        "1d": nn.Conv1d(2, 3, 3, padding=1),
        "1d dilated": nn.Conv1d(2, 2, 2, dilation=3, padding=2),
        "2d": nn.Conv2d(2, 3, (3, 2), padding=1),
        "strided": nn.Conv2d(2, 4, 3, stride=(2, 3), padding=1, bias=False),
        "grouped": nn.Conv2d(4, 4, 3, groups=2, padding=1),
        "depthwise": nn.Conv2d(3, 3, (1, 3), groups=3),
        "reflected": nn.Conv1d(2, 2, 3, padding=1, padding_mode="reflect"),
        "replicated": nn.Conv2d(2, 2, (3, 1), padding=(1, 0), padding_mode="replicate"),
        "circular": nn.Conv1d(3, 2, 3, padding=1, padding_mode="circular"),
        "transposed": nn.ConvTranspose1d(2, 3, 3, stride=2, padding=1),
        "wide": nn.Conv1d(4, 2, 3).double(),
    }


def size_of(original):
    return (original.in_channels, *(6, 7)[: len(original.kernel_size)])


class Stored:
    """Two networks in files, and their certificate, which may be forged."""

    def __init__(self, folder, original, converted, **asked):
        self.paths = {"original": folder / "a.pt", "converted": folder / "b.pt", "certificate": folder / "c.json"}
        for path, network in zip(self.paths.values(), (original, converted), strict=False):
            if any(isinstance(module, conv2attn.MultiHeadSelfAttention) for module in network.modules()):
                conv2attn.save(network, path, force=True)
            else:
                torch.save(network.state_dict(), path)
        self.body = json.loads(certify(original, converted, **asked).to_json())
        self.sign()

    def copied(self, folder):
        """The same in another folder."""
        other = copy.deepcopy(self)
        other.paths = {which: folder / path.name for which, path in self.paths.items()}
        for which in ("original", "converted"):
            shutil.copy(self.paths[which], other.paths[which])
        other.sign()
        return other

    def name_architecture(self, which):
        """Adds the architecture in a file to the certificate, as verify does, unless it names one already."""
        try:
            content = torch.load(self.paths[which], weights_only=True)
            named = json.dumps(content["architecture"], sort_keys=True, default=str)
        except Exception:
            return
        self.body["circumstances"].setdefault(f"{which} architecture", named)

    def sign(self):
        """Writes the certificate, with the hashes that the files have now."""
        for which in ("original", "converted"):
            digest = hashlib.sha256(self.paths[which].read_bytes()).hexdigest()
            self.body["circumstances"] |= {which: str(self.paths[which]), f"{which} sha256": digest}
            self.name_architecture(which)
        self.paths["certificate"].write_text(json.dumps(self.body))

    def forge(self, change, which="converted"):
        """Changes what a file holds, and signs it."""
        content = torch.load(self.paths[which], weights_only=True)
        content = change(content) or content
        torch.save(content, self.paths[which])
        self.sign()
        return self

    def look(self, *files):
        return recheck(str(self.paths["certificate"]), *files)


@pytest.fixture(scope="module")
def certified_once(tmp_path_factory):
    """A function that gives the files of some networks and their certificate, which is made the first time."""
    known = {}

    def give(name, original, converted, size):
        if name not in known:
            known[name] = Stored(tmp_path_factory.mktemp("stored"), original, converted, input_size=size)
        return known[name]

    return give


@pytest.fixture
def stored(certified_once, tmp_path):
    """A function that gives the files of a kind of layer, to be changed."""

    def give(kind):
        original = KINDS[kind]
        return certified_once(kind, original, conv2attn.convert(original), size_of(original)).copied(tmp_path)

    return give


def plan_of(content):
    return content["layers"][""]


def heads(content, index):
    """Takes these heads, in this order."""
    for key, tensor in content["state_dict"].items():
        if key != "bias":
            content["state_dict"][key] = tensor[..., index].clone() if tensor.ndim == 3 else tensor[index].clone()
    plan_of(content)["positions"][0] = len(index)


def count(content):
    return len(content["state_dict"]["encoding.alpha"])


def factor(content):
    """The factor that holds the taps, heads first."""
    return next(
        content["state_dict"][key].permute(2, 0, 1) for key in ("value", "output") if key in content["state_dict"]
    )


def permuted(content):
    heads(content, [*range(1, count(content)), 0])


def split(content):
    heads(content, [*range(count(content)), 0])
    half = factor(content)[0] / 2
    factor(content)[0], factor(content)[-1] = half, half


def dead(alpha=128.0, by=None, number=0.0):
    """One head more that does nothing, far off the grid or `by` beside the last."""

    def change(content):
        heads(content, [*range(count(content)), 0])
        factor(content)[-1] = number
        center = content["state_dict"]["encoding.center"]
        center[-1] = 5.0 if by is None else center[-2] + by
        content["state_dict"]["encoding.alpha"][-1] = alpha

    return change


def cancelling(center=5.0):
    """Two heads more, off the grid, that add up to nothing."""

    def change(content):
        heads(content, [*range(count(content)), 0, 0])
        factor(content)[-2], factor(content)[-1] = 1.0, -1.0
        content["state_dict"]["encoding.center"][-2:] = center

    return change


def padded(content):
    """More padding, and queries that stand as far from the border as before."""
    for part in ("padding", "sites"):
        for side in ("before", "after"):
            plan_of(content)[part][side] = tuple(x + 1 for x in plan_of(content)[part][side])


def unpadded(content):
    """Heads that lie off the grid, and move on to the nearest key there."""
    for part in ("padding", "sites"):
        for side in ("before", "after"):
            plan_of(content)[part][side] = tuple(0 for _ in plan_of(content)[part][side])
    plan_of(content)["padding"]["mode"] = "zeros"


def identity(content):
    """The identity that was not stored."""
    plan, state, groups = plan_of(content), content["state_dict"], plan_of(content)["groups"]
    key, width = ("output", plan["d_out"]) if "value" in state else ("value", plan["d_in"])
    eye = torch.eye(width // groups, dtype=factor(content).dtype).repeat(groups, 1)[..., None]
    state[key], plan[key] = eye.repeat(1, 1, count(content)), True


def far_below(off):
    """An inner channel more, of 2^-60, which float64 sums do not see; it adds something or nothing."""

    def change(content):
        state, plan = content["state_dict"], plan_of(content)
        identity(content)
        value, output = state["value"], state["output"]
        groups, extra = plan["groups"], torch.zeros_like(value[:1])
        if groups > 1:
            return
        extra[0, 0] = 2.0**-60
        state["value"], state["output"] = (
            torch.cat([value, extra]),
            torch.cat([output, torch.zeros_like(output[:, :1])], 1),
        )
        state["output"][-1, -1, 0] = 2.0**-60 * off
        plan["d_head"] += 1

    return change


def at(key, change):
    """Changes a copy of a tensor."""

    def forge(content):
        state = content["state_dict"]
        name = ("value" if "value" in state else "output") if key == "factor" or key not in state else key
        state[name] = change(state[name].clone().contiguous())

    return forge


def planned(*path, to):
    """Changes an entry of the plan."""

    def forge(content):
        plan = plan_of(content)
        for key in path[:-1]:
            plan = plan[key]
        plan[path[-1]] = to(plan[path[-1]])

    return forge


def first(number):
    def change(tensor):
        tensor.view(-1)[0] = number
        return tensor

    return change


def last_ulp(tensor):
    ulp(tensor.view(-1), (-1,))
    return tensor


def both(*changes):
    return lambda content: [change(content) for change in changes] and None


def off(tensor):
    return tuple(x + 1 for x in tensor)


enumerated = planned("encoding", to=lambda encoding: "enumerated")
SAME = {
    "nothing": lambda content: None,
    "heads permuted": permuted,
    "a head split": split,
    "a dead head off the grid": dead(),
    "a dead head far off the grid": both(
        dead(), at("encoding.center", lambda c: c.index_fill(0, torch.tensor([-1]), 2.0**100))
    ),
    "a soft dead head": dead(3.0, 1),
    "a dead head halfway": dead(by=0.5),
    "a dead head of alpha 0": dead(0.0, 1),
    "a dead head of negative alpha": dead(-128.0, 1),
    "stride by pooling": planned("stride_by", to=lambda by: "pooling"),
    "an identity stored": identity,
    "alpha doubled": at("encoding.alpha", lambda alpha: alpha * 2),
    "zeros of another sign": at("bias", lambda bias: torch.where(bias == 0, -bias, bias)),
}
PLANTED = {
    "a weight by one ulp": at("factor", last_ulp),
    "a bias by one ulp": at("bias", last_ulp),
    "a weight that is none": at("factor", first(torch.nan)),
    "groups": planned("groups", to=lambda groups: groups + 1),
    "more groups": planned("groups", to=lambda groups: groups * 2),
    "no groups": planned("groups", to=lambda groups: 0),
    "groups that are true": planned("groups", to=lambda groups: True if groups != 1 else 1.0),
    "d_in": planned("d_in", to=lambda d_in: d_in + 1),
    "d_in twice": planned("d_in", to=lambda d_in: d_in * 2),
    "twice the channels in two groups": both(
        *(planned(key, to=lambda number: number * 2) for key in ("d_in", "d_head", "groups"))
    ),
    "d_out": planned("d_out", to=lambda d_out: d_out + 1),
    "d_head": planned("d_head", to=lambda d_head: d_head + 1),
    "stride_by": planned("stride_by", to=lambda by: "squares"),
    "content": planned("content", to=lambda content: True),
    "no bias planned": planned("bias", to=lambda bias: not bias),
    "positions": planned("positions", to=lambda told: [told[0] + 1, *told[1:]]),
    "spacing": planned("padding", "spacing", to=off),
    "spacing of 0": planned("padding", "spacing", to=lambda told: tuple(0 for _ in told)),
    "padding": planned("padding", "before", to=off),
    "padding of halves": planned("padding", "before", to=lambda told: tuple(x + 0.5 for x in told)),
    "padding behind": planned("padding", "after", to=off),
    "padding of another axis": planned("padding", "after", to=lambda told: (*told, 0)),
    "mode": planned("padding", "mode", to=lambda mode: "squares"),
    "stride": planned("sites", "stride", to=off),
    "queries that start elsewhere": planned("sites", "before", to=off),
    "queries that end elsewhere": planned("sites", "after", to=off),
    "alpha of 46": at("encoding.alpha", lambda alpha: alpha.fill_(46)),
    "alpha of 3": at("encoding.alpha", lambda alpha: alpha.fill_(3)),
    "one alpha of 3": at("encoding.alpha", first(3.0)),
    "no alpha": at("encoding.alpha", first(torch.nan)),
    "infinite alpha": at("encoding.alpha", first(torch.inf)),
    "negative alpha": at("encoding.alpha", first(-128.0)),
    "alpha of 0": at("encoding.alpha", first(0.0)),
    "a dead head of no alpha": dead(torch.nan, 1),
    "a dead head of infinite alpha": dead(torch.inf, 1),
    "a head more off the grid": dead(number=1.0),
    "a centre": at("encoding.center", first(7.0)),
    "no centre": at("encoding.center", first(torch.nan)),
    "all centres": at("encoding.center", lambda center: center + 1),
    "halfway": at("encoding.center", lambda center: center + 0.5),
    "another dtype": at("factor", lambda tensor: tensor.half()),
    "one tensor more": lambda content: content["state_dict"].update(more=torch.ones(1)),
    "one tensor less": lambda content: content["state_dict"].pop("encoding.alpha") is None or None,
}
EITHER = {
    "more padding": padded,
    "unpadded": unpadded,
    "enumerated": enumerated,
    "enumerated with a dead head": both(enumerated, dead()),
    "enumerated with a dead head halfway": both(enumerated, dead(by=-0.5)),
    "heads off the grid that cancel": cancelling(),
    "heads far off the grid that cancel": cancelling(2.0**13),
    "a centre a little off": at("encoding.center", lambda center: center + 2.0**-10),
    "reflected": planned("padding", "mode", to=lambda mode: "reflect"),
    "replicated": planned("padding", "mode", to=lambda mode: "replicate"),
    "replicated and padded": both(padded, planned("padding", "mode", to=lambda mode: "replicate")),
    "an unknown encoding": planned("encoding", to=lambda encoding: "learned"),
    "far below": far_below(0.0),
    "far below and not nothing": far_below(1.0),
    **{
        name: SAME[name]
        for name in (
            "a head split",
            "a dead head of negative alpha",
            "an identity stored",
        )
    },
    **{f"alpha {alpha}": at("encoding.alpha", lambda old, alpha=alpha: old.fill_(alpha)) for alpha in (103.9, 104.0)},
    **{f"a shift of {by}": at("encoding.center", lambda old, by=by: old + by) for by in (2.0**-4, 0.09, 0.094, 0.1)},
}


@pytest.mark.parametrize("change", SAME)
def test_what_is_the_same_map_holds(stored, change):
    for kind in KINDS:
        found = stored(kind).forge(SAME[change]).look()
        assert (found.verdict, found.wrong, found.unknown, found.checked) == (Verdict.HOLDS, (), (), 1), (kind, found)


@pytest.mark.parametrize("change", PLANTED)
def test_what_was_planted_is_refuted(stored, change):
    for kind in KINDS:
        found = stored(kind).forge(PLANTED[change]).look()
        assert found.verdict is Verdict.REFUTED, (kind, found)
        assert found.wrong


def certified(kind, made):
    """What `certify` says of the same two files; None where the second cannot be loaded or run."""
    try:
        return certify(KINDS[kind], conv2attn.load(made.paths["converted"]), input_size=size_of(KINDS[kind]))
    except (Conv2AttnError, RuntimeError, KeyError, TypeError, ValueError):
        return None


@pytest.mark.parametrize("change", EITHER)
@pytest.mark.parametrize("kind", ["2d", "replicated"])
def test_the_second_look_never_contradicts_the_first(stored, kind, change):
    made = stored(kind).forge(EITHER[change])
    found, report = made.look(), certified(kind, made)
    proved = report is not None and bool(report) and report.strength is Strength.PROVED
    assert found.verdict is not (Verdict.REFUTED if proved else Verdict.HOLDS), (found, report)


ALPHAS = [16.5, 16.6, 16.7, 17.3, 18.0, 18.03, 18.1, 46.0]


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", ["1d", "2d"])
def test_of_bounded_layers_nothing_is_said_against_the_first_look(stored, kind, alpha):
    """Between what a head surely leaks and what it surely does not the theta series decides, and not this code."""
    made = stored(kind)
    made.body["layers"][0]["strength"] = "bounded"
    found = made.forge(at("encoding.alpha", lambda old: old.fill_(alpha))).look()
    report = certified(kind, made)
    assert found.verdict is not {Verdict.HOLDS: Verdict.REFUTED}.get(report.verdict, Verdict.HOLDS)
    assert (found.verdict is Verdict.HOLDS) or alpha < 19
    assert (found.verdict is Verdict.REFUTED) or alpha > 16.6


LIMITS = {torch.float32: 150, torch.float64: 1075, torch.bfloat16: 134, torch.float16: 25}


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize(("by", "verdict"), [(0.0, Verdict.HOLDS), (1e-9, Verdict.UNDECIDED), (1e-5, Verdict.REFUTED)])
def test_alphas_are_those_from_which_weights_vanish(tmp_path, dtype, by, verdict):
    """150 log 2 in float32: half of the smallest number is 2^-150; next to the limit this code decides nothing."""
    with torch.random.fork_rng():
        original = nn.Conv1d(2, 3, 3, padding=1).to(dtype)
    made = Stored(tmp_path, original, conv2attn.convert(original, alpha=5000.0), input_size=(2, 7))
    alpha = torch.full((3,), 5000.0, dtype=torch.float64)
    alpha[1] = LIMITS[dtype] * math.log(2) * (1 - by)
    found = made.forge(lambda content: content["state_dict"].update({"encoding.alpha": alpha}) and None).look()
    assert found.verdict is verdict, found


@pytest.fixture(scope="module")
def soft(tmp_path_factory):
    """Two soft layers that are one, and their certificate."""
    return Stored(tmp_path_factory.mktemp("soft"), line(3), line(3), input_size=(2, 7))


@pytest.mark.parametrize("name", SOFT)
@pytest.mark.parametrize("turned", [False, True])
def test_soft_layers_hold_where_they_attend_alike_or_are_undecided(soft, name, turned):
    (change, same), pair = SOFT[name], [line(3), line(3)]
    change(pair[0 if turned else 1])
    for which, layer in zip(("original", "converted"), pair, strict=True):
        conv2attn.save(layer, soft.paths[which], force=True)
    soft.sign()
    found = soft.look()
    assert found.verdict is not (Verdict.REFUTED if same else Verdict.HOLDS), found
    assert found.verdict is Verdict.HOLDS or name != "nothing"


def test_files_that_were_exchanged_are_not_what_was_certified(stored):
    made = stored("2d")
    made.paths = {**made.paths, "original": made.paths["converted"], "converted": made.paths["original"]}
    made.sign()
    found = made.look()
    assert found.verdict is Verdict.REFUTED


# A network: what stands between its layers is compared bit for bit, and what differs there leaves it undecided.


def small():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Conv2d(3, 2, 1), nn.Conv2d(2, 2, 1)).eval()


@pytest.fixture
def network(certified_once, tmp_path):
    """Two layers converted and one left out, with a batch normalisation between."""
    original = small()
    return certified_once("network", original, conv2attn.convert(original, skip="3"), (2, 5, 6)).copied(tmp_path)


def state(key, change):
    """Changes a tensor of a file, wrapped or not."""

    def forge(content):
        tensors = content.get("state_dict", content)
        tensors[key] = change(tensors[key].clone())

    return forge


def wrapped(key, prefix=""):
    return lambda content: {key: {f"{prefix}{name}": tensor for name, tensor in content.items()}, "epoch": 3}


def without(key):
    return lambda content: content.get("state_dict", content).pop(key).new_empty(0).tolist() or None


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


def test_verify_stores_the_architecture_and_recheck_finds_another(tmp_path, monkeypatch):
    """The stem decides on a pooling that no tensor shows."""
    monkeypatch.chdir(tmp_path)
    torch.save(build(ResNetPlan(depths=(1, 1, 1, 1), width=4, classes=5, stem="cifar")).state_dict(), "net.pt")
    conv2attn.save(conv2attn.convert(conv2attn.load("net.pt")), "net.attn.pt")
    asked = ["verify", "net.pt", "net.attn.pt", "--input-size", "3x12x10", "--report", "c.json"]
    assert CliRunner().invoke(main, asked).exit_code == 0
    assert recheck("c.json").verdict is Verdict.HOLDS
    content = torch.load("net.attn.pt", weights_only=True)
    content["architecture"][1].update(stem="imagenet")
    torch.save(content, "net.attn.pt")
    body = json.loads((tmp_path / "c.json").read_text())
    body["circumstances"]["converted sha256"] = hashlib.sha256((tmp_path / "net.attn.pt").read_bytes()).hexdigest()
    (tmp_path / "c.json").write_text(json.dumps(body))
    assert recheck("c.json").wrong == ("the converted has another architecture than the certificate",)


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


FORM = {"stride": [3, 3], "room": [3, 3], "spacing": [3, 3], "mode": "reflect", "starts": None, "groups": 2}


@pytest.mark.parametrize("part", FORM)
def test_no_part_of_the_evidence_can_be_changed_unseen(stored, part):
    made = stored("2d")
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


WRONG = [None, True, -1, 3.5, math.inf, math.nan, "text", [], {}, [[]], {"a": 1}, 10**400]


def test_a_corrupted_certificate_is_refused_in_a_sentence(stored):
    """Each field in turn is something else: no raw error, and nothing holds that says it does not."""
    made = stored("2d")
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

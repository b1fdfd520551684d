"""What the second look at a stored certificate finds, in files made by hand."""

import json
import math
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.attention.hardness import FORMATS
from conv2attn.attention.plan import to_plan
from conv2attn.basis.padding import PADDING_MODES
from conv2attn.bounds import format_of
from conv2attn.equivalence.evidence.recheck import Recheck, as_read, recheck, sha256
from conv2attn.equivalence.evidence.recheck_files import objections as objections_to
from conv2attn.equivalence.evidence.recheck_files import same_bits, tensors_of, unequal
from conv2attn.equivalence.evidence.recheck_forms import (
    Objection,
    misfit,
    of_attention,
    of_convolution,
)
from conv2attn.equivalence.evidence.recheck_layers import (
    ROUNDOFF,
    SMALLEST,
    applied,
    biased,
    heads_at,
    identical,
    in_groups,
    of_alpha,
    of_borders,
    of_forms,
    same_at,
    uses,
)
from conv2attn.equivalence.evidence.recheck_layers import of_layers as of_layers_as_told
from conv2attn.equivalence.readings.reading import reading_of
from conv2attn.equivalence.rows import evidence_of
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.verdicts import Verdict

NAME = "layer1.0.conv1."
SAVED = {"conv2attn": "conv2attn.network/2"}


def layer(seed=0, **kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Conv2d(2, 4, 3, **{"padding": 1, **kwargs})


def plan_of(module):
    """The plan of what a convolution is converted to."""
    return to_plan(conv2attn.convert(module))


def told_of_module(module):
    """The form of a layer as a certificate has it."""
    return asdict(evidence_of(reading_of(module)))


PLAN = plan_of(layer())
TOLD = told_of_module(layer())


def of_layers(name, plans, states, told=None, **kwargs):
    return of_layers_as_told(name, plans, states, TOLD if told is None else told, **kwargs)


def objections(first, second, names):
    return objections_to(first, second, names, dict.fromkeys(names, TOLD))


def changed(key, **parts):
    return {**PLAN, key: {**PLAN[key], **parts}}


def states(**kwargs):
    """The tensors of a layer and of its conversion, under the name layer1.0.conv1."""
    made = layer(**kwargs)
    both = made, conv2attn.convert(made)
    return tuple({f"{NAME}{key}": value.clone() for key, value in each.state_dict().items()} for each in both)


def heads_first(tensors):
    """The factors of a state with their heads first, so that tests may name them."""
    return {key: tensor.permute(2, 0, 1) if tensor.ndim == 3 else tensor for key, tensor in tensors.items()}


def stored(tensors):
    """What `heads_first` made of a state, as it is stored."""
    return {key: tensor.permute(1, 2, 0) if tensor.ndim == 3 else tensor for key, tensor in tensors.items()}


def found(change=lambda ours, theirs: None, plan=PLAN, *, unsure=False, **kwargs):
    """The sentences on a conversion with a change, those that refute or those that do not."""
    ours, theirs = states(**kwargs)
    theirs = heads_first(theirs)
    change(ours, theirs)
    said = list(of_layers(NAME, (None, plan), (ours, stored(theirs))))
    assert all(each.sure is not unsure for each in said), said
    return [each.sentence for each in said]


def at(key, number, *place):
    """Writes a number into a tensor of the second file."""
    return lambda ours, theirs: theirs[f"{NAME}{key}"].__setitem__(place or ..., number)


def test_a_conversion_is_its_convolution():
    assert found() == []
    assert found(bias=False, plan={**PLAN, "bias": False}) == []
    assert found(plan={**PLAN, "stride_by": "pooling"}) == []


def test_biases_are_the_same_or_zero():
    told = ["layer1.0.conv1: bias differs"]
    assert found(at("bias", 9.0, 1)) == told
    without = {**PLAN, "bias": False}
    assert found(lambda ours, theirs: theirs.pop(f"{NAME}bias"), without) == told
    assert found(lambda ours, theirs: ours.pop(f"{NAME}bias")) == told

    def zero(ours, theirs):
        ours[f"{NAME}bias"] *= 0
        del theirs[f"{NAME}bias"]

    assert found(zero, without) == []
    assert found(lambda ours, theirs: (ours.pop(f"{NAME}bias"), theirs[f"{NAME}bias"].zero_())) == []


@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize("key", ["output", "bias", "encoding.center", "encoding.alpha"])
def test_no_number_is_beyond_all(key, number):
    ours, theirs = states()
    tensor = theirs[f"{NAME}{key}"]
    tensor[(-1,) * tensor.ndim] = number
    told = [Objection("layer1.0.conv1: a number is not finite")]
    assert list(of_layers(NAME, (None, PLAN), (ours, theirs))) == told
    assert list(of_layers(NAME, (PLAN, PLAN), (theirs, states()[1]))) == told
    assert list(of_layers(NAME, (None, PLAN), (ours, {**states()[1], "other": torch.tensor(number)}))) == []


@pytest.mark.parametrize(
    ("dtype", "least"), [(torch.float32, 150), (torch.float64, 1075), (torch.bfloat16, 134), (torch.float16, 25)]
)
def test_alphas_are_those_from_which_weights_vanish(dtype, least):
    assert 1 - SMALLEST[dtype] == least
    limit = least * 0.6931471805599453

    def alpha(number):
        def change(ours, theirs):
            for side in (ours, theirs):
                for key, tensor in side.items():
                    side[key] = tensor.to(dtype)
            theirs[f"{NAME}encoding.alpha"] = torch.full((9,), 5000.0, dtype=torch.float64)
            theirs[f"{NAME}encoding.alpha"][4] = number
            theirs[f"{NAME}encoding.center"] = theirs[f"{NAME}encoding.center"].double()

        return change

    assert found(alpha(limit)) == []
    for off, unsure in ((1e-15, True), (2.0**-20, True), (2.0**-19.5, True), (2.0**-18.5, False)):
        told = [f"layer1.0.conv1.encoding.alpha is {limit * (1 - off):g}"]
        assert found(alpha(limit * (1 - off)), unsure=unsure) == told
    assert found(alpha(-128.0)) == ["layer1.0.conv1.encoding.alpha is -128"]
    assert found(alpha(0.0)) == ["layer1.0.conv1.encoding.alpha is 0"]


def test_a_centre_between_pixels_needs_more():
    told = ["layer1.0.conv1.encoding.alpha is 128"]
    assert found(at("encoding.center", -0.9375, 0, 0)) == []
    assert found(at("encoding.center", -0.75, 0, 0)) == told
    assert found(at("encoding.center", -0.5, 0, 0)) != []
    shift = (1 - 150 * math.log(2) / 128) / 2
    assert found(at("encoding.center", -1 + shift * (1 - 2.0**-12), 0, 0)) == []
    assert found(at("encoding.center", -1 + shift * (1 - 2.0**-20), 0, 0), unsure=True) == told
    assert found(at("encoding.center", -1 + shift * (1 + 2.0**-12), 0, 0)) == told
    enumerated = {**PLAN, "encoding": "enumerated"}
    assert found(plan=enumerated) == []
    lines = ["layer1.0.conv1.encoding.center of an enumeration is no key, which is not looked at again"]
    assert found(at("encoding.center", -0.9375, 0, 0), plan=enumerated, unsure=True) == lines


def test_other_encodings_are_not_looked_at():
    told = ["layer1.0.conv1: an encoding that is learned is not looked at again"]
    assert found(plan={**PLAN, "encoding": "learned"}, unsure=True) == told


def test_taps_are_what_the_heads_at_their_offset_do():
    told = "layer1.0.conv1: heads {} that start at {} do something else"
    assert found(at("output", 9.0, 5, 3, 1)) == [told.format([5], (0, 1))]
    assert found(at("encoding.center", torch.tensor([0.0, 0.0]), 5)) == [told.format([4, 5], (0, 0))]
    away = found(at("encoding.center", torch.tensor([0.0, 2.0]), 5))
    assert away == [told.format([], (0, 1))]


def one_more(number, center=(5.0, 0.0)):
    """A ninth head off the grid."""

    def change(ours, theirs):
        for key in ("output", "encoding.center", "encoding.alpha"):
            theirs[f"{NAME}{key}"] = torch.cat([theirs[f"{NAME}{key}"], theirs[f"{NAME}{key}"][:1]])
        theirs[f"{NAME}output"][-1] = number
        theirs[f"{NAME}encoding.center"][-1] = torch.tensor(center)

    return change


def test_a_head_beside_the_taps_does_nothing():
    plan = {**PLAN, "positions": [10, 2]}
    assert found(one_more(0.0), plan) == []
    assert found(one_more(1.0), plan) == ["layer1.0.conv1: heads [9] that start at (5, 0) do something else"]
    for far in ((2.0**13, 0.0), (0.0, 2.0**9), (-(2.0**8), 2.0**8), (2.0**100, 0.0), (-1.5, 0.5)):
        assert found(one_more(0.0, far), plan) == []
    for near in ((2.0**7, 0.0), (0.0, -(2.0**7))):
        assert found(one_more(0.0, near), plan) == []
    enumerated = {**plan, "encoding": "enumerated"}
    assert found(one_more(0.0, (0.5, -0.5)), enumerated) == []
    for off in ((5.0, 0.0), (2.0, 0.0), (0.0, -2.0)):
        assert found(one_more(0.0, off), enumerated, unsure=True) == [
            "layer1.0.conv1.encoding.center of an enumeration is no key, which is not looked at again"]  # fmt: skip


def two_more(center):
    """Two heads that are at work and add up to nothing."""

    def change(ours, theirs):
        one_more(1.0, center)(ours, theirs)
        one_more(-1.0, center)(ours, theirs)

    return change


def test_heads_at_work_far_off_the_grid_need_more():
    plan = {**PLAN, "positions": [11, 2]}
    for far in ((2.0**13, 0.0), (0.0, 2.0**9), (-(2.0**8), 2.0**8), (2.0**100, 0.0)):
        assert found(two_more(far), plan, unsure=True) == ["layer1.0.conv1.encoding.alpha is 128"]
    for near in ((2.0**7, 0.0), (0.0, -(2.0**7))):
        assert found(two_more(near), plan) == []
    for off in ((5.0, 0.0), (2.0, 0.0), (0.0, -2.0)):
        assert found(two_more(off), {**plan, "encoding": "enumerated"}, unsure=True) == [
            "layer1.0.conv1.encoding.center of an enumeration is no key, which is not looked at again"]  # fmt: skip


def sharp(alpha, beyond=(0, 0), moved=0.0, head=0, **changes):
    """What is said of the sharpness of hard heads, one of this alpha, which reads `beyond` or between pixels."""
    theirs = {"encoding.center": torch.zeros(9, 2), "encoding.alpha": torch.full((9,), 5000.0, dtype=torch.float64)}
    theirs["encoding.alpha"][head], theirs["encoding.center"][head, 1] = alpha, moved
    off = tuple(beyond if each == head else (0, 0) for each in range(9))
    return [(each.sentence, each.sure) for each in of_alpha("", form(beyond=off, **changes), theirs, proved=True)]


@pytest.mark.parametrize(("beyond", "squares"), [((1, 0), 5), ((0, 1), 5), ((1, 2), 13), ((3, 0), 17)])
def test_the_doubt_of_a_head_off_the_grid_is_that_of_its_scores(beyond, squares):
    """Scores there are as large as the square of how far the outermost query is from its target."""
    limit = 150 * math.log(2) / (1 - 2.0**-19 * squares)
    assert sharp(limit * (1 + 1e-12), beyond) == []
    assert sharp(limit * (1 - 1e-12), beyond) == [(f"encoding.alpha is {limit:g}", False)]


def test_the_doubt_of_a_centre_between_pixels_is_that_of_its_scores():
    limit = 150 * math.log(2) / (1 - 2 * 2.0**-8 - 2.0**-19 * 2)
    assert sharp(limit * (1 + 1e-12), moved=2.0**-8) == []
    assert sharp(limit * (1 - 1e-12), moved=2.0**-8) == [(f"encoding.alpha is {limit:g}", False)]


def test_what_is_surely_too_soft_is_beyond_all_doubt():
    limit = 150 * math.log(2) * (1 - 2.0**-19)
    assert sharp(limit) == [(f"encoding.alpha is {limit:g}", False)]
    assert sharp(math.nextafter(limit, 0)) == [(f"encoding.alpha is {limit:g}", True)]


@pytest.mark.parametrize("alpha", [3.0, 128.0, 1e-30])
@pytest.mark.parametrize("moved", [0.0, 0.5])
def test_of_a_head_with_a_factor_of_zeros_only_the_sign_is_asked(alpha, moved):
    first, head = form(), 4
    dead, one = first.output.clone(), torch.eye(2).repeat(9, 1, 1)
    dead[head], one[head] = 0.0, 0.0
    quiet = ({"output": dead}, {"value": one}, {"value": torch.eye(2).repeat(9, 1, 1), "output": dead})
    told = [(f"encoding.alpha is {alpha:g}", True)] if alpha < 128 or moved else []
    for changes in quiet:
        assert sharp(alpha, moved=moved, head=head, **changes) == []
        assert sharp(alpha, moved=moved, head=head, by_enumeration=True, **changes) == []
        assert sharp(alpha, moved=moved, head=3, **changes) == told
        for none in (0.0, -128.0):
            assert sharp(none, moved=moved, head=head, **changes) == [(f"encoding.alpha is {none:g}", True)]
    one[head, 1, 0] = 2.0**-149
    assert sharp(alpha, moved=moved, head=head, value=one) == told
    assert sharp(alpha, moved=moved, head=head, output=first.output * 0) == []


def test_a_stored_layer_with_a_soft_head_that_does_nothing_is_the_convolution():
    plan = {**PLAN, "positions": [10, 2]}

    def soft(number, alpha=128.0, center=(0.0, 0.0)):
        def change(ours, theirs):
            one_more(number, center)(ours, theirs)
            theirs[f"{NAME}encoding.alpha"][-1] = alpha

        return change

    assert found(soft(0.0, 3.0), plan) == found(soft(0.0, 128.0, (0.5, 0.0)), plan) == []
    somewhere = "layer1.0.conv1: heads [4, 9] that start at (0, 0) do something else"
    assert found(soft(2.0**-9, 3.0), plan) == [somewhere, "layer1.0.conv1.encoding.alpha is 3"]
    assert found(soft(2.0**-9, 128.0, (0.5, 0.0)), plan) == [somewhere, "layer1.0.conv1.encoding.alpha is 128"]
    for none in (math.inf, math.nan, -math.inf):
        assert found(soft(0.0, none), plan) == ["layer1.0.conv1: a number is not finite"]
        assert found(soft(0.0, 3.0, (none, 0.0)), plan) == ["layer1.0.conv1: a number is not finite"]
    for none in (0.0, -3.0):
        assert found(soft(0.0, none), plan) == [f"layer1.0.conv1.encoding.alpha is {none:g}"]


@pytest.mark.parametrize("sides", [(1, 3), (3, 1)])
def test_a_head_beside_a_kernel_of_unequal_sides_is_off_the_taps(sides):
    """Each of its coordinates is that of a tap, and both together of none."""
    made = nn.Conv2d(2, 4, sides, padding=tuple(k // 2 for k in sides))
    ours, theirs = ({f"a.{key}": x for key, x in each.state_dict().items()} for each in (made, conv2attn.convert(made)))
    plan = plan_of(made)
    told = told_of_module(made)
    assert list(of_layers("a.", (None, plan), (ours, theirs), told)) == []
    more = {key: torch.cat([x, x[:1]]) if key != "a.bias" else x for key, x in heads_first(theirs).items()}
    start = (int(sides[0] == 1), int(sides[1] == 1))
    more["a.encoding.center"][-1] = torch.tensor([float(x) for x in start])
    (said,) = of_layers("a.", (None, {**plan, "positions": [4, 2]}), (ours, stored(more)), told)
    assert said == Objection(f"a: heads [3] that start at {start} do something else")


def test_paddings_and_strides_are_those_of_the_certificate():
    for key, part, number, told in (
        ("padding", "before", (2, 1), "room is (1, 0), not (0, 0)"),
        ("padding", "after", (1, 2), "room is (0, 1), not (0, 0)"),
        ("padding", "mode", "reflect", "padding is reflect, not zeros"),
        ("padding", "spacing", (1, 2), "spacing is (1, 2), not (1, 1)"),
        ("sites", "before", (0, 1), "room is (1, 0), not (0, 0)"),
        ("sites", "after", (1, 0), "room is (0, 1), not (0, 0)"),
        ("sites", "stride", (2, 2), "stride is (2, 2), not (1, 1)"),
    ):
        assert found(plan=changed(key, **{part: number})) == [f"layer1.0.conv1: {told}"]
    strided = changed("sites", stride=(2, 2))
    ours, theirs = ({key.replace("layer1", "layer2"): x for key, x in side.items()} for side in states())
    told = told_of_module(layer(stride=2))
    assert list(of_layers("layer2.0.conv1.", (None, strided), (ours, theirs), told)) == []
    both = {**strided, "padding": {**strided["padding"], "spacing": (2, 2)}}
    told = [Objection("layer1.0.conv1: spacing is (2, 2), not (1, 1)", sure=False)]
    assert list(of_layers(NAME, (None, both), states())) == told
    wider = {key: dict.fromkeys(("before", "after"), (2, 2)) for key in ("padding", "sites")}
    assert found(plan={**PLAN, **{key: {**PLAN[key], **parts} for key, parts in wider.items()}}) == []


def form(module=None, **changes):
    """The form of a conversion, or of it with something else."""
    converted = conv2attn.convert(module or layer())
    return replace(of_attention(to_plan(converted), "", dict(converted.state_dict())), **changes)


def sentences(first, second, ask=of_forms):
    return [(each.sentence, each.sure) for each in ask(first, second)]


def test_forms_are_the_same_in_every_part():
    first = form()
    assert sentences(first, form()) == []
    assert sentences(first, form(channels=(2, 5))) == [("channels are (2, 5), not (2, 4)", True)]
    for part in ("stride", "room"):
        assert sentences(first, form(**{part: (3, 0)})) == [
            (f"{part} is (3, 0), not {getattr(first, part)}", True)]  # fmt: skip
    assert sentences(first, form(spacing=(1, 3))) == [("spacing is (1, 3), not (1, 1)", True)]
    assert sentences(first, form(spacing=(1, 3), stride=(1, 3))) == [("spacing is (1, 3), not (1, 1)", False)]
    assert sentences(first, form(spacing=(2, 3), stride=(3, 2))) == [("spacing is (2, 3), not (1, 1)", True)]
    assert sentences(first, form(output=first.output.double())) == [("its numbers are of another dtype", True)]
    assert sentences(first, form(bias=first.bias + 1)) == [("bias differs", True)]
    assert sentences(first, form(bias=None)) == [("bias differs", True)]
    assert sentences(form(bias=None), form(bias=first.bias * 0)) == []
    assert [*biased(form(bias=None))] == [0.0] * 4
    assert biased(form(bias=None)).dtype is torch.float32
    assert biased(form(bias=None, output=first.output.double())).dtype is torch.float64
    for mixed in ({"value": first.output.half()}, {"value": first.output, "output": first.output.half()}):
        assert form(**mixed).dtype is torch.float32


def test_beyond_the_pixels_both_read_the_same_or_it_is_not_told():
    """Of replicate padding by other amounts, and of heads off the grid, nothing is told but where nothing is read."""
    first, ends = form(), ((1, 1), (1, 1))
    told = "replicate padding is by other amounts, which is not looked at again"
    replicated = form(padding=(*ends, "replicate"))
    assert sentences(replicated, replicated, of_borders) == []
    assert sentences(first, replicated, of_borders) == [("padding is replicate, not zeros", True)]
    assert sentences(replicated, first, of_borders) == [("padding is zeros, not replicate", True)]
    assert sentences(replicated, form(padding=((2, 1), (1, 1), "replicate")), of_borders) == [(told, False)]
    assert sentences(first, form(padding=((2, 1), (1, 1), "zeros")), of_borders) == []
    inner = nn.Conv2d(2, 4, 3)
    for pair in ((form(inner), form(inner, padding=(*ends, "replicate"))),
                 (form(inner, padding=(*ends, "replicate")), form(inner))):  # fmt: skip
        assert sentences(*pair, of_borders) == []
    nothing = form(output=first.output * 0)
    dead = form(output=first.output * 0, padding=(*ends, "replicate"))
    assert sentences(nothing, dead, of_borders) == [(told, False)]
    assert sentences(dead, nothing, of_borders) == [(told.replace("replicate", "zeros"), False)]
    off = tuple((0, 0) if head != 7 else (0, 1) for head in range(9))
    stray = form(beyond=off, padding=((0, 0), (0, 0), "zeros"))
    told = "head 7 attends to what can lie off the padded grid, which is not looked at again"
    assert sentences(stray, stray, of_borders) == []
    assert sentences(first, stray, of_borders) == sentences(stray, first, of_borders) == [(told, False)]
    counted = form(beyond=off, padding=((0, 0), (0, 0), "zeros"), by_enumeration=True)
    for pair in ((counted, counted), (counted, stray), (stray, counted)):
        assert sentences(*pair, of_borders) == [(told, False)]
    quiet = form(beyond=off, padding=((0, 0), (0, 0), "zeros"), output=first.output * 0)
    assert sentences(nothing, quiet, of_borders) == []
    for plain in (form(by_enumeration=True), form(by_enumeration=True, padding=(*ends, "replicate"))):
        assert sentences(plain, plain, of_borders) == []


def test_what_reaches_out_is_what_some_output_reads_beyond_the_pixels():
    inside = form(nn.Conv2d(2, 4, 3))
    assert not any(map(inside.reaches_out, inside.starts))
    assert [start for start in form().starts if not form().reaches_out(start)] == [(0, 0)]
    assert form(room=(1, 0)).reaches_out((0, 0))
    assert not form(room=(-1, 0)).reaches_out((1, 0))
    assert form(room=(-1, 0)).reaches_out((1, 1))


def test_the_form_of_a_convolution_is_that_of_its_attention():
    for sides in ((3, 3), (1, 3), (3, 1), (7, 7), (2, 2), (3,), (3, 1, 3)):
        kinds = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
        module = kinds[len(sides)](2, 3, sides, padding=tuple(k // 2 for k in sides))
        state = {f"a.{key}": x for key, x in module.state_dict().items()}
        first = of_convolution("a.", state, told_of_module(module))
        second = form(module)
        for part in ("channels", "groups", "stride", "room", "spacing", "padding", "starts", "beyond", "value"):
            assert getattr(first, part) == getattr(second, part), part
        assert sentences(first, second) == sentences(second, first) == []
        assert first.by_enumeration is second.by_enumeration is False


def test_targets_are_as_far_off_as_the_outermost_query_says():
    plan = {**plan_of(nn.Conv2d(2, 4, 3, padding=1)), "sites": {"before": (0, 1), "after": (1, 0), "stride": (1, 1)}}
    tensors = dict(conv2attn.convert(layer()).state_dict())
    made = of_attention(plan, "", tensors)
    rows, columns = zip(*made.beyond, strict=True)
    assert (rows, columns) == ((1, 1, 1, 0, 0, 0, 0, 0, 0), (0, 0, 1) * 3)
    assert made.starts[:3] == ((-2, -1), (-2, 0), (-2, 1))
    assert made.room == (1, 1)
    assert of_attention({**plan, "encoding": "enumerated"}, "", tensors).by_enumeration
    one = nn.Conv1d(2, 4, 3)
    flat = of_attention({**plan_of(one), "encoding": "enumerated"}, "", dict(conv2attn.convert(one).state_dict()))
    assert flat.by_enumeration is False


@pytest.mark.parametrize(("changes", "told"), [
    ({"d_in": 4}, "d_head"), ({"d_out": 8}, "bias"), ({"d_head": 4}, "output"), ({"groups": 2}, "output"),
    ({"groups": 3}, "groups"), ({"d_in": 0}, "d_in, d_out, d_head or groups"),
    ({"d_out": 4.0}, "d_in, d_out, d_head or groups"), ({"groups": True}, "d_in, d_out, d_head or groups"),
    ({"d_head": -2}, "d_in, d_out, d_head or groups"), ({"groups": 0}, "d_in, d_out, d_head or groups"),
    ({"value": True}, "value"), ({"output": False}, "output"), ({"bias": False}, "bias"),
    ({"content": True}, "content"), ({"content_position": True}, "content"), ({"content_bias": True}, "content"),
    ({"stride_by": "other"}, "stride_by or positions"), ({"positions": [9, 3]}, "stride_by or positions"),
    ({"positions": [8, 2]}, "stride_by or positions"),
    ({"padding": {**PLAN["padding"], "before": (1,)}}, "padding or sites"),
    ({"padding": {**PLAN["padding"], "after": (1, 1.0)}}, "padding or sites"),
    ({"padding": {**PLAN["padding"], "spacing": (0, 1)}}, "padding or sites"),
    ({"padding": {**PLAN["padding"], "mode": "mirror"}}, "padding or sites"),
    ({"sites": {**PLAN["sites"], "before": (1, 1, 1)}}, "padding or sites"),
    ({"sites": {**PLAN["sites"], "after": (True, 1)}}, "padding or sites"),
    ({"sites": {**PLAN["sites"], "stride": (1, 0)}}, "padding or sites"),
])  # fmt: skip
def test_a_plan_is_what_its_tensors_have(changes, told):
    _, theirs = states()
    assert misfit(PLAN, NAME, theirs) == ""
    assert misfit({**PLAN, **changes}, NAME, theirs) == told
    assert found(plan={**PLAN, **changes}) == [f"layer1.0.conv1: {told} in its plan is not what its tensors have"]


def test_groups_that_fit_the_tensors_are_held_against_the_convolution():
    """The same numbers are those of twice as many channels in two groups."""
    doubled = {**PLAN, "d_in": 4, "d_head": 4, "groups": 2}
    assert misfit(doubled, NAME, states()[1]) == ""
    assert found(plan=doubled) == ["layer1.0.conv1: channels are (4, 4), not (2, 4)"]


def test_every_tensor_of_a_layer_is_in_its_plan():
    _, theirs = states()
    assert misfit(PLAN, NAME, {**theirs, f"{NAME}query": torch.ones(1)}) == "query"
    assert misfit(PLAN, NAME, {**theirs, f"{NAME}encoding.alpha": torch.ones(8)}) == "encoding.alpha"
    assert misfit(PLAN, NAME, {**theirs, "other": torch.ones(1)}) == ""
    assert misfit(PLAN, NAME, {key: x for key, x in theirs.items() if not key.endswith("alpha")}) == "encoding.alpha"


def test_an_identity_has_the_width_of_what_it_passes():
    plan, shape = {**PLAN, "positions": [1, 2], "bias": False}, {"encoding.center": (1, 2), "encoding.alpha": (1,)}

    def held(**more):
        return stored({key: torch.ones(size) for key, size in {**shape, **more}.items()})

    assert misfit({**plan, "d_head": 3}, "", held(output=(1, 4, 3))) == "d_head"
    assert misfit({**plan, "d_head": 3, "value": True}, "", held(output=(1, 4, 3), value=(1, 3, 2))) == ""
    assert misfit({**plan, "d_head": 3, "value": True, "output": False}, "", held(value=(1, 3, 2))) == "d_head"
    assert misfit({**plan, "d_head": 4, "value": True, "output": False}, "", held(value=(1, 4, 2))) == ""
    assert misfit({**plan, "d_out": 2, "output": False}, "", held()) == "content"
    assert misfit({**plan, "d_in": 3, "d_head": 3, "groups": 1}, "", held(output=(1, 4, 3))) == ""
    grouped = {**plan, "d_in": 4, "d_out": 6, "d_head": 8, "groups": 2, "value": True}
    assert misfit(grouped, "", held(value=(1, 8, 2), output=(1, 6, 4))) == ""
    for odd in ("d_in", "d_out", "d_head"):
        sizes = {"d_in": 4, "d_out": 4, "d_head": 4, "groups": 2, "value": True, odd: 5}
        shapes = {
            "value": (1, sizes["d_head"], sizes["d_in"] // 2),
            "output": (1, sizes["d_out"], sizes["d_head"] // 2),
        }
        assert misfit({**plan, **sizes}, "", held(**shapes)) == "groups"
    for groups, told in ((2, ""), (3, "groups")):
        sizes = {"d_in": 4, "d_out": 6 if groups == 2 else 3, "d_head": 4, "groups": groups}
        assert misfit({**plan, **sizes}, "", held(output=(1, sizes["d_out"], 2))) == told


def test_exact_products_are_those_of_fractions():
    matrix = torch.tensor([[0.5, -2.0], [0.0, 3.0], [1.0, 0.125], [1.0, 0.0]])
    vector = [Fraction(1, 3), Fraction(7), Fraction(5), Fraction(11)]
    expected = [Fraction(1, 6) - 14, 21, Fraction(1, 3) + Fraction(7, 8), Fraction(1, 3)]
    assert in_groups(matrix, vector[:2], 1) == expected
    assert in_groups(matrix, vector, 2) == [Fraction(1, 6) - 14, 21, 5 + Fraction(11, 8), 5]


def tensors(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def bare(value, output, starts, groups=1, d_in=2):
    """The form of heads on a line, with these factors."""
    first = form(channels=(d_in, 4), groups=groups, value=value, output=output, bias=None)
    return replace(first, starts=tuple((start,) for start in starts))


def test_one_plain_head_is_compared_number_for_number():
    tap, other = tensors((4, 2), (4, 2))
    one, pair = bare(None, tap[None], [0]), torch.stack([other, tap])
    for value, output in ((None, pair), (pair, None)):
        assert same_at((0,), one, bare(value, output, [1, 0]))
        assert not same_at((0,), one, bare(value, output, [0, 1]))
    assert not same_at((0,), one, bare(None, pair.double(), [1, 0]))
    assert heads_at(bare(None, pair, [1, 1]), (1,)) == [0, 1]
    off = tap.clone()
    off[3, 1] = torch.nextafter(off[3, 1], torch.tensor(99.0))
    assert not same_at((0,), one, bare(None, off[None], [0]))


@pytest.mark.parametrize("groups", [1, 2])
def test_several_heads_or_factors_are_added_up_exactly(groups):
    value = torch.randint(-9, 9, (3, 3 * groups, 2), generator=torch.Generator().manual_seed(1)).float()
    output = torch.randint(-9, 9, (3, 4, 3), generator=torch.Generator().manual_seed(2)).float()
    blocks = [
        o @ v
        for o, v in zip(
            output.unflatten(1, (groups, -1)).flatten(0, 1), value.unflatten(1, (groups, -1)).flatten(0, 1), strict=True
        )
    ]
    taps = torch.stack(blocks).unflatten(0, (3, groups)).flatten(1, 2)
    more = {"groups": groups, "d_in": 2 * groups}
    both = bare(value, output, [0, 1, 0], **more)

    def tap(numbers):
        return bare(None, numbers[None], [0], **more)

    assert same_at((1,), bare(None, taps[1][None], [1], **more), both)
    assert same_at((0,), tap(taps[0] + taps[2]), both)
    assert same_at((0,), tap(taps[0] + taps[2]), bare(None, taps[[2, 0]], [0, 0], **more))
    assert same_at((0,), both, bare(taps[[2, 0]], None, [0, 0], **more))
    assert same_at((5,), both, both)
    assert not same_at((0,), tap(taps[0]), both)
    assert not same_at((0,), both, bare(None, taps[:1], [5], **more))
    assert uses(both, (0,))
    assert not uses(both, (5,))
    assert not uses(bare(None, torch.stack([taps[0], -taps[0]]), [0, 0], **more), (0,))
    for place in ((0, 0), (3, 1)):
        off = (taps[0] + taps[2]).clone()
        off[place] = torch.nextafter(off[place], torch.tensor(99.0))
        assert not same_at((0,), tap(off), both)
    wide = torch.stack([torch.block_diag(*each.unflatten(0, (groups, -1))) for each in taps[:1]])
    assert same_at((0,), tap(taps[0]), bare(None, wide, [0], d_in=2 * groups))
    assert applied(both, [], [Fraction(1)] * 2 * groups) == [0] * 4
    ones = [Fraction(1, 3)] * 2 * groups
    assert applied(both, [0, 2], ones) == [Fraction(int(x), 3) for x in (taps[0] + taps[2]).sum(1)]


def test_numbers_are_identical_in_dtype_shape_and_value():
    numbers = torch.tensor([[0.0, 3.0], [1.0, 2.0]])
    assert identical(numbers, numbers.clone())
    assert identical(torch.tensor(0.0), torch.tensor(-0.0))
    assert not identical(numbers, numbers.double())
    assert not identical(numbers, numbers[:1])
    assert not identical(torch.full((1,), torch.nan), torch.full((1,), torch.nan))
    assert not identical(torch.ones(2), torch.tensor([1.0, 2.0]))
    assert not identical(torch.ones(1, 1), torch.ones(1))


def test_what_is_no_layer_is_the_same_bit_for_bit():
    numbers = torch.tensor([[0.0, torch.nan], [1.0, 2.0]])
    assert same_bits(numbers, numbers.clone())
    assert same_bits(numbers.t(), numbers.t().contiguous())
    assert same_bits(torch.tensor(3), torch.tensor(3))
    assert not same_bits(torch.tensor(0.0), torch.tensor(-0.0))
    assert not same_bits(numbers, numbers.nan_to_num(5.0))
    assert same_bits(numbers, numbers.view(torch.int32)) is False
    assert same_bits(numbers, numbers.reshape(-1)) is False
    ours, theirs = (
        {"a": torch.ones(1), "b": torch.ones(1), "x": torch.ones(1)},
        {"a": torch.ones(1), "c": torch.ones(1)},
    )
    told = [Objection("b differs"), Objection("c differs")]
    assert list(unequal(ours, theirs, {"c", "b", "a"})) == told
    assert list(unequal(ours, {**ours, "b": torch.zeros(1)}, {*ours})) == told[:1]
    assert list(unequal(ours, theirs, {"a"})) == []


def told_of(first, second, names):
    """The sentences on two files, all of which refute."""
    said = list(objections(first, second, names))
    assert all(each.sure for each in said)
    return [each.sentence for each in said]


def test_layers_are_looked_at_again_and_all_else_is_the_same():
    ours, theirs = states()
    ours["fc.weight"] = theirs["fc.weight"] = torch.ones(2)
    second = {"state_dict": theirs, "layers": {NAME.rstrip("."): PLAN}}
    assert told_of(ours, second, {NAME: True}) == []
    assert told_of({"state_dict": ours}, second, {NAME: True}) == []
    assert told_of(ours, second, {"gone.": True, NAME: True}) == []
    strided = {"state_dict": theirs, "layers": {NAME.rstrip("."): changed("sites", stride=(2, 2))}}
    assert told_of(ours, strided, {NAME: True}) == ["layer1.0.conv1: stride is (2, 2), not (1, 1)"]
    moved = {**second, "state_dict": {**theirs, "fc.weight": torch.zeros(2)}}
    assert told_of(ours, moved, {NAME: True}) == ["fc.weight differs"]
    assert told_of(ours, ours, {NAME: True}) == []
    assert len(told_of(ours, second, {})) == len({*ours, *theirs}) - 2
    assert "layer1.0.conv1.weight differs" in told_of(ours, {"state_dict": theirs}, {NAME: True})


def test_what_stands_beside_tensors_is_read_of_files_that_say_so():
    held = {"architecture": 1, "layers": 2, "weight": 3}
    assert as_read(held) == {"weight": 3}
    planned = {"conv2attn": "conv2attn.network/2", **held}
    assert as_read(planned) == planned


def test_convolutions_on_both_sides_are_the_same_numbers():
    ours, _ = states()
    ours[f"{NAME}weight"][0, 0, 0, 0] = 0.0
    other = {**ours, f"{NAME}weight": ours[f"{NAME}weight"].clone()}
    other[f"{NAME}weight"][0, 0, 0, 0] = -0.0
    assert told_of(ours, other, {NAME: True}) == []
    assert told_of(ours, other, {}) == [f"{NAME}weight differs"]
    other[f"{NAME}weight"][0, 0, 0, 0] = torch.nan
    assert told_of(other, other, {NAME: True}) == [f"{NAME}weight differs"]
    without = {key: x for key, x in ours.items() if not key.endswith("bias")}
    for pair in ((ours, without), (without, ours)):
        assert told_of(*pair, {NAME: True}) == [f"{NAME}bias differs"]


def test_every_layer_is_looked_at_and_one_that_is_not_there_differs():
    ours, theirs = states()
    names = [f"layer1.{block}.conv1." for block in range(3)]
    first, second = ({key.replace("layer1.0", f"layer1.{n}"): x.clone() for key, x in side.items() for n in range(3)}
                     for side in (ours, theirs))  # fmt: skip
    told = {"state_dict": second, "layers": {name.rstrip("."): PLAN for name in names}}
    assert told_of(first, told, dict.fromkeys(names, True)) == []
    second[f"{names[2]}bias"] += 1
    assert told_of(first, told, dict.fromkeys(names, True)) == [f"{names[2].rstrip('.')}: bias differs"]
    found = told_of({}, {"state_dict": theirs, "layers": {names[0].rstrip("."): PLAN}}, {names[0]: True})
    assert found == [f"{key} differs" for key in sorted(theirs)]
    other = {**ours, "fc.weight": torch.ones(1)}
    for names in ({"fc.": True, NAME: True}, {NAME: True, "fc.": True}, {"fc.": True, "none.": True, NAME: True}):
        assert told_of(ours, other, names) == told_of(other, ours, names) == ["fc.weight differs"]
    changed_twice = {**other, f"{NAME}bias": ours[f"{NAME}bias"] + 1}
    assert told_of(other, changed_twice, {"fc.": True, NAME: True}) == [f"{NAME}bias differs"]
    assert told_of(ours, changed_twice, {"none.": True}) == ["fc.weight differs", f"{NAME}bias differs"]


def test_two_attentions_are_the_same_map():
    _, theirs = states()
    first = {"state_dict": theirs, "layers": {NAME.rstrip("."): PLAN}}
    assert told_of(first, first, {NAME: True}) == []
    order = [3, 1, 2, 0, 4, 5, 6, 7, 8]
    turned = {key: x if key.endswith("bias") else x[order] for key, x in heads_first(theirs).items()}
    assert told_of(first, {**first, "state_dict": stored(turned)}, {NAME: True}) == []
    other = {"state_dict": theirs, "layers": {NAME.rstrip("."): {**PLAN, "stride_by": "pooling", "name": "other"}}}
    assert told_of(first, other, {NAME: True}) == []
    moved = {**first, "state_dict": {**theirs, f"{NAME}bias": theirs[f"{NAME}bias"] + 1}}
    assert told_of(first, moved, {NAME: True}) == ["layer1.0.conv1: bias differs"]
    assert told_of(moved, first, {NAME: True}) == ["layer1.0.conv1: bias differs"]
    soft = {**first, "state_dict": {**theirs, f"{NAME}encoding.alpha": torch.full((9,), 3.0)}}
    for pair in ((first, soft), (soft, first)):
        assert told_of(*pair, {NAME: True}) == ["layer1.0.conv1.encoding.alpha is 3"]
        assert told_of(*pair, {NAME: False}) == ["layer1.0.conv1.encoding.alpha is 3"]
    assert told_of(soft, soft, {NAME: True}) == told_of(soft, soft, {NAME: False}) == []


@pytest.mark.parametrize("wrapper", ["state_dict", "model_state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
def test_files_are_read_as_they_are_when_loaded(wrapper, prefix):
    held = {"a.running_mean": torch.zeros(2), "a.weight": torch.ones(2)}
    wrapped = {wrapper: {f"{prefix}{key}": x for key, x in held.items()}, "epoch": 3}
    for state in (wrapped, wrapped[wrapper]):
        found = tensors_of(state)
        assert set(found) == {*held, "a.num_batches_tracked"}
        assert found["a.num_batches_tracked"].equal(torch.tensor(0))
        assert all(found[key] is held[key] for key in held)
    counted = {**held, "a.num_batches_tracked": torch.tensor(5)}
    assert tensors_of(counted)["a.num_batches_tracked"].item() == 5
    assert set(tensors_of({"module.a": torch.ones(1), "b": torch.ones(1)})) == {"module.a", "b"}
    for other in ({1: torch.ones(1)}, {"a": 1}, {"state_dict": {"a": None}}, {"state_dict": None}):
        with pytest.raises(TypeError, match="not all of it is a tensor with a name"):
            tensors_of(other)
    assert tensors_of({}) == {}


def test_roundoffs_are_those_of_the_formats():
    assert {dtype: format_of(name).unit_roundoff for dtype, name in FORMATS.items()} == ROUNDOFF


@pytest.mark.parametrize("dtype", ROUNDOFF)
@pytest.mark.parametrize("encoding", ["quadratic", "enumerated"])
def test_between_what_surely_leaks_and_what_surely_does_not_nothing_is_told(dtype, encoding):
    axes = 1 if encoding == "enumerated" else 2
    made = form(output=form().output.to(dtype), by_enumeration=encoding == "enumerated")
    enough, least = math.log(2.04 * axes / ROUNDOFF[dtype]), math.log((1 - ROUNDOFF[dtype]) / ROUNDOFF[dtype])
    for alpha, expected in ((enough + 1e-9, []), (enough - 1e-9, [False]), (least, [False]), (least * 0.999, [True])):
        theirs = {"encoding.center": torch.zeros(9, 2), "encoding.alpha": torch.full((9,), alpha, dtype=torch.float64)}
        said = list(of_alpha("", made, theirs, proved=False))
        assert [each.sure for each in said] == expected
        assert [each.sentence for each in said] == [f"encoding.alpha is {alpha:g}"] * len(expected)


@pytest.mark.parametrize(
    ("stored", "checked", "wrong", "verdict", "code"),
    [
        ("holds", 2, (), Verdict.HOLDS, 0),
        ("holds", 0, (), Verdict.UNDECIDED, 3),
        ("holds", 2, ("a differs",), Verdict.REFUTED, 1),
        ("undecided", 0, (), Verdict.UNDECIDED, 3),
        ("refuted", 0, (), Verdict.REFUTED, 1),
        ("unsupported", 3, (), Verdict.UNSUPPORTED, 3),
    ],
)
def test_a_second_look_is_no_better_than_the_first(stored, checked, wrong, verdict, code):
    report = Recheck("c.json", stored, checked, wrong)
    assert (report.verdict, report.exit_code) == (verdict, code)
    lines = [*wrong, f"{checked} layers checked again; stored verdict: {stored}", f"c.json: {verdict.value}"]
    assert report.to_text() == "".join(f"{line}\n" for line in lines)
    assert report.to_markdown() == "".join(f"- {line}\n" for line in lines)
    text = report.to_json()
    assert json.loads(text) == {"certificate": "c.json", "stored": stored, "checked": checked, "wrong": list(wrong),
                                "schema": "conv2attn.recheck/1", "verdict": verdict.value, "unknown": []}  # fmt: skip
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


@pytest.fixture
def files(tmp_path):
    """Two files and the certificate of both, and a function that writes it anew with something changed."""
    ours, theirs = states()
    name = "layer1.0.conv1"
    torch.save(ours, tmp_path / "a.pt")
    torch.save({**SAVED, "state_dict": theirs, "layers": {name: PLAN}}, tmp_path / "b.pt")

    def write(**changes):
        rows = [{"name": name, "strength": "proved", "skipped": False},
                {"name": "left", "strength": "proved", "skipped": True},
                {"name": "soft", "strength": "bounded", "skipped": False}]  # fmt: skip
        known = {"original": str(tmp_path / "a.pt"), "converted": str(tmp_path / "b.pt"),
                 "original sha256": sha256(tmp_path / "a.pt"),
                 "converted sha256": sha256(tmp_path / "b.pt")}  # fmt: skip
        context = {"digests": ["same", "same"], "conditions": []}
        body = {"verdict": "holds", "layers": rows, "circumstances": known, "context": context, **changes}
        if isinstance(body["layers"], list):
            body["layers"] = [{"forms": [TOLD, TOLD], **row} for row in body["layers"]]
        path = tmp_path / "c.json"
        path.write_text(json.dumps({key: value for key, value in body.items() if value is not None}))
        return str(path)

    write.folder = tmp_path
    return write


def test_a_certificate_is_held_against_its_files_or_those_given(files):
    path = files()
    assert recheck(path) == Recheck(path, "holds", 1, ())
    moved = {which: files.folder / f"{which}.moved" for which in "ab"}
    for which, place in moved.items():
        (files.folder / f"{which}.pt").rename(place)
        with pytest.raises(CheckpointError, match=rf"{which}\.pt, which the certificate is of, is not there"):
            recheck(path, *(str(moved[each]) for each in "a" if which == "b"))
        given = [str(moved["a"]), str(moved["b"]) if which == "b" else None]
        assert recheck(path, *given) == Recheck(path, "holds", 1, ())


def test_files_of_another_device_are_read_where_there_is_none(files, monkeypatch):
    content = {which: torch.load(files.folder / f"{which}.pt") for which in "ab"}
    with monkeypatch.context() as patched:
        patched.setattr(torch.serialization, "location_tag", lambda storage: "cuda:99")
        for which in "ab":
            torch.save(content[which], files.folder / f"{which}.pt")
    path = files()
    assert recheck(path) == Recheck(path, "holds", 1, ())


def test_a_layer_that_was_left_out_is_asked_all(files):
    """A row of a layer that was left out tells no strength: only one that says that it is bounded is asked less."""
    _, theirs = states()
    theirs[f"{NAME}encoding.alpha"].fill_(46.0)
    torch.save({**SAVED, "state_dict": theirs, "layers": {"layer1.0.conv1": PLAN}}, files.folder / "b.pt")
    told = ("layer1.0.conv1.encoding.alpha is 46",)
    for skipped in (True, False):
        for strength, wrong in ((None, told), ("sampled", told), ("proved", told), ("bounded", ())):
            path = files(layers=[{"name": "layer1.0.conv1", "strength": strength, "skipped": skipped}])
            assert recheck(path) == Recheck(path, "holds", int(not skipped), wrong)


def test_files_that_changed_are_told_before_anything_is_read(files):
    path = files()
    (files.folder / "b.pt").write_bytes(b"something else")
    assert recheck(path) == Recheck(
        path, "holds", 0, (f"{files.folder / 'b.pt'} changed since the certificate was written",)
    )
    (files.folder / "a.pt").write_bytes(b"something else")
    assert len(recheck(path).wrong) == 2


def test_what_disagrees_behind_the_right_hashes_is_told(files):
    _, theirs = states()
    theirs["layer1.0.conv1.output"][1, 0, 4] += 1
    torch.save({**SAVED, "state_dict": theirs, "layers": {"layer1.0.conv1": PLAN}}, files.folder / "b.pt")
    path = files()
    told = "layer1.0.conv1: heads [4] that start at (0, 0) do something else"
    assert recheck(path) == Recheck(path, "holds", 1, (told,))


class Foreign:
    """What only an unsafe load would make."""


def test_nothing_but_tensors_is_loaded(files):
    torch.save({"state_dict": {}, "more": Foreign()}, files.folder / "b.pt")
    with pytest.raises(UsageError, match="names files that are no networks"):
        recheck(files())


@pytest.mark.parametrize("content", [5, [1], {**SAVED, "layers": 5}, {1: torch.ones(1)},
                                     {"state_dict": None}, {"layer1.0.conv1.weight": torch.ones(1)}])  # fmt: skip
def test_files_that_hold_no_networks_are_an_error(files, content):
    torch.save(content, files.folder / "a.pt")
    with pytest.raises(UsageError, match=r"c\.json names files that are no networks"):
        recheck(files())


def test_where_not_all_holds_only_the_hashes_are_looked_at(files):
    torch.save({}, files.folder / "a.pt")
    path = files(verdict="undecided")
    assert recheck(path) == Recheck(path, "undecided", 0, ())
    path = files(claim="the outputs differ by at most 1 for all finite inputs")
    assert (recheck(path).verdict, recheck(path).checked) == (Verdict.UNDECIDED, 0)
    assert "a tolerance rests on bounds, which are not looked at again\n" in recheck(path).to_text()


def test_the_other_way_round_nothing_is_known(files):
    known = json.loads(Path(files()).read_text())["circumstances"]
    turned = {"original": "converted", "original sha256": "converted sha256"}
    turned |= {value: key for key, value in turned.items()}
    path = files(circumstances={turned[key]: value for key, value in known.items()})
    told = ("layer1.0.conv1.: a convolution in place of attention is not looked at again",)
    assert recheck(path) == Recheck(path, "holds", 0, (), told)
    assert recheck(path).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("alpha", "strength", "wrong"),
    [(46.0, "bounded", 0), (46.0, "proved", 1), (18.1, "bounded", 0), (16.6, "bounded", 1), (3.0, "bounded", 1)],
)
@pytest.mark.parametrize("twice", [False, True])
def test_a_bounded_layer_leaks_at_most_the_roundoff(files, alpha, strength, wrong, twice):
    ours, theirs = states()
    name = "layer1.0.conv1"
    soft = {**theirs, f"{name}.encoding.alpha": torch.full((9,), alpha)}
    torch.save({**SAVED, "state_dict": theirs, "layers": {name: PLAN}} if twice else ours, files.folder / "a.pt")
    torch.save({**SAVED, "state_dict": soft, "layers": {name: PLAN}}, files.folder / "b.pt")
    path = files(layers=[{"name": name, "strength": strength, "skipped": False}])
    assert recheck(path) == Recheck(path, "holds", 1, (f"{name}.encoding.alpha is {alpha:g}",) * wrong)


def test_a_layer_at_the_root_is_named_by_nothing(files):
    made = layer()
    torch.save(made.state_dict(), files.folder / "a.pt")
    torch.save(
        {**SAVED, "state_dict": conv2attn.convert(made).state_dict(), "layers": {"": PLAN}}, files.folder / "b.pt"
    )
    path = files(layers=[{"name": "(root)", "strength": "proved", "skipped": False}])
    assert recheck(path) == Recheck(path, "holds", 1, ())


@pytest.mark.parametrize("change", [{"verdict": None}, {"verdict": "fine"}, {"layers": None}, {"circumstances": None},
                                    {"circumstances": {}}, {"layers": 3}, {"layers": [{}]},
                                    {"layers": [{"name": "a", "skipped": False}]}])  # fmt: skip
def test_what_is_no_certificate_is_an_error(files, change):
    with pytest.raises(UsageError, match=r"c\.json is no certificate of two files"):
        recheck(files(**change))
    (files.folder / "c.json").write_text("no json")
    with pytest.raises(UsageError, match=r"c\.json is no certificate of two files"):
        recheck(str(files.folder / "c.json"))
    (files.folder / "c.json").write_text("[" * 100_000)
    with pytest.raises(UsageError, match=r"c\.json is no certificate of two files"):
        recheck(str(files.folder / "c.json"))
    with pytest.raises(CheckpointError, match="none is not a regular file"):
        recheck("none")


def test_files_may_be_wrapped_and_of_older_make(files):
    """What `load` takes for the same network the second look takes for the same."""
    ours, theirs = states()
    mean = {"bn1.running_mean": torch.ones(2)}
    torch.save(
        {"model": {f"module.{key}": x for key, x in {**ours, **mean}.items()}, "epoch": 3}, files.folder / "a.pt"
    )
    state = {**theirs, **mean, "bn1.num_batches_tracked": torch.tensor(0)}
    torch.save({**SAVED, "state_dict": state, "layers": {"layer1.0.conv1": PLAN}}, files.folder / "b.pt")
    path = files()
    assert recheck(path) == Recheck(path, "holds", 1, ())
    state["bn1.num_batches_tracked"] += 1
    torch.save({**SAVED, "state_dict": state, "layers": {"layer1.0.conv1": PLAN}}, files.folder / "b.pt")
    path = files()
    assert recheck(path) == Recheck(path, "holds", 1, ("bn1.num_batches_tracked differs",))


def test_a_layer_that_was_left_out_is_compared_as_numbers(files):
    """Of a layer the sign of a zero is no number; anywhere else it is a bit."""
    ours, theirs = states()
    for key, wrong in (("left.weight", ()), ("other.weight", ("other.weight differs",))):
        torch.save({**ours, key: torch.tensor([0.0])}, files.folder / "a.pt")
        second = {**theirs, key: torch.tensor([-0.0])}
        torch.save({**SAVED, "state_dict": second, "layers": {"layer1.0.conv1": PLAN}}, files.folder / "b.pt")
        path = files()
        assert recheck(path) == Recheck(path, "holds", 1, wrong)


@pytest.mark.parametrize("dtype", ROUNDOFF)
def test_roundoffs_and_smallest_numbers_are_those_of_the_dtype(dtype):
    assert set(ROUNDOFF) == set(SMALLEST)
    assert torch.finfo(dtype).eps / 2 == ROUNDOFF[dtype]
    assert torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps == 2.0 ** SMALLEST[dtype]


@pytest.mark.parametrize(("name", "called"), [("layerX.", "layerX"), ("", "the layer"), ("a.0.", "a.0")])
def test_layers_are_called_by_their_names(name, called):
    ours, theirs = ({key.replace(NAME, name): x for key, x in side.items()} for side in states())
    theirs[f"{name}bias"] += 1
    assert list(of_layers(name, (None, PLAN), (ours, theirs))) == [Objection(f"{called}: bias differs")]


def test_vectors_are_as_long_as_there_are_channels_that_come_in():
    taps, off = tensors((2, 4, 6), (2, 4, 6))
    one, halves = bare(None, taps[:1], [0], d_in=6), bare(None, torch.cat([taps[:1], taps[:1]]) / 2, [0, 0], d_in=6)
    assert same_at((0,), one, halves)
    assert not same_at((0,), one, bare(None, off, [0, 0], d_in=6))
    assert uses(one, (0,))
    last = torch.zeros(1, 4, 6)
    last[0, 3, 5] = 2.0**-140
    assert uses(bare(None, last, [0], d_in=6), (0,))


@pytest.mark.parametrize("mode", PADDING_MODES)
def test_every_mode_of_padding_is_known(mode):
    assert misfit(changed("padding", mode=mode), NAME, states()[1]) == ""


def test_two_graphs_of_other_hashes_are_refuted(files):
    path = files(context={"digests": ["one", "other"], "conditions": []})
    assert recheck(path).wrong == ("the graphs of the two networks are not the same in it",)


@pytest.mark.parametrize("part", ["stride", "room", "spacing", "before", "after", "mode", "starts"])
def test_no_part_of_a_form_can_be_changed_unseen(part):
    ours, theirs = states()
    other = {"mode": "reflect", "starts": [[0, 0], *TOLD["starts"][1:]]}.get(part, (3, 3))
    said = list(of_layers(NAME, (None, PLAN), (ours, theirs), {**TOLD, part: other}))
    assert said or part in ("before", "after")  # which change nothing but for the room, which is told apart


def test_a_form_of_another_layer_is_no_form_of_this():
    ours, _ = states()
    with pytest.raises(ValueError, match="9 taps along 2 axes"):
        of_convolution(NAME, ours, told_of_module(nn.Conv2d(2, 4, 2)))

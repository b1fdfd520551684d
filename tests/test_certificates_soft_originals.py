"""An original that is itself attention is what its taps say only as far as it is hard: its leak counts as well."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.attention.plan import to_plan
from conv2attn.equivalence import certify
from conv2attn.equivalence.computed.leak import check_leak, check_leaks
from conv2attn.equivalence.evidence.recheck_forms import of_attention
from conv2attn.equivalence.evidence.recheck_layers import attend_alike as stored_alike
from conv2attn.equivalence.evidence.recheck_layers import of_layers
from conv2attn.equivalence.readings.finding import holds
from conv2attn.equivalence.readings.places import attend_alike
from conv2attn.equivalence.readings.reading import reading_of
from conv2attn.verdicts import Strength, Verdict

with torch.random.fork_rng():
    torch.manual_seed(0)
    CONVOLUTION = nn.Conv1d(2, 3, 3, padding=1)


def layer(alpha):
    """The attention of one sharpness, or the convolution."""
    return conv2attn.convert(CONVOLUTION, alpha=alpha) if alpha else CONVOLUTION


@pytest.mark.parametrize("converted", [None, 46, 128])
@pytest.mark.parametrize("alpha", [0.1, 3])
def test_a_soft_original_is_no_convolution(alpha, converted):
    """These two differ by up to 0.4 on images within +-1, and were called proved."""
    report = certify(layer(alpha), layer(converted), input_size=(2, 7))
    assert report.verdict is Verdict.REFUTED
    (leak,) = (finding for finding in report.rows[0].findings if finding.part == "leak")
    assert (leak.verdict, leak.code) == (Verdict.REFUTED, "C2A403")
    assert leak.sentence.startswith("in the original, head 0 leaks at least")
    assert report.rows[0].leak > 0.05


@pytest.mark.parametrize(
    ("original", "converted", "strength"),
    [(46, 128, "bounded"), (46, None, "bounded"), (128, 46, "bounded"), (None, 46, "bounded"), (46, 46, "proved"),
     (3, 3, "proved"), (128, 128, "proved"), (128, None, "proved"), (None, 128, "proved"), (200, 128, "proved")],
)  # fmt: skip
def test_the_strength_is_that_of_the_softer_one(original, converted, strength):
    report = certify(layer(original), layer(converted), input_size=(2, 7))
    assert (report.verdict, report.rows[0].strength) == (Verdict.HOLDS, Strength(strength))
    assert (report.rows[0].leak > 0) is (min(original or 128, converted or 128) < 128)


def test_the_larger_leak_is_told():
    hard, firm, soft = (reading_of(layer(alpha)) for alpha in (128, 20, 3))
    assert check_leaks(firm, soft) == check_leak(soft)
    assert check_leaks(soft, soft) == (holds("leak"), check_leak(soft)[1])
    found, leak = check_leaks(soft, firm)
    assert (found.sentence, leak) == (f"in the original, {check_leak(soft)[0].sentence}", check_leak(soft)[1])
    assert check_leaks(hard, firm) == check_leak(firm)
    told, least = check_leaks(firm, hard)
    assert (told.sentence, least) == (f"in the original, {check_leak(firm)[0].sentence}", check_leak(firm)[1])
    assert check_leaks(hard, hard) == (check_leak(hard)[0], 0.0)
    quiet = reading_of(layer(46))
    assert check_leak(quiet)[0].sentence == ""
    assert check_leaks(quiet, hard) == check_leak(quiet)


SOFT = reading_of(layer(3))


def in_order(reading, order):
    """The reading with its heads in another order."""
    places = reading.positions
    names = ("offsets", "alphas", "shifts", "distances", "centers")
    moved = {name: tuple(getattr(places, name)[head] for head in order) for name in names}
    taps = reading.taps[order]
    return replace(
        reading,
        offsets=moved["offsets"],
        starts=tuple(reading.starts[head] for head in order),
        weights=replace(reading.weights, output=taps, value=None),
        taps=taps,
        positions=replace(places, **moved),
    )


def softer(head, alpha):
    """The same with another sharpness of one head."""
    alphas = tuple(alpha if each == head else old for each, old in enumerate(SOFT.positions.alphas))
    return replace(SOFT, positions=replace(SOFT.positions, alphas=alphas))


def test_heads_attend_alike_in_any_order():
    assert attend_alike(SOFT, SOFT)
    for order in ([2, 0, 1], [1, 0, 2], [0, 1, 2]):
        assert attend_alike(SOFT, in_order(SOFT, order))
        assert attend_alike(in_order(SOFT, order), SOFT)


def test_a_head_in_two_of_the_same_scores_attends_alike_and_of_others_does_not():
    twice = in_order(SOFT, [0, 0, 1, 2])
    twice.taps[0] = 0.0
    assert attend_alike(SOFT, twice)
    other = replace(twice, positions=replace(twice.positions, alphas=(7.0, 3.0, 3.0, 3.0)))
    assert attend_alike(SOFT, other)  # what is nothing attends as it likes
    twice.taps[0] = 2 * twice.taps[1]
    twice.taps[1].neg_()
    assert attend_alike(SOFT, twice)
    assert not attend_alike(SOFT, other)


@pytest.mark.parametrize(
    "changed",
    [
        softer(1, 3.0000002),
        replace(SOFT, positions=replace(SOFT.positions, centers=((-1.0,), (0.0,), (1.0000001,)))),
        replace(SOFT, positions=replace(SOFT.positions, by_enumeration=True)),
        replace(SOFT, starts=((-1,), (0,), (2,))),
        replace(SOFT, geometry=replace(SOFT.geometry, room=(1,))),
        replace(SOFT, padding=replace(SOFT.padding, before=(2,))),
        replace(SOFT, channels=(2, 4)),
        replace(SOFT, positions=None),
        reading_of(layer(3).double()),
        reading_of(CONVOLUTION),
    ],
)
def test_what_differs_does_not_attend_alike(changed):
    assert attend_alike(SOFT, changed) is False
    assert attend_alike(changed, SOFT) is False


def test_one_weight_of_a_soft_head_that_is_off_is_refuted():
    other = layer(3)
    with torch.no_grad():
        other.output[1, 0, 0] = torch.nextafter(other.output[1, 0, 0], torch.tensor(torch.inf))
    assert check_leaks(SOFT, reading_of(other)) == check_leak(SOFT)
    assert certify(layer(3), layer(3), input_size=(2, 7)).verdict is Verdict.HOLDS
    assert certify(layer(3), other, input_size=(2, 7)).verdict is Verdict.REFUTED


def test_a_stored_certificate_of_soft_layers_is_looked_at_again():
    def looked(first, second):
        plans, states = zip(*((to_plan(each), each.state_dict()) for each in (first, second)), strict=True)
        return [(each.sentence, each.sure) for each in of_layers("", plans, states, {})]

    assert looked(layer(3), layer(3)) == []
    assert looked(layer(3), layer(4)) == [("encoding.alpha is 3", True), ("encoding.alpha is 4", True)]
    other = layer(3)
    with torch.no_grad():
        other.output[1, 0, 0] += 1.0
    assert [sure for _, sure in looked(layer(3), other)] == [True, True]


def stored(first=None, second=None, **changes):
    """Whether two stored layers of three heads attend alike, as is told in both orders; changes are to the second."""
    sides = [dict(layer(3).state_dict()) for _ in range(2)]
    plan = to_plan(layer(3))
    for side, change in zip(sides, (first, second), strict=True):
        for key, index in (change or {}).items():
            heads_first = side[key].movedim(-1, 0) if side[key].ndim == 3 else side[key]
            changed = index(heads_first)
            side[key] = changed.movedim(0, -1) if changed.ndim == 3 else changed
    forms = [of_attention(plan, "", side) for side in sides]
    forms[1] = replace(forms[1], **changes)
    told = stored_alike("", forms, tuple(sides))
    assert stored_alike("", forms[::-1], tuple(sides[::-1])) is told
    return told


def every(change):
    """The same change of all that heads have."""
    return dict.fromkeys(("encoding.center", "encoding.alpha", "output"), change)


def plus(key, number, head=1):
    """A number added to what one head has."""

    def change(tensor):
        tensor = tensor.clone()
        tensor[head] += number
        return tensor

    return {key: change}


def test_stored_heads_of_the_same_scores_attend_alike_in_any_order_and_number():
    assert stored() is True
    assert stored(second=every(lambda tensor: tensor[[2, 0, 1]]))
    halved = every(lambda tensor: tensor[[0, 0, 1, 2]])
    output = halved["output"]
    halved["output"] = lambda tensor: output(tensor) * torch.tensor([0.25, 0.75, 1, 1])[:, None, None]
    rounded = every(lambda tensor: tensor.mul(1024).round() / 1024) | {
        "encoding.center": lambda tensor: tensor, "encoding.alpha": lambda tensor: tensor}  # fmt: skip
    exact = {key: lambda tensor, key=key: halved[key](rounded[key](tensor)) for key in halved}
    assert stored(rounded, exact)
    assert not stored(second=every(lambda tensor: tensor[[0, 1, 1, 2]]))
    assert not stored(second=every(lambda tensor: tensor[:2]))


@pytest.mark.parametrize(
    "change",
    [
        plus("encoding.alpha", 2.0**-20),
        plus("encoding.alpha", -1.0, head=0),
        plus("encoding.center", 2.0**-20, head=2),
        plus("encoding.center", -1.0),
        plus("output", 2.0**-20),
    ],
)
def test_stored_heads_of_other_scores_or_weights_do_not_attend_alike(change):
    assert not stored(second=change)
    assert stored(change, change)


def test_stored_heads_that_do_nothing_attend_as_they_like():
    more = every(lambda tensor: torch.cat([tensor, tensor[:1]]))
    quiet = more | {
        "output": lambda tensor: torch.cat([tensor, 0 * tensor[:1]]),
        "encoding.alpha": lambda tensor: torch.cat([tensor, tensor[:1] + 4]),
    }
    assert stored(second=quiet)
    assert not stored(second=more | {"encoding.alpha": quiet["encoding.alpha"]})


@pytest.mark.parametrize(
    "changes",
    [{"padding": ((2,), (1,), "zeros")}, {"padding": ((1,), (1,), "circular")}, {"by_enumeration": True},
     {"starts": ((-1,), (0,), (2,))}],
)  # fmt: skip
def test_stored_heads_of_other_places_do_not_attend_alike(changes):
    assert not stored(**changes)


@pytest.mark.parametrize(
    ("kind", "same"), [(torch.float16, True), (torch.bfloat16, True), (torch.float32, True), (torch.float64, False)]
)
def test_stored_centres_are_those_that_scores_are_computed_from(kind, same):
    """In float32, or in float64 where the weights are: a centre may be stored as more, or as less."""

    def cast(by):
        centre = plus("encoding.center", by, head=2)["encoding.center"]
        return {"output": lambda tensor: tensor.to(kind), "encoding.center": lambda tensor: centre(tensor.double())}

    assert stored(cast(0.0), cast(2.0**-40)) is same
    assert stored(cast(2.0**-40), cast(2.0**-40))
    assert not stored(cast(0.0), cast(2.0**-20))
    assert stored({**cast(0.0), "encoding.center": lambda tensor: tensor.half()}, cast(0.0))

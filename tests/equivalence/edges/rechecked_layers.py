"""Layers checked again from files: what is the same map holds, what was forged is refuted, and alpha decides."""

import math

import pytest
import torch
from equivalence.soft import SOFT, line
from equivalence.stored import (
    KINDS,
    Stored,
    at,
    both,
    cancelling,
    dead,
    far_below,
    first,
    identity,
    last_ulp,
    off,
    padded,
    permuted,
    planned,
    size_of,
    split,
    stored,
    unpadded,
)
from torch import nn

import conv2attn
from conv2attn.equivalence import certify, checker
from conv2attn.errors import Conv2AttnError
from conv2attn.verdicts import Strength, Verdict

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
def test_what_is_the_same_map_holds(tmp_path, change):
    for kind in KINDS:
        found = stored(kind, tmp_path).forge(SAME[change]).look()
        assert (found.verdict, found.wrong, found.unknown, found.checked) == (Verdict.HOLDS, (), (), 1), (kind, found)


@pytest.mark.parametrize("change", PLANTED)
def test_what_was_planted_is_refuted(tmp_path, change):
    for kind in KINDS:
        found = stored(kind, tmp_path).forge(PLANTED[change]).look()
        assert found.verdict is Verdict.REFUTED, (kind, found)
        assert found.wrong


def certified(kind, made):
    """What `certify` says of the same two files; None where the second cannot be loaded or run."""
    try:
        return certify(KINDS[kind], conv2attn.load(made.paths["converted"]), input_size=size_of(KINDS[kind]))
    except (Conv2AttnError, RuntimeError, KeyError, TypeError, ValueError):
        return None


BORDERS = ("more padding", "unpadded", "enumerated", "reflected", "replicated", "replicated and padded")


@pytest.mark.parametrize(
    ("kind", "change"), [*(("2d", each) for each in EITHER), *(("replicated", each) for each in BORDERS)]
)
def test_the_second_look_never_contradicts_the_first(tmp_path, kind, change):
    made = stored(kind, tmp_path).forge(EITHER[change])
    found, report = made.look(), certified(kind, made)
    proved = report is not None and bool(report) and report.strength is Strength.PROVED
    assert found.verdict is not (Verdict.REFUTED if proved else Verdict.HOLDS), (found, report)


ALPHAS = [16.6, 16.7, 17.3, 18.03, 18.1]


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", ["1d", "2d"])
def test_of_bounded_layers_nothing_is_said_against_the_first_look(tmp_path, kind, alpha):
    """Between what a head surely leaks and what it surely does not the theta series decides, and not this code."""
    made = stored(kind, tmp_path)
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


def test_files_that_were_exchanged_are_not_what_was_certified(tmp_path):
    made = stored("2d", tmp_path)
    made.paths = {**made.paths, "original": made.paths["converted"], "converted": made.paths["original"]}
    made.sign()
    found = made.look()
    assert found.verdict is Verdict.REFUTED


@pytest.mark.parametrize("dtype", checker.ROUNDOFF)
def test_the_checker_has_the_roundoff_and_the_smallest_number_of_each_dtype(dtype):
    known = torch.finfo(dtype)
    assert checker.ROUNDOFF[dtype] == known.eps / 2
    assert 2.0 ** checker.SMALLEST[dtype] == known.smallest_normal * known.eps

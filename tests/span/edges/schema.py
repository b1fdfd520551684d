"""Reports of every kind, beside those of the zoo, fit the published schema, and little else does."""

import json
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from attentions import EVERY, LINE, OFFSETS, hard, mixed, soft
from schemas import complaints, json_schema_of
from torch import nn

from conv2attn import check_span, convert, heads
from conv2attn.span import SpanReport, certificates, recheck_span, rows_of

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "span.schema.json").read_text())
DOUBTFUL = np.array([[[Fraction(int(q == k)) for k in range(5)] for q in range(5)]])
LAYER = convert(nn.Conv2d(1, 2, 3))
HALVES = np.array([[[3, 1], [1, 3]], [[1, 3], [3, 1]]])
DOUBTFUL[0, 2, 2:4] = 1 - Fraction(1, 10**60), Fraction(1, 10**60)


class Reading(nn.Module):
    """A network whose only attention cannot be read by position alone."""

    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, tokens):
        return self.attend(tokens, tokens, tokens)[0]


REPORTS = {
    "one-hot": lambda: check_span(hard((5, 6), OFFSETS), grid=(5, 6)),
    "a head less": lambda: check_span(hard((5, 6), OFFSETS[1:]), grid=(5, 6)),
    "undecided": lambda: check_span(DOUBTFUL, 1, grid=(5,), eps=1.2e-60),
    "nothing checked": lambda: check_span(hard((2, 6), OFFSETS), grid=(2, 6)),
    "halves": lambda: check_span(HALVES, offsets=[(0,)], grid=(2,), exact=True, max_phi=9),
    "each query": lambda: check_span(soft((5, 6), 1.0), grid=(5, 6), condition=EVERY),
    "kernel": lambda: check_span(
        convert(nn.Conv2d(1, 2, 3)), grid=(6, 7), convolution=nn.Conv2d(1, 2, 3), condition="kernel"
    ),
    "beyond": lambda: check_span(mixed(hard((9,), LINE), 1e8), 3, grid=(9,)),
    "unread": lambda: check_span(Reading(), grid=(3, 3), position_only=True),
    "facts": lambda: heads(np.stack([soft((5, 6), 1.0)] * 3), grid=(5, 6)),
    "unread facts": lambda: heads(np.full((2, 24, 16), 1 / 16)),
    "confirmed": lambda: rechecked("holds"),
    "tampered": lambda: rechecked("refuted"),
    "of another layer": lambda: rechecked("undecided"),
}


def rechecked(verdict):
    """A certificate as it is, with another Phi, or of a layer that is not there."""
    rows = rows_of("attention", hard((3,), [(0,)]), (3,))
    text = certificates(check_span(hard((3,), [(0,)]), 1, grid=(3,)), {"attention": rows}, None, None)
    text = text.replace("\n1 1\n", "\n1 2\n") if verdict == "refuted" else text
    return recheck_span(text, {} if verdict == "undecided" else {"attention": rows})


@cache
def text_of(name):
    """The report in JSON, made once."""
    torch.manual_seed(0)
    return REPORTS[name]().to_json()


@pytest.mark.parametrize("name", REPORTS)
def test_every_report_fits_the_schema(name):
    text, kind = text_of(name), type(REPORTS[name]())
    assert complaints(json.loads(text), SCHEMA if kind is SpanReport else json_schema_of(kind)) == []
    assert ": NaN" not in text
    assert text == text_of.__wrapped__(name)
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


@pytest.mark.parametrize("name", ["confirmed", "tampered", "of another layer"])
def test_a_recheck_ends_as_its_worst_certificate(name):
    report = REPORTS[name]()
    verdict = {"confirmed": "holds", "tampered": "refuted", "of another layer": "undecided"}[name]
    assert (report.verdict.value, report.exit_code) == (verdict, {"holds": 0, "refuted": 1, "undecided": 3}[verdict])
    assert f"{int(verdict == 'holds')} of 1 certificates" in report.summary


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.pop("asked"),
        lambda body: body.update(exit_code=2),
        lambda body: body.update(verdict="fine"),
        lambda body: body["layers"][0].update(heads="9"),
        lambda body: body["layers"][0]["limits"].pop("eps"),
        lambda body: body["layers"][0]["conditions"][0].update(colour="red"),
        lambda body: body["layers"][0]["conditions"][0]["targets"][0].update(evidence="luck"),
    ],
)
def test_the_schema_refuses_what_is_no_report(change):
    body = json.loads(text_of("one-hot"))
    assert complaints(body, SCHEMA) == []
    change(body)
    assert complaints(body, SCHEMA)

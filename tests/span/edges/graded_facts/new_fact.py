"""A number of a head is named once: what stands in the table of facts is in every report, picture and page."""

import csv
import json

import msgspec
import numpy as np
import pytest
from attentions import OFFSETS, hard
from commands import call
from lab.explore.cases import Transformer, image
from matplotlib import colors

import conv2attn
from conv2attn import plots
from conv2attn.lab.explore import explore
from conv2attn.span.graded_facts import Curve, Errors, Fact, HeadFacts, LayerFacts, fact_table, measuring
from conv2attn.span.graded_facts.fact_table import FACTS

VALUE = 0.4375
"""What the planted rule gives every head; exact in every format."""
NOT_NUMBERS = {"head", "margin", "errors", "replaced"}
"""Fields of a head beside its numbers."""


class WithFact(HeadFacts, frozen=True, kw_only=True):
    """A head with the field that a new fact adds."""

    planted: float


class WithError(Errors, frozen=True, kw_only=True):
    """The errors of a head with that of a new fact."""

    planted: float | None = None


COMPUTED = {
    "by a rule": {"rule": lambda head: VALUE},
    "by an estimate": {"estimate": lambda sums: lambda left_out: np.full(sums.mass.shape[1], VALUE)},
}


def fact(how):
    """The planted fact."""
    return Fact(
        "planted",
        "plant",
        "planted fact",
        "share",
        "what the law plants",
        "the law",
        columns="both",
        leaves=None,
        curve=Curve("tab:red", "*"),
        explored=True,
        **COMPUTED[how],
    )


@pytest.fixture(params=[*COMPUTED, None])
def planted(request, monkeypatch, tmp_path):
    """Whether the table has the planted fact; an array of attention in the folder."""
    monkeypatch.chdir(tmp_path)
    np.savez("heads.npz", first=hard((5, 5), OFFSETS), second=hard((5, 5), OFFSETS))
    if request.param:
        monkeypatch.setattr(fact_table, "FACTS", (*FACTS, fact(request.param)))
        monkeypatch.setattr(measuring, "HeadFacts", WithFact)
        monkeypatch.setattr(measuring, "Errors", WithError)
    return request.param is not None


def test_a_fact_has_a_column_in_the_lines_of_layers_and_of_heads(planted):
    text = call("heads", "heads.npz", "-v").stdout
    headings = [line.split() for line in text.splitlines() if line.startswith("layer ")]
    assert ["plant" in line for line in headings] == [planted] * 2
    assert text.count("44%") == planted * (2 + 18)
    assert ("plant: what the law plants (the law)" in call("heads", "--columns").stdout) == planted


def test_a_fact_is_in_csv_and_json(planted):
    rows = list(csv.DictReader(call("heads", "heads.npz", "--format", "csv").stdout.splitlines()))
    body = json.loads(call("heads", "heads.npz", "--format", "json").stdout)
    heads = [head for layer in body["layers"] for head in layer["heads"]]
    assert len(rows) == len(heads) == 18
    assert {row.get("planted") for row in rows} == {str(VALUE) if planted else None}
    assert {head.get("planted") for head in heads} == {VALUE if planted else None}


def test_a_fact_is_drawn(planted):
    figure = plots.draw_curves(conv2attn.heads(dict(np.load("heads.npz")), grid=(5, 5)))
    lines = [line for line in figure.axes[0].lines if line.get_label() == "planted fact"]
    assert len(lines) == planted
    for line in lines:
        assert [*line.get_ydata()] == [VALUE, VALUE]
        assert (line.get_marker(), colors.same_color(line.get_color(), "tab:red")) == ("*", True)


def test_a_fact_is_on_the_page_of_explore(planted):
    html = explore(Transformer(1), image()).html
    content = json.loads(html.partition('id="data">')[2].partition("</script>")[0])
    for layer in content["views"][0]["layers"]:
        columns = {column["name"]: column for column in layer["facts"]["columns"]}
        assert ("planted" in columns) == planted
        assert all([*head] == [*columns] for head in layer["facts"]["heads"])
        if planted:
            assert columns["planted"] == {"name": "planted", "title": "planted fact", "unit": "share"}
            assert {head["planted"] for head in layer["facts"]["heads"]} == {VALUE}


def test_every_number_of_a_head_stands_in_the_table_once():
    names = [fact.name for fact in FACTS]
    assert len({*names}) == len(names) == len({fact.title for fact in FACTS}) == len({fact.words for fact in FACTS})
    fields = {field.name for field in msgspec.structs.fields(HeadFacts)}
    of_heads = {fact.name for fact in FACTS if fact.rule is not None or fact.estimate is not None}
    assert of_heads | {"kind"} == fields - NOT_NUMBERS


def test_a_number_without_a_rule_is_of_layers_or_follows_from_others():
    ruled = {fact.name for fact in FACTS if (fact.rule, fact.estimate, fact.layer_rule) != (None, None, None)}
    assert {fact.name for fact in FACTS} - ruled == {"kind"}


def test_an_estimated_number_has_an_error_in_every_head_and_layer():
    estimated = {fact.name for fact in FACTS if fact.estimate is not None}
    fields = {field.name for field in msgspec.structs.fields(Errors)}
    assert fields - estimated == {"relative", "absolute", "content", "peak_mass"}
    assert estimated < fields
    unmeasured = LayerFacts("nothing")
    assert {fact.of_layer(unmeasured) for fact in FACTS if fact.layer_rule is not None} == {None}

"""What a report says is what its document holds, and what both hold is what dense algebra in float64 gives."""

import json
import re

import numpy as np
import pytest
from attentions import EVERY, LINE, OFFSETS, hard, mixed, soft
from schemas import entries
from span.cases import with_class

from conv2attn import check_span, heads
from conv2attn.report import document
from conv2attn.span import HeadsReport
from conv2attn.span.graded_facts import Fact

DOUBLED = np.concatenate([soft((4, 5), 1.0, OFFSETS[:4]), soft((4, 5), 1.0, OFFSETS[1:3])])
VARYING = np.random.default_rng(0).dirichlet(np.full(20, 0.2), (3, 2, 20))
PLANES = {"soft": soft((4, 5), 1.0), "a head twice": DOUBLED, "images": VARYING, "shifts": hard((4, 5), OFFSETS)}
LINES = {
    "nearly dependent": (mixed(hard((9,), LINE), 1e8), LINE, 0),
    "of two shifts": (hard((9,), [(0,), (1,)]), LINE, 0),
    "behind a class token": (with_class(0.3, soft((9,), 0.5, LINE)), LINE, 1),
    "other shifts": (hard((9,), LINE), [(2,), (0,)], 0),
}
CASES = {
    **{name: (array, (4, 5), OFFSETS, 0) for name, array in PLANES.items()},
    **{name: (array, (9,), offsets, extra) for name, (array, offsets, extra) in LINES.items()},
}
"""Attention, its grid, the offsets asked for, and how many tokens lead."""


def dense(name, condition):
    """Heads and shifts as rows over all (query, key) of a condition, and how many queries that are."""
    array, sides, offsets, extra = CASES[name]
    stack = array if array.ndim == 4 else array[None]
    places = list(np.ndindex(*sides))
    keys = [[tuple(np.add(at, offset)) for at in places] for offset in offsets]
    inside = [all(each[q] in places for each in keys) for q in range(len(places))]
    chosen = [q for q in range(len(places)) if condition == "joint" or inside[q]]
    asked = np.zeros((len(offsets), len(stack), len(chosen), stack.shape[3]))
    for t, at in enumerate(keys):
        for row, q in enumerate(chosen):
            if at[q] in places:
                asked[t, :, row, extra + places.index(at[q])] = 1
    attention = stack[:, :, extra:][:, :, chosen].swapaxes(0, 1)
    return attention.reshape(len(attention), -1), asked.reshape(len(asked), -1), len(stack) * len(chosen)


def left_of(rows, columns):
    """The squares of rows, and those of what the best combinations of columns leave of them."""
    left = rows - rows @ np.linalg.pinv(columns, rcond=1e-13) @ columns
    return (rows**2).sum(1), (left**2).sum(1)


@pytest.mark.parametrize("condition", ["joint", "interior"])
@pytest.mark.parametrize("name", CASES)
def test_ranks_distances_and_shares_are_those_of_all_rows_at_once(name, condition):
    array, sides, offsets, extra = CASES[name]
    attention, asked, queries = dense(name, condition)
    (row,) = check_span(array, grid=sides, offsets=offsets, extra_tokens=extra, condition=condition).rows
    found, singular = row.deciding, np.linalg.svd(attention)[1]
    rank = int((singular > 1e-13 * singular[0]).sum())
    assert (found.queries, len(found.targets), found.rank) == (queries, len(offsets), rank)
    assert found.around[0] == pytest.approx(singular[rank - 1])
    assert (found.around[1] is None) == (rank == len(singular))
    assert (found.around[1] or 0.0) <= found.threshold < found.around[0]
    whole, left = left_of(asked, attention)
    assert [target.distance for target in found.targets] == pytest.approx(list(np.sqrt(left / whole)), abs=1e-7)
    assert found.explained == pytest.approx(1 - left_of(attention, asked)[1].sum() / (attention**2).sum())


@pytest.mark.parametrize("condition", ["joint", "interior"])
@pytest.mark.parametrize("names", [list(PLANES), *([name] for name in CASES)], ids=" ".join)
def test_the_answer_gives_taps_the_reach_of_the_spans_and_what_convolutions_explain(names, condition):
    layers = {name: CASES[name][0] for name in names}
    _, sides, offsets, extra = CASES[names[0]]
    report = check_span(layers, grid=sides, offsets=offsets, extra_tokens=extra, condition=condition)
    said = [[float(x) for x in re.findall(r"\b\d+(?:\.\d+)?", line)] for line in document(report, True).answer]
    body = [layer["conditions"][0] for layer in json.loads(report.to_json())["layers"]]
    verdicts = [[t["verdict"] for t in each["targets"]] for each in body]
    formed = [each.count("holds") for each in verdicts]
    assert said[0] == [sum(all(v == "holds" for v in each) for each in verdicts), len(names)]
    assert said[1] == [*sorted({min(formed), max(formed)}), len(offsets)]
    reach = [np.array([1 - t["distance"] ** 2 for t in each["targets"]]) for each in body]
    explained = [100 * each["explained"] for each in body]
    middle = [np.mean([each[t] for each in reach]) for t, offset in enumerate(offsets) if not any(offset)]
    figures = [*middle, np.mean([each.mean() for each in reach]), np.mean([each.max() for each in reach])]
    assert said[2] == pytest.approx(figures, abs=0.00501)
    assert (said[3][0], said[3][-1]) == pytest.approx((min(explained), max(explained)), abs=0.501)


@pytest.mark.parametrize("asked", [EVERY, ("joint", "interior"), ("interior",)])
@pytest.mark.parametrize("verbose", [False, True])
def test_cells_are_the_numbers_of_the_document(verbose, asked):
    layers = {name: each for name, each in PLANES.items() if name != "images"}
    report = check_span(layers, grid=(4, 5), condition=asked)
    table = document(report, verbose).tables[0]
    lines = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    conditions = [(layer, each) for layer in json.loads(report.to_json())["layers"] for each in layer["conditions"]]
    deciding = conditions[:: len(asked)]
    wrong = [each for each in deciding if each[1]["verdict"] != "holds"]
    shown_ones = conditions if verbose else wrong
    assert wrong
    for line, (layer, condition) in zip(lines, shown_ones, strict=True):
        most = {
            name: max((t[name] for t in condition["targets"] if t[name] is not None), default=None)
            for name in ("residual", "floor", "distance", "norm")
        }
        limits, decides = layer["limits"], condition is layer["conditions"][0]
        expected = {
            "layer": layer["name"],
            "grid": "4x5",
            "images": layer["images"],
            "heads": layer["heads"],
            "condition": condition["name"] + " *" * (decides and len(asked) > 1),
            "queries": condition["queries"],
            "targets": len(condition["targets"]),
            "rank": condition["rank"],
            "residual": most["residual"],
            "at least": most["floor"],
            "distance": most["distance"],
            "eps": limits["eps"] + limits["per_norm"] * most["norm"],
            "|Phi|": most["norm"],
            "strength": condition["strength"],
            "verdict": condition["verdict"],
        }
        if verbose:
            around = line.pop("singular values around")
            numbers = [None if each == "-" else float(each) for each in (around or "- | -").split(" | ")]
            assert numbers == [each and pytest.approx(each, rel=0.05) for each in condition["around"]]
            assert line.keys() == expected.keys()
        found = {name: getattr(cell, "value", cell) for name, cell in line.items()}
        assert found == {name: expected[name] for name in line}
    tally = dict.fromkeys(("holds", "refuted", "undecided", "unsupported"), 0)
    for layer in json.loads(report.to_json())["layers"]:
        tally[layer["conditions"][0]["verdict"]] += 1
    assert ", ".join(f"{count} {verdict}" for verdict, count in tally.items()) in report.to_text()
    assert "nothing was checked" not in report.to_text()


def as_number(text):
    return None if text == "-" else float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


LONG = {
    "mass": "peak_mass",
    "argmax": "argmax",
    "dist": "distance",
    "keys": "keys_in_use",
    "sink": "sink",
    "extra": "extra",
    "rel": "relative",
    "abs": "absolute",
    "cont": "content",
}
STEPS = {"mass": 0.01, "argmax": 0.01, "dist": 0.1, "keys": 1, "sink": 0.01, "extra": 0.01}
STEPS |= {"rel": 0.01, "abs": 0.01, "cont": 0.01, "se": 0.001, "R2 3x3": 0.01, "conv 3": 0.01}
"""How finely each column is written."""


def test_columns_of_heads_are_the_numbers_of_the_document():
    layers = {"soft": PLANES["soft"], "images": VARYING, "unread": np.full((2, 24, 16), 1 / 16)}
    report = heads(layers, grid=(4, 5))
    short, long = document(report, True).tables
    assert report.summary == "measured 11 heads in 2 of 3 layers, on 1 or 3 images"
    assert f"{report.summary}; network as it is" == HeadsReport(report.layers, "as it is").summary
    body = json.loads(report.to_json())["layers"]
    assert [row[0] for row in short.rows] == list(layers)
    unread = dict(zip(short.columns, short.rows[2], strict=True))
    assert {name for name, cell in unread.items() if cell} == {"layer", "heads", "replay"}
    for row, layer in zip(short.rows[:2], body[:2], strict=True):
        line, of_heads = dict(zip(short.columns, row, strict=True)), layer["heads"]
        assert line["heads"] == len(of_heads)
        kinds = [head["kind"] for head in of_heads]
        assert sorted(line["kinds"].split(", ")) == sorted(f"{kinds.count(kind)} {kind}" for kind in set(kinds))
        span = next(each for each in layer["spans"] if (each["kernel_size"], each["dilation"]) == (3, 1))
        expected = {"se": layer["errors"]["relative"], "R2 3x3": span["mean"], "conv 3": None}
        for name in ("rel", "abs", "cont", "dist", "keys", "sink"):
            values = [head[LONG[name]] for head in of_heads]
            expected[name] = None if None in values else np.mean(values)
        written = {name: as_number(line[name]) for name in expected}
        assert written == {n: pytest.approx(x, abs=0.501 * STEPS[n]) for n, x in expected.items()}
    every = [(layer["name"], head) for layer in body for head in layer["heads"]]
    for row, (name, head) in zip(long.rows, every, strict=True):
        line = dict(zip(long.columns, row, strict=True))
        assert (line["layer"], line["head"], line["kind"]) == (name, head["head"], head["kind"])
        assert [int(x) for x in line["peak"].split(",")] == head["peak"]
        numbers = {**{column: head[field] for column, field in LONG.items()}, "se": head["errors"]["relative"]}
        written = {column: as_number(line[column]) for column in numbers}
        assert written == {n: pytest.approx(x, abs=0.501 * STEPS[n]) for n, x in numbers.items()}


def test_numbers_keep_their_sign_unless_they_are_written_as_nothing():
    for value in (-2.0, -0.4, -0.004, -0.0, 0.0, 0.004, 0.4, 2.0):
        for unit in ("share", "tokens"):
            text = Fact("planted", "planted", "planted", unit, "planted").written(value)
            assert as_number(text) == pytest.approx(value, abs=0.051)
            assert (text[0] == "-") == (as_number(text) < 0)


def test_a_layer_that_was_not_read_has_no_numbers():
    for question in (check_span, heads):
        (layer,) = question(np.full((2, 24, 16), 1 / 16)).to_dict()["layers"]
        assert not any(entry for entry in entries(layer).values() if isinstance(entry, int | float))

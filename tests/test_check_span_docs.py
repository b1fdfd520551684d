"""What docs/check-span.md says of the two trained examples is what the files hold."""

import re
from pathlib import Path

import pytest

import conv2attn
from conv2attn.models import attention_layers
from conv2attn.span import check_span, head_offsets, recover
from conv2attn.verdicts import Verdict

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "check-span.md").read_text()
SIDES = (7, 7)


def layers(name):
    """The four attention layers of an example."""
    return list(attention_layers(conv2attn.load(ROOT / "examples" / f"attention-{name}.pt")).values())


def table(heading):
    """Numbers of the cells of the table below `heading`: (head, layer, number)."""
    rows = re.findall(r"^\| \d \|(.*)\|$", TEXT.split(heading)[1].split("\n\n")[1], re.M)
    return [[[float(x) for x in re.findall(r"-?\d+(?:\.\d+)?", cell)] for cell in row.split("|")] for row in rows]


def test_centres_and_sharpness():
    encodings = [layer.encoding for layer in layers("quadratic")]
    held = [
        [[*encoding.center[head].tolist(), encoding.alpha[head].item()] for encoding in encodings] for head in range(9)
    ]
    for row, expected in zip(table("**Quadratic heads**"), held, strict=True):
        for cell, numbers in zip(row, expected, strict=True):
            assert cell == pytest.approx(numbers, abs=0.0051)


def test_peaks_shares_and_spreads():
    readings = [head_offsets(layer, grid=SIDES) for layer in layers("learned")]
    for head, row in enumerate(table("**Learned relative heads**")):
        for cell, reading in zip(row, [each[head] for each in readings], strict=True):
            assert cell[:2] == list(reading.peak)
            assert cell[2:] == pytest.approx([reading.share, reading.spread], abs=0.051)
            assert (round(cell[2] - reading.share, 2), reading.offset) == (0, None)


def test_every_offset_of_every_layer_is_refuted():
    floors = []
    for name in ("quadratic", "learned"):
        for layer in layers(name):
            row = check_span(layer, grid=SIDES).rows[0]
            assert {target.verdict for each in row.conditions for target in each.targets} == {Verdict.REFUTED}
            floors.append([target.floor for target in row.deciding.targets])
    assert min(map(max, floors)) >= 0.99
    assert min(map(min, floors)) >= 0.27


@pytest.mark.parametrize(("name", "percent"), [("quadratic", (76, 40, 45, 29)), ("learned", (64, 21, 24, 9))])
def test_share_of_the_nearest_convolution(name, percent):
    shares = [recover(layer, grid=SIDES).share for layer in layers(name)]
    assert tuple(round(100 * share) for share in shares) == percent
    told = re.search(
        r"explains {} % of .*?{} and {} %".format(percent[0], ", ".join(map(str, percent[1:3])), percent[3]), TEXT, re.S
    )
    assert told

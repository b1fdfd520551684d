"""One-hot rows looked at pattern by pattern give what all their keys give; no query is passed over or counted twice."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from attentions import EVERY, LINE, OFFSETS, hard, soft

from conv2attn import MultiHeadSelfAttention, convert
from conv2attn.layers.attention import Encoding
from conv2attn.span import check, limits_for, rows_of, shift_targets
from conv2attn.span import equations as module
from conv2attn.span.layers import keys_read

CUBE = [(-1, 0, 2), (0, 0, 0), (1, 3, -1)]


def layer_of(offsets, alpha, dtype, kind="quadratic"):
    return MultiHeadSelfAttention(
        1, 1, Encoding.of(kind, torch.tensor(offsets, dtype=torch.float32), alpha), dtype=dtype
    )


LAYERS = {
    "padded": (convert(torch.nn.Conv2d(2, 3, 3, padding=1)), (5, 6)),
    "strided and dilated": (convert(torch.nn.Conv2d(2, 3, (2, 3), stride=(3, 2), dilation=2, padding=2)), (9, 12)),
    "line": (convert(torch.nn.Conv1d(2, 3, 5, padding=4, padding_mode="circular")), (7,)),
    "transposed": (convert(torch.nn.ConvTranspose2d(2, 3, 3, stride=2)), (4, 5)),
    "cube": (layer_of(CUBE, 128.0, torch.float32), (3, 4, 5)),
    "beyond the grid": (layer_of([(-4, 9), (0, 0), (2, -2)], 128.0, torch.bfloat16), (4, 5)),
    "beyond, in float64": (layer_of([(-4, 9), (0, 0), (2, -2)], 1024.0, torch.float64), (4, 5)),
    "beyond, in float16": (layer_of([(-4, 9), (0, 0), (2, -2)], 64.0, torch.float16), (4, 5)),
    "enumerated": (convert(torch.nn.Conv2d(2, 3, 3, padding=1), encoding="enumerated"), (5, 6)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_keys_of_offsets_are_those_of_the_softmax(name):
    layer, sides = LAYERS[name]
    rows = rows_of(name, layer, sides, memory_limit=2**16)
    block = np.concatenate([block for _, _, block in rows.pieces(np.arange(rows.grid.shape[0]))], 1)
    assert rows.one_hot
    assert (np.sort(block, -1)[..., -1] == 1).all()
    assert np.count_nonzero(block) == block.shape[0] * block.shape[1]
    assert np.array_equal(rows.hot[0], block.argmax(-1))


def test_only_exact_scores_tell_the_nearest_key():
    grid = rows_of("grid", hard((4, 5), OFFSETS), (4, 5)).grid

    def read(offsets, alpha, kind="quadratic", dtype=torch.float32):
        return keys_read(layer_of(offsets, alpha, dtype, kind).encoding.operators(), grid, dtype)

    beyond = [(-4, 9), (0, 0)]
    assert read(beyond, 128.0) is not None
    assert read(beyond, 105.3) is None
    assert read(beyond, 128.0, "enumerated") is None
    assert read(beyond, 64.0) is None
    assert read([(0, 4000)], 128.0) is not None
    assert read([(0, 5000)], 128.0) is None
    assert read([(0, 90_000_000)], 1024.0, dtype=torch.float64) is not None
    assert read([(0, 100_000_000)], 1024.0, dtype=torch.float64) is None


def figures(found, name):
    """One number of all targets of all conditions."""
    numbers = [getattr(target, name) for condition in found for target in condition.targets]
    return np.array([np.nan if x is None else x for x in numbers], dtype=float)


def verdicts(found):
    return [(c.name, c.verdict, c.strength, c.rank, c.queries) for c in found]


def random_one_hot(seed):
    rng = np.random.default_rng(seed)
    return np.eye(30)[rng.integers(0, 30, (2, 4, 30))]


@pytest.mark.rotated
@pytest.mark.parametrize("entries", [1, 2**14])
@pytest.mark.parametrize(
    ("array", "grid", "offsets"),
    [
        (hard((5, 6), OFFSETS), (5, 6), OFFSETS),
        (hard((5, 6), OFFSETS[1:]), (5, 6), OFFSETS),
        (np.concatenate([hard((5, 6), OFFSETS), hard((5, 6), OFFSETS[:2])]), (5, 6), OFFSETS),
        (np.stack([hard((7,), LINE), hard((7,), LINE)[::-1]]), (7,), LINE),
        (random_one_hot(0), (5, 6), OFFSETS[:3]),
        (random_one_hot(1)[0], (5, 6), [(9, 9)]),
    ],
)
def test_patterns_give_the_figures_of_all_keys(array, grid, offsets, entries, monkeypatch):
    monkeypatch.setattr(module, "PATTERN_ENTRIES", entries)
    rows = rows_of("one-hot", array, grid)
    assert rows.hot is not None
    targets, limits = shift_targets(rows.grid, offsets), limits_for(rows, None, None)
    few, all_keys = ([check(name, each, targets, limits) for name in EVERY] for each in (rows, replace(rows, hot=None)))
    assert verdicts(few) == verdicts(all_keys)
    for name in ("residual", "norm", "distance"):
        np.testing.assert_allclose(figures(few, name), figures(all_keys, name), rtol=1e-9, atol=1e-12)


def test_a_query_that_is_passed_over_is_noticed(monkeypatch):
    rows = rows_of("planted", soft((5, 6), 1.0), (5, 6), memory_limit=1)
    targets, limits = shift_targets(rows.grid, OFFSETS), limits_for(rows, None, None)
    everything = module.read_portions
    monkeypatch.setattr(module, "read_portions", lambda *given: [p for p in everything(*given) if 7 not in p.rows])
    with pytest.raises(RuntimeError, match="planted: of 12 rows, 11 were read"):
        check("interior", rows, targets, limits)
    monkeypatch.setattr(module, "read_portions", lambda *given: [*everything(*given), *everything(*given)])
    with pytest.raises(RuntimeError, match="24 were read"):
        check("interior", rows, targets, limits)

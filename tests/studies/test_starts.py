"""The experiment on starts: what its arms do to a network, its statistics, and the sentences of its page.

The arms are one published plan: no law predicts it.
"""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from studies import starts as study
from studies.starts import ARMS, Gain, RunKey, Starts, begin, corrected_gains, entropies, faster, log_attention
from studies.transformer import TransformerPlan, VisionTransformer

DOCS = Path(__file__).parents[2] / "docs"


def fresh(layers=2, **sizes):
    torch.manual_seed(0)
    return VisionTransformer(TransformerPlan(layers=layers, **sizes))


IMAGES = torch.randn(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))


def test_mimetic_weights_have_the_published_products():
    network = fresh(width=64, heads=2)
    assert begin(network, "mimetic", 0, IMAGES, 7) is None
    for layer in network.layers:
        query, key, value = layer.self_attn.in_proj_weight.detach().chunk(3)
        product = layer.self_attn.out_proj.weight.detach() @ value
        assert product.diagonal().mean() == pytest.approx(-0.4, abs=0.05)
        assert (product - product.diagonal().diag()).std() == pytest.approx(0.4 / 8, rel=0.1)
        for rows in (slice(0, 32), slice(32, 64)):
            assert (query[rows].T @ key[rows]).diagonal().mean() > 0.35  # half of the rank of 0.7 (Z + I)


def test_the_ablation_leaves_the_rows_that_write_as_drawn():
    plain, written, positions = fresh(), fresh(), fresh()
    start = begin(written, "written", 0, IMAGES, 7)
    begin(positions, "positions", 0, IMAGES, 7)
    for name, value in plain.named_parameters():
        same = [torch.equal(value, dict(other.named_parameters())[name]) for other in (written, positions)]
        read, written_to = "in_proj" in name, name.startswith("embed") or "linear2" in name or "out_proj" in name
        assert same[0] == (not (read and "weight" in name) and name != "positions")
        assert same[1] == (not (written_to and value.any()) and name != "positions")
    assert len(start.silenced) == 5


def test_controls_read_the_same_waves_with_the_same_norms():
    """Far and random heads differ from shifts in what their queries and keys read of the waves, and in nothing else."""
    shifts, far, random = (fresh() for _ in range(3))
    start = begin(shifts, "shift-3-2", 0, IMAGES, 7)
    begin(far, "far-2", 0, IMAGES, 7)
    begin(random, "random-2", 0, IMAGES, 7)
    for other in (far, random):
        for (name, parameter), changed in zip(shifts.named_parameters(), other.parameters(), strict=True):
            value, changed = parameter.detach(), changed.detach()
            if not name.endswith("in_proj_weight"):
                assert torch.equal(value, changed)
                continue
            assert torch.equal(value[128:], changed[128:])
            for mine, theirs in zip(value[:128].split(8), changed[:128].split(8), strict=True):
                assert theirs.norm().item() == pytest.approx(mine.norm().item(), rel=1e-4)
                assert not torch.equal(mine, theirs) or other is far  # keys of far heads are those of shifts
            assert not changed[:128, start.channels :].any()
    maps = study.displacements(far, IMAGES)
    near = maps[..., 5:8, 5:8].flatten(2)  # displacements within the kernel
    assert (near.amax(-1) < maps.nan_to_num(0).flatten(2).amax(-1)).all()


def test_faster_queries_and_keys_move_by_the_factor():
    network = fresh(layers=1)
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    with torch.no_grad(), faster(network, ARMS["faster-5"].factor):
        for value in network.parameters():
            value.add_(1.0)
    for name, value in network.named_parameters():
        moved = value.detach() - before[name]
        expected = torch.ones_like(moved)
        if name.endswith("in_proj_weight"):
            expected[:128] = 5.0
        assert torch.allclose(moved, expected, atol=1e-5), name
    assert ARMS["shift-3-2"].factor == 1
    assert {arm.partition("/")[0] for arm in study.START_ARMS} == {*ARMS}


def test_equal_gains_of_all_seeds_are_no_proof_and_one_run_has_no_p():
    assert (Gain((0.0, 0.0)).p, Gain((1.0, 1.0)).p, Gain((1.0,)).p) == (1, 0, None)
    assert (Gain((1.0,)).text, corrected_gains({"one run": Gain((1.0,))})["one run"].corrected) == ("1.00", None)


def test_even_heads_have_the_entropies_of_random_ones_and_the_directions_that_were_drawn():
    drawn, random, even = fresh(), fresh(), fresh()
    begin(random, "random-2", 0, IMAGES, 7)
    assert begin(even, "even-2", 0, IMAGES, 7) is None
    for at in range(len(even.layers)):
        wanted, found = (entropies(log_attention(network, IMAGES, at)) for network in (random, even))
        assert torch.allclose(wanted, found, atol=1e-4)
        before = drawn.layers[at].self_attn.in_proj_weight.detach()
        after = even.layers[at].self_attn.in_proj_weight.detach()
        assert torch.equal(before[128:], after[128:])
        alike = torch.nn.functional.cosine_similarity(*(each[:128].reshape(16, -1) for each in (before, after)))
        assert torch.allclose(alike, torch.ones(16))


def test_curves_are_means_over_seeds():
    keys = [RunKey("digits", 500, 60, "default", 0.01, seed) for seed in (0, 1)]
    shares = (0.25, 0.75)
    rows = [
        dict(zip(study.MEANINGS, key.text, strict=False)) | {"curve": " ".join(60 * [str(share)])}
        for key, share in zip(keys, shares, strict=True)
    ]
    found, size = Starts(tuple(rows)), next(size for size in study.TRAINING_SIZES if size.data == "digits")
    assert study.mean_curves(found, size) == {"default": 60 * [50.0]}
    (line,) = study.draw_start_curves(found).axes[0].lines[:1]
    assert line.get_label() == "default"


def test_displacements_are_means_over_queries_whose_key_is_there():
    network = fresh(layers=1)
    start = begin(network, "shift-3-4", 0, IMAGES, 7)
    maps = study.displacements(network, IMAGES)
    assert maps.shape == (1, 8, 13, 13)
    for head in start.heads:
        down, right = head.offset
        assert maps[0, head.head].argmax() == (down + 6) * 13 + right + 6
        assert maps[0, head.head, down + 6, right + 6] == pytest.approx(head.mass, abs=0.1)
    became = study.head_changes(start, maps, torch.ones_like(maps) / 49)
    assert (became["heads"], became["shifts_before"], became["shifts_after"]) == (8, 8, 0)
    assert became["mass_before"] > 0.5
    assert became["kept"] == sum(head.offset == (-2, -2) for head in start.heads)


def row(key, accuracy):
    return {
        **dict.fromkeys(study.MEANINGS, "0"),
        **dict(zip(study.MEANINGS, key.text, strict=False)),
        "accuracy": accuracy,
    }


def test_a_rate_is_chosen_on_the_validation_split_and_rows_are_not_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "TRAINING_SIZES", (study.TrainingSize("digits", 500, 10, ("default", "mimetic")),))
    done = []

    def run(key):
        done.append(key)
        best = {"default": 0.01, "mimetic": 0.005}[key.arm]
        share = 0.6 + 0.01 * key.seed + (0.2 if key.rate == best else 0) + (0.05 if key.arm != "default" else 0)
        return row(key, share)

    monkeypatch.setattr(study, "run_start", run)
    path = tmp_path / "rows.csv"
    page = study.page_of(study.train_missing(path))
    assert len(done) == 2 * (len(study.START_RATES) + len(study.START_SEEDS))
    assert {key.rate for key in done if key.arm == "default" and not key.held_out} == {0.01}
    assert all(key.held_out for key in done if key.seed == study.RATE_SEED)
    assert "| digits 500 x 10 | default | 0.01  | 5 of 5 | 82.00 +- 0.71 | - |" in page
    assert "| 0.005  | 5 of 5 | 87.00 +- 0.71 | 5.00 +- 0.00 (p <.001, <.001) |" in page
    study.train_missing(path)
    assert len(done) == 2 * (len(study.START_RATES) + len(study.START_SEEDS))


def test_the_program_prints_the_tables_of_the_page(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["starts.py", str(DOCS / "experiments" / "starts.csv"), "--show"])
    runpy.run_path(study.__file__, run_name="__main__")
    assert capsys.readouterr().out.strip() in (DOCS / "experiments.md").read_text()


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [("absent/rows.csv", None, "C2A301"), ("rows.csv", b"PK\xcf", "C2A301"), ("rows.csv", b"a,b\n1,2\n", "C2A303")],
)
def test_a_table_of_something_else_ends_in_a_sentence_before_a_run(name, content, code, tmp_path, monkeypatch, capsys):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr("sys.argv", ["starts.py", str(path)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(study.__file__, run_name="__main__")
    assert ended.value.code == 2
    assert code in capsys.readouterr().err
    assert content is None or path.read_bytes() == content


def test_the_figure_is_of_the_rows():
    starts, figure = Starts.read(DOCS / "experiments" / "starts.csv"), (DOCS / "starts-curves.svg").read_text()
    assert study.digest_of(starts) in figure
    planted = {**starts.rows[-1], "curve": starts.rows[-1]["curve"].replace("0.", "0.0", 1)}
    assert study.digest_of(Starts((*starts.rows[:-1], planted))) not in figure


@pytest.mark.parametrize("arm", ["shift-3-2/torch", "image-2/torch", "faster-5/torch"])
def test_one_run_is_one_row(arm):
    key = RunKey("digits", 100, 1, arm, 0.005, 0)
    found = study.run_start(key)
    planted = {"mass_before", "mass_after", "kept"} if arm.startswith("shift") else set()
    assert set(found) == set(study.MEANINGS) - {"mass_before", "mass_after", "kept"} | planted
    assert 0 <= found["accuracy"] <= 1
    assert not planted or study.run_start(key)["accuracy"] == found["accuracy"]


def test_gains_in_the_text_are_those_of_the_rows():
    """The sentences of the page on numbers that its tables hold, written anew from the rows."""
    starts, text = (
        Starts.read(DOCS / "experiments" / "starts.csv"),
        " ".join((DOCS / "experiments.md").read_text().split()),
    )
    first, over = starts.gains_over_default(), starts.gains_over_anchors()

    def gain(where, arm, anchor="default/torch"):
        (found,) = [each for (size, *pair), each in over.items() if (size.text, *pair) == (where, arm, anchor)]
        return found

    def mean(found):
        return np.mean(found.values)

    default, shifts, controls = "default/torch", "shift-3-2/torch", ("far-2/torch", "random-2/torch", "image-2/torch")
    small, large, longer = "fashion-mnist 500 x 20", "fashion-mnist 2000 x 10", "fashion-mnist 500 x 60"
    (once,) = [each for (size, arm, _), each in first.items() if (size.text, arm) == (large, shifts)]
    assert f"({mean(once):.2f} and {mean(gain(large, shifts)):.2f})" in text
    both = [mean(gain(where, arm)) for where in (small, large) for arm in controls]
    of_shifts = sorted(mean(gain(where, shifts)) for where in (small, large))
    beside = f"where shifts are by {of_shifts[0]:.1f} and {of_shifts[1]:.1f}"
    assert f"by {min(both):.1f} to {max(both):.1f} points on 500 and 2,000 images, {beside}" in text
    above = [gain(small, arm, shifts) for arm in controls]
    far, random, image = (f"{each.p:.2f}"[1:] for each in above)
    assert (
        f"{min(map(mean, above)):.1f} to {max(map(mean, above)):.1f} points (p alone {far}, {random} and {image})"
        in text
    )
    later, before = ([gain(where, arm) for arm in (shifts, *controls)] for where in (longer, small))
    left, had = (f"{min(map(mean, each)):.1f} to {max(map(mean, each)):.1f}" for each in (later, before))
    assert f"torch's draw of {left} points are left of {had}" in text
    assert max(each.p for each in later) < 0.04
    assert not any(each.clear for each in later)
    far, random, image = (study.in_short(gain("fashion-mnist/timm-small 500 x 20", arm).p) for arm in controls)
    assert f"is {far}, {random} and {image} for" in text
    assert f"and {gain('fashion-mnist/timm-small 500 x 20', shifts).p:.2f} for shifts".replace("0.", ".") in text
    timm = [
        each
        for (size, arm, anchor), each in over.items()
        if size.data in ("fashion-mnist/timm", "fashion-mnist/timm-large") and default not in (arm, anchor)
    ]
    assert max(map(mean, timm)) < 2.2
    drawn = [each for (size, _, anchor), each in over.items() if "timm" in size.data and anchor == default]
    assert sorted(map(mean, drawn))[4] > 10
    assert max(map(mean, drawn)) < 13
    assert not any(each.clear for each in (*timm, *drawn))


def test_a_draw_of_torch_is_torchs_and_leaves_the_generator_alone():
    """Within a tenth of a deviation, since both are uniform; the network's own draw has another deviation."""
    network, drawn = (VisionTransformer(TransformerPlan(layers=2, drawn=how)) for how in ("vit", "torch"))
    state = torch.get_rng_state()
    study.draw_as_torch(network, 0)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in network.named_parameters():
        if name.endswith("linear1.weight") or name == "classify.weight":
            expected = float(dict(drawn.named_parameters())[name].detach().std())
            assert value.detach().std() == pytest.approx(expected, rel=0.1)

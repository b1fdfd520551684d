"""The tables: exact counts of parameters, and FLOPs as the paper counted them and counted alike.

The counts are the paper's, each with its own sum by hand.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from conv2attn.lab.training import TrainingRecipe
from conv2attn.layers.attention import ScoreTerms
from conv2attn.networks.zoo import AttentionClassifier, ClassifierPlan, ResNet, ResNetPlan
from conv2attn.verdicts import Verdict
from studies.paper import MODELS, count_weight_flops, recipes, reproduce_tables
from studies.pruning import count_flops, count_parameters

PAPER = recipes(TrainingRecipe("quadratic"), Path("runs"))
EXACT = {
    "quadratic": (ClassifierPlan(), 12_086_844),
    "generalised": (ClassifierPlan("generalised"), 12_087_006),
    "pruned": (ClassifierPlan("generalised", heads=(7, 5, 8, 7, 3, 9)), 9_686_916),
    "content": (ClassifierPlan("learned", ScoreTerms.of("qk+qr")), 29_484_282),
    "q.k + v.r, 400": (ClassifierPlan("learned", ScoreTerms.of("qk+vr")), 29_601_882),
    "q.k + v.r, 200": (ClassifierPlan("learned", ScoreTerms.of("qk+vr"), positions=200), 29_505_882),
    "16 heads": (ClassifierPlan(heads=16), 18_806_970),
    "learned, 400": (ClassifierPlan("learned"), 12_278_682),
    "learned, 200": (ClassifierPlan("learned", positions=200), 12_182_682),
    "resnet": (ResNetPlan(classes=10, stem="cifar"), 11_173_962),
}


def counted(plan):
    with torch.device("meta"):
        return count_parameters(AttentionClassifier(plan) if isinstance(plan, ClassifierPlan) else ResNet(plan))


@pytest.mark.parametrize("name", EXACT)
def test_parameters_are_the_exact_counts_of_the_architecture(name):
    plan, count = EXACT[name]
    assert counted(plan) == count


@pytest.fixture(scope="module")
def tables():
    return reproduce_tables()


def test_every_number_that_the_paper_prints_is_found_again(tables):
    assert tables.verdict is Verdict.HOLDS
    assert {row.key for row in tables.rows} == {model.key for model in MODELS} == {*PAPER}


def test_figure_14_has_a_row_of_its_own_counts_and_none_of_the_paper_s(tables):
    (row,) = [row for row in tables.rows if row.key == "many-heads"]
    assert (row.parameters, row.paper_accuracy, row.paper_parameters, row.paper_flops) == (18_806_970, None, "", "")
    plan = next(model.plan for model in MODELS if model.key == "many-heads")
    assert plan == replace(ClassifierPlan(), heads=PAPER["many-heads"].heads)


def test_the_verdict_says_that_it_is_row_by_row(tables):
    assert tables.summary == "holds: Tables 1 and 4, row by row; 12.3M with D_p = 800, 29.5M with 400"


def test_a_changed_network_is_noticed(tables):
    for change in ({"parameters": 12_182_682}, {"weight_flops": 5_000_000_000}):
        wrong = replace(
            tables, rows=tuple(replace(row, **change) if row.key == "quadratic" else row for row in tables.rows)
        )
        assert wrong.exit_code == 1
        assert "Differs: quadratic: " in wrong.to_text()


def test_flops_are_those_counted_by_hand(tables):
    """2 per multiply-add on 256 tokens of width 400: embedding, six layers of (mixing) 9 * 400 -> 400, 400 -> 400,
    400 -> 512 -> 400, and the classifier; learned scores are the products of 31 shifts
    an axis, of each head, or where queries meet them of each query.
    """
    rows = {(row.key, row.note): row for row in tables.rows}
    tokens, width, heads, layers = 256, 400, 9, 6
    linear = heads * width * width + width * width + 2 * width * 512
    ends = tokens * 12 * width + width * 10
    weights = 2 * (layers * tokens * linear + ends)
    mixing = 2 * layers * heads * tokens * tokens * width
    quadratic = rows["quadratic", ""]
    assert quadratic.weight_flops == weights
    assert quadratic.flops == weights + mixing
    scores = 2 * layers * 2 * heads * 31 * 400
    assert rows["learned", "D_p = 800"].flops == weights + mixing + scores
    projections, products = 2 * layers * tokens * 2 * heads * width * width, mixing
    content, met = rows["content", "D_p = 400"], 2 * layers * tokens * heads * 31 * 400
    assert content.weight_flops == weights + projections
    assert content.flops == weights + projections + mixing + met + products
    pruned = rows["pruned", ""]
    assert pruned.weight_flops == weights - 2 * tokens * 15 * width * width
    assert pruned.flops == pruned.weight_flops + mixing * 39 // 54
    assert rows["resnet", ""].flops == rows["resnet", ""].weight_flops == pytest.approx(1.111e9, rel=1e-3)


def test_convolutions_count_as_products_with_weights():
    network = nn.Conv2d(3, 5, 3, padding=1)
    assert count_flops(network, (3, 6, 7)) == count_weight_flops(network, (3, 6, 7)) == 2 * 5 * 6 * 7 * 27

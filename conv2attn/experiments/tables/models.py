"""The models of Tables 1 and 4, with the numbers that the paper prints for them."""

from dataclasses import dataclass, replace
from typing import final

from conv2attn.models.zoo import ClassifierPlan, ResNetPlan

PAPER = ClassifierPlan()
PRUNED = (7, 5, 8, 7, 3, 9)
"""Heads that are left in each layer once [2, 4, 1, 2, 6, 0] of nine are pruned (App. E)."""


@final
@dataclass(frozen=True)
class PaperModel:
    """A row of the tables.

    Args:
        key: a short name.
        title: as the paper prints it.
        plan: of the network.
        accuracy, parameters, flops: as the paper prints them.
        note: distinguishes rows of the same title.
    """

    key: str
    title: str
    plan: ClassifierPlan | ResNetPlan
    accuracy: float
    parameters: str
    flops: str
    note: str = ""


GENERALISED = replace(PAPER, encoding="generalised")
LEARNED = replace(PAPER, encoding="learned")
CONTENT = replace(LEARNED, content=True)
MODELS = (
    PaperModel("resnet", "ResNet18", ResNetPlan(classes=10, stem="cifar"), 0.938, "11.2M", "1.1B"),
    PaperModel("quadratic", "quadratic", PAPER, 0.938, "12.1M", "6.2B"),
    PaperModel("generalised", "generalised", GENERALISED, 0.934, "12.1M", "6.2B"),
    PaperModel("pruned", "generalised, pruned", replace(GENERALISED, heads=PRUNED), 0.934, "9.7M", "4.9B"),
    PaperModel("learned", "learned", LEARNED, 0.918, "12.3M", "6.2B", "400 an axis"),
    PaperModel("learned", "learned", replace(LEARNED, positions=200), 0.918, "12.3M", "6.2B", "200 an axis"),
    PaperModel("content", "learned + content", CONTENT, 0.871, "29.5M", "15B", "400 an axis"),
    PaperModel("content", "learned + content", replace(CONTENT, positions=200), 0.871, "29.5M", "15B", "200 an axis"),
)
"""The paper's text says floor(D_p / 2) = 200 numbers an axis with D_p = 400; no one width gives both of its counts."""

"""Networks that are built from a plan: residual networks, and the paper's attention classifier."""

from conv2attn.networks.zoo.classifier import AttentionClassifier, ClassifierPlan
from conv2attn.networks.zoo.resnet import ResNet, ResNetPlan, recognise_resnet

__all__ = [
    "AttentionClassifier",
    "ClassifierPlan",
    "ResNet",
    "ResNetPlan",
    "recognise_resnet",
]

"""Networks that are built from a plan: residual networks, and the attention-only classifier of the paper."""

from conv2attn.models.zoo.classifier import AttentionClassifier, ClassifierPlan
from conv2attn.models.zoo.resnet import ResNet, ResNetPlan

__all__ = ["AttentionClassifier", "ClassifierPlan", "ResNet", "ResNetPlan"]

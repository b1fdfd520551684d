"""Callbacks: what heads become is logged after each epoch, by Lightning and by transformers' Trainer."""

import pytest
import pytorch_lightning as lightning
import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import conv2attn
from conv2attn.callbacks import head_numbers, heads_in_lightning, heads_in_trainer
from studies.transformer import TransformerPlan, VisionTransformer

IMAGES, LABELS = torch.randn(8, 1, 12, 12), torch.arange(8) % 3
pytestmark = pytest.mark.filterwarnings("ignore")  # of Lightning and transformers


def started():
    torch.manual_seed(0)
    network = VisionTransformer(TransformerPlan(side=12, patch=2, width=32, heads=2, layers=2, hidden=32, classes=3))
    conv2attn.start_at_convolution(network, alpha=6.0)
    return network


def test_numbers_count_every_head_and_do_not_touch_the_network():
    network = started().train()
    numbers = head_numbers(network, IMAGES)
    for layer in ("layers.0.self_attn", "layers.1.self_attn"):
        own = {name: value for name, value in numbers.items() if name.startswith(f"heads/{layer}/")}
        kinds = {name: value for name, value in own.items() if "/conv" not in name}
        assert sum(kinds.values()) == 2
        planted = [own.get(f"heads/{layer}/{kind}", 0) for kind in ("shift", "itself")]
        assert sum(planted) == 2  # one of them at displacement zero, or both elsewhere
        assert any("/conv3" in name for name in own)
    assert network.training


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.vit = started()

    def training_step(self, batch, index):
        return torch.nn.functional.cross_entropy(self.vit(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def test_lightning_logs_them(tmp_path):
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[heads_in_lightning(IMAGES, network="vit")],
        default_root_dir=tmp_path,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    module = Module()
    trainer.fit(module, DataLoader(TensorDataset(IMAGES, LABELS), batch_size=4))
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert logged == pytest.approx(head_numbers(module.vit, IMAGES), abs=1e-6)


def test_the_trainer_of_transformers_logs_them(tmp_path):
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = ViTForImageClassification(ViTConfig(**sizes, image_size=12, patch_size=2, num_channels=1, num_labels=3))
    conv2attn.start_at_convolution(model)
    data = [{"pixel_values": image, "labels": label} for image, label in zip(IMAGES, LABELS, strict=True)]
    arguments = TrainingArguments(
        tmp_path / "out", num_train_epochs=2, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True
    )
    trainer = Trainer(model, arguments, train_dataset=data)
    heads_in_trainer(trainer, IMAGES)
    trainer.train()
    rows = [row for row in trainer.state.log_history if any(name.startswith("heads/") for name in row)]
    assert [row["epoch"] for row in rows] == [1.0, 2.0]
    last = {name: value for name, value in rows[-1].items() if name.startswith("heads/")}
    assert last == pytest.approx(head_numbers(model, IMAGES), abs=1e-6)

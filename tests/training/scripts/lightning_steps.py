# mypy: ignore-errors
"""Trains small models with Lightning in several ways; the last line tells what the models themselves saw."""

import json
import warnings

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

import pulsetrain

warnings.simplefilter("ignore")
told = {}


class Parts:
    """A model, but for its base class, which Lightning has under two names."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.losses = []

    def training_step(self, batch, index):
        loss = self.layer(batch[0]).square().mean()
        self.losses.append(loss.item())
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.layer(batch[0]).square().mean())

    def test_step(self, batch, index):
        self.log("test_loss", self.layer(batch[0]).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Model(Parts, lightning.LightningModule):
    pass


class Gan(Model):
    """Two optimizers, each of which steps once a batch."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.other = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        for optimizer, layer in zip(self.optimizers(), (self.layer, self.other), strict=True):
            optimizer.zero_grad()
            self.manual_backward(layer(batch[0]).square().mean())
            optimizer.step()

    def configure_optimizers(self):
        return [torch.optim.SGD(layer.parameters(), lr=0.01) for layer in (self.layer, self.other)]


class Dies(Model):
    def training_step(self, batch, index):
        if index == 2:
            raise RuntimeError("the user's model raises")
        return super().training_step(batch, index)


def trainer(package=lightning, **options):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
    return package.Trainer(**{**quiet, "enable_checkpointing": False, **options})


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=4)
held_out = DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=4)

# Ten batches an epoch, three to a step: the last step of an epoch has but one.
pulsetrain.set_training("accumulated")
model, accumulated = Model(), trainer(max_epochs=2, accumulate_grad_batches=3)
model.save_hyperparameters({"lr": 0.01, "layers": {"width": 4}})
accumulated.fit(model, loader, held_out)
accumulated.save_checkpoint("model.ckpt")
told["accumulated"] = {"global_step": accumulated.global_step, "losses": model.losses}

pulsetrain.set_training("resumed")
model, resumed = Model(), trainer(max_epochs=3, accumulate_grad_batches=3)
resumed.fit(model, loader, ckpt_path="model.ckpt")
told["resumed"] = {
    "global_step": resumed.global_step,
    "callbacks": sorted(torch.load("model.ckpt", weights_only=False)["callbacks"]),
}

# Ends in the middle of an epoch; then it is validated and tested.
pulsetrain.set_training("tested")
tested, model = trainer(max_steps=14, max_epochs=-1), Model()
tested.fit(model, loader)
(validated,), (measured,) = tested.validate(model, held_out, verbose=False), tested.test(model, held_out, verbose=False)
told["tested"] = {**validated, **measured}

pulsetrain.set_training("two optimizers")
gan = trainer(max_steps=20)
gan.fit(Gan(), loader)
told["two optimizers"] = {"global_step": gan.global_step}

pulsetrain.set_training("died")
try:
    trainer(max_epochs=1).fit(Dies(), loader)
except RuntimeError as error:
    told["died"] = str(error)

pulsetrain.set_training("plain")
layer = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    layer(torch.ones(2, 4)).sum().backward()
    optimizer.step()
told["plain"] = None

# Lightning's other name, with a checkpoint at the end of the epoch; validated in its middle, too.
import pytorch_lightning  # noqa: E402


class OtherModel(Parts, pytorch_lightning.LightningModule):
    pass


pulsetrain.set_training("pytorch_lightning")
model = OtherModel()
other = trainer(
    pytorch_lightning, max_epochs=1, enable_checkpointing=True, val_check_interval=0.5, num_sanity_val_steps=0
)
other.fit(model, loader, held_out)
told["pytorch_lightning"] = {"losses": model.losses, "val_loss": other.callback_metrics["val_loss"].item()}

print(json.dumps(told))

"""Lightning: a small network learns the sine of its input, with a validation pass after each epoch.

pulsetrain run -- python examples/lightning_mlp.py
"""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Sine(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(1, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        loss = nn.functional.mse_loss(self.network(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        self.log("val_loss", nn.functional.mse_loss(self.network(batch[0]), batch[1]))

    def on_train_epoch_end(self) -> None:
        metrics = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch + 1}: loss {metrics['train_loss']:.4f}, validation {metrics['val_loss']:.4f}")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def sines(size: int) -> TensorDataset:
    x = torch.rand(size, 1) * 12 - 6
    return TensorDataset(x, x.sin())


def main() -> None:
    torch.set_num_threads(1)  # more would only get in each other's way in a model this small
    lightning.seed_everything(0, verbose=False)
    trainer = lightning.Trainer(
        max_epochs=4,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(
        Sine(),
        DataLoader(sines(6400), batch_size=64, shuffle=True),
        DataLoader(sines(640), batch_size=64),
    )


if __name__ == "__main__":
    main()

"""Ray Train: two workers on this machine train one PyTorch model. Ray starts them; pulsetrain sees each as a rank.

pulsetrain run -- python examples/ray_train.py
"""

import tempfile

import ray
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch.utils.data import DataLoader, TensorDataset

WORKERS = 2


def train_on_a_worker() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(4096, 32)
    y = (x[:, :4].sum(1, keepdim=True) > 0).float()
    loader = prepare_data_loader(DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True))
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(1, 4):
        for batch, answers in loader:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(batch), answers)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ray.train.report({"epoch": epoch, "loss": loss.item()})


def main() -> None:
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            train_on_a_worker,
            scaling_config=ScalingConfig(num_workers=WORKERS, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(storage_path=folder),
        )
        trainer.fit()
    ray.shutdown()


if __name__ == "__main__":
    main()

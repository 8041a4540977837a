# ruff: noqa: E402 - the packages of the trackers are found first
"""Logs to all four trackers at once, as nobody should. Each value has a step, and most have several sources."""

import os
import site
import sys
from types import ModuleType

site.addsitedir(os.environ["TRACKERS"])  # after the packages of this environment
sys.modules["tensorboard.compat.notf"] = ModuleType("notf")  # TensorBoard would import TensorFlow, for a long time

import mlflow
import torch
import trackio
import wandb
from tensorboardX import SummaryWriter as OtherWriter
from torch.utils.tensorboard import SummaryWriter

mlflow.set_tracking_uri("sqlite:///mlflow.db")
mlflow.set_experiment("all")
run = wandb.init(project="all", id="abc123", mode="offline", config={"lr": 0.1, "depth": 3})
mine = trackio.init(project="all", name="mine", config={"width": 8})
board, other = SummaryWriter("board"), OtherWriter("other")

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with mlflow.start_run():
    mlflow.log_params({"batch": 16})
    for step in range(1, 21):
        loss = model(torch.randn(16, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shared = torch.tensor(step / 10)
        wandb.log({"shared": shared, "nested": {"deep": step}, "picture": "none"}, step=step)
        board.add_scalar("shared", shared, step)
        other.add_scalar("shared", shared, step)
        mlflow.log_metric("shared", float(shared), step=step)
        trackio.log({"shared": float(shared), "only_trackio": step}, step=step)
        board.add_scalars("both", {"a": step, "b": -step}, step)
        mlflow.log_metrics({"only_mlflow": step, "system/cpu": 1.0}, step=step)
        other.add_scalar("only_x", step, step)
board.close()
other.close()
trackio.finish()
wandb.finish()

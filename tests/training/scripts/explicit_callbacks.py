# mypy: ignore-errors
"""Our callbacks, given to each framework by the program itself, where nothing else is instrumented."""

import json
import pickle
import warnings

import keras
import lightning
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import pulsetrain
from pulsetrain.training.keras import PulsetrainCallback as KerasCallback
from pulsetrain.training.legacy import GPUMonitoringCallback
from pulsetrain.training.lightning import PulsetrainCallback as LightningCallback
from pulsetrain.training.transformers import PulsetrainCallback as TransformersCallback

warnings.simplefilter("ignore")
told = {"watched": hasattr(torch, "_pulsetrain_watches")}


def trainer(callback):
    size = {"vocab_size": 32, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
    rows = torch.randint(0, 32, (32, 16))
    return Trainer(
        GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0)),
        TrainingArguments(
            output_dir="out",
            max_steps=4,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            logging_steps=2,
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
        ),
        train_dataset=[{"input_ids": row, "labels": row} for row in rows],
        callbacks=[callback],
    )


pulsetrain.set_training("transformers")
made = trainer(TransformersCallback())
made.train()
told["transformers"] = [entry["loss"] for entry in made.state.log_history if "loss" in entry]

pulsetrain.set_training("older")
callback = GPUMonitoringCallback(None, log_interval=2)
trainer(callback).train()
told["older"] = isinstance(callback, TrainerCallback)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.losses = []

    def training_step(self, batch, index):
        loss = self.layer(batch[0]).square().mean()
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit(**options):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
    model = Model()
    lightning.Trainer(
        max_epochs=1, enable_checkpointing=False, callbacks=[LightningCallback()], **quiet, **options
    ).fit(model, DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=4))
    return model.losses


pulsetrain.set_training("lightning")
told["lightning"] = fit()
pulsetrain.set_training("lightning accumulated")
told["lightning accumulated"] = fit(accumulate_grad_batches=5)

pulsetrain.set_training("keras")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(0.0), loss="mse")
x = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
model.fit(x, x[:, :1], batch_size=4, shuffle=False, verbose=0, callbacks=[KerasCallback()])
errors = ((np.asarray(model.predict(x, verbose=0)) - x[:, :1]) ** 2)[:, 0]
told["keras"] = [float(errors[begin : begin + 4].mean()) for begin in range(0, 40, 4)]

told["pickled"] = [
    type(pickle.loads(pickle.dumps(kind()))) is kind for kind in (TransformersCallback, LightningCallback)
]
print("\n" + json.dumps(told))

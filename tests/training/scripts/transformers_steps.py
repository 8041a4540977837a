# mypy: ignore-errors
"""Trains a tiny model with the Trainer in several ways; the last line tells what the Trainer itself counted."""

import json

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

import pulsetrain

told = {}


def model():
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    )


def data(size):
    rows = torch.randint(0, 32, (size, 16))
    lengths = torch.randint(4, 16, (size,))  # so that micro batches have different numbers of labels
    labels = torch.where(torch.arange(16) < lengths[:, None], rows, -100)
    return [{"input_ids": row, "labels": label} for row, label in zip(rows, labels, strict=True)]


def arguments(**options):
    settings = {
        "output_dir": "out",
        "report_to": "none",
        "disable_tqdm": True,
        "logging_steps": 1,
        "save_strategy": "no",
    }
    return TrainingArguments(**{**settings, "per_device_train_batch_size": 4, **options})


def logged(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def tell(name, trainer):
    told[name] = {
        "global_step": trainer.state.global_step,
        "max_steps": trainer.state.max_steps,
        "losses": logged(trainer, "loss"),
        "epochs": [entry["epoch"] for entry in trainer.state.log_history if "loss" in entry],
        "learning_rates": logged(trainer, "learning_rate"),
        "gradient_norms": logged(trainer, "grad_norm"),
        "eval_losses": logged(trainer, "eval_loss"),
    }


set_seed(0)
training_data, evaluation_data = data(40), data(8)

# Ten batches an epoch, three to a step: the last step of an epoch has but one.
pulsetrain.set_training("accumulated")
accumulated = arguments(
    num_train_epochs=2, gradient_accumulation_steps=3, eval_strategy="epoch", save_strategy="steps", save_steps=3
)
trainer = Trainer(model(), accumulated, train_dataset=training_data, eval_dataset=evaluation_data)
trainer.train()
tell("accumulated", trainer)

pulsetrain.set_training("evaluated")
told["evaluated"] = {
    "eval_loss": trainer.evaluate()["eval_loss"],
    "test_loss": trainer.predict(evaluation_data).metrics["test_loss"],
}

pulsetrain.set_training("resumed")
resumed = arguments(num_train_epochs=2, gradient_accumulation_steps=3, save_strategy="no")
trainer = Trainer(model(), resumed, train_dataset=training_data)
trainer.train(resume_from_checkpoint="out/checkpoint-6")
tell("resumed", trainer)

# Without clipping, and with a callback of ours beside the one that every Trainer has. Twice with one optimizer.
from pulsetrain.training.transformers import PulsetrainCallback  # noqa: E402

pulsetrain.set_training("twice")
trainer = Trainer(
    model(), arguments(max_steps=4, max_grad_norm=0.0), train_dataset=training_data, callbacks=[PulsetrainCallback()]
)
trainer.train()
trainer.train()
tell("twice", trainer)


class Stops(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            raise RuntimeError("the user's callback raises")


# A training that dies, and after it, as in a notebook, a plain loop.
pulsetrain.set_training("died")
try:
    Trainer(model(), arguments(max_steps=4), train_dataset=training_data, callbacks=[Stops()]).train()
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

print(json.dumps(told))

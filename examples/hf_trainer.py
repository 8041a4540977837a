"""The Hugging Face Trainer: a tiny GPT-2, made from a configuration, learns to count. Nothing is downloaded.

pulsetrain run -- python examples/hf_trainer.py
"""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

WORDS = 64


def counting(size: int, length: int = 32) -> list[dict[str, torch.Tensor]]:
    """Sequences that count up from some number by some stride, modulo the size of the vocabulary."""
    start, stride = torch.randint(0, WORDS, (size, 1)), torch.randint(1, 5, (size, 1))
    numbers = (start + stride * torch.arange(length)) % WORDS
    return [{"input_ids": row, "labels": row} for row in numbers]


def main() -> None:
    torch.set_num_threads(1)  # more would only get in each other's way in a model this small
    set_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=WORDS, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                max_steps=60,
                per_device_train_batch_size=16,
                gradient_accumulation_steps=2,
                learning_rate=3e-3,
                logging_steps=15,
                eval_strategy="steps",
                eval_steps=30,
                save_strategy="no",
                disable_tqdm=True,
                dataloader_pin_memory=False,
                report_to="none",
            ),
            train_dataset=counting(2048),
            eval_dataset=counting(128),
        )
        trainer.train()


if __name__ == "__main__":
    main()

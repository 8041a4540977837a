"""Models: their settings, 4-bit weights where the device can, and adapters."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from finetuning import Problem

SETTINGS = Path(__file__).with_name("models.toml")


@dataclass(frozen=True)
class ModelConfig:
    """A section of models.toml, which explains the fields."""

    targets: list[str] | str
    rank: int
    alpha: int
    learning_rate: float
    max_length: int
    batch_size: int
    accumulate: int
    epochs: float = 3
    packages: tuple[str, ...] = ()
    model: str = ""
    access: str = ""
    memory: str = ""
    train_embeddings: bool = False
    random: dict[str, int] = field(default_factory=dict)
    """Sizes of a Llama with random weights, made here instead of downloaded."""


def model_config(name: str) -> ModelConfig:
    sections = tomllib.loads(SETTINGS.read_text())
    if name not in sections:
        raise Problem(
            f"there is no model config {name!r}",
            f"Choose one of {', '.join(sections)}, or add a section to {SETTINGS}.",
        )
    return ModelConfig(**sections[name])


def make_tiny(config: ModelConfig, texts: Iterable[str], folder: Path) -> str:
    """Write a model with random weights, and a tokenizer that has learned from `texts`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    if (folder / "config.json").exists():
        return str(folder)  # a resumed training needs the same weights
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<pad>", "<eos>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=config.random["vocab_size"], special_tokens=special, initial_alphabet=alphabet
    )
    tokenizer.train_from_iterator(texts, trainer)
    names = dict(zip(("pad_token", "eos_token"), special, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    sizes = {**config.random, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    LlamaForCausalLM(LlamaConfig(max_position_embeddings=config.max_length, **sizes)).save_pretrained(folder)
    return str(folder)


def why_not_4_bit(device: str) -> str | None:
    """None when bitsandbytes can compute with 4-bit weights on this device: it is tried."""
    try:
        import bitsandbytes
        import torch
        from bitsandbytes.functional import dequantize_4bit, quantize_4bit
    except ImportError as error:
        return f"bitsandbytes is not installed ({error}); pip install bitsandbytes"
    try:
        packed, state = quantize_4bit(torch.ones(64, 64, device=device), quant_type="nf4")
        dequantize_4bit(packed, state)
    except Exception as error:  # noqa: BLE001 - whatever its kernels raise on a device that they do not know
        return f"bitsandbytes {bitsandbytes.__version__} does not support {device} here: {error}"
    return None


def load(name: str, config: ModelConfig, device: str, *, four_bit: bool) -> tuple[Any, Any]:
    """The model, ready for adapters, and its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

    dtype = torch.bfloat16 if device.startswith("cuda") and torch.cuda.is_bf16_supported() else torch.float32
    options: dict[str, Any] = {"dtype": dtype, "device_map": {"": device}}
    if four_bit:
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        model = AutoModelForCausalLM.from_pretrained(name, **options)
    except OSError as error:  # what transformers raises for no network, no such model, no access
        reason = str(error).strip().splitlines()[0]
        hint = f"First {config.access}." if config.access else "Look at its name, the network, and HF_HUB_OFFLINE."
        raise Problem(f"{name} cannot be loaded: {reason}", hint) from None
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model, tokenizer


def add_adapters(model: Any, config: ModelConfig, *, four_bit: bool) -> Any:
    """The model with frozen weights, and small trained matrices beside its linear layers."""
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    if four_bit:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    model.config.use_cache = False
    return get_peft_model(
        model,
        LoraConfig(
            r=config.rank,
            lora_alpha=config.alpha,
            lora_dropout=0.05,
            target_modules=config.targets,
            modules_to_save=["embed_tokens", "lm_head"] if config.train_embeddings else None,
            task_type="CAUSAL_LM",
        ),
    )

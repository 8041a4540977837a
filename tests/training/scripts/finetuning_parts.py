# mypy: ignore-errors
"""Adapters for each model family of the fine-tuning example, without weights; the last line has their layers."""

import json
import re
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Gemma3nTextConfig, LlamaConfig, MistralConfig, Qwen3Config
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nTextModel

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
from finetuning import models

layers = {}
for name, config in (("llama", LlamaConfig), ("qwen", Qwen3Config), ("mistral", MistralConfig)):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config(num_hidden_layers=2))
    adapted = models.add_adapters(model, models.model_config(name), four_bit=False)
    layers[name] = sorted(key.split(".")[-4] for key, _ in adapted.named_parameters() if "lora_A" in key)

# The whole of Gemma 3n needs timm for its vision tower; its language model is at model.language_model.
with torch.device("meta"):
    text = Gemma3nTextModel(
        Gemma3nTextConfig(
            num_hidden_layers=2,
            layer_types=["full_attention"] * 2,
            num_kv_shared_layers=0,
            activation_sparsity_pattern=[0.0] * 2,
        )
    )
pattern = models.model_config("gemma-3n").targets
keys = [f"model.language_model.{key}" for key, module in text.named_modules() if isinstance(module, torch.nn.Linear)]
layers["gemma-3n"] = sorted(key.rpartition(".")[2] for key in keys if re.fullmatch(pattern, key))
print("\n" + json.dumps(layers))

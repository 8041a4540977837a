"""Training data: read, checked, tokenized and packed. Nothing here needs torch."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from finetuning import Problem

FORMS = 'Each line is {"text": ...}, {"prompt": ..., "completion": ...} or {"messages": [...]}.'
IGNORED = -100
"""The label of a token that is not learned: those of prompts."""


class Row(NamedTuple):
    """One row of a batch: one example, or several packed into it."""

    input_ids: list[int]
    labels: list[int]


def read_examples(path: Path) -> list[dict[str, Any]]:
    """The examples of a JSON lines file; raises Problem."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise Problem(f"there is no file {path}", "Give --data a file of JSON lines.") from None
    except IsADirectoryError:
        raise Problem(f"{path} is a folder", "Give --data a file of JSON lines.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{path} cannot be read: {error}", "Give --data a file of JSON lines, in UTF-8.") from None
    examples = [_example(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if len(examples) < 2:
        raise Problem(f"{path} has {len(examples)} examples; at least two are needed, one of them to evaluate", FORMS)
    return examples


def _example(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        example = json.loads(line)
    except ValueError as error:
        raise Problem(f"{path}, line {number} is not JSON: {error}", FORMS) from None
    if not isinstance(example, dict):
        raise Problem(f"{path}, line {number} is not an object", FORMS)
    if isinstance(example.get("messages"), list) and example["messages"]:
        return example
    for fields in (("text",), ("prompt", "completion")):
        if all(isinstance(example.get(field), str) and example[field] for field in fields):
            return example
    raise Problem(f"{path}, line {number} has neither text, nor prompt and completion, nor messages", FORMS)


def texts(examples: list[dict[str, Any]]) -> Iterator[str]:
    """All text of the examples, for a tokenizer to learn from."""
    for example in examples:
        if "messages" in example:
            yield from (str(message.get("content", "")) for message in example["messages"])
        else:
            yield example.get("text") or example["prompt"] + example["completion"]


def tokenize(examples: list[dict[str, Any]], tokenizer: Any, max_length: int) -> list[Row]:
    """A row for each example. Of a prompt with a completion, only the completion is learned."""
    rows = []
    for number, example in enumerate(examples, 1):
        if "messages" in example:
            try:
                text = tokenizer.apply_chat_template(example["messages"], tokenize=False)
            except Exception as error:  # noqa: BLE001 - the template's own code: each model's raises what it likes
                problem = f"example {number}: the model's chat template does not accept its messages: {error}"
                raise Problem(problem, FORMS) from None
            prompt, ids = [], tokenizer(text, add_special_tokens=False)["input_ids"]
        elif "text" in example:
            prompt, ids = [], tokenizer(example["text"])["input_ids"] + [tokenizer.eos_token_id]
        else:
            prompt = tokenizer(example["prompt"])["input_ids"]
            answer = tokenizer(example["completion"], add_special_tokens=False)["input_ids"]
            ids = prompt + answer + [tokenizer.eos_token_id]
        labels = [IGNORED] * len(prompt) + ids[len(prompt) :]
        rows.append(Row(ids[:max_length], labels[:max_length]))
    return rows


def pack(rows: list[Row], max_length: int) -> list[Row]:
    """Rows put together to nearly full ones: the longest first, each into the fullest row in which it still fits."""
    packed: list[Row] = []
    by_room: list[list[Row]] = [[] for _ in range(max_length + 1)]
    for row in sorted(rows, key=lambda row: len(row.input_ids), reverse=True):
        length = len(row.input_ids)
        room = next((room for room in range(length, max_length + 1) if by_room[room]), None)
        if room is None:
            room, target = max_length, Row([], [])
            packed.append(target)
        else:
            target = by_room[room].pop()
        target.input_ids.extend(row.input_ids)
        target.labels.extend(row.labels)
        by_room[room - length].append(target)
    return packed


def padding_share(rows: list[Row], batch_size: int) -> float:
    """The share of positions that are padding when each batch is padded to its longest row."""
    positions = tokens = 0
    for start in range(0, len(rows), batch_size):
        lengths = [len(row.input_ids) for row in rows[start : start + batch_size]]
        positions += max(lengths) * len(lengths)
        tokens += sum(lengths)
    return 1 - tokens / positions if positions else 0.0


class Collator:
    """Rows as a batch of tensors, padded to the longest of them."""

    def __init__(self, pad_id: int) -> None:
        self._pad_id = pad_id

    def __call__(self, rows: list[Row]) -> dict[str, Any]:
        import torch

        longest = max(len(row.input_ids) for row in rows)

        def padded(values: list[int], filler: int) -> list[int]:
            return values + [filler] * (longest - len(values))

        return {
            "input_ids": torch.tensor([padded(row.input_ids, self._pad_id) for row in rows]),
            "labels": torch.tensor([padded(row.labels, IGNORED) for row in rows]),
            "attention_mask": torch.tensor([padded([1] * len(row.input_ids), 0) for row in rows]),
        }

"""QLoRA: fine-tune a language model with 4-bit weights and small adapters, watched by pulsetrain.

    python examples/qlora_finetune.py --model-config tiny            # on any CPU, in seconds; nothing is downloaded
    python examples/qlora_finetune.py --model-config gemma-3n --data train.jsonl --output-dir out

The data is a file of JSON lines: {"text": ...}, {"prompt": ..., "completion": ...} or {"messages": [...]}. Ctrl-C saves
a checkpoint and stops; the same command continues from it, also after a crash. At the end there is a report of the run:
where its time went, what held it back, energy, carbon, cost. It needs pulsetrain in the environment of the training, or
is started by `pulsetrain run -- python examples/qlora_finetune.py ...`.
"""

import argparse
import json
import math
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from finetuning import Problem, data, models

PACKAGES = ("torch", "transformers", "peft", "accelerate")
TINY_DATA = Path(__file__).parent / "finetuning/tiny.jsonl"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fine-tune a language model with QLoRA, watched by pulsetrain.")
    add = parser.add_argument
    add("--model-config", default="gemma-3n", metavar="NAME", help="gemma-3n, llama, qwen, mistral or tiny")
    add("--model", metavar="NAME", help="another model of the same family, or a folder")
    add("--data", type=Path, metavar="FILE", help="JSON lines; tiny brings its own")
    add("--output-dir", type=Path, default=Path("qlora-output"), metavar="DIR", help="checkpoints, adapters, report")
    add("--gpu-index", type=int, default=0, metavar="N", help="the GPU to train on and to watch")
    add("--steps", type=int, metavar="N", help="updates in all; by default --epochs counts")
    add("--epochs", type=float, metavar="N", help="passes over the data; by default 3, and 30 for tiny")
    add("--eval-share", type=float, default=0.1, metavar="SHARE", help="of the examples kept for evaluation")
    add("--save-every", type=int, default=50, metavar="STEPS", help="steps between evaluations and checkpoints")
    add("--no-packing", action="store_true", help="one example in a row, padded")
    add("--no-4bit", action="store_true", help="weights as they are")
    add("--from-scratch", action="store_true", help="delete the checkpoints of --output-dir and begin again")
    add("--monitoring-log-dir", metavar="DIR", help="where the run is recorded; by default ~/.pulsetrain/runs")
    add("--enable-prometheus", action="store_true", help="serve /metrics while it trains")
    add("--prometheus-port", type=int, default=9090, metavar="PORT", help="with --enable-prometheus")
    add("--carbon-region", metavar="REGION", help="for carbon in the report, such as DE or 'South England'")
    add("--price", metavar="PRICE", help="for cost in the report, such as '0.30 EUR/kWh'")
    return parser.parse_args()


def check_packages(config: models.ModelConfig) -> None:
    needed = (*PACKAGES, *config.packages)
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise Problem(f"missing packages: {', '.join(missing)}", f"pip install {' '.join(needed)} bitsandbytes")
    if find_spec("pulsetrain") is None:
        hint = "Run `pip install .` in a clone of it, or start this script with `pulsetrain run -- ...`."
        raise Problem("pulsetrain is not installed here", hint)


def device_of(gpu_index: int) -> str:
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device: training on the CPU", flush=True)
        return "cpu"
    if not 0 <= gpu_index < torch.cuda.device_count():
        raise Problem(f"there is no GPU {gpu_index}: this machine has {torch.cuda.device_count()}", "See --gpu-index.")
    return f"cuda:{gpu_index}"


def last_checkpoint(folder: Path) -> Path | None:
    """The newest one that was written to its end: trainer_state.json comes last. What a crash left half is removed."""
    steps = {path: path.name.removeprefix("checkpoint-") for path in folder.glob("checkpoint-*")}
    found = [path for path, step in steps.items() if step.isdecimal()]  # others are the user's own
    for path in sorted(found, key=lambda path: int(steps[path]), reverse=True):
        try:
            json.loads((path / "trainer_state.json").read_text())
        except (OSError, ValueError):
            print(f"{path} is not complete, and is removed", flush=True)
            shutil.rmtree(path)
        else:
            return path
    return None


def rows_of(
    args: argparse.Namespace, config: models.ModelConfig, examples: list[Any], tokenizer: Any
) -> tuple[Any, Any]:
    """Rows to train on and rows to evaluate; says how much of them is padding."""
    import pulsetrain

    held_out = max(1, round(len(examples) * args.eval_share))
    evaluated = data.tokenize(examples[:held_out], tokenizer, config.max_length)
    rows = data.tokenize(examples[held_out:], tokenizer, config.max_length)
    loose = data.padding_share(rows, config.batch_size)
    text = f"{len(rows)} examples, {sum(len(row.input_ids) for row in rows)} tokens, {held_out} more to evaluate; "
    if args.no_packing:
        pulsetrain.log(padding_share=loose)
        print(f"{text}padding is {loose:.0%} of the tokens", flush=True)
    else:
        rows = data.pack(rows, config.max_length)
        packed = data.padding_share(rows, config.batch_size)
        pulsetrain.log(padding_share=packed, padding_share_unpacked=loose)
        print(
            f"{text}packed into {len(rows)} rows: padding is {packed:.0%}, and would be {loose:.0%} unpacked",
            flush=True,
        )
    return rows, evaluated


def stop_on_ctrl_c() -> Any:
    """A callback that saves a checkpoint and stops after the step in which Ctrl-C came; a second one stops at once."""
    from transformers import TrainerCallback

    class StopOnCtrlC(TrainerCallback):
        stopped = False

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self.stopped:
                control.should_save = control.should_training_stop = True

    callback = StopOnCtrlC()

    def handle(number: int, frame: object) -> None:
        callback.stopped = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print("saving a checkpoint, then stopping; Ctrl-C again stops at once", flush=True)

    signal.signal(signal.SIGINT, handle)
    return callback


def make_trainer(
    args: argparse.Namespace, config: models.ModelConfig, model: Any, rows: Any, evaluated: Any, pad_id: int
) -> Any:
    import torch
    from transformers import Trainer, TrainingArguments

    import pulsetrain

    bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(args.output_dir),
            max_steps=args.steps or -1,
            num_train_epochs=args.epochs or config.epochs,
            per_device_train_batch_size=config.batch_size,
            per_device_eval_batch_size=config.batch_size,
            gradient_accumulation_steps=config.accumulate,
            gradient_checkpointing=torch.cuda.is_available(),
            learning_rate=config.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=5,
            logging_steps=10,
            eval_strategy="steps",
            eval_steps=args.save_every,
            save_strategy="steps",
            save_steps=args.save_every,
            save_total_limit=2,
            bf16=bf16,
            use_cpu=not torch.cuda.is_available(),
            remove_unused_columns=False,
            dataloader_pin_memory=torch.cuda.is_available(),
            disable_tqdm=not sys.stderr.isatty(),
            report_to="none",
        ),
        train_dataset=rows,
        eval_dataset=evaluated,
        data_collator=data.Collator(pad_id),
        callbacks=[
            stop_on_ctrl_c(),
            pulsetrain.GPUMonitoringCallback(pulsetrain.GPUMonitor(args.gpu_index), log_interval=10),
        ],
    )


def train(args: argparse.Namespace) -> int:
    config = models.model_config(args.model_config)
    if args.data is None and not config.random:
        raise Problem("there is no --data", data.FORMS)
    examples = data.read_examples(args.data or TINY_DATA)
    check_packages(config)
    if args.from_scratch:
        for old in (*args.output_dir.glob("checkpoint-*"), args.output_dir / "base"):
            shutil.rmtree(old, ignore_errors=True)
    try:
        args.output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(f"{args.output_dir} cannot be made: {error.strerror}", "See --output-dir.") from None

    import pulsetrain

    device = device_of(args.gpu_index)
    run = pulsetrain.init(
        name=f"qlora-{args.model_config}",
        config={**vars(args), **vars(config)},
        directory=args.monitoring_log_dir,
        gpus=str(args.gpu_index) if device != "cpu" else None,
        prometheus_port=args.prometheus_port if args.enable_prometheus else None,
        carbon_region=args.carbon_region,
        price=args.price,
    )
    try:
        code = fine_tune(args, config, examples, device)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        pulsetrain.finish(exit_code=1)
        raise
    pulsetrain.finish(exit_code=code)
    if run:
        write_report(run, args.output_dir)
    return code


def fine_tune(args: argparse.Namespace, config: models.ModelConfig, examples: list[Any], device: str) -> int:
    from transformers import set_seed

    set_seed(0)
    name = args.model or config.model
    if config.random:
        name = models.make_tiny(config, data.texts(examples), args.output_dir / "base")
    reason = "--no-4bit" if args.no_4bit else models.why_not_4_bit(device)
    print(f"4-bit weights: {'on' if reason is None else f'off: {reason}'}", flush=True)
    model, tokenizer = models.load(name, config, device, four_bit=reason is None)
    model = models.add_adapters(model, config, four_bit=reason is None)
    trained, total = model.get_nb_trainable_parameters()
    print(f"{trained:,} of {total:,} parameters are trained ({trained / total:.1%})", flush=True)
    rows, evaluated = rows_of(args, config, examples, tokenizer)
    trainer = make_trainer(args, config, model, rows, evaluated, tokenizer.pad_token_id)
    checkpoint = last_checkpoint(args.output_dir)
    if checkpoint:
        print(f"continuing from {checkpoint}", flush=True)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if trainer.state.global_step < trainer.state.max_steps:
        print(
            f"stopped after step {trainer.state.global_step} of {trainer.state.max_steps}; the same command continues"
        )
        return 130
    loss = trainer.evaluate()["eval_loss"]
    trainer.save_model(str(args.output_dir / "adapters"))
    print(
        f"evaluation: loss {loss:.4f}, perplexity {math.exp(loss):.2f}; adapters are in {args.output_dir / 'adapters'}"
    )
    return 0


def write_report(run: Any, folder: Path) -> None:
    """The report as a page; under `pulsetrain run` the run has not ended, and its own summary follows."""
    command = [sys.executable, "-P", "-m", "pulsetrain", "report", run.folder, "--html", "--output", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    written = done.returncode == 0
    print(f"report: {folder / 'report.html' if written else f'pulsetrain report {run.id} --html'}", flush=True)


def main() -> int:
    args = arguments()
    try:
        return train(args)
    except Problem as problem:
        print(f"error: {problem}" + (f"\n  hint: {problem.hint}" if problem.hint else ""), file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

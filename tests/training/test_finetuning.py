"""The fine-tuning example as a user runs it: trained for real, stopped, continued, and started wrong."""

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.training.trained import Train
from tests.waiting import eventually

EXAMPLE = Path(__file__).parents[2] / "examples/qlora_finetune.py"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The user's interpreter finds pulsetrain and what it needs, behind its own packages."""
    (tmp_path / "site").mkdir()
    ours = sysconfig.get_path("purelib")
    (tmp_path / "site/sitecustomize.py").write_text(f"import site; site.addsitedir({ours!r})")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PULSETRAIN_", "PYTHON"))}
    own = {"PYTHONPATH": str(tmp_path / "site"), "PULSETRAIN_HOME": str(tmp_path / "home")}
    return kept | own | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PULSETRAIN_SIMULATE": "1xL4"}


def test_a_stopped_training_continues_from_its_checkpoint_and_ends_with_a_report(
    user_python: str, environment: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    words = ["--model-config", "tiny", "--output-dir", str(output), "--save-every", "2"]
    words += ["--monitoring-log-dir", str(tmp_path / "runs"), "--carbon-region", "DE", "--price", "0.30 EUR/kWh"]
    command = [user_python, "-W", "ignore", str(EXAMPLE), *words, "--enable-prometheus", "--prometheus-port", "0"]

    endless = [*command, "--steps", "1000000"]
    with subprocess.Popen(endless, env=environment, stdout=-1, stderr=subprocess.STDOUT, text=True) as first:
        eventually(lambda: (output / "checkpoint-2/trainer_state.json").exists() or first.poll() is not None)
        first.send_signal(signal.SIGINT)
        said, _ = first.communicate()
    assert first.returncode == 130, said
    assert "4-bit weights: o" in said
    assert "padding is 4%, and would be 41% unpacked" in said
    assert "qlora-tiny interrupted" in said
    stopped = re.search(r"stopped after step (\d+) of 1000000; the same command continues", said)
    assert stopped, said

    (output / "checkpoint-900000").mkdir()  # what a crash leaves of one
    last = int(stopped[1]) + 3
    done = subprocess.run([*command, "--steps", str(last)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "checkpoint-900000 is not complete" in done.stdout
    assert f"continuing from {output}/checkpoint-{stopped[1]}\n" in done.stdout
    assert "evaluation: loss" in done.stdout
    for part in ("verdict", "steps", "time", "logged  eval_loss", "        padding_share", "energy", "carbon", "cost"):
        assert f"\n{part} " in done.stderr, part
    assert "CO2e" in (output / "report.html").read_text()
    assert (output / "adapters/adapter_model.safetensors").exists()

    first_run, second_run = sorted((tmp_path / "runs").iterdir())
    assert json.loads((first_run / "run.json").read_text())["status"] == "interrupted"
    about = json.loads((second_run / "run.json").read_text())
    assert about["status"] == "finished"
    assert about["config"]["rank"] == 8
    assert steps_of(first_run) + steps_of(second_run) == list(range(1, last + 1))


def steps_of(run: Path) -> list[int]:
    lines = [
        json.loads(line) for file in run.rglob("training_metrics_*.jsonl") for line in file.read_text().splitlines()
    ]
    assert any(line.get("padding_tokens") for line in lines)
    return [line["step"] for line in lines if "step_seconds" in line]


@pytest.mark.parametrize(
    ("words", "content", "said"),
    [
        (["--model-config", "gemma-4"], None, "there is no model config 'gemma-4'"),
        (["--model-config", "llama"], None, "there is no --data"),
        (["--data", "FILE"], None, "there is no file"),
        (["--data", "FILE"], "\n", "has 0 examples"),
        (["--data", "FILE"], '{"text": "a"}\nno', "line 2 is not JSON"),
        (["--data", "FILE"], '{"text": "a"}\n[1]', "line 2 is not an object"),
        (["--data", "FILE"], '{"text": "a"}\n{"prompt": "a"}', "line 2 has neither text, nor prompt and completion"),
        (
            ["--data", "FILE"],
            '{"text": "a"}\n{"text": "b"}',
            "missing packages: torch, transformers, peft, accelerate, timm",
        ),
    ],
)
def test_what_cannot_be_trained_is_a_clear_error(
    words: list[str], content: str | None, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "data.jsonl"
    if content is not None:
        file.write_text(content)
    words = [str(file) if word == "FILE" else word for word in words]
    # Without site packages: an interpreter in which nothing is installed.
    command = [sys.executable, "-S", str(EXAMPLE), "--output-dir", str(tmp_path / "out"), *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"error: {said}" in done.stderr or said in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_adapters_are_put_on_the_layers_of_each_model_family(train: Train) -> None:
    layers = train("finetuning_parts.py", instrument=False).told
    expected = sorted(["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"] * 2)
    assert layers == dict.fromkeys(("llama", "qwen", "mistral", "gemma-3n"), expected)

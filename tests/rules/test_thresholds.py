"""Thresholds: one section of the settings for rules, stacks and colors."""

from pathlib import Path

import pytest

from pulsetrain import settings
from pulsetrain.errors import UsageError
from pulsetrain.rules.thresholds import DEFAULTS, Thresholds, duration_seconds
from pulsetrain.views import thresholds as views


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [("30s", 30.0), ("5m", 300.0), ("1h30m", 5400.0), ("250ms", 0.25), ("2d", 172800.0), ("0", 0)],
)
def test_durations_are_read_as_prometheus_writes_them(duration: str, seconds: float) -> None:
    assert duration_seconds(duration) == seconds


def test_a_settings_file_and_a_file_of_thresholds_alone_say_the_same(tmp_path: Path) -> None:
    whole, alone = tmp_path / "pulsetrain.toml", tmp_path / "thresholds.toml"
    whole.write_text(
        'name = "x"\n[thresholds]\ngpu_hot_celsius = 75\noff = ["GpuHot"]\n[thresholds.hold]\nIdleGpu = "30m"\n'
    )
    alone.write_text('gpu_hot_celsius = 75\noff = ["GpuHot"]\n[hold]\nIdleGpu = "30m"\n')
    expected = Thresholds(gpu_hot_celsius=75, off=frozenset({"GpuHot"}), hold={"IdleGpu": "30m"})
    assert settings.load(whole).thresholds == settings.load_thresholds(whole) == expected
    assert settings.load_thresholds(alone) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[thresholds]\ntemperature_celsius = [80, 90]", "was replaced by gpu_hot_celsius and gpu_too_hot_celsius"),
        ("[thresholds]\nmemory_percent = [90, 97]", "was replaced by gpu_memory_full_percent"),
        ("[thresholds]\nhost_memory_percent = [90, 97]", "was replaced by host_memory_full_percent"),
        (
            "[thresholds]\ngpu_hot_celcius = 75",
            "hint: Did you mean gpu_hot_celsius or gpu_too_hot_celsius? All thresholds: docs/alerts.md.",
        ),
        ('[thresholds]\noff = ["GpuHut"]', "unknown rule: GpuHut.\n  hint: Did you mean GpuHot or "),
        ('[thresholds]\noff = ["Xyz"]', "unknown rule: Xyz.\n  hint: All rules: docs/alerts.md and docs/verdict.md."),
        ("thresholds = 3", "Expected `object`"),
        ("gpu_hot_celsius = 75", "Known settings: "),
    ],
)
def test_a_mistake_in_the_settings_is_named_with_what_is_right(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "pulsetrain.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        settings.load(tmp_path / "pulsetrain.toml")
    assert words in str(caught.value)


@pytest.mark.parametrize(("celsius", "level"), [(80.0, ""), (80.1, "warn"), (90.0, "warn"), (90.1, "bad"), (None, "")])
def test_views_color_a_value_above_the_threshold_of_the_rule(celsius: float | None, level: str) -> None:
    assert views.grade(celsius, views.gpu_temperature(DEFAULTS)) == level


def test_a_machine_whose_memory_alerts_is_shown_as_bad() -> None:
    limits = views.host_memory(Thresholds(host_memory_ratio=0.2))
    assert [views.grade(percent, limits) for percent in (79.9, 80.1)] == ["", "bad"]

"""What OpenTelemetry has a name for is sent under that too."""

from pulsetrain import catalog
from pulsetrain.outputs.push.otel_names import GPU, STEP_DURATION, TRAINING, otel_series
from pulsetrain.outputs.push.otlp import document
from pulsetrain.outputs.push.series import PushSeries


def test_each_of_our_names_is_one_that_is_sent() -> None:
    names = {metric.name for metric in catalog.METRICS}
    assert {*GPU, *TRAINING, STEP_DURATION} <= names


def test_values_are_in_the_units_of_the_convention() -> None:
    labels = (("gpu", "0"), ("host", "vm"), ("uuid", "GPU-1"))
    sent = [
        PushSeries("gpu_utilization_percent", "gauge", labels, [1], [45.0]),
        PushSeries("gpu_memory_used_mb", "gauge", labels, [1, 2], [2.0, None]),
        PushSeries("training_loss", "gauge", (("rank", "0"),), [1], [0.5]),
        PushSeries("host_cpu_percent", "gauge", (), [1], [1.0]),
        *(PushSeries(f"{STEP_DURATION}{part}", "histogram", (), [1], [3.0]) for part in ("_sum", "_count")),
    ]
    found = {one.name: one for one in otel_series(sent)}
    assert found["hw.gpu.utilization"].values == [0.45]
    assert found["hw.gpu.memory.usage"].values == [2 * 2**20, None]
    assert {("hw.id", "GPU-1"), ("hw.type", "gpu")} <= set(found["hw.gpu.utilization"].labels)
    assert found["pulsetrain.training.loss"].values == [0.5]
    (metrics,) = [scope["metrics"] for scope in document(found.values())["resourceMetrics"][0]["scopeMetrics"]]
    assert {metric["name"] for metric in metrics} == {
        "hw.gpu.utilization",
        "hw.gpu.memory.usage",
        "pulsetrain.training.loss",
        "pulsetrain.training.step_duration",
    }

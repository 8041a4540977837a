"""Which GPUs are watched."""

import pytest

from pulsetrain.errors import UsageError
from pulsetrain.sources.selection import SelectableGpu, named, select

A100 = "NVIDIA A100-SXM4-80GB"
SERVER = [
    SelectableGpu(0, "GPU-3d9c1724-11e2-4b8f-ab0d-549b6f03675a", A100),
    SelectableGpu(1, "GPU-3d9f0000-94a1-4d1c-8a05-20ab3c6f91de", A100, ("MIG-41b7c3a0-0c1b", "MIG-41b7ffff-9d2f")),
    SelectableGpu(2, "GPU-f29d0da9-953f-48f1-a09f-76b5a170b338", A100),
]
MIXED = [SelectableGpu(0, "GPU-aaaa", "NVIDIA T4"), SelectableGpu(1, "GPU-bbbb", A100)]


def test_everything_is_watched_when_nobody_says_otherwise() -> None:
    assert select(SERVER, None, {}) == (frozenset({0, 1, 2}), "")
    assert select([], None, {}).indices == frozenset()


@pytest.mark.parametrize(
    ("gpus", "indices"),
    [
        ("all", {0, 1, 2}),
        ("1", {1}),
        (" 0, 2 ", {0, 2}),
        ("2,2", {2}),
        ("GPU-f29d0da9-953f-48f1-a09f-76b5a170b338", {2}),
        ("GPU-f2", {2}),
        ("MIG-41b7c3a0-0c1b", {1}),
        ("MIG-41b7", {1}),  # two instances of one GPU
        ("0,GPU-f29d", {0, 2}),
    ],
)
def test_the_user_names_gpus_by_index_and_uuid(gpus: str, indices: set[int]) -> None:
    chosen = select(SERVER, gpus, {"CUDA_VISIBLE_DEVICES": "0"})
    assert chosen.indices == indices
    assert chosen.note == ""


@pytest.mark.parametrize(
    ("gpus", "named"),
    [
        ("3", "3"),
        ("0,7,9", "7, 9"),
        ("-1", "-1"),
        ("GPU-3d9", "GPU-3d9"),  # the start of two
        ("GPU-0000", "GPU-0000"),
        ("f29d0da9", "f29d0da9"),
        ("²", "²"),
    ],
)
def test_what_the_user_names_must_be_one_gpu(gpus: str, named: str) -> None:
    with pytest.raises(UsageError) as error:
        select(SERVER, gpus, {})
    assert error.value.message == f"--gpus {gpus}: no single GPU here matches {named}."
    assert error.value.hint
    assert SERVER[2].uuid in error.value.hint


def test_an_empty_option_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="names no GPU"):
        select(SERVER, " , ", {})


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        ("2,0", {0, 2}),
        ("GPU-f29d", {2}),
        ("MIG-41b7ffff-9d2f", {1}),
        ("", set()),
        ("-1", set()),
        ("NoDevFiles", set()),
        ("0,5,2", {0}),
        ("2,-1,0", {2}),
        ("2,GPU-3d9,0", {2}),  # the start of two is as invalid as that of none
    ],
)
def test_cuda_sees_what_is_named_before_the_first_invalid_entry(value: str, indices: set[int]) -> None:
    assert select(SERVER, None, {"CUDA_VISIBLE_DEVICES": value}).indices == indices


def test_a_choice_by_variable_comes_with_a_note() -> None:
    assert select(SERVER, None, {"CUDA_VISIBLE_DEVICES": "0"}).note == (
        "watching the GPUs in CUDA_VISIBLE_DEVICES=0; --gpus all watches all"
    )
    assert select(SERVER, None, {"CUDA_VISIBLE_DEVICES": ""}).note == (
        "no GPU visible with CUDA_VISIBLE_DEVICES=; --gpus all watches all"
    )


def test_indices_say_nothing_on_a_machine_of_mixed_models_unless_cuda_counts_in_pci_order() -> None:
    unknown = select(MIXED, None, {"CUDA_VISIBLE_DEVICES": "0"})
    assert unknown.indices == {0, 1}
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in unknown.note
    in_order = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert select(MIXED, None, in_order).indices == {0}
    assert select(MIXED, None, {"CUDA_VISIBLE_DEVICES": "GPU-bbbb"}).indices == {1}
    assert select(MIXED, None, {"CUDA_VISIBLE_DEVICES": ""}).indices == frozenset()
    assert select(MIXED, "0", {}).indices == {0}


def test_the_order_of_a_variable_is_kept() -> None:
    assert named(SERVER, "2,0,9,1") == [2, 0]

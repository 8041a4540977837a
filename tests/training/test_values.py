"""Values that cannot be read, or only with care: each is recorded or left out by itself, and the rest is recorded."""

import pytest
from tests.training.trained import Train, Trained


@pytest.fixture(scope="module", params=["jax", "tensorflow"])
def logged(request: pytest.FixtureRequest, train: Train) -> Trained:
    return train("array_values.py", str(request.param), instrument=False)


@pytest.fixture(scope="module")
def jax(train: Train) -> Trained:
    return train("array_values.py", "jax", instrument=False)


def reasons(trained: Trained) -> str:
    return "\n".join(line["message"] for line in trained.lines if line.get("event") == "skipped")


def test_what_comes_after_an_unreadable_value_is_recorded(logged: Trained) -> None:
    assert logged.reported("last") == [7]


def test_a_single_element_is_a_number_whatever_its_shape_and_type(logged: Trained) -> None:
    assert logged.reported("one_of_one") == [2.5]
    assert logged.reported("half") == [1.5]
    assert logged.reported("true") == [1]


@pytest.mark.parametrize(("name", "reason"), [("vector", "3 values"), ("traced", "log it outside"), ("complex", "")])
def test_what_is_not_one_number_is_left_out_and_named_in_the_run_and_to_the_user(
    logged: Trained, name: str, reason: str
) -> None:
    assert logged.reported(name) == []
    (line,) = [line for line in reasons(logged).splitlines() if f"'{name}'" in line]
    assert reason in line
    assert line in logged.output


def test_an_integer_that_no_float_can_hold_is_infinite_and_loses_nothing_else(logged: Trained) -> None:
    lines = [line for line in logged.lines if "huge" in line]
    assert [(line["huge"], line["loss"], line["nonfinite"]["huge"]) for line in lines] == [
        (None, 0.5, "inf"),
        (None, 0.25, "-inf"),
    ]


def test_deleted_arrays_are_left_out_counted_and_named_once(jax: Trained) -> None:
    assert jax.reported("deleted") == []
    assert reasons(jax).count("'deleted' is not a number") == 1
    assert reasons(jax).count("'deleted_later' is not recorded: it was deleted") == 1
    (total,) = [line["skipped"] for line in jax.lines if line.get("event") == "skipped_total"]
    assert total["deleted_later"] == 3


def test_a_value_that_the_program_donates_is_copied_once_that_was_seen(jax: Trained) -> None:
    assert jax.reported("donated")[-5:] == list(range(jax.told - 4, jax.told + 1))


def test_a_variable_is_recorded_as_it_was(train: Train) -> None:
    assert train("array_values.py", "tensorflow", instrument=False).reported("variable") == [1.0]

"""What `--to` may name."""

import pytest

from pulsetrain.errors import UsageError
from pulsetrain.watching.destinations import Destinations, check_place


def test_a_place_of_no_known_kind_is_refused_with_all_that_may_be_named() -> None:
    for use in (check_place, lambda place: Destinations([place])):
        with pytest.raises(UsageError, match="comet: is not a supported place") as refused:
            use("comet:project")
        assert "s3://BUCKET/FOLDER" in str(refused.value) and "mlflow:http://HOST:5000" in str(refused.value)


@pytest.mark.parametrize("place", ["aim://host:53800", "aim:aim://host:53800", "tensorboard:s3://bucket/boards"])
def test_a_server_is_refused_where_a_tracker_is_a_folder(place: str) -> None:
    with pytest.raises(UsageError, match="takes a folder"):
        check_place(place)

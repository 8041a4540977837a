from collections.abc import Callable
from pathlib import Path

import psutil

from pulsetrain.snapshot import Sample
from pulsetrain.sources import Source
from pulsetrain.sources.file_systems import FileSystems


def test_each_file_system_is_reported_once_by_the_first_folder_on_it(
    tmp_path: Path, read: Callable[[Source], list[Sample]]
) -> None:
    (sample,) = read(FileSystems([tmp_path, tmp_path / "not/there/yet"]))
    assert sample.values["filesystem_size_bytes"] == {str(tmp_path): psutil.disk_usage(str(tmp_path)).total}
    assert isinstance(available := sample.values["filesystem_available_bytes"], dict)
    assert 0 < available[str(tmp_path)] <= psutil.disk_usage(str(tmp_path)).total

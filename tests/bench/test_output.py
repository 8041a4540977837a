"""What a benchmark prints, as it is kept."""

import io
import tempfile
import threading
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pulsetrain.bench import output
from pulsetrain.bench.declaration import score_pattern
from pulsetrain.bench.output import OutputEcho, OutputLog


def kept(folder: Path, *portions: bytes) -> bytes:
    log = OutputLog(folder / "output.log")
    for portion in portions:
        log.feed(portion)
    log.close()
    return (folder / "output.log").read_bytes()


def test_a_line_that_redraws_itself_is_kept_in_its_last_state(tmp_path: Path) -> None:
    assert kept(tmp_path, b"  0%\r 50%", b"\r100%\ndone\r\nend") == b"100%\ndone\nend"


@given(st.text(alphabet="ab\r\n", max_size=40), st.integers(1, 5))
def test_it_does_not_matter_in_which_portions_output_comes(text: str, size: int) -> None:
    data = text.encode()
    with tempfile.TemporaryDirectory() as folder:
        whole = kept(Path(folder), data)
        portions = [data[place : place + size] for place in range(0, len(data), size)]
        assert kept(Path(folder), *portions) == whole


def test_the_latest_lines_show_a_bar_that_moves(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "output.log")
    log.feed(b"epoch 1\n\r 10%\x1b[A")
    assert log.latest(5) == ["epoch 1", " 10%"]
    log.feed(b"\r 20%\x1b]0;title\x07")
    assert log.latest(1)[0].startswith(" 20%") and "\x1b" not in log.latest(1)[0]
    log.close()


def test_a_flood_is_kept_within_bounds_with_its_beginning_and_its_end(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "output.log")
    log.feed(b"first\n")
    for _ in range(800):
        log.feed(b"y\n" * 32768)
    log.feed(b"last\n")
    log.close()
    text = (tmp_path / "output.log").read_bytes()
    assert len(text) < output.HEAD_BYTES + output.TAIL_BYTES + 200_000
    assert text.startswith(b"first\n") and text.endswith(b"last\n") and b"bytes omitted" in text
    assert log.bytes == 800 * 65536 + len(b"first\nlast\n")


def test_the_last_score_counts(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "output.log", score_pattern(r"accuracy: (\S+)"))
    log.feed(b"accuracy: 0.5\naccuracy: 0.9\naccuracy: none\n")
    log.close()
    assert log.score == 0.9


def test_a_stream_that_takes_nothing_holds_nobody_up() -> None:
    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            taken.append(text)
            over.wait()
            return len(text)

    taken: list[str] = []
    over = threading.Event()
    echo = OutputEcho(Stuck())
    for _ in range(100):
        echo.put(b"x" * 65536)
    over.set()
    echo.close()
    assert "bytes not shown" in "".join(taken)
    assert sum(map(len, taken)) < 100 * 65536

"""Which pod holds which GPU, from the kubelet's pod-resources socket.

The kubelet speaks gRPC, of which one call without arguments is needed. That is a few frames of HTTP/2, written here:
gRPC's own package would be 15 MB. Headers of the answer are not looked at, only its message.

Only root may use the socket. `python -m pulsetrain.sources.gpu_pods SOCKET FILE` asks it for an agent without rights,
which reads FILE instead: PULSETRAIN_GPU_PODS.
"""

import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pulsetrain.catalog import HOST
from pulsetrain.errors import Unavailable
from pulsetrain.snapshot import Sample
from pulsetrain.sources import Options

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
METHOD = "/v1.PodResourcesLister/List"
PERIOD_SECONDS = 5.0
STALE_SECONDS = 60.0
"""A file that is older is not the present."""
MOST_HOLDERS = 256
"""Of a node: GPUs can be shared by many pods, and each is a series."""
MOST_BYTES = 16 << 20
_GPUS = ("nvidia.com/", "amd.com/")
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1


def open_sources(options: Options) -> list["GpuPods"]:
    if given := os.environ.get("PULSETRAIN_GPU_PODS"):
        return [GpuPods(file=Path(given))]
    if not os.access(SOCKET, os.W_OK):
        raise Unavailable("not on a Kubernetes node, or not root", hint="docs/kubernetes.md has an agent for this.")
    return [GpuPods()]


class GpuPods:
    """One value for each container that holds a GPU: `UUID/namespace/pod/container`."""

    name = "gpu_pods"
    period = PERIOD_SECONDS

    def __init__(self, kubelet: Path = SOCKET, file: Path | None = None) -> None:
        self._kubelet = kubelet
        self._file = file

    def read(self) -> Iterator[Sample]:
        held = _read_file(self._file) if self._file else holders(self._kubelet)
        yield Sample(HOST, {"gpu_pods": dict.fromkeys(held[:MOST_HOLDERS], 1.0)})

    def close(self) -> None:
        pass


def holders(kubelet: Path, seconds: float = 5.0) -> list[str]:
    """`UUID/namespace/pod/container` for each GPU, or part of one, that a container holds."""
    found = []
    for _, pod in _fields(_call(kubelet, seconds), 1):
        texts = {number: value.decode(errors="replace") for number, value in _fields(pod, 1, 2)}
        for _, container in _fields(pod, 3):
            (name,) = [value.decode(errors="replace") for _, value in _fields(container, 1)] or [""]
            for _, devices in _fields(container, 2):
                kind = b"".join(value for _, value in _fields(devices, 1)).decode(errors="replace")
                if kind.startswith(_GPUS):
                    ids = (value.decode(errors="replace").partition("::")[0] for _, value in _fields(devices, 2))
                    found += [f"{id}/{texts.get(2, '')}/{texts.get(1, '')}/{name}" for id in ids]
    return sorted(set(found))


def _read_file(file: Path) -> list[str]:
    if time.time() - file.stat().st_mtime > STALE_SECONDS:
        raise Unavailable(f"{file} is old", hint="The gpu-pods container of this pod is not working: see its log.")
    held = json.loads(file.read_bytes()[:MOST_BYTES])
    return [str(one) for one in held if str(one).count("/") == 3]


# Protocol Buffers: only strings and messages, which are both a length and bytes


def _fields(message: bytes, *wanted: int) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        if tag & 7 == 2:
            length, place = _varint(message, place)
            if place + length > len(message):
                raise ValueError("the kubelet's answer is cut off")
            if tag >> 3 in wanted:
                yield tag >> 3, message[place : place + length]
            place += length
        elif tag & 7 == 0:
            _, place = _varint(message, place)
        else:
            place += {1: 8, 5: 4}[tag & 7]


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = message[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError("the kubelet's answer has an unterminated number")


# HTTP/2: one request on one stream


def _call(kubelet: Path, seconds: float) -> bytes:
    """The message that the kubelet answers with."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        connection.connect(str(kubelet))
        names = {":method": "POST", ":scheme": "http", ":path": METHOD, ":authority": "localhost"}
        names |= {"content-type": "application/grpc", "te": "trailers"}
        headers = b"".join(b"\0" + _text(name) + _text(value) for name, value in names.items())
        window = struct.pack(">I", MOST_BYTES)
        connection.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + _frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, MOST_BYTES))
            + _frame(_WINDOW, 0, 0, window)
            + _frame(_HEADERS, _END_HEADERS, 1, headers)
            + _frame(_DATA, _END_STREAM, 1, bytes(5))
        )
        with connection.makefile("rb") as stream:
            return _answer(connection, stream.read)


def _answer(connection: socket.socket, read: Callable[[int], bytes]) -> bytes:
    body = bytearray()
    while True:
        head = read(9)
        if len(head) < 9:
            raise ConnectionError("the kubelet closed the connection")
        length, kind, flags, stream = int.from_bytes(head[:3]), head[3], head[4], int.from_bytes(head[5:]) & 0x7FFFFFFF
        payload = read(length)
        if kind == _SETTINGS and not flags & _ACK:
            connection.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            connection.sendall(_frame(_PING, _ACK, 0, payload))
        elif kind in (_RESET, _GOAWAY):
            raise ConnectionError("the kubelet refused the call")
        elif kind == _DATA:
            body += payload
        if len(body) > MOST_BYTES:
            raise ValueError("the kubelet's answer is too long")
        if stream == 1 and kind in (_DATA, _HEADERS) and flags & _END_STREAM:
            break
    if len(body) < 5 or body[0] or int.from_bytes(body[1:5]) != len(body) - 5:
        raise ConnectionError("the kubelet answered with an error")
    return bytes(body[5:])


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def main(kubelet: str, file: str) -> None:
    """Ask again and again; what fails is said, and tried again."""
    target = Path(file)
    while True:
        try:
            new = target.with_suffix(".new")
            new.write_text(json.dumps(holders(Path(kubelet))))
            new.chmod(0o644)
            new.replace(target)
        except (OSError, ValueError, KeyError, IndexError) as error:
            sys.stderr.write(f"gpu-pods: {type(error).__name__}: {error}\n")
        time.sleep(PERIOD_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:3])

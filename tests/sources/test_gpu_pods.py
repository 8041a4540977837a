"""A kubelet of our own, which speaks real gRPC on a unix socket."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from tests.waiting import eventually

from pulsetrain import catalog
from pulsetrain.errors import Unavailable
from pulsetrain.live import Live
from pulsetrain.outputs import exposition
from pulsetrain.outputs.families import families
from pulsetrain.snapshot import Sample, Snapshot
from pulsetrain.sources import Options, Source
from pulsetrain.sources.gpu_pods import METHOD, GpuPods, holders, open_sources


def field(number: int, content: bytes | str) -> bytes:
    """One field of a message, as Protocol Buffers write it."""
    data = content.encode() if isinstance(content, str) else content
    length, size = bytearray(), len(data)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + data


def pod(name: str, namespace: str, container: str, resource: str, *devices: str) -> bytes:
    ids = b"".join(field(2, device) for device in devices)
    topology = field(3, b"\x0a\x02\x08\x01")  # a NUMA node, which is a number
    held = field(2, field(1, resource) + ids + topology)
    return field(1, field(1, name) + field(2, namespace) + field(3, field(1, container) + held + b"\x18\x07"))


ANSWER = b"".join(
    [
        pod("resnet-0-x7k2p", "research", "trainer", "nvidia.com/gpu", "GPU-a", "GPU-b"),
        pod("notebook", "people", "lab", "nvidia.com/gpu.shared", "GPU-c::0"),
        pod("other", "people", "lab", "nvidia.com/gpu.shared", "GPU-c::1"),
        pod("mig", "people", "lab", "nvidia.com/mig-1g.10gb", "MIG-d"),
        pod("disk", "people", "lab", "example.com/ssd", "SSD-1"),
    ]
)
HELD = [
    "GPU-a/research/resnet-0-x7k2p/trainer",
    "GPU-b/research/resnet-0-x7k2p/trainer",
    "GPU-c/people/notebook/lab",
    "GPU-c/people/other/lab",
    "MIG-d/people/mig/lab",
]


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Callable[[bytes | None], Path]]:
    """The socket of a kubelet that answers with these bytes; without any, with an error."""
    servers = []

    def start(answer: bytes | None) -> Path:
        def list_pods(request: bytes, context: grpc.ServicerContext) -> bytes:
            assert request == b""
            if answer is None:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "not here")
            return answer or b""

        service, method = METHOD.strip("/").split("/")
        handlers = {method: grpc.unary_unary_rpc_method_handler(list_pods)}
        server = grpc.server(ThreadPoolExecutor(1))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        path = tmp_path / "kubelet.sock"
        server.add_insecure_port(f"unix:{path}")
        server.start()
        servers.append(server)
        return path

    yield start
    for server in servers:
        server.stop(0).wait()


def test_gpus_have_the_names_of_the_pods_that_hold_them(
    kubelet: Callable[[bytes | None], Path], read: Callable[[Source], list[Sample]]
) -> None:
    (sample,) = read(GpuPods(kubelet(ANSWER)))
    assert sample.values == {"gpu_pods": dict.fromkeys(HELD, 1.0)}
    gpus = [
        Sample(
            catalog.subject("gpu", {"gpu_index": index, "uuid": f"GPU-{name}", "name": "L4"}),
            {"power_draw_watts": 70.0},
        )
        for index, name in enumerate("ac")
    ]
    live = Live()
    live(Snapshot(0.0, 1.0, (sample, *gpus)))
    page = exposition.render(families(live, {"host": "node1"}, ("native", "dcgm")), "text").decode()
    of_pod = 'container="trainer",gpu="0",host="node1",namespace="research",pod="resnet-0-x7k2p",uuid="GPU-a"'
    assert f"gpu_power_draw_watts{{{of_pod}}} 70.0" in page
    assert 'gpu_power_draw_watts{gpu="1",host="node1",uuid="GPU-c"} 70.0' in page  # shared: whose is it?
    assert page.count("\ngpu_pod_info{") == len(HELD)
    (dcgm,) = [line for line in page.splitlines() if line.startswith("DCGM_FI_DEV_POWER_USAGE{") and "GPU-a" in line]
    assert 'namespace="research"' in dcgm and 'pod="resnet-0-x7k2p"' in dcgm and 'container="trainer"' in dcgm


def test_an_answer_of_many_pods_arrives_whole(kubelet: Callable[[bytes | None], Path]) -> None:
    many = b"".join(pod(f"pod-{n}", "n" * 200, "c", "nvidia.com/gpu", f"GPU-{n:05d}") for n in range(3000))
    assert len(holders(kubelet(many))) == 3000


@pytest.mark.parametrize("answer", [None, b"\x0a\xff\x01half", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"])
def test_a_kubelet_that_answers_nonsense_is_an_error(
    kubelet: Callable[[bytes | None], Path], answer: bytes | None
) -> None:
    with pytest.raises((OSError, ValueError)):
        holders(kubelet(answer))


def test_a_machine_without_a_kubelet_has_no_such_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULSETRAIN_GPU_PODS", raising=False)
    with pytest.raises(Unavailable):
        open_sources(Options())


def test_root_asks_for_an_agent_without_rights(kubelet: Callable[[bytes | None], Path], tmp_path: Path) -> None:
    file = tmp_path / "gpu-pods.json"
    command = [sys.executable, "-m", "pulsetrain.sources.gpu_pods", str(kubelet(ANSWER)), str(file)]
    relay = subprocess.Popen(command)
    try:
        assert eventually(file.exists)
        source = GpuPods(file=file)
        (sample,) = source.read()
        assert sample.values == {"gpu_pods": dict.fromkeys(HELD, 1.0)}
    finally:
        relay.kill()
        relay.wait()
    os.utime(file, (0, time.time() - 100))
    with pytest.raises(Unavailable, match="is old"):
        list(source.read())
    assert json.loads(file.read_text()) == HELD

"""The socket of a server, before anybody answers on it."""

import socket

import pytest

from pulsetrain.errors import PulsetrainError
from pulsetrain.serving.listening import listen, url_of


def test_a_client_that_comes_before_the_server_answers_waits() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()[:2]) as client:
        accepted, _ = listening.accept()
        accepted.sendall(b"hello")
        accepted.close()
        assert client.recv(10) == b"hello"


def test_the_url_says_where_and_whether_it_is_encrypted() -> None:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert url_of(listening, encrypted=False) == f"http://127.0.0.1:{port}"
        assert url_of(listening, encrypted=True) == f"https://127.0.0.1:{port}"


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_an_ipv6_address_is_in_brackets() -> None:
    try:
        listening = listen("::1", 0)
    except PulsetrainError:
        pytest.skip("this machine has no IPv6 loopback")
    with listening:
        assert url_of(listening, encrypted=False) == f"http://[::1]:{listening.getsockname()[1]}"


def test_a_port_in_use_is_an_error_that_says_what_to_do() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(PulsetrainError, match=f"port {port}") as error:
            listen("127.0.0.1", port)
    assert error.value.hint == "Choose another port, or 0 for any free one."

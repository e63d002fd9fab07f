"""How pages are served."""

import socket

from tuner.serving import bind


def test_answers_on_a_kept_connection_are_sent_without_delay() -> None:
    with bind("127.0.0.1:0") as listening:
        listening.listen()
        with socket.create_connection(listening.getsockname()):
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.proto == socket.IPPROTO_TCP, "by this, asyncio knows that it may set TCP_NODELAY"

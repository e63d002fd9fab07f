"""The store of metrics is gone, slow, in the way, or wrong."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from tuner.chaos.scene import HASTY_SECONDS, Scene
from tuner.chaos.troubles.moments import Break, Trouble, everywhere, failed, struck
from tuner.chaos.wire import Reply

_LOGIN: Final = b"<!doctype html><title>Sign in</title><form action='/login' method='post'></form>"
_HTML: Final = {"Content-Type": "text/html"}
_ENDS: Final = 0.6
"""Where an answer breaks off."""

_WAITS: Final = ("latency", "wait")


@contextmanager
def _gone(scene: Scene) -> Iterator[None]:
    before = len(scene.given)
    scene.store_wire.stop()
    try:
        yield
    finally:
        scene.store_wire.start()
    failed(scene, before)


def _store(**bent: Any) -> Break:  # noqa: ANN401 - Attributes of a store.
    """Return a store that differs in some attributes from what it should be."""

    @contextmanager
    def broken(scene: Scene) -> Iterator[None]:
        store = scene.store
        right, asked = {name: getattr(store, name) for name in bent}, store.asked
        for name, value in bent.items():
            setattr(store, name, value)
        try:
            yield
        finally:
            for name, value in right.items():
                setattr(store, name, value)
        struck(asked, store.asked)

    return broken


def _answers(bend: Callable[[Reply], Reply]) -> Trouble:
    return everywhere(_store(bend=bend))


def _values(told: Callable[[str, float], float]) -> Trouble:
    return everywhere(_store(told=told))


def _reset(name: str, value: float) -> float:
    """Return what a rate over a counter that began anew looks like where it is not corrected."""
    return -1e6 if name.endswith("_per_second") else value


METRICS: Final[Mapping[str, Trouble]] = {
    "metrics: gone": everywhere(_gone),
    "metrics: hang": everywhere(
        _store(bend=lambda reply: replace(reply, after_seconds=1.5 * HASTY_SECONDS)),
        answer_within_seconds=HASTY_SECONDS,
    ),
    "metrics: server error": _answers(lambda _: Reply(status=503, body=b"overloaded")),
    "metrics: token refused": _answers(lambda _: Reply(status=401, body=b"token expired")),
    "metrics: redirect to a login page": _answers(lambda _: Reply(status=302, headers={"Location": "/login"})),
    "metrics: login page with 200": _answers(lambda _: Reply(body=_LOGIN, headers=_HTML)),
    "metrics: query refused": _answers(
        lambda _: Reply(status=400, body=b'{"status":"error","errorType":"bad_data","error":"parse error"}')
    ),
    "metrics: connection breaks off": _answers(lambda reply: replace(reply, sent_ratio=_ENDS)),
    "metrics: truncated JSON": _answers(
        lambda reply: replace(reply, body=reply.body[: round(len(reply.body) * _ENDS)])
    ),
    "metrics: empty answers": _answers(
        lambda reply: replace(reply, body=b'{"status":"success","data":{"resultType":"vector","result":[]}}')
    ),
    "metrics: partial, with a warning": everywhere(_store(warnings=("one store did not answer",))),
    "metrics: half of the series missing": everywhere(
        _store(
            silent=frozenset(
                {
                    "reference_recent_queue_wait_seconds",
                    "reference_recent_resource_idle_ratio",
                    "reference_recent_accelerator_utilization_ratio",
                    "reference_accelerators",
                    "reference_queue_length",
                }
            )
        )
    ),
    "metrics: NaN": _values(lambda _, __: math.nan),
    "metrics: infinite": _values(lambda _, __: math.inf),
    "metrics: far out of range": _values(lambda _, value: value * 1e9),
    "metrics: negative": _values(lambda _, value: -value),
    "metrics: waits not a number": _values(
        lambda name, value: math.nan if any(word in name for word in _WAITS) else value
    ),
    "metrics: counter reset": _values(_reset),
    "metrics: all zero": _values(lambda _, __: 0.0),
    "metrics: a second cluster's as well": everywhere(_store(twice=True)),
    "metrics: another cluster's": _values(lambda name, value: value if name.endswith("_ratio") else 40 * value),
}
"""Every fault of the metrics."""

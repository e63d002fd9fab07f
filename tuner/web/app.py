"""The application behind the daemon's port: /metrics, /healthz, /readyz.

Liveness says whether the loop still turns, by a monotonic clock; it never fails because Prometheus is down, for a
restart would not mend that. Readiness says whether the tuner is able to do its work, with the reasons as JSON.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

LIVE_PERIODS: Final = 3
"""Cycles that may be missed before the loop counts as stuck: one is normal under load, three are not."""


@dataclass(frozen=True, slots=True)
class Health:
    """What the probes are told.

    Attributes:
        seconds_since_cycle: Monotonic time since a cycle last ended, in whatever way.
        period_seconds: Distance of two cycles.
        conditions: What must hold to be ready, each with whether it does.
    """

    seconds_since_cycle: float
    period_seconds: float
    conditions: Mapping[str, bool]

    @property
    def live(self) -> bool:
        """Whether the loop still turns."""
        return self.seconds_since_cycle <= LIVE_PERIODS * self.period_seconds

    @property
    def ready(self) -> bool:
        """Whether every condition holds."""
        return all(self.conditions.values())


def build(registry: CollectorRegistry, health: Callable[[], Health]) -> Starlette:
    """Return the application over a metrics registry and a view of the loop's health."""

    def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": content_type})

    def healthz(_: Request) -> Response:
        state = health()
        seconds = state.seconds_since_cycle
        body = {
            "live": state.live,
            "seconds_since_cycle": round(seconds, 3) if math.isfinite(seconds) else None,
            "limit_seconds": LIVE_PERIODS * state.period_seconds,
        }
        return JSONResponse(body, status_code=200 if state.live else 503)

    def readyz(_: Request) -> Response:
        state = health()
        return JSONResponse(
            {"ready": state.ready, "conditions": dict(state.conditions)}, status_code=200 if state.ready else 503
        )

    return Starlette(routes=[Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz)])

"""The controller's northbound: JSON over HTTP on a unix socket."""

import socket
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from controller.app.app import Controller
from controller.app.northbound_ocs import malformed, ocs_routes, refused
from controller.circuits.status import FlowStatus, PortStatus, Status, SwitchStatus
from topologies.errors import DemandError, NetworkError


def northbound(network: Controller) -> FastAPI:
    """Return the HTTP application.

    It answers ``GET /status``, ``/fabric``, ``/switches``, ``/switches/{name}/flows`` and
    ``/switches/{name}/ports``: 404 for a switch that does not exist, 503 for one that does not answer;
    and what `controller.app.northbound_ocs` says of ``/ocs/{name}``.
    """
    app = FastAPI(title="lightrail controller", openapi_url=None)

    def existing(name: str) -> str:
        if name not in network.fabric.switch_index:
            raise HTTPException(404, f"the fabric has no switch {name!r}")
        return name

    existing_switch = Annotated[str, Depends(existing)]
    app.exception_handler(NetworkError)(_unavailable)
    app.exception_handler(DemandError)(refused)
    app.exception_handler(RequestValidationError)(malformed)
    app.get("/status", response_model=Status)(network.status)
    app.get("/switches", response_model=list[SwitchStatus])(network.switches)

    @app.get("/fabric")
    def fabric() -> Response:
        return Response(network.fabric.to_json(), media_type="application/json")

    @app.get("/switches/{name}/flows")
    def flows(name: existing_switch) -> list[FlowStatus]:
        return network.flows(name)

    @app.get("/switches/{name}/ports")
    def ports(name: existing_switch) -> PortStatus:
        return network.ports(name)

    app.include_router(ocs_routes(network.ocses))
    return app


def serve(network: Controller, listener: socket.socket) -> None:
    """Answer on a listening socket for ever."""
    config = uvicorn.Config(
        northbound(network), log_level="warning", access_log=False, lifespan="off", ws="none", loop="asyncio"
    )
    uvicorn.Server(config).run(sockets=[listener])


def _unavailable(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 503)

"""The northbound of optical circuit switches: what they show, what they did, and what they show next.

============================== =========================================================================
``GET /ocs/{name}``            what it shows and does (`OcsStatus`)
``GET /ocs/{name}/log``        its reconfigurations: command, dark and lit [s, monotonic clock], what was
                               refused (`LogEntry`)
``PUT /ocs/{name}/circuits``   ``{"circuits": [[0, 3], [3, 0]]}`` or ``{"circuits": "0>3 3>0"}``; also
                               ``partial``, ``busy`` (``queue`` or ``replace``)
``PUT /ocs/{name}/device``     how long it is dark (`WantedDevice`); with ``?seed=1`` delays that
                               vary are drawn from this seed, by default 0
``POST /ocs/{name}/schedule``  ``{"days": [{"circuits": ..., "duration_s": 0.05, "night_s": 0}]}`` or
                               ``{"text": "50ms 0>1,1>0 20ms -"}``; also ``partial``, ``start_s``,
                               ``notify``
``POST /ocs/schedules``        ``{"schedules": {"ocs0": ..., "ocs1": ...}}``, each as above: all begin at
                               once, or none if one of them cannot
``PUT /ocs/{name}/shadow``     ``{"circuits": ...}``: provisions circuits on the idle side; the answer's
                               ``shadow_ready_s`` says from when on they can be flipped to
``POST /ocs/flip``             ``{"ocses": ["ocs0", "ocs1"]}``: all exchange their two sides at once, or
                               none if one of them cannot; also ``notify``
============================== =========================================================================

404 for an OCS that does not exist; 422 for a body that is not of this form, for circuits or times that no
OCS can have, and for a flip to what is not ready, before any circuit is taken away; 503 for one that is not
connected. The answer's ``detail`` is one sentence.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from controller.app.ocs import OpticalSwitches
from controller.circuits.circuits import Circuits, Pair, circuits_from_text
from controller.circuits.devices import LONGEST_S, ReconfigurationDelay
from controller.circuits.programs import Day, Program, Showing, program_from_text
from controller.circuits.reconfiguration import Command
from controller.circuits.status import LogEntry, OcsStatus
from topologies.errors import DemandError


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


Text = Annotated[str, Field(max_length=10_000)]
"""Text in Unicode, which JSON may not be: half of a surrogate pair could not be part of any answer."""


class WantedCircuits(_Body):
    """The body of ``PUT /ocs/{name}/circuits``."""

    circuits: list[tuple[int, int]] | str
    partial: bool = True
    busy: Literal["queue", "replace"] = "queue"


class WantedDevice(_Body):
    """The body of ``PUT /ocs/{name}/device``: the fields of `ReconfigurationDelay`."""

    device: Text = "ideal"
    delay_s: float = 0.0
    delay_p99_s: float | None = None
    nic_s: float = 0.0
    nic_p99_s: float | None = None
    flip_s: float = 0.0


class WantedDay(_Body):
    """A day of a schedule."""

    circuits: list[tuple[int, int]] | str
    duration_s: float
    night_s: float = 0.0


class WantedSchedule(_Body):
    """The body of ``POST /ocs/{name}/schedule``: days, or their compact form."""

    days: list[WantedDay] = []
    text: str = ""
    partial: bool = True
    start_s: Annotated[float, Field(ge=0, le=LONGEST_S, allow_inf_nan=False)] | None = None
    notify: Text | None = None


class WantedShadow(_Body):
    """The body of ``PUT /ocs/{name}/shadow``."""

    circuits: list[tuple[int, int]] | str


class WantedFlip(_Body):
    """The body of ``POST /ocs/flip``."""

    ocses: list[Text]
    notify: Text | None = None


class WantedSchedules(_Body):
    """The body of ``POST /ocs/schedules``: a schedule of each OCS, by its name."""

    schedules: dict[Text, WantedSchedule]


def ocs_routes(ocses: OpticalSwitches) -> APIRouter:
    """Return the routes of a fabric's OCSes."""
    routes = APIRouter(prefix="/ocs")
    _add_routes_of_one(routes, ocses)
    _add_routes_of_several(routes, ocses)
    return routes


def refused(_: Request, error: Exception) -> JSONResponse:
    """Return the answer to a request for something impossible: the reason, with 422."""
    return JSONResponse({"detail": str(error)}, 422)


def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
    """Return what answers a request that is not of its route's form: the first thing that is wrong, with 422.

    The library's own answer has what was sent in it, and so fails where that is no JSON: NaN, or half of a
    surrogate pair.
    """
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return JSONResponse({"detail": f"{place[:80]!a}: {first['msg']}"}, 422)


def _add_routes_of_one(routes: APIRouter, ocses: OpticalSwitches) -> None:
    def existing(name: str) -> str:
        return _existing(ocses, name)

    existing_ocs = Annotated[str, Depends(existing)]

    @routes.get("/{name}")
    def status(name: existing_ocs) -> OcsStatus:
        return ocses.status(name)

    @routes.get("/{name}/log")
    def log(name: existing_ocs) -> list[LogEntry]:
        return ocses.log(name)

    @routes.put("/{name}/circuits")
    def circuits(name: existing_ocs, wanted: WantedCircuits) -> OcsStatus:
        lit = _circuits(wanted.circuits, ocses.ports(name))
        ocses.command(name, Command(lit, wanted.partial, wanted.busy))
        return ocses.status(name)

    @routes.put("/{name}/device")
    def device(name: existing_ocs, wanted: WantedDevice, seed: Annotated[int, Query(ge=0)] = 0) -> OcsStatus:
        ocses.set_delay(name, ReconfigurationDelay(**vars(wanted)), seed)
        return ocses.status(name)

    @routes.post("/{name}/schedule")
    def schedule(name: existing_ocs, wanted: WantedSchedule) -> OcsStatus:
        ocses.run({name: _showing(wanted, ocses.ports(name))})
        return ocses.status(name)

    @routes.put("/{name}/shadow")
    def shadow(name: existing_ocs, wanted: WantedShadow) -> OcsStatus:
        ocses.provision(name, _circuits(wanted.circuits, ocses.ports(name)))
        return ocses.status(name)


def _add_routes_of_several(routes: APIRouter, ocses: OpticalSwitches) -> None:
    @routes.post("/schedules")
    def schedules(wanted: WantedSchedules) -> None:
        names = [_existing(ocses, name) for name in wanted.schedules]
        ocses.run({name: _showing(wanted.schedules[name], ocses.ports(name)) for name in names})

    @routes.post("/flip")
    def flip(wanted: WantedFlip) -> None:
        names = [_existing(ocses, name) for name in dict.fromkeys(wanted.ocses)]
        ocses.flip(names, _path(wanted.notify))


def _existing(ocses: OpticalSwitches, name: str) -> str:
    if name not in ocses:
        raise HTTPException(404, f"the fabric has no OCS {name!r}")
    return name


def _showing(wanted: WantedSchedule, ports: int) -> Showing:
    return Showing(_program(wanted, ports), wanted.start_s, _path(wanted.notify))


def _path(notify: str | None) -> Path | None:
    return Path(notify) if notify else None


def _program(wanted: WantedSchedule, ports: int) -> Program:
    if bool(wanted.days) == bool(wanted.text):
        raise DemandError("a schedule with both days and text, or neither", "give one of them")
    if wanted.text:
        return program_from_text(wanted.text, ports, wanted.partial)
    days = [Day(_circuits(day.circuits, ports), day.duration_s, day.night_s) for day in wanted.days]
    return Program(tuple(days), wanted.partial)


def _circuits(wanted: Sequence[Pair] | str, ports: int) -> Circuits:
    if isinstance(wanted, str):
        return circuits_from_text(wanted, ports)
    return Circuits(ports, tuple(wanted))

"""The controller as a process: ``python -m controller --fabric FILE --openflow SOCKET --northbound SOCKET``.

It prints ``listening`` when switches and clients can connect; everything else goes to stderr. It ends
at once on SIGTERM, and when the thread that started it ends. Both are unix sockets of this user alone:
neither OpenFlow nor the northbound asks who connects.
"""

import ctypes
import gc
import json
import logging
import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from socket import socket
from threading import Thread
from typing import TYPE_CHECKING

from controller.app.listeners import private_listener
from topologies.errors import FabricError, LightrailError

if TYPE_CHECKING:
    from controller.app.app import Controller

log = logging.getLogger("controller")
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run until a signal ends it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    try:
        _run(_options())
    except LightrailError as error:
        print(f"controller: {error}", file=sys.stderr)
        sys.exit(2)


def _options() -> Namespace:
    parser = ArgumentParser(prog="python -m controller", description="Program the switches of a fabric.")
    parser.add_argument("--fabric", type=Path, required=True, help="the fabric's JSON file")
    parser.add_argument("--routing", type=Path, help="JSON file of a user's routing, if there is one")
    parser.add_argument("--hosts", action="store_true", help="forward to the addresses of hosts too")
    parser.add_argument("--routed", action="store_true", help="leave out packet switches, which route")
    parser.add_argument("--news", type=Path, help="unix datagram socket that hears of light and of links")
    parser.add_argument("--ocses", type=Path, help="JSON file of what another controller left of OCSes")
    parser.add_argument("--openflow", type=Path, required=True, help="unix socket that switches connect to")
    parser.add_argument("--northbound", type=Path, required=True, help="unix socket that clients connect to")
    return parser.parse_args()


def _run(options: Namespace) -> None:
    text = _text(options.fabric)
    routed = _text(options.routing) if options.routing else None
    left = _text(options.ocses) if options.ocses else "[]"
    switches, clients = private_listener(options.openflow), private_listener(options.northbound)
    print("listening", flush=True)

    # Imported only now: switches connect while Python reads the libraries, 0.2 s for OpenFlow's
    # and 0.2 s more, on the northbound's thread, for HTTP's.
    gc.disable()  # until all is read, which makes little garbage: `_serve_northbound` ends that
    from pydantic import TypeAdapter

    from controller.app.app import Controller
    from controller.app.openflow import run
    from controller.circuits.status import OcsRecord
    from topologies.fabric import Fabric
    from topologies.own_routing import ROUTING, CheckedRouting

    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # in all threads, so that sigwait gets them
    routing = routed and CheckedRouting(ROUTING.of_document(json.loads(routed)))
    records = TypeAdapter(list[OcsRecord]).validate_json(left)
    rules = {"routing": routing, "hosts": options.hosts, "routed": options.routed}
    what = {"fabric": Fabric.from_json(text), "news": options.news, "records": records}
    controller = run(Controller, switches, **what, **rules)
    Thread(target=_serve_northbound, args=(controller, clients), daemon=True).start()
    signal.sigwait(signals)
    for path in (options.openflow, options.northbound):
        path.unlink(missing_ok=True)
    os._exit(0)  # the library's threads are not daemons and wait for switches


def _serve_northbound(controller: "Controller", listener: socket) -> None:
    """Answer the northbound's clients until the process ends; if that fails, end it: they would wait."""
    try:
        # A third of a second of imports, which switches need not wait for.
        from controller.app.northbound import serve

        gc.freeze()  # what was read stays
        gc.enable()
        serve(controller, listener)
    except BaseException:  # also SystemExit, by which the HTTP server says that it cannot start
        log.exception("the northbound failed")
    log.critical("the northbound has ended, and the controller with it")
    os._exit(1)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FabricError(f"read the fabric {path}: {error}") from error


if __name__ == "__main__":
    main()

"""The app under Ryu: with a package of that name that records, because Ryu itself needs Python 3.9."""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from tests.tools import CHECKOUT
from topologies.big_switch import big_switch_fabric

STUB = {
    "base/app_manager.py": """
        from queue import SimpleQueue
        class RyuApp:
            def __init__(self, *args, **kwargs):
                self.name, self.sent_events = type(self).__name__, SimpleQueue()
            def start(self):
                self.started = True
            def send_event(self, name, event):
                self.sent_events.put(event)
        class AppManager:
            pass
        """,
    "controller/event.py": "class EventBase: pass",
    "controller/handler.py": """
        MAIN_DISPATCHER, DEAD_DISPATCHER = "main", "dead"
        def set_ev_cls(event, phases):
            def decorator(handler):
                handler.__dict__.setdefault("callers", {})[event] = phases
                return handler
            return decorator
        """,
    "controller/ofp_event.py": """
        def __getattr__(name):
            assert name.startswith("EventOFP"), name
            globals()[name] = type(name, (), {})
            return globals()[name]
        """,
    "controller/ofp_handler.py": "from ryu.base.app_manager import RyuApp\nclass OFPHandler(RyuApp): pass",
    "controller/controller.py": "class Datapath: pass",
    "lib/hub.py": "",
    "ofproto/ofproto_v1_3.py": """
        OFP_VERSION, OFPP_MAX, OFPP_ANY, OFPPS_LINK_DOWN, OFPPC_PORT_DOWN = 4, 0xffffff00, 0xffffffff, 1, 1
        def __getattr__(name):
            assert name.startswith("OFP"), name
            return name
        """,
    "ofproto/ofproto_v1_3_parser.py": """
        class Recorded:
            def __init__(self, name, arguments, fields):
                self.name, self.arguments, self.fields = name, arguments, fields
        def __getattr__(name):
            assert name.startswith("OFP"), name
            return lambda *arguments, **fields: Recorded(name, arguments, fields)
        """,
}

DRIVER = """
import importlib.util, json, sys
sys.modules["os_ken"] = None  # as where it is not installed
specification = importlib.util.spec_from_file_location("app", "controller/app.py")  # as ryu-manager does
app = importlib.util.module_from_spec(specification)
sys.modules["app"] = app
specification.loader.exec_module(app)

from ryu.base.app_manager import RyuApp
from ryu.controller import ofp_event
[found] = [value for value in vars(app).values() if isinstance(value, type)
           and issubclass(value, RyuApp) and value.__module__ == "app"]
controller = found()
controller.start()

class Thing:
    def __init__(self, **values):
        self.__dict__.update(values)

class Datapath:
    id, sent = 1, []
    ports = {n: Thing(port_no=n, state=0, config=0) for n in (1, 2)}
    def set_xid(self, message):
        message.xid = 7
        return 7
    def send_msg(self, message):
        self.sent.append(message.name)

def handle(event_class, event):
    for handler in vars(found).values():
        if event_class in getattr(handler, "callers", {}):
            handler(controller, event)

def give(event_class, **values):
    handle(event_class, Thing(**values))

datapath = Datapath()
give(ofp_event.EventOFPStateChange, datapath=datapath, state="main")
before = controller.status().ready
give(ofp_event.EventOFPBarrierReply, msg=Thing(datapath=datapath, xid=7))
proved = controller.sent_events.get(timeout=10)
handle(type(proved), proved)
print(json.dumps({"sent": datapath.sent, "ready": [before, controller.status().ready]}))
"""


def test_the_app_loads_and_tells_switches_with_ryus_names(tmp_path: Path) -> None:
    for name, text in STUB.items():
        path = tmp_path / "ryu" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(dedent(text))
    (tmp_path / "ryu" / "__init__.py").touch()
    (tmp_path / "fabric.json").write_text(big_switch_fabric(2).to_json())
    environment = os.environ | {
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{CHECKOUT}",
        "LIGHTRAIL_FABRIC": str(tmp_path / "fabric.json"),
        "OVS_RUNDIR": str(tmp_path),  # no switch daemon: what a machine has is not for tests
    }
    ran = subprocess.run(
        [sys.executable, "-c", DRIVER], cwd=CHECKOUT, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "sent": ["OFPFlowMod", "OFPGroupMod", "OFPFlowMod", "OFPFlowMod", "OFPFlowMod", "OFPBarrierRequest"],
        "ready": [False, True],
    }

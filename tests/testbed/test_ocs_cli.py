"""The CLI of OCSes on a network that is not there: what it asks for, and what it says to a slip."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from mininet.cli import CLI

from controller.circuits.devices import ReconfigurationDelay
from testbed.cli.cli import FabricCLI
from topologies.errors import NetworkError
from topologies.parallel_ocs import parallel_ocs_fabric


class Northbound:
    """Records the commands to OCSes, and lights nothing."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.lost = False
        self.away = ""
        self.refuses = ""

    def ocs(self, name: str) -> SimpleNamespace:
        """Return what an OCS shows, unless the controller is lost."""
        if self.lost:
            raise NetworkError("the controller does not answer", "see its log")
        if self.away == name:
            raise NetworkError(f"OCS {name} is not connected")
        return SimpleNamespace(circuits=[(0, 1)], phase="day", device=f"{name}'s", delay_s=0.0)

    def ocs_log(self, _name: str) -> list[object]:
        """Return no reconfigurations."""
        return []

    def wait_idle(self, _name: str, _timeout_s: float) -> None:
        """Return at once, or tell what was refused."""
        if self.refuses:
            raise NetworkError(self.refuses)

    def light(self, *command: object) -> None:
        """Note circuits."""
        self.told.append(("light", *command))

    def show(self, *command: object) -> None:
        """Note a program."""
        self.told.append(("show", *command))

    def set_delay(self, *command: object) -> None:
        """Note a device."""
        self.told.append(("device", *command))


@pytest.fixture
def northbound() -> Northbound:
    return Northbound()


@pytest.fixture
def cli(northbound: Northbound, monkeypatch: pytest.MonkeyPatch) -> FabricCLI:
    # Mininet's starts to read lines where it is made.
    monkeypatch.setattr(CLI, "__init__", lambda self, mininet: None)
    monkeypatch.setenv("COLUMNS", "200")
    fabric = parallel_ocs_fabric(4, 2, packet_switch=True)
    network = SimpleNamespace(
        northbound=northbound, fabric=fabric, mininet=None, rate_factor=1e-3, has_hosts=False
    )
    return FabricCLI(network, {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("light ö 0>1", "there is no OCS 'ö'; take ocs0, ocs1"),
        ("light eps0 0>1", "there is no OCS 'eps0'; take ocs0, ocs1"),
        ("light [/b] 0>1", "there is no OCS '[/b]'; take ocs0, ocs1"),
        ("light", "no OCS is named; type light ocs0 0>1 1>0, or light ocs0 - to darken it"),
        ("light ocs0", "nothing for ocs0 to do; type light ocs0 0>1 1>0, or light ocs0 - to darken it"),
        ("show ocs7", "there is no OCS 'ocs7'; take ocs0, ocs1"),
        ("show ocs0", "nothing for ocs0 to do; type days and nights, like show ocs0 50ms 0>1,1>0 20ms -"),
        ("device ocs7 polatis", "there is no OCS 'ocs7'; take ocs0, ocs1"),
        ("device polatis", "there is no OCS 'polatis'; take ocs0, ocs1"),
        ("device ocs0 nobody", "unknown device 'nobody'"),
    ],
)
def test_a_slip_is_told_in_a_sentence_and_reaches_no_ocs(
    cli: FabricCLI, northbound: Northbound, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    cli.onecmd(line)
    assert said in capsys.readouterr().out
    assert not northbound.told


def test_help_and_completion_have_what_ocses_need(cli: FabricCLI) -> None:
    assert {"circuits", "device", "light", "show", "rates"} <= set(cli.completenames(""))
    assert "switch" not in cli.completenames("")


@pytest.mark.parametrize("line", ["device", "device ocs0"])
def test_a_device_that_is_not_named_lists_all(
    cli: FabricCLI, northbound: Northbound, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    cli.onecmd(line)
    assert "Telescent" in capsys.readouterr().out
    assert not northbound.told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("light ocs0 0>1 1>0", ("light", "ocs0", "0>1 1>0")),
        ("light ocs1 -", ("light", "ocs1", "-")),
        ("show ocs0 50ms 0>1", ("show", "ocs0", "50ms 0>1")),
        ("device ocs1 polatis", ("device", "ocs1", ReconfigurationDelay("polatis", 17.5e-3))),
        ("device ocs1 ideal", ("device", "ocs1", ReconfigurationDelay())),
    ],
)
def test_a_command_reaches_its_ocs_and_all_are_shown(
    cli: FabricCLI, northbound: Northbound, capsys: pytest.CaptureFixture[str], line: str, told: tuple[object]
) -> None:
    cli.onecmd(line)
    assert northbound.told == [told]
    assert "ocs1's" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["circuits", "light ocs0 0>1"])
def test_a_controller_that_is_lost_does_not_end_the_cli(
    cli: FabricCLI, northbound: Northbound, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    northbound.lost = True
    cli.onecmd(line)
    assert "the controller does not answer; see its log" in capsys.readouterr().out


def test_an_ocs_that_is_away_leaves_the_others_rows(
    cli: FabricCLI, northbound: Northbound, capsys: pytest.CaptureFixture[str]
) -> None:
    northbound.away = "ocs0"
    cli.onecmd("light ocs1 0>1")
    said = capsys.readouterr().out
    assert "OCS ocs0 is not connected" in said
    assert "ocs1's" in said


@pytest.mark.parametrize("line", ["light ocs0 0>1", "show ocs0 50ms 0>1"])
def test_what_a_switch_refuses_is_told_in_a_sentence(
    cli: FabricCLI, northbound: Northbound, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    northbound.refuses = "switch ocs0 refused a message: OFPET_FLOW_MOD_FAILED(5), OFPFMFC_TABLE_FULL(1)"
    cli.onecmd(line)
    assert capsys.readouterr().out.strip() == northbound.refuses


def test_draw_has_the_circuits_that_are_lit_now(
    cli: FabricCLI, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cli.onecmd("draw live.svg")
    ocses = sum(switch.kind == "ocs" for switch in cli._network.fabric.switches)
    assert (tmp_path / "live.svg").read_text().count('id="circuit|') == ocses
    assert f"{ocses} circuits lit" in capsys.readouterr().out
    cli.onecmd("draw live.jpg")
    assert "no drawing is made as 'live.jpg'" in capsys.readouterr().out

"""The CLI's commands on hosts: in all their namespaces, by names, and on all of them side by side."""

import io
import os
from pathlib import Path

import pytest
from mininet.cli import CLI
from mininet.log import lg

from testbed.cli.cli import FabricCLI
from tests.emulation.conftest import Booted
from topologies.rail import rail_fabric

pytestmark = [pytest.mark.emulation, pytest.mark.early]

[screen_of_mininet] = lg.handlers
LINES = """\
h1 hostname; echo $LIGHTRAIL_HOST $PWD
h0 ping -c 1 h2 | grep -o '0% packet loss'
h0 lightrail-ssh h2 hostname
all hostname; echo -n unended; exit 3
all
exit
"""


def test_it_runs_commands_on_one_host_and_on_all(
    booted: Booted, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text(LINES)
    keyboard, hand = os.pipe()  # nobody types while a command runs
    by_mininet, begin = io.StringIO(), CLI.__init__
    with (
        open(keyboard) as stdin,
        open(hand, "w"),
        booted(rail_fabric(3, 1), hosts=True) as net,
    ):
        script = str(tmp_path / "lines")
        monkeypatch.setattr(CLI, "__init__", lambda self, mininet: begin(self, mininet, stdin, script))
        screen = screen_of_mininet.setStream(by_mininet)
        try:
            FabricCLI(net.network, {})
        finally:
            screen_of_mininet.setStream(screen)
    one = by_mininet.getvalue().replace("\r", "").splitlines()
    assert one == ["h1", f"h1 {os.getcwd()}", "0% packet loss", "h2"]
    every = capsys.readouterr().out.splitlines()
    for host in ("h0", "h1", "h2"):
        mine = [line for line in every if line.startswith(host)]
        assert mine == [f"{host}: {host}", f"{host}: unended", f"{host}: exit code 3"]
    assert "there is no command to run on all hosts; type all hostname" in every

"""Refusals of scenarios/app.py before anything boots: a sentence, a hint, exit code 2."""

from pathlib import Path

import pytest

from tests.scenarios.command import ran

RAIL = ("rail", "--set", "servers=4", "--set", "rails=2")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "there is no command to run; write it behind --"),
        (("--",), "there is no command to run; write it behind --"),
        (("hostname", "-f"), "there is no command to run; write it behind --"),
        (("hostname", "--timeout", "5"), "there is no command to run; write it behind --"),
        (("--servers", "4", "--", "hostname"), "--servers is a parameter of a builder; write --set servers="),
        (("--", "echo here"), "no command 'echo here'; write its words apart, or have a shell run it: -- sh"),
        (("--on", "h9-h2", "--", "hostname"), "--on h9-h2: fabric rail has no such host"),
        (("--on", "h3-h2", "--", "hostname"), "the range h3-h2 of --on ends before it begins"),
        (("--", "nonesuch"), "there is no command 'nonesuch'; install it"),
        (("--", "./nonesuch"), "./nonesuch does not exist"),
        (("--", "./readable.py"), "./readable.py is not executable; chmod +x ./readable.py, or give its"),
        (
            ("--", "readable.py"),
            "readable.py is looked for on the PATH, and is not there; write ./readable.py",
        ),
        (("--", "/"), "/ is a directory"),
        (("--transport", "credit", "--", "hostname"), "applications send by the TCP of their hosts"),
        (("--transport", "tcp:none", "--", "hostname"), "no congestion control is named 'none'"),
        (("--fail", "nic:0:1@40%", "--", "hostname"), "not known before; give seconds since its start"),
        (
            ("--fail", "nic:9:0@1s", "--", "hostname"),
            "server 9 of 4: there is none; write WHAT@TIME or WHAT@TIME-TIME in seconds",
        ),
        (("--fail", "nic:0:1", "--", "hostname"), "write WHAT@TIME or WHAT@TIME-TIME in seconds since the"),
        (("--fail", "gpu:1@1s", "--", "hostname"), "on no GPU of the fabric"),
        (("--over", "host", "--", "hostname"), "--over is for OpenMPI, so it has no effect"),
        (("--launch", "ssh", "--per", "gpu", "--", "hostname"), "--per has no effect"),
        (("--pcap", "h0:2", "--", "hostname"), "--pcap h0:2: h0 has 2 NICs"),
        (("--pcap", "h9:0", "--", "hostname"), "that is not a NIC of rail; give HOST:NIC"),
        (("--emulated-rate", "0", "--", "hostname"), "give --emulated-rate from 1 to 1000"),
        (("--emulated-rate", "9", "--calibrate", "--", "hostname"), "so --calibrate has no effect"),
        (("--timeout", "0", "--", "hostname"), "a timeout of 0 s"),
        (("--compute-scale", "nan", "--", "hostname"), "a compute scale of nan"),
        (("--plots", "gif", "--", "hostname"), "unknown word 'gif' of --plots"),
        (("--set", "servers=two", "--", "hostname"), "servers"),
    ],
    ids=" ".join,
)
def test_it_refuses_in_a_sentence(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "readable.py").write_text("print()\n")
    done = ran("app", *RAIL, *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "results").exists()


def test_hosts_that_cannot_meet_are_refused(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(
        "from topologies.fabric import Fabric, Link, Port, Switch, equal_servers\n"
        "def parts() -> Fabric:\n"
        "    switches = (Switch('a', 1), Switch('b', 1))\n"
        "    ends = (('h0', 'a'), ('h1', 'b'))\n"
        "    links = tuple(Link(Port(h, 0), Port(s, 0), 1e9) for h, s in ends)\n"
        "    return Fabric('parts', equal_servers(2, 1, 1, 1e12), switches, links)\n"
    )
    done = ran("app", "parts:parts", "--", "hostname", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "h0 and h1 cannot reach each other over fabric parts" in done.stderr


def test_a_launcher_that_is_not_installed_says_how_to_install_it(tmp_path: Path) -> None:
    command = (*RAIL, "--launch", "mpirun", "--", "/bin/sh")
    done = ran("app", *command, cwd=tmp_path, env={"PATH": str(tmp_path)})
    assert done.returncode == 2
    assert (
        "lacks OpenMPI, which --launch mpirun needs; install it: apt-get install openmpi-bin" in done.stderr
    )

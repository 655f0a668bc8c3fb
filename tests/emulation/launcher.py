"""A command in a sandbox: ``python -m tests.emulation.launcher COMMAND ...``.

It imports nothing that only the command needs, so that a test waits for those imports once, not twice.
"""

import sys

from testbed.machine.sandbox import run_in_sandbox

LAUNCHER = [sys.executable, "-m", "tests.emulation.launcher"]

if __name__ == "__main__":
    sys.exit(run_in_sandbox(sys.argv[1:]))

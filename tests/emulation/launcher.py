"""A command in a sandbox: ``python -m tests.emulation.launcher COMMAND ...``.

It imports nothing that only the command needs, so that a test waits for those imports once, not twice.
"""

import sys

from testbed.machine.sandbox import Sandbox

LAUNCHER = [sys.executable, "-m", "tests.emulation.launcher"]

if __name__ == "__main__":
    with Sandbox(sys.argv[1:], terminal=True) as sandbox:
        sys.exit(sandbox.wait())

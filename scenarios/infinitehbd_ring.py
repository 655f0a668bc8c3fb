"""InfiniteHBD's rings of GPUs through OCS transceivers, emulated while nodes die (sections 4.2 and 5.2)."""

import _checkout  # first: runs this file under the checkout's Python

from testbed.study.study_options import run_file

if __name__ == "__main__":
    run_file(__file__)

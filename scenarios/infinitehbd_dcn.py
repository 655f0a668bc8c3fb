"""InfiniteHBD's orchestration on an emulated DCN (section 6.4): what of a job's traffic leaves its ToRs."""

import _checkout  # first: runs this file under the checkout's Python

from testbed.study.study_options import run_file

if __name__ == "__main__":
    run_file(__file__)

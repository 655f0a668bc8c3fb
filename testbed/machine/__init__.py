"""The machine: sandbox, kernel, datapath, processes and files."""

#!/bin/sh
# iperf3 from the first host to h1, over the address that all NICs of a host carry:
#
#     sudo python scenarios/app.py rail --set servers=2 --set rails=2 --launch ssh -- sh docs/examples/hosts.sh
#
lightrail-ssh h1 iperf3 -s -D -1 && sleep 1
iperf3 -c h1 -t 3

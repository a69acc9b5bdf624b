"""Peers in the same run: the stock ``tl.dot`` kernel, without and with stock ping-pong, beside this package's kernels.

>>> python -m amdwarp.bench.peers --target gfx950 --dtype fp16

All of it is compiled on this machine and goes through the cycle model; nothing is timed.
"""

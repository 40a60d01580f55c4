"""A memory of constants that makes the core wait for every word: no cache lies before it."""

from tosaic.backends.target import Memory

SLOW_MEMORY = Memory("slow", 0x6400_0000, 192 << 20, bytes_per_cycle=1, latency=64)

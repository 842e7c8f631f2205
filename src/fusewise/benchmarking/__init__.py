"""Comparing fairly with other runtimes: peers, timing, meters, answers."""

"""Measurements that take minutes; the test suite runs a short form of each."""

"""Criteria: their form, the expectations of their checks, and how a result is compared with one."""

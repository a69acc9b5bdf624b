"""Benchmarks: a registry of cases, what runs them, one schema for their figures, and a page that shows them.

Every figure says where it comes from: ``hardware`` (timed on a GPU), ``cpu`` (timed or compiled on this machine) or
``modelled`` (the cycle model; nothing was timed). See ``docs/benchmarks.md``.
"""

"""TTGIR in Python: read a wheel module into a small IR, rewrite it with passes, give it back.

``ir`` objects, ``text`` reader and printer, ``bridge`` to the wheel, ``dialect`` op registry and builders, ``rewriter``
edits, ``verify`` structural checks, ``pipeline`` pass runs; ``analysis`` and ``passes`` build on these. Importing it
does not import Triton.
"""

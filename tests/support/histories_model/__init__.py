"""Random histories of tables, and a model of what each query shows of them.

A *history* is a kind of table and the steps that are done to it (`kinds.py`, `steps.py`), drawn from a seed. The
*model* (`model.py`) is written from the format pages: the versions in each file slice, merged pair by pair
(`merging.py`) without Arrow and without the package. `running.py` does the steps to a table and to the model, and
compares what queries (`queries.py`) show of both; `shrinking.py` finds a short history that fails.
"""

"""Real Hudi and hudi-rs as judges of the tables that this package reads and writes.

``environment``   sets them up, in an environment of their own.
``judge``         `Hudi` and `HudiRs`, which tests call; each drives a process (``worker``).
``hudi_process``, ``hudi_rs_process``   those processes; with ``serve`` and ``row_json`` they run outside of this
package's environment and import nothing of it.
``results``       the table that is printed at the end.
"""

"""Transactions: begin, complete, recover, roll back, and the ledger of committed batches."""

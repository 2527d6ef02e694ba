"""Run transactions: begin, complete, recover, roll back, and keep the ledger of committed batches."""

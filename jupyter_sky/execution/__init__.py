"""The executor runs cells on clusters, brings their outputs back, and writes the ledger."""

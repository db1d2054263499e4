"""Transactions on a table: the ledger, the rules of conflict, begin, commit and roll back."""

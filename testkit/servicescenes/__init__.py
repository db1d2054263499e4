"""Executors, cleans and writers of one table as processes that stop at a chosen step."""

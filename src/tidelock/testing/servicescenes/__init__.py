"""Executors, cleans and writers of one table as processes that are stopped at a decisive step."""

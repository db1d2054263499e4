"""The dashboard: a page that shows tables at work, and what an operator may do there."""

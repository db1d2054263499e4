"""The dashboard: a web page that shows the state of tables, with actions for operators."""

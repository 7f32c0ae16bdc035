"""Landed logs -> events: wrappers of runtimes and shippers, layouts of loggers, events of lines, files of one log."""

"""Events and their subscribers: the bus, the log, the events about decisions."""

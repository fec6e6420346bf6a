"""What happens, told to all who subscribe: the bus, the log, the events about decisions."""

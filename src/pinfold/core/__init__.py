"""Pure decisions on pure values: standard library only, no I/O, no clock; runs in a notebook on any machine."""

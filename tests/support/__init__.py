"""Stand-ins for programs that are not on the machine that runs the tests."""

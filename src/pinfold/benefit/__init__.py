"""The benefit of exclusive CPUs, measured: the same programs beside the same neighbours under several policies.

Starts real daemons and real containers on this host, and knows them only by the command line, as a user does. The
programs that are measured are in `programs`; the figures and the picture are made from values (`figures`, `report`,
`picture`).
"""

"""Arguments that several verbs take: which machine, how many CPUs, which time. They are parsed and checked here."""

"""Which CPUs: functions (machine, available, count) → CPUs, on masks; they know no pods and no policies."""

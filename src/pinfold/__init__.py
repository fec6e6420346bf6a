"""CPUs of their own for containers and processes; these are the public names."""

from pinfold.core.cpuset import CPUSet
from pinfold.core.presets import preset
from pinfold.core.topology import CPUInfo, Group, Topology
from pinfold.errors import ParseError, PinfoldError

__all__ = ["CPUInfo", "CPUSet", "Group", "ParseError", "PinfoldError", "Topology", "preset"]
__version__ = "0.1.0"

"""How running containers grow, shrink and move, under the options of their pods. `manager` decides when.

`resizing` and `repacking` give the next State; `repack` searches for better places by their `cost`; `mending` replaces
CPUs that have gone. Where a container that runs may have CPUs is in `running`, what it had at first in `baselines`.
"""

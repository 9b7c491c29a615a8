"""The physical layer measured against its closed forms, on this machine and with the installed versions.

from channels.check import Lab, findings, table

found = list(findings(Lab(torch.device("cpu"))))
print(table(found))
assert all(f.agrees for f in found)
"""

from __future__ import annotations

from channels.check.finding import LIMIT, Finding
from channels.check.lab import Lab
from channels.check.run import CHECKS, findings, table

__all__ = ["CHECKS", "LIMIT", "Finding", "Lab", "findings", "table"]

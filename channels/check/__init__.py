"""The physical layer measured against its closed forms, on this machine and with the installed versions.

from channels.check import Lab, format_findings, run_checks

found = list(run_checks(Lab(torch.device("cpu"))))
print(format_findings(found))
assert all(f.agrees for f in found)
"""

from __future__ import annotations

from channels.check.finding import LIMIT, Finding, format_findings
from channels.check.lab import Lab
from channels.check.run import CHECKS, run_checks

__all__ = ["CHECKS", "LIMIT", "Finding", "Lab", "format_findings", "run_checks"]

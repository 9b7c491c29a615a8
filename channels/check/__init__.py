"""The physical layer measured against its closed forms, on this machine and with the installed versions.

from semcom.channels.check import Lab, format_findings, run_checks

found = list(run_checks(Lab(torch.device("cpu"))))
print(format_findings(found))
assert all(f.agrees for f in found)
"""

from __future__ import annotations

from semcom.channels.check.finding import LIMIT, Finding, format_findings
from semcom.channels.check.lab import Lab
from semcom.channels.check.run import CHECKS, run_checks

__all__ = ["CHECKS", "LIMIT", "Finding", "Lab", "format_findings", "run_checks"]

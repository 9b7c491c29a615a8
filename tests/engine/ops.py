"""What torch is asked to do: every operation, nested ones too, and how much memory it takes."""

from __future__ import annotations

from operator import itemgetter

import torch


class Ops:
    """Records operations while it is entered.

    Attributes:
        names: of operations, such as "aten::index", in order; one that is part of another follows it. Of torch's fused
            optimisers only the name: on a CPU they read their count of steps, which else lies on the accelerator.
        bytes: how much memory was asked for, also where it was given back at once.
    """

    def __enter__(self) -> Ops:
        """Begins."""
        self._profile = torch.autograd.profiler.profile(profile_memory=True)
        self._profile.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Ends; from here on the attributes are there."""
        self._profile.__exit__(*error)
        self.names: list[str] = []
        inside = 0  # the time at which a fused optimiser ends
        # The events as they were recorded: the profiler's own view of them takes a hundred times as long to build.
        events = [(event.name(), event) for event in self._profile.kineto_results.events()]
        self.bytes = sum(max(0, event.nbytes()) for name, event in events if name == "[memory]")
        spans = [(e.start_ns(), -e.duration_ns(), name) for name, e in events if name.startswith("aten::")]
        for start, left, name in sorted(spans, key=itemgetter(0, 1)):
            if start >= inside:
                self.names.append(name)
                inside = start - left if name.startswith("aten::_fused_") else inside

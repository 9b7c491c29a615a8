"""A virtual GPU: `cuda:0` on a machine without one, which computes on the host and shows what CUDA would do.

    with VirtualGPU() as gpu:
        run_something_on("cuda")
    print(gpu.record.text())

By hand, for any command of semcom; what was noted in this process is printed at the end:

    python -m tests.virtual semcom train fedcl --clients 4 --train.rounds 1 --device cuda

It refuses what CUDA refuses: tensors on different devices, generators of another device, operations without a CUDA
kernel, products of whole numbers, fused optimisers on tensors that lie unlike, `numpy()`. Torch itself chooses its path
by the device, so what only CUDA's path does happens here too: cuDNN's batch normalisation, say, asks for a layout that
vmap does not tell.

It notes, by the line of this project at which they happen (`Record`): waits, where the host would stop until the device
has done all that it was given; draws by generators of the device; launches, which are operations that start kernels or
copies.

Memory can be pinned. A copy between the device and pinned memory that is not to block is no wait, but is done late:
until the next wait, numbers on the way to the host are not there (NaN, or the largest whole number), and those on the
way to the device must not change on the host.

Limits: numbers, rounding and draws are the host's, and TF32 is not rounded. The layout of a result is that of the
host's kernel. One operation is one launch, though CUDA's libraries may start more, and refuse sizes and types that are
not refused here. There is one stream; `torch.compile` is not there, and a step that a CUDA graph would
replay is carried out anew: by the objects of the fit in which it was recorded, with its number on the device. So it
reads and writes the tensors that a graph would.

It is possible because torch has a guard that makes "cuda:0" a device on any machine, which FakeTensor needs, and lets a
tensor say that it is there. A mode sees all operations before they are carried out. Before a backward pass autograd
asks the CUDA library whether the device has a context; that one answer is replaced (`_context`).
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from semcom.engine.train import fit, replay

ROOT = Path(__file__).parents[1]
CPU, DEVICE = torch.device("cpu"), torch.device("cuda", 0)
POSSIBLE = torch.version.cuda is not None and not torch.cuda.is_available()
"""Whether there can be a virtual GPU here: torch must be built with CUDA, and find no real GPU."""
CARDS = "VIRTUAL_GPUS"
"""The variable of the environment with the number of virtual GPUs, of which a process uses one (unset: 1)."""
REAL = torch.cuda.is_available()
"""Whether there is a real one."""

READS = {"_local_scalar_dense", "equal"}
"""Operations that give Python a number."""
SHAPED_BY_NUMBERS = {
    *("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount", "repeat_interleave"),
    *("multinomial", "linalg_inv_ex", "_linalg_eigh", "_linalg_check_errors", "_linalg_solve_ex"),
}
"""Operations whose size, or success, the host has to learn before it goes on."""
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}
"""Operations whose indices may lie on the host."""
WITH_SCALAR = {"fill_", "fill", "masked_fill", "masked_fill_", "index_fill", "index_fill_", "where", "lerp"}
"""Operations that take a single number on the host, as pointwise ones do, though torch does not call them pointwise."""
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "vdot", "convolution"}
"""Operations that CUDA has for real and complex numbers alone."""
QUIET = {
    *("empty", "empty_strided", "empty_like", "empty_permuted", "new_empty", "new_empty_strided", "lift_fresh"),
    *("_local_scalar_dense", "_unsafe_view", "_reshape_alias", "is_same_size"),
}
"""Operations that start nothing, besides views."""


class VirtualTensor(torch.Tensor):
    """A tensor on the virtual GPU; its numbers are in `held`, a tensor on the host that lies in memory alike."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor, device: torch.device = DEVICE) -> VirtualTensor:
        place = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        made = torch.Tensor._make_wrapper_subclass(cls, held.shape, **place, dtype=held.dtype, device=device)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func}: no virtual GPU is switched on, but one of its tensors is used")

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")
        return self.detach().cpu().numpy()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        return self.detach().cpu().tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.detach().cpu().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        made = self.detach().clone()
        return nn.Parameter(made) if isinstance(self, nn.Parameter) else made.requires_grad_(self.requires_grad)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"VirtualTensor({self.held!r})"


class VirtualGenerator(torch._C.Generator):
    """A generator that says it is on the virtual GPU if it was made for it; it draws the host's numbers."""

    known: WeakValueDictionary[int, VirtualGenerator] = WeakValueDictionary()
    """Those that there are, by the address that C++ hands on."""

    def __new__(cls, device: Any = "cpu") -> VirtualGenerator:
        made = super().__new__(cls, "cpu")
        made.place = DEVICE if _is_virtual(device) else CPU
        cls.known[made._cdata] = made
        return made

    def __init__(self, device: Any = "cpu") -> None:
        pass

    @property
    def device(self) -> torch.device:
        return self.place


@dataclass
class Record:
    """What was noted: how often the host would wait and the device draws at each place, and launches by operation."""

    waits: Counter[str] = field(default_factory=Counter)
    draws: Counter[str] = field(default_factory=Counter)
    launches: Counter[str] = field(default_factory=Counter)

    def add(self, other: Record) -> None:
        """Add what was noted elsewhere."""
        for name, counts in vars(other).items():
            getattr(self, name).update(counts)

    def text(self) -> str:
        """Return the totals in a line, and the places of waits and draws below, the most frequent first."""
        totals = ", ".join(f"{counts.total():,} {name}" for name, counts in vars(self).items())
        places = [(n, what) for counts in (self.waits, self.draws) for what, n in counts.most_common()]
        return "\n".join([totals, *(f"{n:>9,}  {what}" for n, what in places)])


class VirtualGPU(TorchDispatchMode):
    """The virtual GPU, while it is switched on by `with`; for one thread.

    Attributes:
        record: what is noted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.record = Record()
        self._pinned: dict[int, StorageWeakRef] = {}
        # Host tensors of copies that are not done, with their numbers: those to come, and those on their way.
        self._coming: list[tuple[Tensor, Tensor]] = []
        self._going: list[tuple[Tensor, Tensor]] = []

    def __enter__(self) -> VirtualGPU:
        if torch.cuda.is_available():
            raise RuntimeError("there is a real GPU here; hide it with CUDA_VISIBLE_DEVICES=")
        self._undo = ExitStack()
        self._undo.enter_context(_context())
        for owner, name, value in self._stand_ins():
            self._undo.enter_context(mock.patch.object(owner, name, value, create=not hasattr(owner, name)))
        lifted = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device="cuda") then copies where it is seen
        self._undo.callback(torch._C._set_only_lift_cpu_tensors, lifted)
        self._undo.enter_context(torch.autograd.set_multithreading_enabled(False))  # backward passes in this thread
        self._undo.enter_context(_sionna())
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._undo.close()

    @contextmanager
    def apart(self) -> Iterator[Record]:
        """Yield a record of what happens inside, which is noted outside too."""
        outer, self.record = self.record, Record()
        try:
            yield self.record
        finally:
            outer.add(self.record)
            self.record = outer

    def wait(self, reason: str) -> None:
        """Note a wait, after which all copies are done.

        Raises:
            RuntimeError: pinned memory was written to before its copy to the device was done.
        """
        self.record.waits[f"{reason} at {_site()}"] += 1
        coming, going, self._coming, self._going = self._coming, self._going, [], []
        for target, numbers in coming:
            target.copy_(numbers)
        if not all(torch.equal(_bits(source), _bits(numbers)) for source, numbers in going):
            raise RuntimeError("pinned memory was written to before its copy to cuda:0 was done")

    # -- operations ------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry out one operation on the host, after all checks and notes where it concerns the device."""
        kwargs, name = dict(kwargs or {}), func._schema.name.removeprefix("aten::")
        flat = [*_flat(args), *_flat(kwargs.values())]
        here = [t for t in flat if isinstance(t, VirtualTensor)]
        host = [t for t in flat if isinstance(t, Tensor) and not isinstance(t, VirtualTensor)]
        device = kwargs.get("device")
        to_device = bool(here) if device is None else _is_virtual(device)
        if name == "copy_":
            to_device = isinstance(args[0], VirtualTensor)
        _check_generators(flat, to_device)
        if not (here or to_device) or name in ("is_pinned", "_pin_memory"):
            return self._on_host(func, name, args, kwargs)
        _check(func, name, args, here, host)
        late = self._note(func, name, args, kwargs, to_device)
        args, kwargs = _mapped(_held, args), {key: _mapped(_held, value) for key, value in kwargs.items()}
        work = STAND_INS.get(name)
        result = func(*args, **kwargs) if work is None else work(func, *args, **kwargs)
        if func._schema.is_mutable and any(t.shape != t.held.shape or t.stride() != t.held.stride() for t in here):
            raise NotImplementedError(f"{func}: the virtual GPU cannot change a tensor's shape in place")
        if to_device:
            old = {id(t.held): t for t in here} | {id(t): t for t in host}
            place = here[0].device if device is None else torch.device("cuda", torch.device(device).index or 0)
            return _mapped(lambda value: _wrapped(value, old, place), result)
        if late:
            self._delay(result)
        return result

    def _on_host(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Carry out an operation of the host, which may be about pinned memory."""
        if name == "is_pinned":
            return self._is_pinned(args[0])
        if name == "_pin_memory":
            if isinstance(args[0], VirtualTensor):
                raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
            return self._pin(args[0].clone())
        pinned = kwargs.pop("pin_memory", False)
        made = func(*args, **kwargs)
        return self._pin(made) if pinned else made

    def _pin(self, t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        self._pinned[storage._cdata] = StorageWeakRef(storage)
        return t

    def _is_pinned(self, t: Tensor) -> bool:
        if isinstance(t, VirtualTensor):
            return False
        storage = self._pinned.get(t.untyped_storage()._cdata)
        return storage is not None and not storage.expired()

    def _delay(self, target: Tensor) -> None:
        """Take away the numbers that a copy has brought to the host, until the next wait."""
        self._coming.append((target, target.clone()))
        real = target.is_floating_point() or target.is_complex()
        target.fill_(torch.nan if real else target.dtype == torch.bool or torch.iinfo(target.dtype).max)
        self._pin(target)  # as torch does with memory that it takes for such a copy

    # -- notes -----------------------------------------------------------------------------------------------------

    def _note(self, func: Any, name: str, args: Any, kwargs: Any, to_device: bool) -> bool:
        """Note an operation of the device; return whether it is a copy to or from the host that is done late."""
        if not (func.is_view or name in QUIET):
            self.record.launches[name] += 1
        if to_device and torch.Tag.nondeterministic_seeded in func.tags:
            self.record.draws[f"{name} at {_site()}"] += 1
        if name in ("copy_", "_to_copy"):
            return self._note_copy(name, args, kwargs, to_device)
        if name in READS:
            self.wait(f"number read by {name}")
        if name in SHAPED_BY_NUMBERS and kwargs.get("output_size") is None:
            self.wait(f"size or success of {name}")
        for t in args[1] if name in INDEXED else ():
            if t is not None and not isinstance(t, VirtualTensor):
                self.wait(f"copy of the host's index by {name}")
            elif t is not None and t.dtype in (torch.bool, torch.uint8):
                self.wait(f"mask looked through by {name}")
        return False

    def _note_copy(self, name: str, args: Any, kwargs: Any, to_device: bool) -> bool:
        target, source = args[:2] if name == "copy_" else (None, args[0])
        if isinstance(source, VirtualTensor) == to_device:
            return False
        unblocked = kwargs.get("non_blocking", args[2] if name == "copy_" and len(args) > 2 else False)
        memory = source if to_device else target  # None: torch takes some that suits
        if not unblocked or (memory is not None and not self._is_pinned(memory)):
            kind = "blocking" if memory is None or self._is_pinned(memory) else "pageable"
            self.wait(f"{kind} copy {'from' if to_device else 'to'} the host")
            return False
        if to_device:
            self._going.append((source, source.clone()))
        return True

    # -- the parts of torch that ask for a GPU ---------------------------------------------------------------------

    def _stand_ins(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield what replaces functions of torch while the device is on: owner, name, stand-in."""
        state, cuda = torch.zeros(16, dtype=torch.uint8), torch.cuda

        def synchronize(*_: object) -> None:
            self.wait("synchronize")

        def stream(*_: object, **__: object) -> Any:
            return SimpleNamespace(record=lambda *_: None, synchronize=synchronize, wait_stream=lambda _: None)

        yes, nothing = ("is_available", "is_initialized", "is_bf16_supported"), ("init", "_lazy_init", "set_device")
        nothing += ("empty_cache", "set_rng_state", "manual_seed_all")
        answers: dict[str, Any] = {**dict.fromkeys(yes, True), **dict.fromkeys(nothing), "get_rng_state": state}
        answers |= {
            "device_count": int(os.environ.get(CARDS, 1)),
            "current_device": 0,
            "get_device_name": "virtual GPU",
        }
        answers |= {"mem_get_info": (78 * 2**30, 80 * 2**30), "max_memory_allocated": 0}
        answers |= {"memory_reserved": 0, "memory_allocated": 0}
        for name, answer in answers.items():
            yield cuda, name, lambda *_, answer=answer, **__: answer
        for name in ("Event", "Stream", "current_stream", "default_stream"):
            yield cuda, name, stream
        yield cuda, "stream", lambda _: nullcontext()
        # What is replayed is carried out anew, by the Python that was recorded, on the tensors that it was recorded on.
        yield replay, "record_graph", lambda work, what: work
        yield replay, "list_storages", _list_storages
        yield cuda, "synchronize", synchronize
        yield cuda, "default_generators", (VirtualGenerator(DEVICE),)
        yield torch.accelerator, "synchronize", synchronize
        yield torch.accelerator, "is_available", lambda: True
        yield torch, "Generator", VirtualGenerator
        yield torch.__future__, "get_swap_module_params_on_conversion", lambda: True  # parameters change their class


# -- what CUDA refuses ---------------------------------------------------------------------------------------------


def _check_generators(values: Sequence[Any], to_device: bool) -> None:
    for g in values:
        if isinstance(g, torch._C.Generator):
            known = VirtualGenerator.known.get(g._cdata)
            found, wanted = CPU if known is None else known.device, DEVICE if to_device else CPU
            if found != wanted:
                raise RuntimeError(f"Expected a '{wanted.type}' device type for generator but found '{found.type}'")


def _check(func: Any, name: str, args: Any, here: Sequence[VirtualTensor], host: Sequence[Tensor]) -> None:
    """Refuse what CUDA has no kernel for, and tensors of the host beside those of the device."""
    if not _has_kernel(func.name()):
        raise NotImplementedError(f"Could not run '{func}' with arguments from the 'CUDA' backend")
    if name in PRODUCTS and not any(t.is_floating_point() or t.is_complex() for t in here):
        raise RuntimeError(f'"{name}_cuda" not implemented for {here[0].dtype}')
    if name in ("copy_", "_to_copy") or not here:
        return
    if len(places := {str(t.device) for t in here if t.dim()}) > 1:
        raise RuntimeError(f"{func}: Expected all tensors to be on the same device, but found {' and '.join(places)}!")
    if name in INDEXED and isinstance(args[0], VirtualTensor):
        host = [t for t in host if not any(t is index for index in args[1])]
    scalars = torch.Tag.pointwise in func.tags or name in WITH_SCALAR or name in INDEXED or name.startswith("_foreach")
    written = func._schema.is_mutable and not isinstance(args[0], VirtualTensor)
    if host and (written or not scalars or any(t.dim() for t in host)):
        shapes = ", ".join(str(list(t.shape)) for t in host)
        what = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
        raise RuntimeError(f"{func}: {what} (on the host: {shapes})")


@cache
def _has_kernel(name: str) -> bool:
    return torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CUDA")


# -- operations that the host does in another way ------------------------------------------------------------------


def _fused(func: Any, *lists: list[Tensor], **settings: Any) -> Any:
    """Take an optimiser's step, if all that belongs to a leaf lies as it does; CUDA's kernel takes that for granted."""
    for leaf, *others in zip(*filter(None, lists), strict=True):
        for t in others:
            alike = all(n == 1 or a == b for n, a, b in zip(leaf.shape, leaf.stride(), t.stride(), strict=False))
            is_step = t.dim() == 0 and t.dtype == torch.float32
            if not is_step and not (t.shape == leaf.shape and t.dtype == leaf.dtype and alike):
                what = "params, grads and state must have same dtype, device, and layout"
                raise RuntimeError(f"{func}: {what}: {leaf.dtype} {leaf.stride()}, {t.dtype} {t.stride()}")
    return func(*lists, **settings)


def _cudnn_batch_norm(func: Any, x: Tensor, *rest: Any) -> Any:
    return *torch.native_batch_norm(x, *rest), torch.empty(0, dtype=torch.uint8)


def _cudnn_batch_norm_backward(func: Any, x: Tensor, grad: Tensor, *rest: Any) -> Any:
    return torch.ops.aten.native_batch_norm_backward(grad, x, *rest[:5], True, rest[5], [True, True, True])


STAND_INS: dict[str, Callable[..., Any]] = {
    "_conj": lambda func, x: x.conj().resolve_conj(),  # a wrapper cannot put it off
    "_fused_adam_": _fused,
    "_fused_sgd_": _fused,
    "cudnn_batch_norm": _cudnn_batch_norm,
    "cudnn_batch_norm_backward": _cudnn_batch_norm_backward,
}


def _list_storages(values: Any) -> list[torch.UntypedStorage]:
    return [t.held.untyped_storage() for t in _flat(values) if isinstance(t, VirtualTensor)]


def _is_virtual(device: Any) -> bool:
    return device is not None and torch.device(device).type == DEVICE.type


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the values, and those in lists, as torch's trees would, which take longer."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_mapped(change, each) for each in value])
    return change(value)


def _held(value: Any) -> Any:
    if isinstance(value, VirtualTensor):
        return value.held
    return CPU if isinstance(value, torch.device) and _is_virtual(value) else value


def _wrapped(value: Any, old: dict[int, Tensor], device: torch.device) -> Any:
    """Return a result as one of the device; what was changed in place is the tensor that it was."""
    if not isinstance(value, Tensor):
        return value
    known = old.get(id(value))
    return VirtualTensor(value, device) if known is None else known


def _bits(t: Tensor) -> Tensor:
    return t.reshape(-1).view(torch.uint8)


def _site() -> str:
    """Return the innermost line of the project that is being carried out, as file:line."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(f"{ROOT}{os.sep}") and "site-packages" not in file and file != __file__:
            return f"{Path(file).relative_to(ROOT)}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"


@contextmanager
def _context() -> Iterator[None]:
    """Let autograd believe that cuda:0 has a context.

    It asks `hasPrimaryContext` of CUDA's hooks, which fails without a driver and has no switch. So its entry in their
    table of virtual functions is replaced. The position is read from the header that torch ships; two other entries are
    called to see that it is right.
    """
    torch._C._ensureCUDADeviceGuardSet()
    torch_files = Path(torch.__file__).parent
    header = (torch_files / "include/ATen/detail/AcceleratorHooksInterface.h").read_text()
    names = ["complete ~", *re.findall(r"^  virtual [\w:&*<> ]*?[ *&]?(~?\w+)\(", header, re.M)]  # two destructors
    library = ctypes.CDLL(str(torch_files / "lib/libtorch_cpu.so"))
    library._ZN2at6detail12getCUDAHooksEv.restype = ctypes.c_void_p
    hooks = library._ZN2at6detail12getCUDAHooksEv()
    size = ctypes.sizeof(ctypes.c_void_p)
    table = ctypes.c_void_p.from_address(hooks).value

    def entry(name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p.from_address(table + size * names.index(name))

    ask = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
    if not ask(entry("isBuilt").value)(hooks) or ask(entry("isAvailable").value)(hooks):
        raise RuntimeError("this torch is built without CUDA, or lays out its hooks in another way")
    slot, page = entry("hasPrimaryContext"), os.sysconf("SC_PAGESIZE")
    start = ctypes.addressof(slot) & ~(page - 1)
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), ctypes.c_size_t(page), 3):  # to be read and written
        raise OSError("the table of CUDA's hooks cannot be written")
    has = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(lambda hooks, index: True)
    before, slot.value = slot.value, ctypes.cast(has, ctypes.c_void_p).value
    try:
        yield
    finally:
        slot.value = before


@contextmanager
def _sionna() -> Iterator[None]:
    """Let Sionna, which looks for GPUs once, when it is imported, find this one, and forget it afterwards."""

    def tell(device: torch.device) -> None:
        module = sys.modules.get("sionna.phy.config")
        if module is not None:
            module.config._torch_rngs |= {str(DEVICE): VirtualGenerator(DEVICE)}
            module.config._device = str(device)

    tell(DEVICE)
    try:
        yield
    finally:
        tell(CPU)


class RealGPU:
    """The machine's own GPU in the virtual one's place: of what happens on it, torch tells the waits."""

    def __init__(self) -> None:
        self.record = Record()

    def __enter__(self) -> RealGPU:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    @contextmanager
    def apart(self) -> Iterator[Record]:
        """Yield a record of the waits inside, but for those of `torch.cuda.synchronize`."""
        record, before = Record(), torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("always", "called a synchronizing CUDA operation")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield record
            finally:
                torch.cuda.set_sync_debug_mode(before)
                for warning in caught:
                    if "called a synchronizing" in str(warning.message):
                        file = warning.filename.removeprefix(f"{ROOT}{os.sep}")
                        record.waits[f"wait at {file}:{warning.lineno}"] += 1
                self.record.add(record)


GPU = RealGPU if REAL else VirtualGPU

# -- tools of tests, and a command -----------------------------------------------------------------------------------


@contextmanager
def inherited() -> Iterator[None]:
    """Let all Python processes that are started inside have a virtual GPU, where there is no real one."""
    if REAL:
        yield
        return
    switch_on = """
import warnings
from tests.virtual import VirtualGPU
warnings.filterwarnings("ignore", "'tests.virtual' found in sys.modules")  # by a process that repeats `python -m`
VirtualGPU().__enter__()
"""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(switch_on)
        paths = os.pathsep.join(filter(None, [folder, str(ROOT), os.environ.get("PYTHONPATH")]))
        with mock.patch.dict(os.environ, PYTHONPATH=paths, CUDA_VISIBLE_DEVICES=""):
            yield


@contextmanager
def steps(gpu: VirtualGPU | RealGPU) -> Iterator[list[tuple[int, Record]]]:
    """Yield a list that gets, for each chunk in training, its number of steps and what they did.

    Steps begin when all batches and draws of a chunk are laid out, and end with its last step.
    """
    chunks: list[tuple[int, Record]] = []
    take = fit.Fit._take_steps

    def taking(self: fit.Fit, chunk: Any, feed: Any, *rest: Any) -> None:
        with gpu.apart() as record:
            chunks.append((feed.steps, record))
            take(self, chunk, feed, *rest)

    with mock.patch.object(fit.Fit, "_take_steps", taking):
        yield chunks


def main(words: Sequence[str]) -> int:
    """Carry out a command of semcom, and print what was noted in this process."""
    if words[:1] != ["semcom"]:
        print(__doc__)
        return 2
    from semcom.cli.main import main as semcom

    with inherited(), VirtualGPU() as gpu, steps(gpu) as chunks:
        status = semcom(list(words[1:]))
    inside, n = Record(), sum(n for n, _ in chunks)
    for _, record in chunks:
        inside.add(record)
    print(f"\nvirtual GPU, all in all: {gpu.record.text()}")
    print(f"in {n:,} training steps, {inside.launches.total() / max(1, n):,.1f} launches each: {inside.text()}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

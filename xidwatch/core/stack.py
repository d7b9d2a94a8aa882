"""Kernel stack frames in every style that printk has had, and what they say about a wait."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record

MOST_FRAMES = 96
"""Frames kept of one stack; a recursion may print hundreds."""
FRAME_WORDS: tuple[str, ...] = ("+0x", "[inline]")
"""Every line of a stack holds one of these."""

_NAME = r"[A-Za-z_.$][\w.$]*"
_FRAME = lazy(
    r"^\s*(?:<{1,2}/?#?\w+>{1,2}\s+)*"  # <IRQ>, <<EOE>>, <#DF> in front of the frame: kernels before 4.9
    r"(?:\(?\[<?(?:[0-9a-f]{8,16}|0x[0-9a-f]+)>?\]\)?\s+)*"  # [<addr>]; powerpc prints two, s390 puts brackets around
    rf"(\? )?(?::(\w+):)?\(?({_NAME})\+0x[0-9a-f]+/0x[0-9a-f]+\)?"  # :module:function is 2.6's way
    r"(?:\s+\[([\w-]+)(?:\s+[0-9a-f]+)?\])?"
    r"(\s+\(unreliable\))?"
)
_ARM = lazy(rf"^\s*(?:\[<[0-9a-f]+>\] )?\(?({_NAME})(?: \[([\w-]+)[^\]]*\])?\)? from (?:\[<[0-9a-f]+>\] )?\(?({_NAME})\+0x")
_ARM_MODULE = lazy(r"\[([\w-]+)\]\)?\s*$")
_INLINE = lazy(rf"^\s*({_NAME}) \S+\.[ch]:\d+ \[inline\]")
_POINTER = lazy(
    rf"\b(?:RIP: 0010:|pc : |NIP \[\w+\] )(?:\[<[0-9a-f]+>\]\s+)*({_NAME})\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[([\w-]+))?"
)

_GPU_MODULES = frozenset((
    "amdgpu", "radeon", "amdkfd", "amdkcl", "amdttm", "amd_sched", "nouveau", "i915", "xe", "panfrost", "panthor", "lima",
    "etnaviv", "msm", "v3d", "vc4", "habanalabs", "gpu_sched", "virtio_gpu", "gdrdrv", "nv_peer_mem", "nvgpu", "mali_kbase",
    "pvrsrvkm", "powervr", "fglrx", "amdxdna", "intel_vpu",
))  # fmt: skip
_DRM_CORE = ("drm", "drm_kms_helper", "drm_ttm_helper", "ttm", "drm_exec", "drm_gpuvm", "drm_buddy")
_DISPLAY_ONLY = ("ast", "mgag200", "vkms", "bochs", "qxl", "cirrus", "cirrus_qemu", "simpledrm", "hyperv_drm", "vmwgfx", "udl")
_GPU_FUNCTION = lazy(
    r"(?:nvidia_|_nv\d+rm$|uvm_|amdgpu_|radeon_|kfd_|nouveau_|nvkm_|i915_|panfrost_|panthor_|lima_sched|etnaviv_|habanalabs_"
    r"|drm_sched_|drm_gem_|dma_fence_(?:default_)?wait|dma_resv_wait)"
)
_GPU_THREAD = lazy(
    r"nv_queue|nv_open_q|nvidia-modeset|nvidia-drm|nvidia_|nv-|UVM |uvm_"
    r"|irq/\d+-(?:s-)?(?:nvidia|amdgpu|radeon|nouveau|i915|xe|panfrost)"
    r"|amdgpu|kfd_|card\d+-crtc|(?:gfx|sdma|comp|vcn|jpeg)[_\d.]+$|mali_|pan_js"
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack. `reliable` is False for `? ` frames, which the unwinder found but could not vouch for."""

    function: str
    module: str | None = None
    reliable: bool = True

    def __str__(self) -> str:
        return f"{self.function} [{self.module}]" if self.module else self.function


def read_frames(text: str) -> tuple[Frame, ...]:
    """The frames in a record's text, innermost first; () when it is no stack line.

    Knows `f+0x1/0x2 [module build-id]`, the same behind `[<address>]` and `? `, 32-bit ARM's `(f) from [<a>] (g+0x1/0x2)`,
    which names each function twice, and the `f file.c:1 [inline]` of symbolised traces.
    """
    return tuple(frame for line in text.splitlines() for frame in _read_line(line))


def read_instruction(text: str) -> Frame | None:
    """Where the CPU itself stood: the kernel function of a `RIP: 0010:`, `pc :` or `NIP` line."""
    found = _POINTER.search(text)
    return Frame(found[1], found[2]) if found else None


def parse_frame(entry: str) -> Frame:
    """A frame as `str(frame)` writes it, read back."""
    function, _, module = entry.partition(" [")
    return Frame(function, module.rstrip("]") or None)


def gpu_frame(frames: Iterable[Frame]) -> Frame | None:
    """The innermost frame of a GPU driver, one of a named module before a built-in function; None when there is none.

    Frames of the DRM core count only where no display-only driver (a server's BMC graphics) explains them.
    """
    known = tuple(frames)
    only_display = any(frame.module in _DISPLAY_ONLY for frame in known)
    for frame in known:
        if frame.module and (is_gpu_module(frame.module) or (frame.module in _DRM_CORE and not only_display)):
            return frame
    built_in = (frame for frame in known if frame.module is None and _GPU_FUNCTION.match(frame.function))
    return None if only_display else next(built_in, None)


def is_gpu_module(module: str) -> bool:
    """Whether a kernel module drives a GPU or belongs to one's driver (`nvidia_uvm`, `amdgpu`, `panfrost`)."""
    return module.startswith("nvidia") or module in _GPU_MODULES


def is_gpu_thread(name: str) -> bool:
    """Whether a task name is that of a GPU driver's kernel thread: `nv_queue`, `nvidia-modeset/`, `irq/162-nvidia`."""
    return _GPU_THREAD.match(name) is not None


def added(stack: tuple[str, ...], frames: Iterable[Frame]) -> tuple[str, ...]:
    """A stack with further frames behind it; a function that only links two ARM lines is not repeated."""
    grown = list(stack)
    for frame in frames:
        if len(grown) < MOST_FRAMES and str(frame) not in grown[-1:]:
            grown.append(str(frame))
    return tuple(grown)


def may_be_kernel(record: Record, match: re.Match[str]) -> bool:
    """Whether text found in a record can be the kernel's own.

    In the record of a named program it is a quotation, except where it is the whole message: that is how kernel text
    written by user space arrives.
    """
    return record.program is None or not match.string[: match.start()].strip()


def _read_line(line: str) -> Iterator[Frame]:
    if arm := _ARM.match(line):
        outer = _ARM_MODULE.search(line)
        yield Frame(arm[1], arm[2])
        yield Frame(arm[3], outer[1] if outer and outer[1] != "inline" else None)
    elif found := _FRAME.match(line):
        doubt, old_module, function, module, unreliable = found.groups()
        module = module if module != "inline" else None
        yield Frame(function, module or old_module, doubt is None and unreliable is None)
    elif inline := _INLINE.match(line):
        yield Frame(inline[1])

"""What a node serves, as the configuration says it -> the least time that its steps can take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xidwatch.accelerators import Names, find_accelerator, load_accelerators
from xidwatch.config import Workload
from xidwatch.core.floor import Accelerator, Floor, Load, Model, floor_of
from xidwatch.errors import XidwatchError
from xidwatch.hfconfig import read_model
from xidwatch.quantity import read_bytes, read_count, read_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The workload with everything that had to be read from files.

    Attributes:
        card: The card's name as the configuration says it; None takes what NVML says.
        table: The known cards.
    """

    model: Model
    load: Load
    card: str | None
    table: Mapping[Names, Accelerator]

    def floor(self, card: str | None = None) -> Floor | None:
        """The floors of its steps; None while nobody knows which card it runs on.

        Args:
            card: The card's name as NVML tells it; what the configuration says wins.

        Raises:
            XidwatchError: there is no such card, or too little to count with.
        """
        name = self.card or card
        if name is None:
            return None
        try:
            return floor_of(find_accelerator(name, self.table), self.model, self.load)
        except ValueError as error:
            raise XidwatchError(
                f"workload: {error}; `xidwatch floor` takes the same figures and says what is missing"
            ) from error


def read_workload(workload: Workload) -> Served:
    """Read the model and the table of cards.

    Raises:
        XidwatchError: the model cannot be read.
    """
    return Served(model=_model(workload), load=_load(workload), card=workload.accelerator, table=load_accelerators())


def _model(workload: Workload) -> Model:
    model = read_model(workload.model)[0] if workload.model is not None else Model()
    if workload.params is not None or workload.dtype_bytes is not None:
        # A config's own bytes do not belong to other parameters.
        model = replace(model, weights_bytes=None)
    if workload.params is not None:
        model = replace(model, params=read_count(workload.params))
    if workload.active_params is not None:
        model = replace(model, active_params=read_count(workload.active_params))
    if workload.weights_bytes is not None:
        model = replace(model, weights_bytes=read_bytes(workload.weights_bytes))
    if workload.dtype_bytes is not None:
        model = replace(model, dtype_bytes=workload.dtype_bytes, kv_dtype_bytes=workload.dtype_bytes)
    return model


def _load(workload: Workload) -> Load:
    context = read_tokens(workload.context) if workload.context is not None else 0
    prompt = read_tokens(workload.prompt) if workload.prompt is not None else context
    return Load(batch=workload.batch, context=context or prompt, prompt=prompt or None, tp=workload.tp)

"""What runs inside a contestant, and inside the reference runner: load a source, construct its module, call it.

The same code serves both roles, so that reference and candidate meet the same conditions. It holds no secret: the
seeds it gets are spent on the call for which they came, expected outputs never enter it, and it decides nothing. Its
answers are claims; what counts are the bytes that it leaves in the arena.

Commands are JSON objects with an `op` and a `number`; each gets exactly one answer, which repeats the number and holds
either results or a `failure` (`serving` reads and sends them). Memory shared with the judge comes when the process is
made or, where that is before anybody knows for whom, as descriptors beside a command (`open` or `furnish`).
"""

from __future__ import annotations

import gc
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kerneldojo.contestant import tree, weights
from kerneldojo.contestant.arena import Packer, Slot, overlaps
from kerneldojo.contestant.borrowing import lend, missing
from kerneldojo.contestant.failure import describe
from kerneldojo.contestant.kinds import Failure
from kerneldojo.contestant.platform import Platform, Seen
from kerneldojo.contestant.seeding import seed_everything
from kerneldojo.contestant.source import as_bytes, compiled, parse


class Runner:
    """The state of one contestant: a loaded module, its instances, and results that are being held."""

    def __init__(self, platform: Platform, scratch: Path) -> None:
        self._platform = platform
        self._scratch = scratch
        self._file = str(scratch / "candidate.py")
        self._module: Any = None
        self._instances: dict[str, nn.Module] = {}
        self._held: dict[str, Any] = {}

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Carry one command out; a failure of the hosted code becomes data."""
        operation: Callable[[dict[str, Any]], dict[str, Any]] = getattr(self, f"do_{command['op']}")
        stage = "compile_error" if command["op"] == "load" else "runtime_error"
        started = time.perf_counter()
        self._platform.renew()
        try:
            result = operation(command)
            self._platform.synchronize()  # The judge reads what was placed as soon as it has the answer.
        except BaseException as error:
            result = {"failure": self._describe(error, stage)}
        return {**result, "number": command["number"], "seconds": time.perf_counter() - started}

    def _describe(self, error: BaseException, stage: Any) -> Failure:
        return describe(error, self._file, stage)

    # Loading and constructing

    def do_open(self, command: dict[str, Any]) -> dict[str, Any]:
        """Make the device usable now; without this it is when something first needs it."""
        if "descriptors" in command:
            self._platform.furnish(command["descriptors"])
        self._platform.open(is_lean=command.get("lean", False))
        return {}

    def do_load_driver(self, command: dict[str, Any]) -> dict[str, Any]:
        """Have ready what a context needs before there is one."""
        self._platform.load_driver()
        return {}

    def do_furnish(self, command: dict[str, Any]) -> dict[str, Any]:
        """Take the memory that came beside the command, while nothing of the hosted code's is in any."""
        self._platform.furnish(command["descriptors"])
        return {}

    def do_parse(self, command: dict[str, Any]) -> dict[str, Any]:
        """See `source.parse`; on CUDA `serving` does it, before there is a runner."""
        return parse(command, self._file)

    def do_load(self, command: dict[str, Any]) -> dict[str, Any]:
        """Import the source from a file of the contestant's own, so that Triton finds its text.

        What it uses and only the reference's source (`beside`) defines it is lent; it says what that is.
        """
        Path(self._file).write_bytes(as_bytes(command["source"]))
        specification = importlib.util.spec_from_file_location("candidate", self._file)
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        sys.modules["candidate"] = module
        borrowed: list[str] = []
        with self._platform.loading():
            if beside := command.get("beside"):
                reference = compile(beside, "reference", "exec", dont_inherit=True)
                borrowed = missing(compiled(command["source"], self._file), reference)
                if borrowed:
                    lend(borrowed, reference, module)
            specification.loader.exec_module(module)
        entry = getattr(module, command["entry_point"], None)
        if not isinstance(entry, type) or not issubclass(entry, nn.Module):
            return {
                "failure": {
                    "kind": "compile_error",
                    "text": f"the source defines no class {command['entry_point']} that is a torch.nn.Module",
                    "line": 0,
                }
            }
        self._module = module
        return {"custom_state": callable(getattr(entry, "load_reference_state", None)), "borrowed": borrowed}

    def do_dry_call(self, command: dict[str, Any]) -> dict[str, Any]:
        """See `dry_call`; the last thing that this process is asked."""
        from kerneldojo.contestant.dry_call import refused_kernel

        error = refused_kernel(self._module, command["beside"], command["entry_point"], command["gpu"])
        return {} if error is None else {"failure": self._describe(error, "compile_error")}

    def do_construct(self, command: dict[str, Any]) -> dict[str, Any]:
        """Make an instance under a seed, with `alone` after all others are forgotten; its state goes into the arena."""
        if command.get("alone"):
            self.do_release(command)
        return self._construct(command, self._packer(command))

    def _construct(self, command: dict[str, Any], packer: Packer) -> dict[str, Any]:
        # Copies: an instance may keep them, and where they lie something else will lie after this.
        arguments = tree.decode(command["arguments"], lambda slot: self._platform.input_view(slot).clone())
        positional, named = split_init_inputs(arguments)
        seed_everything(command["seed"])
        entry = getattr(self._module, command["entry_point"])
        with weights.drawn_constants(negative=command.get("negative", False)), self._platform.constructing():
            instance = entry(*positional, **named)
        weights.check_sizes(instance)
        if command.get("redraw"):
            weights.redraw_constants(instance)
        instance = self._platform.adopt(instance)
        instance.train(command["training"])
        self._instances[command["instance"]] = instance
        return {"state": self._place_state(instance, packer)}

    def do_load_state(self, command: dict[str, Any]) -> dict[str, Any]:
        """Give an instance the reference's weights: through its own hook, or tensor by tensor."""
        instance: Any = self._instances[command["instance"]]
        values = [self._platform.input_view(Slot.model_validate(slot)) for slot in command["slots"]]
        if command["custom"]:
            instance.load_reference_state({name: v.clone() for name, v in zip(command["names"], values, strict=True)})
        else:
            weights.load(instance, values, command["names"])
        return {}

    def do_state(self, command: dict[str, Any]) -> dict[str, Any]:
        """Copy those of an instance's parameters and buffers into the arena that are named and there."""
        packer = self._packer(command)
        return {"state": self._place_state(self._instances[command["instance"]], packer, set(command["names"]))}

    def do_release(self, command: dict[str, Any]) -> dict[str, Any]:
        """Forget instances and held results."""
        self._instances.clear()
        self._held.clear()
        return {}

    def do_settle(self, command: dict[str, Any]) -> dict[str, Any]:
        """Forget them, and be as fresh as a process can be that has run before: another verdict comes."""
        self.do_release(command)
        gc.collect()
        return {"has_left": self._platform.settle()}

    def _place_state(self, instance: nn.Module, packer: Packer, names: set[str] | None = None) -> list[list[Any]]:
        place = self._platform.place if packer.in_place else lambda tensor, packer: packer.put(tensor)
        return [
            [name, place(tensor.detach(), packer).model_dump()]
            for name, tensor in weights.state(instance).items()
            if names is None or name in names
        ]

    # Calling

    def do_call(self, command: dict[str, Any]) -> dict[str, Any]:
        """Call an instance once; outputs are copied into the arena and described.

        They are copied as the next operation on the current stream finds them: what runs on another that nobody has
        joined may not be there yet, and would not be for whoever uses it.
        """
        instance = self._instances[command["instance"]]
        arguments = tree.decode(command["arguments"], self._platform.input_view)
        seed_everything(command["seed"])
        record: Seen | None = None
        try:
            silenced = command.get("silenced", False)
            with torch.no_grad(), self._platform.called(instance, arguments, silenced=silenced) as record:
                started = time.perf_counter()
                outputs = record.outputs = instance(*arguments)
                self._platform.look(outputs)
                elapsed = time.perf_counter() - started
            if command.get("hold"):
                self._held[command["hold"]] = outputs
            answer = self._place_outputs(outputs, command)
            placed = time.perf_counter()
            self._platform.synchronize()
            elapsed += time.perf_counter() - placed
        except tree.BadTree as error:
            return {"untold": str(error)}
        except BaseException as error:
            failure = self._describe(error, "runtime_error")
            return {"failure": failure, "specializations": record.specializations if record else []}
        return {**answer, "work": record.work, "specializations": record.specializations, "elapsed": elapsed}

    def do_arm(self, command: dict[str, Any]) -> dict[str, Any]:
        """Be ready for calls in which the hosted code's own kernels are no-ops, if that can be in a living process."""
        return {"is_armed": self._platform.arm()}

    def do_recall(self, command: dict[str, Any]) -> dict[str, Any]:
        """Describe again a result that was held, to see whether a later call overwrote it."""
        return self._place_outputs(self._held[command["hold"]], command)

    def _place_outputs(self, outputs: Any, command: dict[str, Any]) -> dict[str, Any]:
        packer = self._packer(command)
        kinds: list[dict[str, Any]] = []

        def place(tensor: torch.Tensor) -> Slot:
            kinds.append(self._kind(tensor))
            if kinds[-1]["fake"]:
                return packer.reserve([0], [1], torch.uint8)
            return self._platform.place(tensor.detach(), packer)

        return {"outputs": tree.encode(outputs, place), "kinds": kinds}

    def _kind(self, tensor: torch.Tensor) -> dict[str, Any]:
        """What the judge wants to know of an output beside its bytes."""
        fake = type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.layout != torch.strided or tensor.is_meta
        fake = fake or tensor.is_neg() or tensor.is_conj()  # Negation or conjugation that somebody else would do.
        return {
            "fake": fake,
            "type": type(tensor).__name__[:80],
            "overlaps": not fake and overlaps(tensor.shape, tensor.stride()),
            "stride": [] if fake else list(tensor.stride()),
            "on_device": not fake and self._platform.is_ours(tensor),
            "aliases_input": not fake and self._platform.is_input(tensor),
            "address": 0 if fake else tensor.untyped_storage().data_ptr(),
        }

    # The reference's own part

    def do_begin(self, command: dict[str, Any]) -> dict[str, Any]:
        """Forget all instances, draw `get_init_inputs` and construct with them: what would be three commands, each of
        which waits for a device that others use."""
        from kerneldojo.contestant import reference

        self.do_release(command)
        packer = self._packer(command)
        wanted = {"what": "get_init_inputs", "seed": command["draw_seed"]}
        drawn = reference.draw(self._module, self._platform, packer, wanted)
        self._platform.synchronize()
        return {**drawn, **self._construct({**command, "arguments": drawn["values"]}, packer)}

    def do_ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """Draw `get_inputs` and run the reference with them, as two commands would."""
        from kerneldojo.contestant import reference

        packer = self._packer(command)
        wanted = {"what": "get_inputs", "seed": command["draw_seed"], "distribution": command["distribution"]}
        drawn = reference.draw(self._module, self._platform, packer, wanted)
        self._platform.synchronize()
        command = {**command, "arguments": drawn["values"]}
        return {**drawn, **reference.expect(self._instances, self._platform, packer, command)}

    def do_draw(self, command: dict[str, Any]) -> dict[str, Any]:
        """Run `get_inputs` or `get_init_inputs` under a seed, and place what they return."""
        from kerneldojo.contestant import reference

        return reference.draw(self._module, self._platform, self._packer(command), command)

    def do_expect(self, command: dict[str, Any]) -> dict[str, Any]:
        """Run the reference in each of the precisions that are asked for, each with a state of its own."""
        from kerneldojo.contestant import reference

        return reference.expect(self._instances, self._platform, self._packer(command), command)

    def do_needed_bytes(self, command: dict[str, Any]) -> dict[str, Any]:
        """Find out on how many bytes of each input the reference's outputs depend."""
        from kerneldojo.contestant import reference

        return reference.needed_bytes(self._instances, self._platform, command)

    # The platform's own part

    def do_platform(self, command: dict[str, Any]) -> dict[str, Any]:
        """Hand a command to the platform: compiling for a target, timing, profiling."""
        operation: Callable[..., dict[str, Any]] = getattr(self._platform, f"do_{command['what']}")
        return operation(command, self._module, self._instances)

    def _packer(self, command: dict[str, Any]) -> Packer:
        return Packer(self._platform.arena, command["start"], command["stop"], in_place=bool(command.get("in_place")))


def split_init_inputs(arguments: Any) -> tuple[list[Any], dict[str, Any]]:
    """KernelBench's two forms: a list of positional arguments, or `[[...], {...}]` with keywords."""
    if (
        isinstance(arguments, list | tuple)
        and len(arguments) == 2
        and isinstance(arguments[0], list | tuple)
        and isinstance(arguments[1], dict)
    ):
        return list(arguments[0]), dict(arguments[1])
    if isinstance(arguments, dict):
        return [], dict(arguments)
    return list(arguments), {}

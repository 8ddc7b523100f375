"""A slow obvious twin of `coarsen.recompute.recomputing` and `stash`, on names."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Model:
    """`backward` and `view` by the name of an op; tensors `(maker, size, readers)`."""

    backward: dict[str, bool]
    view: dict[str, bool]
    tensors: list[tuple[str, float, set[str]]] = field(default_factory=list)

    def root(self, tensor):
        """The tensor whose memory one is in; None for that of weights and inputs."""
        maker = self.tensors[tensor][0]
        read = [k for k, (_, _, readers) in enumerate(self.tensors) if maker in readers]
        if not self.view[maker] or len(read) > 1:
            return tensor
        return self.root(read[0]) if read else None

    def stash(self):
        """The tensors that hold what forward ops make and backward ops read."""
        return {
            self.root(k)
            for k, (maker, _, readers) in enumerate(self.tensors)
            if not self.backward[maker] and any(self.backward[each] for each in readers)
        } - {None}

    def stashed_bytes(self):
        """By the name of its maker."""
        kept = dict.fromkeys(self.backward, 0.0)
        for tensor in self.stash():
            maker, size, _ = self.tensors[tensor]
            kept[maker] += size
        return kept


def model_of(problem, view):
    names = problem.op_names
    found = Model(
        dict(zip(names, problem.is_backward.tolist(), strict=True)),
        dict(zip(names, view, strict=True)),
    )
    for t in range(problem.tensor_count):
        readers = problem.consumers[problem.consumer_offsets[t] : problem.consumer_offsets[t + 1]]
        maker = names[problem.tensor_producer[t]]
        found.tensors.append((maker, float(problem.tensor_bytes[t]), {names[r] for r in readers}))
    return found


def recomputed(model, block):
    """`(model, room)`: blocks, ``block[name]`` or None, recomputed where less is kept; what devices
    leave for the largest."""
    chosen = {b for b in set(block.values()) if b is not None and _saves(model, block, b)}
    block = {name: b if b in chosen else None for name, b in block.items()}
    again = {
        name: f"{name}_recompute" for name, b in block.items() if b and not model.backward[name]
    }
    made = Model(
        model.backward | dict.fromkeys(again.values(), True),
        model.view | {again[name]: model.view[name] for name in again},
    )
    copies = {}
    for maker, size, readers in model.tensors:
        own, copy = set(), set()
        for reader in readers:
            inside = maker in again and block[reader] == block[maker]
            (copy if inside and model.backward[reader] else own).add(reader)
            if reader in again and not model.backward[maker]:
                (copy if inside else own).add(again[reader])
        if model.backward[maker]:
            for b in {block[each] for each in readers if model.backward[each]} - {
                None,
                block[maker],
            }:
                own |= {again[name] for name in _firsts(model, block, again, b)}
        made.tensors.append((maker, size, own))
        if copy:
            copies[len(made.tensors) - 1] = (again[maker], size, copy)
    made.tensors += copies.values()
    return made, max((_made_again(made, block, again, b) for b in chosen), default=0.0)


def _firsts(model, block, again, b):
    """The forward ops of block `b` that read nothing which one of its forward ops made."""
    return [
        name
        for name in again
        if block[name] == b
        and not any(
            name in readers and maker in again and block[maker] == b
            for maker, _, readers in model.tensors
        )
    ]


def _made_again(made, block, again, b):
    """Bytes behind what ops of block `b` make again and backward ops read."""
    mine = {again[name] for name in again if block[name] == b}
    read = {
        made.root(k)
        for k, (maker, _, readers) in enumerate(made.tensors)
        if maker in mine and readers - set(again.values())
    }
    return sum(made.tensors[k][1] for k in read if k is not None and made.tensors[k][0] in mine)


def _saves(model, block, b):
    """Whether what block `b` alone reads backward is more than what it must keep besides."""
    saved, needed = set(), set()
    stash = model.stash()
    for tensor in stash:
        maker = model.tensors[tensor][0]
        readers = {
            reader
            for k, (source, _, some) in enumerate(model.tensors)
            if not model.backward[source] and model.root(k) == tensor
            for reader in some
            if model.backward[reader]
        }
        if block[maker] == b and all(block[reader] == b for reader in readers):
            saved.add(tensor)
    for k, (maker, _, readers) in enumerate(model.tensors):
        ahead = [each for each in readers if not model.backward[each] and block[each] == b]
        if ahead and not model.backward[maker] and block[maker] != b:
            needed.add(model.root(k))
    needed -= stash | {None}
    size = [tensor[1] for tensor in model.tensors]
    return sum(size[k] for k in saved) > sum(size[k] for k in needed)

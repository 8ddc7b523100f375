"""The slow, obvious twin of `kernels.throughput.ejection`: lists, the same random draws."""

from __future__ import annotations

from placewright.kernels.throughput import ejection


class Ejection:
    """Where nodes are, `at[node]`, the `rings` of devices and `moves`, (node, device before).

    `row` lists the devices in the order that stages keep to, nothing where they need not.
    """

    def __init__(self, graph, problem, at, rings, row, rng):
        self.graph, self.problem, self.rng = graph, problem, rng
        self.at, self.rings, self.row = list(at), rings, list(row)
        self.moves = []

    def move(self, node, target):
        self.moves.append((node, self.at[node]))
        self.rings[self.at[node]].remove(node)
        self.rings[target].append(node)
        self.at[node] = target

    def is_over(self, device):
        used = sum(m for m, d in zip(self.graph.memory, self.at, strict=True) if d == device)
        return used > self.problem.device_memory[device] * (1 + ejection.ROUNDING)

    def overfull(self):
        return [self.at[node] for node, _ in self.moves if self.is_over(self.at[node])]

    def make_room(self):
        for _ in range(ejection.MOST_LINKS):
            overfull = self.overfull()
            if not overfull:
                return
            before = len(self.moves)
            self.send_away(overfull[0])
            if len(self.moves) == before or self.is_over(overfull[0]):
                return

    def send_away(self, device):
        goal, kind = None, self.rng.random()
        if kind < ejection.BACK:
            goal = self.moves[self.below(len(self.moves))][1]
        elif kind >= ejection.BESIDE:
            goal = self.below(self.problem.device_count)
        ring = list(self.rings[device])
        start = self.below(ejection.STROLL) % len(ring)
        ring = ring[start:] + ring[:start]
        done = {node for node, _ in self.moves}
        for _ in range(ejection.MOST_PASSED):
            node = ring[0]
            if node not in done and self.graph.memory[node] > 0 and self.is_light(node):
                target = self.target(node, goal)
                if target != device and self.is_allowed(node, target):
                    self.move(node, target)
                    done.add(node)
                    ring.pop(0)
                    if not ring or not self.is_over(device):
                        return
                    continue
            ring.append(ring.pop(0))

    def target(self, node, goal):
        if not self.row:
            return goal if goal is not None else self.at[self.neighbour(node)]
        rank = {device: place for place, device in enumerate(self.row)}
        low = max([0, *(rank[self.at[a]] for a, b in self.edges() if b == node)])
        high = min([len(self.row) - 1, *(rank[self.at[b]] for a, b in self.edges() if a == node)])
        if goal is not None and low <= rank[goal] <= high:
            return goal
        place = rank[self.at[node]]
        if low < place and (high == place or self.rng.random() < 0.5):
            return self.row[place - 1]
        return self.row[place + 1] if high > place else self.at[node]

    def edges(self):
        return zip(self.graph.edge_source.tolist(), self.graph.edge_target.tolist(), strict=True)

    def nets_of(self, node):
        nets = self.graph.each_net
        members = [[net.producer, *(reader for reader, _ in net.readers)] for net in nets]
        return [each for each in members if node in each]

    def neighbour(self, node):
        nets = self.nets_of(node)
        if not nets:
            return node
        members = nets[self.below(len(nets))]
        return members[self.below(len(members))]

    def is_light(self, node):
        return len(self.nets_of(node)) <= ejection.MANY_NETS

    def is_allowed(self, node, device):
        return bool(self.graph.allowed[node, self.graph.device_class[device]])

    def below(self, count):
        return int(self.rng.random() * count)

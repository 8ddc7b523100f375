// The model as blocks that open into modules and ops, coloured by device.

const OPS_AT_ONCE = 200, ALIKE = 4;

// `[from, to]` of each stretch of equal values.
function runsOf(values) {
  const found = [];
  values.forEach((value, k) => {
    if (k && value === values[k - 1]) found[found.length - 1][1] = k + 1;
    else found.push([k, k + 1]);
  });
  return found;
}

// Titles of the columns; for those who see none, each figure says what it is.
function treeHead(what) {
  return el("div", { class: "tree-head", "aria-hidden": "true" },
    el("span", {}, what), el("span", {}, "shares"), el("span", { class: "where" }, "devices"),
    el("span", { class: "cell" }, "takes"), el("span", { class: "cell" }, "keeps"), el("span", { class: "cell crossing" }, "crosses"));
}

function figureCell(what, text) {
  return el("span", { class: "cell" }, el("span", { class: "unseen" }, `${what} `), text);
}

class ModelTree {
  constructor(plan, showOp) {
    this.plan = plan;
    this.model = plan.model;
    this.showOp = showOp;
    this.outgoing = this.rowsOf();
    const { order, offsets } = this.model.byBlock;
    this.blocks = this.model.blocks.map((name, block) =>
      ({ name, ...this.totals(order.subarray(offsets[block], offsets[block + 1])) }));
    this.longest = this.blocks.reduce((most, block) => Math.max(most, block.seconds), 0) || 1;
    this.received = new Map();
    plan.crossings.block.forEach((block, k) => {
      this.received.set(block, (this.received.get(block) || 0) + plan.crossings.bytes[k]);
    });
    this.map = new BlockMap(plan, this.blocks, (block) => this.openBlock(block));
    this.items = this.blocks.map((block, k) => this.blockItem(block, k));
    const tree = runsOf(this.blocks.map((block) => this.kindOf(block))).map(([from, to]) => this.runItem(from, to));
    this.section = section("model", this.model.named ? "Blocks of the model" : "Ops of the model",
      "A column per block, along the data; how high it is on a device says how much of its time is there. "
      + "Lines are tensors that cross. Open a block for its modules and ops.",
      this.map.frame, el("div", { class: "tree" }, treeHead(this.model.named ? "block" : "op"), tree.flat()));
  }

  // Op → the rows of the crossings that it makes.
  rowsOf() {
    const found = new Map();
    this.plan.crossings.op.forEach((op, k) => {
      if (!found.has(op)) found.set(op, []);
      found.get(op).push(k);
    });
    return found;
  }

  // Seconds and bytes of some ops, and the share of their time that each device has.
  totals(ops) {
    const { plan, model } = this, shares = new Map(), counts = new Map();
    let seconds = 0, memory = 0, sent = 0;
    for (const op of ops) {
      const took = plan.opSeconds[op];
      seconds += took;
      memory += model.memory[op];
      plan.eachDevice(op, (device, share) => {
        shares.set(device, (shares.get(device) || 0) + took * share);
        counts.set(device, (counts.get(device) || 0) + share);
      });
      for (const row of this.outgoing.get(op) || []) sent += plan.crossings.bytes[row];
    }
    const [held, total] = seconds ? [shares, seconds] : [counts, ops.length || 1];
    const parts = [...held].filter(([, amount]) => amount > 0).sort(([one], [two]) => one - two);
    return { ops, seconds, memory, sent, shares: new Map(parts.map(([device, amount]) => [device, amount / total])) };
  }

  // What blocks of a run have in common: how long they take, and where.
  kindOf(block) {
    const shares = [...block.shares].map(([device, share]) => `${device}:${Math.round(100 * share)}`);
    return `${shares.join()} ${formatSeconds(block.seconds)}`;
  }

  // Blocks `from` … `to` - 1 that are alike as one that opens; a few of them as they are.
  runItem(from, to) {
    const items = this.items.slice(from, to);
    if (items.length < ALIKE) return items;
    const { order, offsets } = this.model.byBlock;
    const totals = this.totals(order.subarray(offsets[from], offsets[to]));
    const name = `${runName(this.blocks[from].name, this.blocks[to - 1].name)}: ${to - from} alike`;
    const received = this.blocks.slice(from, to).reduce((sum, _, k) => sum + (this.received.get(from + k) || 0), 0);
    const run = this.item("run", name, totals, received, () => {});
    run.lastElementChild.append(...items);
    return [run];
  }

  blockItem(block, number) {
    const received = this.received.get(number) || 0;
    return this.item("block", block.name, block, received, (into) => this.fillBlock(into, block));
  }

  item(kind, name, totals, received, fill) {
    const { plan } = this, shares = [...totals.shares];
    const where = shares.map(([device, share]) => (shares.length > 1
      ? `${plan.deviceName(device)} ${formatShare(share)}` : plan.deviceName(device))).join(", ");
    const width = kind === "block" || kind === "run" ? Math.min(100, Math.max(2, (100 * totals.seconds) / this.longest)) : 100;
    const inside = el("div", { class: "inside" });
    const made = el("details", { class: kind },
      el("summary", {},
        named(name),
        el("span", { class: "bar" }, el("span", { class: "bar-room", style: { width: `${width}%` } }, shareBar(shares, where))),
        el("span", { class: "where" }, named(where)),
        figureCell("takes", formatSeconds(totals.seconds)),
        figureCell("keeps", formatBytes(totals.memory)),
        el("span", { class: "cell crossing" }, totals.sent || received
          ? [totals.sent ? `out ${formatBytes(totals.sent)}` : "", received ? `in ${formatBytes(received)}` : ""].filter(Boolean).join(", ") : "")),
      inside);
    made.addEventListener("toggle", () => {
      if (made.open && !inside.childElementCount) fill(inside);
    });
    return made;
  }

  fillBlock(into, block) {
    const groups = new Map();
    for (const op of block.ops) {
      const module = this.model.module(op);
      if (!groups.has(module)) groups.set(module, []);
      groups.get(module).push(op);
    }
    if (groups.size === 1) {
      this.fillOps(into, block.ops, block.name);
      return;
    }
    for (const [module, ops] of groups) {
      const within = module.startsWith(`${block.name}.`) ? module.slice(block.name.length + 1) : module;
      const name = module === block.name || !module ? "ops of its own" : within;
      into.append(this.item("module", name, this.totals(ops), 0, (inside) => this.fillOps(inside, ops, module)));
    }
  }

  fillOps(into, ops, above, from = 0) {
    const end = Math.min(ops.length, from + OPS_AT_ONCE);
    for (let k = from; k < end; k++) into.append(this.opRow(ops[k], above));
    if (end === ops.length) return;
    const more = el("button", {
      class: "more", onclick: () => { more.remove(); this.fillOps(into, ops, above, end); },
    }, `Show ${Math.min(OPS_AT_ONCE, ops.length - end)} more of ${formatCount(ops.length - end)}`);
    into.append(more);
  }

  opRow(op, above) {
    const { plan, model } = this, full = model.ops[op], devices = [];
    plan.eachDevice(op, (device, share) => devices.push([device, share]));
    const name = above && full.startsWith(`${above}.`) ? full.slice(above.length + 1) : full;
    const sent = [...this.sentTo(op)].map(([device, { bytes, count }]) => el("span", { class: "sent" }, "→ ",
      named(plan.deviceName(device)), bytes ? ` ${formatBytes(bytes)}` : " the same", count > 1 ? ` in ${count}` : ""));
    const where = devices.map(([device]) => plan.deviceName(device)).join(", ");
    const title = this.showOp ? el("button", { class: "link", onclick: () => this.showOp(op) }, named(name, { title: full })) : named(name, { title: full });
    return el("div", { class: "op" }, title,
      el("span", { class: "type" }, named(model.type(op))),
      el("span", { class: "where" }, devices.map(([device]) => swatch(device)), named(where)),
      figureCell("takes", formatSeconds(plan.opSeconds[op])),
      model.memory[op] ? figureCell("keeps", formatBytes(model.memory[op])) : el("span", { class: "cell" }),
      el("span", { class: "cell crossing" }, sent));
  }

  // Device → the bytes that an op sends it, and in how many tensors.
  sentTo(op) {
    const { crossings } = this.plan, found = new Map();
    for (const row of this.outgoing.get(op) || []) {
      const sum = found.get(crossings.target[row]) || { bytes: 0, count: 0 };
      found.set(crossings.target[row], { bytes: sum.bytes + crossings.bytes[row], count: sum.count + 1 });
    }
    return found;
  }

  openBlock(block) {
    const item = this.items[block];
    for (let each = item; each; each = each.parentElement.closest("details")) each.open = true;
    item.scrollIntoView({ block: "center" });
    item.querySelector("summary").focus();
  }
}

// Columns and names as `columns.py` writes them.

const COLUMN_TYPES = {
  u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array,
  f4: Float32Array, f8: Float64Array,
};

function column({ type, data }) {
  const text = atob(data);
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
  return new COLUMN_TYPES[type](bytes.buffer);
}

function names({ shared, rest }) {
  const lengths = column(shared);
  const found = new Array(rest.length);
  let before = "";
  for (let k = 0; k < rest.length; k++) {
    before = before.slice(0, lengths[k]) + rest[k];
    found[k] = before;
  }
  return found;
}

function table({ names: texts, index }) {
  return { texts: names(texts), index: column(index) };
}

// The first k of from … to - 1 for which `holds(k)`, which stays true once it is.
function firstWhere(from, to, holds) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (holds(middle)) to = middle;
    else from = middle + 1;
  }
  return from;
}

class Model {
  constructor(record) {
    this.ops = names(record.ops);
    this.types = table(record.types);
    this.modules = table(record.modules);
    this.blocks = names(record.blocks);
    this.opBlock = column(record.op_block);
    this.rank = column(record.rank);
    this.memory = column(record.memory);
    this.backward = column(record.backward);
    this.named = record.named;
  }

  type(op) { return this.types.texts[this.types.index[op]]; }

  module(op) { return this.modules.texts[this.modules.index[op]]; }

  // Ops along the data, block by block: `order`, and where each block begins in it.
  get byBlock() {
    if (this.sorted) return this.sorted;
    const along = new Uint32Array(this.ops.length);
    this.rank.forEach((rank, op) => { along[rank] = op; });
    const offsets = new Uint32Array(this.blocks.length + 1);
    for (const block of this.opBlock) offsets[block + 1]++;
    for (let k = 0; k < this.blocks.length; k++) offsets[k + 1] += offsets[k];
    const next = offsets.slice(), order = new Uint32Array(along.length);
    for (const op of along) order[next[this.opBlock[op]]++] = op;
    this.sorted = { order, offsets };
    return this.sorted;
  }
}

class Plan {
  constructor(record, models) {
    Object.assign(this, record);
    this.model = models[record.model];
    this.rows = record.devices.rows;
    this.opSeconds = column(record.op_seconds);
    this.device = column(record.placement.device);
    this.inputs = record.placement.inputs;
    this.subgraph = record.placement.subgraph ? column(record.placement.subgraph) : null;
    this.crossings = Object.fromEntries(
      Object.entries(record.crossings).map(([name, each]) => [name, column(each)]));
  }

  deviceName(device) { return this.rows[device].name; }

  // Calls `visit(device, share)` for every device of an op; batches may have several.
  eachDevice(op, visit) {
    if (this.inputs === 1) {
      visit(this.device[op], 1);
      return;
    }
    const first = op * this.inputs, count = new Map();
    for (let k = first; k < first + this.inputs; k++) {
      count.set(this.device[k], (count.get(this.device[k]) || 0) + 1);
    }
    for (const [device, times] of count) visit(device, times / this.inputs);
  }
}

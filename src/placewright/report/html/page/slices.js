// The slices of a timeline, by track and start, and what each is in words.

const KINDS = ["op", "transfer", "reading", "computing", "writing", "measured", "waiting", "forward", "backward"];
const OP = 0, TRANSFER = 1, READING = 2, COMPUTING = 3, WRITING = 4, MEASURED = 5, WAITING = 6, FORWARD = 7, BACKWARD = 8;

class Slices {
  constructor(plan) {
    const record = plan.timeline;
    this.plan = plan;
    this.tracks = record.tracks;
    this.offsets = record.offsets;
    for (const name of ["kind", "start", "finish", "item", "amount", "critical", "path"]) {
      this[name] = column(record[name]);
    }
    this.sized = record.sized;
    this.held = new Map(); // ops of subgraphs and passes, as far as somebody asked for them
    this.count = this.start.length;
    this.end = this.finish.reduce((most, each) => Math.max(most, each), 0);
    this.largest = this.sized
      ? this.amount.reduce((most, each, k) => (this.kind[k] === OP ? Math.max(most, each) : most), 1)
      : 1;
    this.track = new Uint32Array(this.count);
    this.reach = new Float64Array(this.count); // the last finish of those up to each, on its track
    for (let track = 0; track < this.tracks.length; track++) {
      let reach = 0;
      for (let k = this.offsets[track]; k < this.offsets[track + 1]; k++) {
        reach = Math.max(reach, this.finish[k]);
        this.reach[k] = reach;
        this.track[k] = track;
      }
    }
  }

  // The first slice of a track that may still last at `time`.
  from(track, time) {
    return firstWhere(this.offsets[track], this.offsets[track + 1], (k) => this.reach[k] >= time);
  }

  // The slice of a track at `time`, or the nearest within `slack` seconds; -1 if there is none.
  at(track, time, slack) {
    let found = -1, least = slack;
    for (let k = this.from(track, time - slack); k < this.offsets[track + 1]; k++) {
      if (this.start[k] > time + slack) break;
      const far = Math.max(this.start[k] - time, time - this.finish[k], 0);
      if (far <= least) { found = k; least = far; }
    }
    return found;
  }

  isOp(k) { return this.kind[k] === OP || this.kind[k] === MEASURED; }

  // Whether it is a pass of a micro-batch through a stage.
  isPass(k) { return this.kind[k] === FORWARD || this.kind[k] === BACKWARD; }

  // The op that it is, or whose output it moves; -1 of a whole subgraph or stage.
  op(k) {
    return this.isPass(k) || [READING, COMPUTING, WRITING].includes(this.kind[k]) ? -1 : this.item[k];
  }

  name(k) {
    const op = this.op(k);
    if (this.isPass(k)) return `${KINDS[this.kind[k]]} pass of micro-batch ${this.item[k] + 1}`;
    return op >= 0 ? this.plan.model.ops[op] : `subgraph ${this.item[k] + 1}, ${KINDS[this.kind[k]]}`;
  }

  // What is written on it where there is room.
  shortName(k) {
    if (this.isPass(k)) return `${this.item[k] + 1}`;
    const text = this.name(k);
    const short = this.op(k) >= 0 ? text.split(".").slice(-2).join(".") : text;
    return this.sized && this.kind[k] === OP ? `×${this.amount[k]} ${short}` : short;
  }

  // Rows of what it is and what that comes to.
  describe(k) {
    const track = this.tracks[this.track[k]], op = this.op(k), model = this.plan.model;
    const rows = [[track.kind === "link" ? "link" : "device", track.name]];
    if (this.kind[k] === WAITING) rows.push(["waits", "for what this op makes"]);
    if (this.isOp(k)) {
      rows.push(["type", model.type(op)]);
      if (model.module(op)) rows.push(["module", model.module(op)]);
    }
    rows.push(["start", formatSeconds(this.start[k])], ["end", formatSeconds(this.finish[k])],
      ["takes", formatSeconds(this.finish[k] - this.start[k])]);
    if (this.kind[k] === MEASURED && this.ofOp(op) >= 0) {
      const planned = this.ofOp(op);
      rows.push(["planned", formatSeconds(this.finish[planned] - this.start[planned])]);
    }
    if (this.kind[k] === TRANSFER) rows.push(["bytes", formatBytes(this.amount[k])]);
    if (this.sized && this.kind[k] === OP) rows.push(["inputs", formatCount(this.amount[k])]);
    if (this.kind[k] === OP && model.memory[op]) rows.push(["keeps", formatBytes(model.memory[op])]);
    if (this.critical[k]) rows.push(["critical path", "yes"]);
    return rows;
  }

  // One line of the same, for those who hear it.
  sentence(k) {
    return `${this.name(k)}, ${this.describe(k).map((row) => row.join(" ")).join(", ")}`;
  }

  // The first slice that is this op itself or its subgraph, not what it sends; -1 without any.
  ofOp(op) {
    if (!this.firstOf) {
      this.firstOf = new Int32Array(this.plan.model.ops.length).fill(-1);
      for (let k = this.count - 1; k >= 0; k--) {
        if (this.kind[k] === OP) this.firstOf[this.item[k]] = k;
        else if (this.isPass(k) || this.kind[k] === COMPUTING) for (const each of this.opsOf(k)) this.firstOf[each] = k;
      }
    }
    return this.firstOf[op];
  }

  // The ops of the subgraph, or of the stage's pass, that a slice is of.
  opsOf(k) {
    const pass = this.isPass(k), key = `${this.track[k]} ${pass ? this.kind[k] : this.item[k]}`;
    if (!this.held.has(key)) {
      const { device, subgraph, model } = this.plan, here = this.tracks[this.track[k]].device, found = [];
      const way = this.kind[k] === BACKWARD ? 1 : 0;
      device.forEach((each, op) => {
        if (each === here && (pass ? model.backward[op] === way : subgraph[op] === this.item[k])) found.push(op);
      });
      this.held.set(key, found);
    }
    return this.held.get(key);
  }

  // Whether one of the ops that a slice is of is among `matches`.
  holds(k, matches) {
    const op = this.op(k);
    return op >= 0 ? matches[op] === 1 : this.opsOf(k).some((each) => matches[each]);
  }
}

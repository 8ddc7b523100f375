// The map: blocks along the data, a row per device, and lines for what crosses between devices.

const CELL = 30, MOST_LINES = 1500, MOST_ROWS = 40, MANY_LINES = 60, NAMED_LINES = 4;

class BlockMap {
  constructor(plan, blocks, open) {
    this.plan = plan;
    this.blocks = blocks;
    this.open = open;
    this.rows = plan.rows.map((_, device) => device).filter((device) => plan.rows[device].ops).slice(0, MOST_ROWS);
    this.row = new Map(this.rows.map((device, k) => [device, k]));
    this.lines = this.crossings();
    this.canvas = el("canvas", { class: "map-canvas", role: "img", "aria-label": this.summary() });
    this.stage = el("div", { class: "map-stage" }, this.canvas);
    this.frame = el("div", { class: "map" },
      el("div", { class: "labels", "aria-hidden": "true" }, this.rows.map((device) =>
        el("div", { class: "label" }, swatch(device), named(plan.deviceName(device))))), this.stage);
    this.tip = new Tip(this.frame);
    this.hovered = -1;
    this.redraw = onceAFrame(() => this.draw());
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hide(); this.hovered = -1; this.redraw(); });
    this.canvas.addEventListener("click", (event) => this.open(this.cell(event).block));
    redraws.add(this.redraw);
    new ResizeObserver(this.redraw).observe(this.stage);
  }

  summary() {
    const bytes = this.plan.crossings.bytes.reduce((sum, each) => sum + each, 0);
    return `${this.blocks.length} blocks on ${this.rows.length} devices; ${formatBytes(bytes)} cross `
      + "between devices. The list below has the same.";
  }

  // What crosses, added up by block and device at both ends; the most bytes first.
  crossings() {
    const { crossings, model } = this.plan, found = new Map();
    crossings.op.forEach((op, k) => {
      const ends = [model.opBlock[op], crossings.source[k], crossings.block[k], crossings.target[k]];
      const key = ends.join();
      const line = found.get(key) || { ends, bytes: 0, count: 0 };
      line.bytes += crossings.bytes[k];
      line.count += 1;
      found.set(key, line);
    });
    return [...found.values()].sort((one, two) => two.bytes - one.bytes).slice(0, MOST_LINES);
  }

  cell(event) {
    const wide = this.canvas.clientWidth / this.blocks.length;
    return {
      block: Math.min(this.blocks.length - 1, Math.max(0, Math.floor(event.offsetX / wide))),
      row: Math.min(this.rows.length - 1, Math.max(0, Math.floor(event.offsetY / CELL))),
    };
  }

  hover(event) {
    const { block, row } = this.cell(event), device = this.rows[row], each = this.blocks[block];
    const share = each.shares.get(device) || 0;
    const moved = (end) => this.lines.filter((line) => line.ends[end] === block && line.ends[end + 1] === device);
    this.tip.show(event.offsetX + this.stage.offsetLeft, event.offsetY, each.name, [
      ["device", this.plan.deviceName(device)], ["of its time", formatShare(share)],
      ["sends", this.movedWords(moved(0), 2)], ["receives", this.movedWords(moved(2), 0)]]);
    if (this.hovered !== block) {
      this.hovered = block;
      this.redraw();
    }
  }

  // The bytes of some lines, and the largest by the block and device at their other `end`.
  movedWords(lines, end) {
    if (!lines.length) return "nothing";
    const total = formatBytes(lines.reduce((sum, line) => sum + line.bytes, 0));
    const parts = lines.slice(0, NAMED_LINES).map(({ ends, bytes }) => `${end ? "to" : "from"} `
      + `${this.blocks[ends[end]].name} on ${this.plan.deviceName(ends[end + 1])} ${formatBytes(bytes)}`);
    if (lines.length > NAMED_LINES) parts.push("…");
    return lines.length > 1 ? `${total}: ${parts.join(", ")}` : parts[0];
  }

  draw() {
    const width = this.stage.clientWidth, height = this.rows.length * CELL;
    if (!width) return;
    paint(this.canvas, width, height, (context) => {
      this.drawCells(context, width / this.blocks.length, width);
      this.drawLines(context, width / this.blocks.length);
      this.drawBytes(context, width / this.blocks.length, width);
    });
  }

  drawCells(context, wide, width) {
    this.rows.forEach((_, row) => {
      context.fillStyle = style.line;
      context.fillRect(0, (row + 1) * CELL - 1, width, 1);
    });
    if (this.hovered >= 0) context.fillRect(this.hovered * wide, 0, wide, this.rows.length * CELL);
    const gap = wide > 5 ? 1 : 0;
    this.blocks.forEach((block, k) => {
      for (const [device, share] of block.shares) {
        const row = this.row.get(device);
        if (row === undefined || !share) continue;
        const tall = Math.max(3, (CELL - 8) * share);
        context.fillStyle = deviceColour(device);
        context.fillRect(k * wide, row * CELL + CELL - 4 - tall, Math.max(wide - gap, 0.7), tall);
      }
    });
  }

  drawLines(context, wide) {
    const most = this.lines.length ? this.lines[0].bytes : 1;
    const faint = 0.4 * Math.max(0.15, Math.min(1, Math.sqrt(MANY_LINES / this.lines.length)));
    context.strokeStyle = style.ink;
    for (const { ends: [from, source, to, target], bytes } of this.lines) {
      const one = this.row.get(source), two = this.row.get(target);
      if (one === undefined || two === undefined) continue;
      const marked = this.hovered === from || this.hovered === to;
      const x = [from, to].map((block) => (block + 0.5) * wide);
      const y = [one, two].map((row) => row * CELL + CELL - 4);
      context.globalAlpha = marked ? 0.95 : this.hovered >= 0 ? faint / 3 : faint;
      context.lineWidth = 0.6 + 2.4 * Math.sqrt(bytes / (most || 1));
      context.beginPath();
      context.moveTo(x[0], y[0]);
      const bend = from === to ? Math.min(wide * 0.3, 14) * Math.sign(two - one) : 0, half = (y[0] + y[1]) / 2;
      if (bend) context.quadraticCurveTo(x[0] + bend, half, x[1], y[1]);
      else context.bezierCurveTo(x[0], half, x[1], half, x[1], y[1]);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  // The bytes of a line at its middle, where no other text is: the most bytes first.
  drawBytes(context, wide, width) {
    const taken = [];
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (const { ends: [from, source, to, target], bytes } of this.lines) {
      const one = this.row.get(source), two = this.row.get(target);
      if (one === undefined || two === undefined || !bytes) continue;
      if (this.hovered >= 0 && this.hovered !== from && this.hovered !== to) continue;
      const text = formatBytes(bytes), half = context.measureText(text).width / 2 + 3;
      const x = Math.min(Math.max(((from + to + 1) / 2) * wide, half), width - half);
      const y = ((one + two) / 2) * CELL + CELL - 4;
      if (taken.some((each) => Math.abs(each.y - y) < 14 && Math.abs(each.x - x) < each.half + half)) continue;
      taken.push({ x, y, half });
      context.globalAlpha = 0.85;
      context.fillStyle = style.card;
      context.fillRect(x - half, y - 7, 2 * half, 14);
      context.globalAlpha = 1;
      context.fillStyle = style.ink;
      context.fillText(text, x, y + 0.5);
    }
    context.textAlign = "start";
  }
}

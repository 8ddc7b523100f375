// Draws the tracks of a timeline. What is narrower than a pixel is drawn together, as dense as it is.

const ROW = 26, BAR = 20, LABELLED = 46;
const FILLED = [1, 0.6, 0.45, 1, 0.45, 0.8, 0.2, 1, 0.45]; // how solid each kind of slice is

class Painter {
  constructor(slices, view, state) {
    this.slices = slices;
    this.view = view;
    this.state = state; // selected, hovered, matches, critical
  }

  tracks(context, width, height, scrolled) {
    const first = Math.max(0, Math.floor(scrolled / ROW));
    const last = Math.min(this.slices.tracks.length, Math.ceil((scrolled + height) / ROW));
    this.scale = width / this.view.span;
    this.width = width;
    this.grid(context, width, height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (let track = first; track < last; track++) {
      this.track(context, track, track * ROW - scrolled);
    }
    if (this.state.critical) this.path(context, scrolled, height);
    this.outline(context, this.state.selected, scrolled, style.ink, 2.5);
    if (this.state.hovered !== this.state.selected) {
      this.outline(context, this.state.hovered, scrolled, style.ink, 1.5);
    }
  }

  x(time) { return (time - this.view.from) * this.scale; }

  grid(context, width, height) {
    const step = roundStep(this.view.span, Math.max(2, width / 110));
    context.strokeStyle = style.line;
    context.lineWidth = 1;
    context.beginPath();
    for (let time = Math.ceil(this.view.from / step) * step; time <= this.view.to; time += step) {
      const x = Math.round(this.x(time)) + 0.5;
      context.moveTo(x, 0);
      context.lineTo(x, height);
    }
    context.stroke();
  }

  axis(context, width, height) {
    const step = roundStep(this.view.span, Math.max(2, width / 110));
    this.scale = width / this.view.span;
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = style.soft;
    context.textBaseline = "middle";
    for (let time = Math.ceil(this.view.from / step) * step; time <= this.view.to; time += step) {
      const x = this.x(time), text = formatMoment(time, step);
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(Math.max(x - half, 0), width - 2 * half), height / 2);
    }
  }

  track(context, track, top) {
    const { slices, view } = this, row = slices.tracks[track];
    context.fillStyle = style.line;
    context.fillRect(0, top + ROW - 1, this.width, 1);
    const end = slices.offsets[track + 1];
    const thin = new Thin(this, context, row.device, top);
    for (let k = slices.from(track, view.from); k < end && slices.start[k] <= view.to; k++) {
      if (slices.finish[k] < view.from) continue;
      const left = this.x(slices.start[k]), right = this.x(slices.finish[k]);
      if (right - left < 1) thin.add(left, right, FILLED[slices.kind[k]], this.weight(k), slices.critical[k]);
      else {
        thin.flush();
        this.bar(context, k, Math.max(left, -2), Math.min(right, this.width + 2), top, row);
      }
    }
    thin.flush();
  }

  // 1, or less for what a search leaves out.
  weight(k) {
    const matches = this.state.matches;
    if (!matches) return 1;
    return this.slices.holds(k, matches) ? 1 : 0.12;
  }

  bar(context, k, left, right, top, row) {
    const { slices } = this, width = Math.max(right - left - (right - left > 3 ? 0.6 : 0), 0.8);
    const sized = slices.sized && slices.kind[k] === OP;
    const tall = sized ? Math.max(4, BAR * (slices.amount[k] / slices.largest)) : BAR;
    const under = top + 2 + BAR - tall, weight = this.weight(k), kind = slices.kind[k];
    const filled = FILLED[kind];
    context.fillStyle = deviceColour(row.device, filled * weight);
    context.fillRect(left, under, width, tall);
    if (slices.critical[k] && this.state.critical) {
      context.fillStyle = style.mark;
      context.fillRect(left, top + BAR, width, 3);
    }
    const ink = filled >= 0.8 && tall > 12 ? inkOn(row.device) : style.ink;
    if (weight < 1) return;
    if (slices.isPass(k)) this.number(context, k, left, width, top, ink);
    else if (width > LABELLED) this.label(context, k, left, width, top, ink);
  }

  // In the middle.
  number(context, k, left, width, top, ink) {
    const text = this.slices.shortName(k), needed = context.measureText(text).width;
    if (width < needed + 2) return;
    context.fillStyle = ink;
    context.fillText(text, left + (width - needed) / 2, top + 3 + BAR / 2);
  }

  label(context, k, left, width, top, ink) {
    const from = Math.max(left, 0), room = left + width - from - 8;
    let text = this.slices.shortName(k).slice(0, 80);
    if (room < 30) return;
    const needed = context.measureText(text).width;
    if (needed > room) {
      text = `${text.slice(0, Math.max(2, Math.floor(text.length * (room / needed)) - 1))}…`;
    }
    context.fillStyle = ink;
    context.fillText(text, from + 4, top + 3 + BAR / 2);
  }

  outline(context, k, scrolled, colour, thick) {
    if (k < 0) return;
    const top = this.slices.track[k] * ROW - scrolled;
    const left = this.x(this.slices.start[k]), right = this.x(this.slices.finish[k]);
    context.strokeStyle = colour;
    context.lineWidth = thick;
    context.strokeRect(left - 1, top + 1, Math.max(right - left, 2) + 2, BAR + 2);
  }

  // Lines from each slice of the critical path to the next, where that is on another track.
  path(context, scrolled, height) {
    const { slices } = this, path = slices.path;
    context.strokeStyle = style.mark;
    context.lineWidth = 1.25;
    context.beginPath();
    let drawn = -1, lines = 0;
    for (let k = 1; k < path.length; k++) {
      const one = slices.track[path[k - 1]], two = slices.track[path[k]];
      const x = Math.round(this.x(slices.start[path[k]])) + 0.5;
      if (one === two || x < 0 || x > this.width || x === drawn) continue;
      const [from, to] = [one, two].map((track) => track * ROW + 2 + BAR / 2 - scrolled);
      if (Math.max(from, to) < 0 || Math.min(from, to) > height) continue;
      context.moveTo(x, from);
      context.lineTo(x, to);
      drawn = x;
      lines += 1;
    }
    context.globalAlpha = Math.min(0.75, Math.max(0.12, this.width / 18 / Math.max(lines, 1)));
    context.stroke();
    context.globalAlpha = 1;
  }
}

// Slices of a track that are narrower than a pixel: pixel after pixel, how much of it they fill.
class Thin {
  constructor(painter, context, device, top) {
    Object.assign(this, { context, device, top, marks: painter.state.critical });
    this.pixel = -2;
    this.filled = this.weight = this.critical = 0;
  }

  add(left, right, solid, weight, critical) {
    const pixel = Math.floor(left);
    if (pixel !== this.pixel) {
      this.flush();
      this.pixel = pixel;
    }
    this.filled += (right - left) * solid;
    this.weight = Math.max(this.weight, weight);
    this.critical |= critical;
  }

  flush() {
    if (this.pixel >= -1 && this.filled > 0) {
      const dense = 0.35 + 0.65 * Math.min(1, this.filled);
      this.context.fillStyle = deviceColour(this.device, dense * this.weight);
      this.context.fillRect(this.pixel, this.top + 2, 1, BAR);
      if (this.critical && this.marks) {
        this.context.fillStyle = style.mark;
        this.context.fillRect(this.pixel, this.top + BAR, 1, 3);
      }
    }
    this.filled = this.weight = this.critical = 0;
    this.pixel = -2;
  }
}

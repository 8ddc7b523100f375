// The timeline: tracks of devices and links, and how one looks around in them.

const WORDS_OF_KEYS = "Arrow keys move, + and - zoom, 0 shows all, Page Up and Page Down change the "
  + "track, N and P go to the next and the slice before, / finds an op.";
const LONGEST = 15;

class Timeline {
  constructor(plan) {
    this.plan = plan;
    this.slices = new Slices(plan);
    this.state = { selected: -1, hovered: -1, matches: null, critical: this.slices.path.length > 0 };
    this.redraw = onceAFrame(() => this.draw());
    this.view = new View(this.slices.end, this.redraw);
    this.painter = new Painter(this.slices, this.view, this.state);
    this.search = new Search(plan.model, (matches, op) => {
      this.state.matches = matches;
      if (op >= 0) this.showOp(op);
      this.redraw();
    });
    this.build();
    this.listen();
    redraws.add(this.redraw);
    new ResizeObserver(this.redraw).observe(this.scroller);
  }

  build() {
    const { slices } = this;
    this.canvas = el("canvas", {});
    this.stage = el("div", {
      class: "stage", tabindex: "0", role: "application",
      "aria-label": `${this.summary()} ${WORDS_OF_KEYS}`,
    }, this.canvas);
    this.scroller = el("div", { class: "tracks", tabindex: "-1" },
      el("div", { class: "labels", "aria-hidden": "true" }, slices.tracks.map((track) =>
        el("div", { class: `label ${track.kind}` }, track.kind === "device" ? swatch(track.device) : null,
          named(track.name)))),
      this.stage);
    this.scroller.style.setProperty("--rows", slices.tracks.length);
    this.axis = el("canvas", { class: "axis", "aria-hidden": "true" });
    this.overview = el("canvas", { class: "overview", "aria-hidden": "true" });
    this.told = el("p", { class: "unseen", role: "status" });
    this.frame = el("div", { class: "timeline" }, this.toolbar(), this.overview,
      el("div", { class: "axis-row" }, this.axis), this.scroller, this.told);
    this.tip = new Tip(this.frame);
    const kinds = slices.sized ? " The height of a bar says how many inputs its batch has."
      : slices.count && slices.isPass(0) ? " Full bars are forward passes, light ones backward; their numbers are micro-batches." : "";
    this.section = section("timeline", "Timeline",
      `Wheel, + and - zoom; drag or arrow keys move; hover for figures.${kinds}`,
      this.frame, this.longest());
  }

  toolbar() {
    const button = (text, label, action) => el("button", { "aria-label": label, title: label, onclick: action }, text);
    const critical = el("input", {
      type: "checkbox", id: "critical", checked: this.state.critical,
      onchange: (event) => { this.state.critical = event.target.checked; this.redraw(); },
    });
    return el("div", { class: "toolbar" }, this.search.box,
      button("−", "Zoom out", () => this.view.zoom(1.6)),
      button("+", "Zoom in", () => this.view.zoom(1 / 1.6)),
      button("All", "Show all of it", () => this.view.fit()),
      this.slices.path.length
        ? el("label", { class: "choice", for: "critical" }, critical, "critical path") : null);
  }

  summary() {
    const { slices, plan } = this;
    const devices = slices.tracks.filter((track) => track.kind === "device").length;
    const links = slices.tracks.filter((track) => track.kind === "link").length;
    return `Timeline of ${plan.title}: ${formatSeconds(slices.end)}, ${formatCount(slices.count)} `
      + `slices on ${devices} devices and ${links} links.`;
  }

  // The same for those who see no canvas: what takes longest.
  longest() {
    const { slices } = this, lasts = (k) => slices.finish[k] - slices.start[k];
    const order = Array.from({ length: slices.count }, (_, k) => k)
      .sort((one, two) => lasts(two) - lasts(one)).slice(0, LONGEST);
    const titles = ["what", "where", "start", "end", "takes"].map((text, k) => ({ text, number: k > 1 }));
    const rows = order.map((k) => el("tr", {},
      el("th", { scope: "row" }, el("button", { class: "link", onclick: () => this.select(k) }, named(slices.name(k)))),
      el("td", {}, named(slices.tracks[slices.track[k]].name)),
      ...[slices.start[k], slices.finish[k], lasts(k)].map((seconds) =>
        el("td", { class: "number" }, formatSeconds(seconds)))));
    return el("details", { class: "longest" }, el("summary", {}, `The ${order.length} longest, as a table`),
      wide("What takes longest", tableOf("What takes longest", titles, rows)));
  }

  listen() {
    const { stage } = this;
    stage.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    stage.addEventListener("pointerdown", (event) => this.press(event));
    stage.addEventListener("pointermove", (event) => this.move(event));
    stage.addEventListener("pointerup", (event) => this.release(event));
    stage.addEventListener("pointercancel", () => this.pointers.clear());
    stage.addEventListener("pointerleave", () => this.hover(-1));
    stage.addEventListener("keydown", (event) => this.key(event));
    this.scroller.addEventListener("scroll", this.redraw);
    this.overview.addEventListener("pointerdown", (event) => this.jump(event));
    this.overview.addEventListener("pointermove", (event) => { if (event.buttons) this.jump(event); });
    this.pointers = new Map();
  }

  wheel(event) {
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      event.preventDefault();
      this.view.pan((event.deltaX || event.deltaY) / stageWidth(this.stage));
      return;
    }
    if (event.deltaY > 0 && this.view.isWhole) return; // the page goes on
    event.preventDefault();
    const lines = event.deltaMode ? 30 : 1;
    this.view.zoom(Math.exp(Math.max(-300, Math.min(300, event.deltaY * lines)) / 400), this.share(event));
  }

  share(event) {
    const box = this.stage.getBoundingClientRect();
    return (event.clientX - box.left) / box.width;
  }

  press(event) {
    this.stage.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, event);
    this.pressed = { x: event.clientX, y: event.clientY };
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      this.hover(this.sliceAt(event), event);
      return;
    }
    if (this.pointers.size === 2) this.pinch(event);
    else this.view.pan((before.clientX - event.clientX) / stageWidth(this.stage));
    this.pointers.set(event.pointerId, event);
    this.hover(-1);
  }

  pinch(event) {
    const other = [...this.pointers.values()].find((each) => each.pointerId !== event.pointerId);
    const before = this.pointers.get(event.pointerId);
    const [old, now] = [before, event].map((each) => Math.max(10, Math.abs(each.clientX - other.clientX)));
    this.view.zoom(old / now, (this.share(event) + this.share(other)) / 2);
  }

  release(event) {
    this.pointers.delete(event.pointerId);
    const far = Math.hypot(event.clientX - this.pressed.x, event.clientY - this.pressed.y);
    if (far < 4) {
      const k = this.sliceAt(event);
      this.state.selected = k;
      this.hover(k, event);
      if (k >= 0) this.told.textContent = this.slices.sentence(k);
      this.redraw();
    }
  }

  sliceAt(event) {
    const box = this.stage.getBoundingClientRect();
    const track = Math.floor((event.clientY - box.top) / ROW);
    if (track < 0 || track >= this.slices.tracks.length) return -1;
    const second = this.view.span / box.width;
    return this.slices.at(track, this.view.from + (event.clientX - box.left) * second, 3 * second);
  }

  hover(k, event) {
    if (k < 0) this.tip.hide();
    else {
      const box = this.frame.getBoundingClientRect();
      this.tip.show(event.clientX - box.left, event.clientY - box.top, this.slices.name(k), this.slices.describe(k));
    }
    if (this.state.hovered !== k) {
      this.state.hovered = k;
      this.redraw();
    }
  }

  key(event) {
    const step = event.shiftKey ? 0.5 : 0.1;
    const actions = {
      ArrowLeft: () => this.view.pan(-step), ArrowRight: () => this.view.pan(step),
      "+": () => this.view.zoom(1 / 1.4), "=": () => this.view.zoom(1 / 1.4),
      "-": () => this.view.zoom(1.4), _: () => this.view.zoom(1.4),
      0: () => this.view.fit(), Home: () => this.view.fit(),
      n: () => this.step(1), p: () => this.step(-1),
      PageDown: () => this.stepTrack(1), PageUp: () => this.stepTrack(-1),
      "/": () => this.search.input.focus(), Escape: () => { this.state.selected = -1; this.tip.hide(); this.redraw(); },
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  }

  // The next slice on the track of the selected one, or the first in sight.
  step(way) {
    const { slices } = this, k = this.state.selected;
    const track = k < 0 ? 0 : slices.track[k];
    const next = k < 0 ? slices.from(track, this.view.from) : k + way;
    if (next >= slices.offsets[track] && next < slices.offsets[track + 1]) this.select(next);
  }

  stepTrack(way) {
    const { slices } = this, k = this.state.selected;
    const time = k < 0 ? this.view.from : slices.start[k];
    let track = (k < 0 ? -1 : slices.track[k]) + way;
    while (track >= 0 && track < slices.tracks.length) {
      const end = slices.offsets[track + 1];
      if (slices.offsets[track] < end) {
        this.select(Math.min(slices.from(track, time), end - 1));
        return;
      }
      track += way;
    }
  }

  jump(event) {
    const box = this.overview.getBoundingClientRect();
    const middle = ((event.clientX - box.left) / box.width) * this.view.whole;
    this.view.set(middle - this.view.span / 2, middle + this.view.span / 2);
  }

  showOp(op) {
    const k = this.slices.ofOp(op);
    if (k >= 0) this.select(k);
  }

  select(k) {
    const { slices, scroller } = this, top = slices.track[k] * ROW;
    this.state.selected = k;
    this.view.reveal(slices.start[k], slices.finish[k]);
    if (top < scroller.scrollTop || top + ROW > scroller.scrollTop + scroller.clientHeight) {
      scroller.scrollTop = top - scroller.clientHeight / 2;
    }
    this.told.textContent = slices.sentence(k);
    const width = stageWidth(this.stage), left = this.stage.offsetLeft;
    const x = left + ((slices.start[k] - this.view.from) / this.view.span) * width;
    this.tip.show(Math.max(left, x), scroller.offsetTop + top - scroller.scrollTop + ROW, slices.name(k), slices.describe(k));
    this.redraw();
  }

  draw() {
    const width = stageWidth(this.stage), height = Math.min(this.scroller.clientHeight, this.slices.tracks.length * ROW);
    if (!width) return;
    paint(this.canvas, width, height, (context) => this.painter.tracks(context, width, height, this.scroller.scrollTop));
    paint(this.axis, width, 22, (context) => this.painter.axis(context, width, 22));
    this.drawOverview(this.frame.clientWidth);
  }

  // All of it, small: how busy the devices are; and the stretch in sight.
  drawOverview(width) {
    const height = 40, { slices, view } = this;
    this.busy = this.busy || busyness(slices, 400);
    paint(this.overview, width, height, (context) => {
      context.fillStyle = style.faint;
      this.busy.forEach((share, k) => {
        const tall = share * (height - 4);
        context.fillRect((k / this.busy.length) * width, height - tall, width / this.busy.length + 0.5, tall);
      });
      const from = (view.from / view.whole) * width, to = (view.to / view.whole) * width;
      context.strokeStyle = style.accent;
      context.lineWidth = 2;
      context.strokeRect(from + 1, 1, Math.max(to - from - 2, 2), height - 2);
    });
  }
}

function stageWidth(stage) {
  return stage.clientWidth;
}

// How many devices are at work in `count` equal stretches, as a share of the most there are.
function busyness(slices, count) {
  const found = new Float64Array(count), length = slices.end / count || 1;
  for (let k = 0; k < slices.count; k++) {
    if (slices.kind[k] === TRANSFER) continue;
    const last = Math.min(count - 1, Math.floor(slices.finish[k] / length));
    for (let at = Math.floor(slices.start[k] / length); at <= last; at++) {
      const from = Math.max(slices.start[k], at * length);
      found[at] += Math.max(0, Math.min(slices.finish[k], (at + 1) * length) - from) / length;
    }
  }
  const most = found.reduce((high, sum) => Math.max(high, sum), 0) || 1;
  return found.map((sum) => sum / most);
}

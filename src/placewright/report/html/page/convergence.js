// How planning went: the value of the best plan and the best bound, over time.

const CONVERGENCE_HEIGHT = 190, CONVERGENCE_EDGE = 24;

function convergenceSection(plan) {
  const record = plan.convergence, last = record.seconds.length - 1;
  const words = `${fromTo("The value", record.value.find((each) => each !== null), record.value[last])}, `
    + `${fromTo("the bound", record.bound[0], record.bound[last])}, in ${formatSeconds(record.seconds[last])}`;
  const canvas = el("canvas", { role: "img", "aria-label": words });
  const frame = el("figure", { class: "chart" }, canvas);
  const tip = new Tip(frame);
  const scale = convergenceScale(record);
  const draw = onceAFrame(() => {
    const width = frame.clientWidth;
    if (width) paint(canvas, width, CONVERGENCE_HEIGHT, (context) => drawConvergence(context, width, record, scale));
  });
  canvas.addEventListener("pointermove", (event) => {
    const k = scale.entry(event.offsetX, canvas.clientWidth);
    tip.show(event.offsetX, canvas.offsetTop + event.offsetY, `after ${formatSeconds(record.seconds[k])}`, [
      ["value", record.value[k] === null ? "no plan yet" : formatSeconds(record.value[k])],
      ["bound", formatSeconds(record.bound[k])]]);
  });
  canvas.addEventListener("pointerleave", () => tip.hide());
  redraws.add(draw);
  new ResizeObserver(draw).observe(frame);
  return section("convergence", "Value and bound while planning", `${words}. Time grows tenfold by equal steps.`,
    el("ul", { class: "legend" },
      el("li", {}, el("span", { class: "swatch line-value" }), "best plan so far"),
      el("li", {}, el("span", { class: "swatch line-bound" }), "no plan is faster")), frame);
}

function fromTo(what, first, last) {
  const [one, two] = [first, last].map(formatSeconds);
  return one === two ? `${what} stays ${one}` : `${what} goes from ${one} to ${two}`;
}

// Places on the chart: time by its logarithm, seconds of the plan from the lowest bound up. Plans far above the
// last are cut off, for the rest would be one line.
function convergenceScale(record) {
  const { seconds, value, bound } = record, last = seconds.length - 1;
  const low = Math.max(1e-3, seconds[0]), high = Math.max(seconds[last], 1.1 * low);
  const part = (moment) => Math.max(0, Math.log(Math.max(moment, low) / low) / Math.log(high / low));
  const floor = Math.min(bound[0], bound[last]) * 0.98;
  const ceiling = Math.min(Math.max(...value.filter((each) => each !== null)), 2 * value[last]) * 1.02;
  return {
    low, high,
    x: (moment, width) => part(moment) * width,
    y: (amount) => (CONVERGENCE_HEIGHT - CONVERGENCE_EDGE)
      * (1 - (Math.min(amount, ceiling) - floor) / (ceiling - floor || 1)),
    entry: (x, width) => {
      const later = seconds.findIndex((moment) => part(moment) * width > x);
      return later < 0 ? last : Math.max(0, later - 1);
    },
  };
}

function drawConvergence(context, width, record, scale) {
  const floor = CONVERGENCE_HEIGHT - CONVERGENCE_EDGE;
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "center";
  for (const moment of moments(scale, width)) {
    const x = scale.x(moment, width);
    context.fillStyle = style.line;
    context.fillRect(x, 0, 1, floor);
    context.fillStyle = style.soft;
    context.fillText(formatMoment(moment, moment), Math.min(Math.max(x, 22), width - 22), CONVERGENCE_HEIGHT - 7);
  }
  context.fillStyle = style.line;
  context.fillRect(0, floor, width, 1);
  steps(context, width, record.seconds, record.bound, scale, style.mark);
  steps(context, width, record.seconds, record.value, scale, style.accent);
  const last = record.seconds.length - 1;
  context.textAlign = "right";
  const [above, below] = [scale.y(record.value[last]), scale.y(record.bound[last])];
  const [first, second] = above + 34 < CONVERGENCE_HEIGHT
    ? [above + 16, Math.max(below - 7, above + 30)]
    : [above - 20, above - 6];  // both at the floor, as where the plan is proved optimal
  for (const [amount, y, colour] of [[record.value[last], first, style.accent],
    [record.bound[last], second, style.mark]]) {
    context.fillStyle = colour;
    context.fillText(formatSeconds(amount), width - 4, y);
  }
}

// Moments of the axis: 1, 2 and 5 times powers of ten where there is room, else the powers alone.
function moments(scale, width) {
  const decades = Math.log10(scale.high / scale.low), factors = width / decades > 160 ? [1, 2, 5] : [1];
  const found = [];
  for (let power = 10 ** Math.floor(Math.log10(scale.low)); power <= scale.high; power *= 10) {
    found.push(...factors.map((factor) => factor * power));
  }
  return found.filter((moment) => moment >= scale.low && moment <= scale.high);
}

function steps(context, width, seconds, amounts, scale, colour) {
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.beginPath();
  let begun = false;
  amounts.forEach((amount, k) => {
    if (amount === null) return;
    const from = scale.x(seconds[k], width), to = k + 1 < seconds.length ? scale.x(seconds[k + 1], width) : width;
    context[begun ? "lineTo" : "moveTo"](from, scale.y(amount));
    context.lineTo(to, scale.y(amount));
    begun = true;
  });
  context.stroke();
}

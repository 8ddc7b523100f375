// Elements. Text only ever comes in as text: no name in a plan is read as HTML.

// `el("p", { class: "x", onclick: f, style: { width: "3px" } }, "text", child)`.
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") {
      for (const [property, text] of Object.entries(value)) made.style.setProperty(property, text);
    } else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined));
  return made;
}

// A name from a plan: it keeps to its own direction of writing, and breaks anywhere.
function named(text, attributes = {}) {
  const shown = text.length > 300 ? `${text.slice(0, 300)}…` : text;
  return el("bdi", { class: "name", title: text.slice(0, 2000), ...attributes }, shown);
}

function section(id, title, hint, ...children) {
  return el("section", { id, "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title` }, title),
    hint ? el("p", { class: "hint" }, hint) : null,
    ...children);
}

// A table that scrolls sideways by itself where the window is narrow.
function wide(label, ...children) {
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label },
    ...children);
}

function tableOf(caption, titles, rows) {
  return el("table", {},
    el("caption", { class: "unseen" }, caption),
    el("thead", {}, el("tr", {}, titles.map((title) =>
      el("th", { scope: "col", class: title.number ? "number" : null }, title.text)))),
    el("tbody", {}, rows));
}

// A canvas as sharp as the screen; `draw(context, width, height)` in CSS pixels.
function paint(canvas, width, height, draw) {
  const ratio = window.devicePixelRatio || 1;
  const [wanted, tall] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wanted) canvas.width = wanted;
  if (canvas.height !== tall) canvas.height = tall;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  draw(context, width, height);
}

// Calls `draw` at most once a frame, however often it is asked for; its `now` does not wait for one.
function onceAFrame(draw) {
  let waiting = false;
  const ask = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  };
  ask.now = draw;
  return ask;
}

// A box beside the pointer with rows of a title and a text.
class Tip {
  constructor(inside) {
    this.inside = inside;
    this.box = el("div", { class: "tip", hidden: true });
    inside.append(this.box);
  }

  show(x, y, title, rows) {
    this.box.replaceChildren(named(title, { class: "name tip-title" }),
      el("dl", {}, rows.map(([what, text]) => [el("dt", {}, what), el("dd", {}, text)])));
    this.box.hidden = false;
    const width = this.inside.clientWidth, own = this.box.offsetWidth;
    const left = x + 16 + own > width ? Math.max(4, x - own - 12) : x + 16;
    this.box.style.left = `${Math.min(left, Math.max(4, width - own - 4))}px`;
    this.box.style.top = `${y + 14}px`;
  }

  hide() { this.box.hidden = true; }
}

// Colours of devices, and those of the style as canvases need them.

// Okabe and Ito's, which people tell apart however they see colours; then lighter, then darker.
const HUES = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#b8a800", "#7f7f7f"];

function deviceRgb(device) {
  const hex = HUES[device % HUES.length], round = Math.floor(device / HUES.length) % 3;
  return [1, 3, 5].map((at) => {
    const value = parseInt(hex.slice(at, at + 2), 16);
    if (round === 1) return Math.round(value + (255 - value) * 0.4);
    return round === 2 ? Math.round(value * 0.65) : value;
  });
}

function deviceColour(device, alpha = 1) {
  const [red, green, blue] = deviceRgb(device);
  return `rgba(${red},${green},${blue},${alpha})`;
}

// Black or white: what can be read on the device's colour.
function inkOn(device) {
  const [red, green, blue] = deviceRgb(device).map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#10141a" : "#ffffff";
}

const style = {};
const STYLE_NAMES = ["ink", "soft", "faint", "line", "ground", "card", "accent", "mark"];

function readStyle() {
  const probe = el("span", { hidden: true });
  document.body.append(probe);
  for (const name of STYLE_NAMES) {
    probe.style.color = `var(--${name})`;
    style[name] = getComputedStyle(probe).color;
  }
  probe.remove();
}

// What is drawn on canvases is drawn again when the theme or the window changes.
const redraws = new Set();

function redrawAll() {
  readStyle();
  for (const redraw of redraws) redraw();
}

// On paper all is light, and canvases are as wide as the sheet: they are drawn anew before and after.
function readyForPrinting() {
  const root = document.documentElement;
  let chosen;
  window.addEventListener("beforeprint", () => {
    chosen = root.dataset.theme;
    root.dataset.theme = "light";
    root.dataset.printing = "yes";
    readStyle();
    for (const redraw of redraws) redraw.now();
  });
  window.addEventListener("afterprint", () => {
    if (chosen === undefined) delete root.dataset.theme;
    else root.dataset.theme = chosen;
    delete root.dataset.printing;
    redrawAll();
  });
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function themeButton() {
  const words = () => (isDark() ? "Light" : "Dark");
  const button = el("button", {
    class: "theme",
    onclick: () => {
      document.documentElement.dataset.theme = isDark() ? "light" : "dark";
      button.textContent = words();
      redrawAll();
    },
  }, words());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    button.textContent = words();
    redrawAll();
  });
  return button;
}

function swatch(device) {
  return el("span", { class: "swatch", style: { background: deviceColour(device) } });
}

// A row of parts, each as wide as its share: `[[device, share], …]`.
function shareBar(parts, label) {
  return el("span", { class: "shares", role: "img", "aria-label": label, title: label },
    parts.map(([device, share]) => el("span", {
      style: { width: `${100 * share}%`, background: deviceColour(device) },
    })));
}

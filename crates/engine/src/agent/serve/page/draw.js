// Drawings of one workload as SVG. Everything is made by name and text, so nothing of a workload's name can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; text is only ever text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

function shape(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes for people, as [number, unit]: three digits that matter. */
export function bytesParts(bytes) {
  let value = Math.abs(bytes), unit = 0;
  while (value >= 999.5 && unit + 1 < UNITS.length) { value /= 1024; unit += 1; }
  const digits = unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return [(bytes < 0 ? "−" : "") + value.toFixed(digits), UNITS[unit]];
}

export const bytes = value => value === null ? "–" : bytesParts(value).join(" ");
export const percent = value => value === null ? "–" : (value < 0.005 ? "0" : value < 9.995 ? value.toFixed(2) : value.toFixed(1)) + " %";

export function age(seconds) {
  if (seconds >= 3600 && seconds % 3600 === 0) return seconds / 3600 + " h";
  return seconds >= 60 && seconds % 60 === 0 ? seconds / 60 + " min" : seconds + " s";
}

/** Round steps of an axis up to a value; `base` is 1024 for bytes. */
function steps(most, wanted, base) {
  let unit = 1;
  while (most / unit >= base && base > 10) unit *= base;
  const rough = most / unit / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = unit * power * [1, 2, 2.5, 5, 10].find(factor => factor * power >= rough * 0.999);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, at) => at * step);
}

/** An empty drawing with axes; `x` and `y` place values on it. */
function frame(host, height, label, [fromX, toX], mostY, marksX, marksY) {
  const width = Math.max(280, Math.floor(host.clientWidth) || 560);
  const area = { left: 62, right: width - 12, top: 10, bottom: height - 26 };
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
  const x = value => area.left + (value - fromX) / Math.max(toX - fromX, 1e-9) * (area.right - area.left);
  const y = value => area.bottom - Math.min(value / mostY, 1) * (area.bottom - area.top);
  for (const [value, text] of marksY) {
    svg.append(shape("line", { class: "rule", x1: area.left, x2: area.right, y1: y(value), y2: y(value) }));
    svg.append(shape("text", { x: area.left - 8, y: y(value) + 4, "text-anchor": "end" }, text));
  }
  let free = -Infinity;
  for (const [value, text] of marksX) {
    const half = text.length * 3.4;
    const at = Math.min(x(value), width - half);
    if (at - half < free + 8) continue;
    svg.append(shape("text", { x: at, y: area.bottom + 18, "text-anchor": "middle" }, text));
    free = at + half;
  }
  return { svg, x, y, area, width };
}

const path = points => points.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/** Slowdown by memory kept, with its interval. */
export function curve(host, tide) {
  const total = Math.max(tide.total_anon_bytes + tide.total_file_bytes, 1);
  const least = Math.min(...tide.points.map(point => point.kept_bytes));
  const from = total - least < 0.6 * total ? Math.max(0, least - 0.25 * (total - least)) : 0;
  const highest = Math.min(20, Math.max(0.1, ...tide.points.map(point => point.slowdown_high_percent)) * 1.08);
  const label = "Slowdown in percent by the memory that is kept: " + tide.points.map(point =>
    `${bytes(point.kept_bytes)} costs ${percent(point.slowdown_percent)}`).join(", ");
  const marksX = steps(total, 5, 1024).filter(value => value >= from).map(value => [value, bytes(value)]);
  const marksY = steps(highest, 4, 10).map(value => [value, +value.toFixed(3) + " %"]);
  const { svg, x, y, area } = frame(host, 232, label, [from, total], highest, marksX, marksY);
  const all = [...tide.points].sort((a, b) => b.kept_bytes - a.kept_bytes);
  const edge = name => [[x(total), y(0)], ...all.map(point => [x(point.kept_bytes), y(point[name])])];
  svg.append(shape("path", { class: "band", d: path([...edge("slowdown_high_percent"), ...edge("slowdown_low_percent").reverse()]) + "Z" }));
  svg.append(shape("path", { class: "stroke", d: path(edge("slowdown_percent")) }));
  let free = Infinity;
  for (const point of all) {
    const at = [x(point.kept_bytes), y(point.slowdown_percent)];
    svg.append(shape("circle", { class: "dot", cx: at[0], cy: at[1], r: 4 }));
    const above = at[1] - 10 > area.top + 8;
    const start = at[0] < area.left + 30;
    if (at[0] < free - 46) {
      const place = { class: "strong", x: start ? at[0] + 9 : at[0], y: above ? at[1] - 10 : at[1] + 20, "text-anchor": start ? "start" : "middle" };
      svg.append(shape("text", place, age(point.age_s)));
      free = at[0];
    }
  }
  host.replaceChildren(svg);
}

/** What stands on top of each other at every sample: name, class and values, youngest first. */
export function layers(ages, side) {
  const sum = (anon, file) => side === "anon" ? anon : side === "file" ? file : anon + file;
  const total = ages.t_s.map((_, at) => sum(ages.anon_bytes[at], ages.file_bytes[at]));
  const result = [];
  let below = total.map(() => 0), beginsAt = 0;
  const known = total.map(() => false);
  ages.used.forEach((window, number) => {
    let last = null;
    const edge = total.map((most, at) => {
      // Windows are read in turn: the last reading holds until the next one.
      if (window.anon_bytes[at] !== null) last = sum(window.anon_bytes[at], window.file_bytes[at]);
      if (last !== null) known[at] = true;
      return last === null ? below[at] : Math.min(Math.max(last, below[at]), most);
    });
    const name = beginsAt ? `${age(beginsAt)} to ${age(window.window_s)}` : `used within ${age(window.window_s)}`;
    result.push({ name, class: "f-age" + number, values: edge.map((value, at) => value - below[at]) });
    [below, beginsAt] = [edge, window.window_s];
  });
  const rest = total.map((most, at) => most - below[at]);
  if (beginsAt) result.push({ name: `idle for ${age(beginsAt)} or more`, class: "f-age" + ages.used.length, values: rest.map((value, at) => known[at] ? value : 0) });
  if (known.includes(false)) result.push({ name: "in memory, age not known", class: "f-unknown", values: rest.map((value, at) => known[at] ? 0 : value) });
  if (side !== "file" && ages.swapped_bytes.some(value => value > 0)) result.push({ name: "paged out", class: "f-away", values: ages.swapped_bytes });
  return result;
}

/** Idle ages over time as stacked areas, with a key that shows the values under the pointer. */
export function ages(host, data, side, clock) {
  const stack = layers(data, side);
  const tops = data.t_s.map((_, at) => stack.reduce((sum, layer) => sum + layer.values[at], 0));
  const most = Math.max(...tops, 1) * 1.05;
  const [first, last] = [data.t_s[0], data.t_s[data.t_s.length - 1]];
  const marksX = [0, 0.25, 0.5, 0.75, 1].map(part => first + part * (last - first)).map(t => [t, clock(t)]);
  const label = "Memory by idle age over time; at last: " + stack.map(layer => `${layer.name} ${bytes(layer.values.at(-1))}`).join(", ");
  const { svg, x, y, area, width } = frame(host, 232, label, [first, Math.max(last, first + 1)], most, marksX, steps(most, 4, 1024).map(value => [value, bytes(value)]));
  // A single reading is drawn as a short piece: an area needs two.
  const at = data.t_s.length > 1 ? data.t_s.map(x) : [area.left, area.right];
  const index = number => Math.min(number, data.t_s.length - 1);
  let below = at.map(() => 0);
  for (const layer of stack) {
    const above = at.map((_, number) => below[number] + layer.values[index(number)]);
    const outline = [...at.map((left, number) => [left, y(above[number])]), ...at.map((left, number) => [left, y(below[number])]).reverse()];
    svg.append(shape("path", { class: layer.class, d: path(outline) + "Z" }));
    below = above;
  }
  const key = make("ul", { class: "key" });
  const values = stack.map(layer => {
    const value = make("span");
    key.append(make("li", {}, make("i", { class: layer.class }), layer.name + " ", value));
    return value;
  });
  const when = make("li", { class: "quiet" });
  key.append(when);
  const cursor = shape("line", { class: "cursor", y1: area.top, y2: area.bottom, visibility: "hidden" });
  svg.append(cursor);
  const showAt = (sample, shown) => {
    stack.forEach((layer, number) => { values[number].textContent = bytes(layer.values[sample]); });
    when.textContent = shown ? "at " + clock(data.t_s[sample]) : "now";
    cursor.setAttribute("visibility", shown ? "visible" : "hidden");
    cursor.setAttribute("x1", x(data.t_s[sample]));
    cursor.setAttribute("x2", x(data.t_s[sample]));
  };
  showAt(data.t_s.length - 1, false);
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    const t = first + ((event.clientX - box.left) * width / box.width - area.left) / (area.right - area.left) * (last - first);
    showAt(data.t_s.reduce((best, value, number) => Math.abs(value - t) < Math.abs(data.t_s[best] - t) ? number : best, 0), true);
  });
  svg.addEventListener("pointerleave", () => showAt(data.t_s.length - 1, false));
  host.replaceChildren(svg, key);
}

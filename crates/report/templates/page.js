// Values under the pointer on all charts of one axis, and a zoom of the time axis that all of them share. Charts are complete
// without it: it reads what the page holds, and asks nobody for anything.
addEventListener("DOMContentLoaded", () => {
  "use strict";
  const NS = "http://www.w3.org/2000/svg";
  const element = (name, attributes, parent) => {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return parent.appendChild(made);
  };
  const digits = (value) => value.toFixed(Math.abs(value) >= 100 || value === 0 ? 0 : Math.abs(value) >= 10 ? 1 : 2);
  const scaled = (value, step, units) => {
    let at = 0;
    for (; Math.abs(value) >= step && at + 1 < units.length; at++) value /= step;
    return (at || step < 1024 ? digits(value) : value.toFixed(0)) + units[at];
  };
  const clock = (seconds, fine) => {
    const whole = fine ? Math.floor(seconds) : Math.round(seconds), two = (n) => String(n).padStart(2, "0");
    const text = whole >= 3600 ? `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`
      : `${Math.floor(whole / 60)}:${two(whole % 60)}`;
    return fine ? text + (seconds - whole).toFixed(1).slice(1) : text;
  };
  const say = {
    s: (v) => clock(v, shown && shown[1] - shown[0] < 30),
    B: (v) => scaled(v, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]),
    "%": (v) => digits(v) + " %",
    "/s": (v) => scaled(v, 1000, ["", "k", "M"]) + "/s",
    1: (v) => digits(100 * v) + " %",
    lg: (v) => (100 * 10 ** v).toPrecision(2) + " %",
    ln: (v) => (Math.exp(v) < 60 ? digits(Math.exp(v)) + " s" : digits(Math.exp(v) / 60) + " min"),
  };
  let shown = null; // The part of the time axis that is shown, seconds; null = all.
  const plots = [...document.querySelectorAll("g.plot")].map((group, at) => {
    const plot = { ...JSON.parse(group.dataset.plot), group, svg: group.ownerSVGElement, figure: group.closest("figure") };
    const [left, top, right, bottom] = plot.rect;
    const clip = element("clipPath", { id: `clip${at}` }, plot.svg);
    element("rect", { x: left, y: top - 12, width: right - left, height: bottom - top + 24 }, clip);
    plot.clip = `url(#clip${at})`;
    plot.shapes = [...group.querySelectorAll("[points],image,rect,circle")].map((shape) =>
      [shape, ...["points", "x", "width", "cx"].map((name) => shape.getAttribute(name))]);
    for (plot.axis = group; !plot.axis.matches("g.x");) plot.axis = plot.axis.previousElementSibling;
    plot.sight = element("g", { class: "sight" }, plot.svg);
    plot.box = Object.assign(plot.figure.appendChild(document.createElement("div")), { className: "readout", hidden: true });
    plot.images = [...group.querySelectorAll("image")];
    return plot;
  });
  const span = (plot) => (plot.x === "s" && shown) || [plot.from, plot.to];
  const place = (plot, x) => {
    const [from, to] = span(plot), [left, , right] = plot.rect;
    return left + ((x - from) / (to - from)) * (right - left);
  };
  // The value of a track at a place: that of the nearest reading, unless it is far away.
  const valueAt = (track, plot, x) => {
    const at = track.at, count = at.length / 2;
    let [low, high] = [0, count - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (at[2 * middle] < x) low = middle + 1; else high = middle;
    }
    if (low > 0 && x - at[2 * low - 2] < at[2 * low] - x) low--;
    const reach = 2 * Math.max((at[2 * count - 2] - at[0]) / count, (plot.to - plot.from) / 200);
    return count && Math.abs(at[2 * low] - x) <= reach ? at[2 * low + 1] : null;
  };
  // The pixels of a heatmap's image, which has one for each cell.
  const pixels = (image) => {
    if (!image.cells) {
      const picture = new Image();
      picture.onload = () => {
        const canvas = document.createElement("canvas");
        const context = Object.assign(canvas, { width: picture.naturalWidth, height: picture.naturalHeight }).getContext("2d");
        context.drawImage(picture, 0, 0);
        image.cells = context.getImageData(0, 0, canvas.width, canvas.height);
      };
      image.cells = {};
      picture.src = image.getAttribute("href");
    }
    return image.cells.data ? image.cells : null;
  };
  const heatLines = (plot, x, y) => plot.images.flatMap((image, at) => {
    const top = Number(image.getAttribute("y")), height = Number(image.getAttribute("height")), cells = pixels(image);
    if (y === null || !cells || y < top || y > top + height) return [];
    const share = Math.min(0.999999, (y - top) / height), [low, high] = plot.sections[at].map(BigInt);
    const column = Math.min(cells.width - 1, Math.floor(((x - plot.from) / (plot.to - plot.from)) * cells.width));
    const cell = 4 * (Math.floor(share * cells.height) * cells.width + column), [red, green, blue, alpha] = cells.data.slice(cell, cell + 4);
    const level = plot.ramp.indexOf((red << 16) | (green << 8) | blue);
    const address = low + ((high - low) * BigInt(Math.round((1 - share) * 1e6))) / 1000000n;
    const rate = alpha && level >= 0 ? `${Math.round((100 * level) / (plot.ramp.length - 1))} % of samples` : "not mapped";
    return [[null, `0x${(address & ~0xfffn).toString(16)}`, rate]];
  });
  const clear = (plot) => { plot.sight.replaceChildren(); plot.box.hidden = true; };
  const sight = (plot, x, y) => {
    clear(plot);
    const [left, top, right, bottom] = plot.rect, at = place(plot, x);
    if (at < left - 1 || at > right + 1 || !plot.svg.getBoundingClientRect().width) return;
    element("path", { d: `M${at} ${top}V${bottom}` }, plot.sight);
    const lines = plot.ramp ? heatLines(plot, x, y) : plot.tracks.flatMap((track) => {
      const value = valueAt(track, plot, x);
      if (value === null) return [];
      const height = bottom - ((value - plot.low) / (plot.high - plot.low)) * (bottom - top);
      if (track.line) element("circle", { cx: at, cy: Math.max(top, height), r: 14, style: `fill:var(--ink-${track.ink})` }, plot.sight);
      return [[track.ink, track.name, say[plot.y](value)]];
    });
    plot.box.replaceChildren(...[[null, y === null ? null : say[plot.x](x), ""], ...lines].filter((line) => line[1] !== null).map(([ink, name, value]) => {
      const row = document.createElement("p"), bold = Object.assign(document.createElement("b"), { textContent: value });
      if (ink) row.appendChild(document.createElement("i")).style.background = `var(--ink-${ink})`;
      row.append(name, " ", bold);
      return row;
    }));
    plot.box.hidden = !plot.box.children.length;
    const outer = plot.figure.getBoundingClientRect(), own = plot.svg.getBoundingClientRect(), scale = own.width / plot.svg.viewBox.baseVal.width;
    const x0 = own.left - outer.left + at * scale, before = x0 + 12 + plot.box.offsetWidth > outer.width;
    plot.box.style.left = `${Math.max(0, before ? x0 - 10 - plot.box.offsetWidth : x0 + 10)}px`;
    plot.box.style.top = `${own.top - outer.top + top * scale + 2}px`;
  };
  // Moves what was drawn to where it belongs on the part that is shown, and writes new times below.
  const draw = (plot) => {
    const [left, , right] = plot.rect, width = right - left;
    const moved = (x) => place(plot, plot.from + ((x - left) / width) * (plot.to - plot.from));
    if (shown) plot.group.setAttribute("clip-path", plot.clip); else plot.group.removeAttribute("clip-path");
    for (const [shape, points, x, wide, cx] of plot.shapes) {
      if (points) shape.setAttribute("points", points.trim().split(/\s+/).map((pair) => pair.split(",").map(Number)).map(([px, py]) => `${moved(px).toFixed(1)},${py}`).join(" "));
      if (x) { shape.setAttribute("x", moved(Number(x))); shape.setAttribute("width", moved(Number(x) + Number(wide)) - moved(Number(x))); }
      if (cx) shape.setAttribute("cx", moved(Number(cx)));
    }
    plot.axis.querySelectorAll(".new").forEach((text) => text.remove());
    plot.axis.classList.toggle("zoomed", Boolean(shown));
    const labels = [...plot.axis.querySelectorAll("text")].filter((text) => /^\s*[\d:]+\s*$/.test(text.textContent));
    labels.forEach((text) => { text.style.display = shown ? "none" : ""; });
    if (!shown || !labels.length) return;
    const [from, to] = shown, steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400];
    const step = steps.find((size) => (to - from) / size <= (width > 2000 ? 8 : 4)) ?? (to - from) / 4;
    for (let n = Math.ceil(from / step); n * step <= to + 1e-9; n++) {
      const text = plot.axis.appendChild(labels[0].cloneNode());
      text.setAttribute("class", "new");
      text.style.display = "";
      text.setAttribute("x", place(plot, n * step));
      text.textContent = clock(n * step, step < 1);
    }
  };
  const ends = plots.filter((plot) => plot.x === "s").map((plot) => [plot.from, plot.to]);
  const whole = [Math.min(...ends.map((end) => end[0])), Math.max(...ends.map((end) => end[1]))];
  const back = Object.assign(document.createElement("button"), { type: "button", className: "reset", hidden: true, textContent: "Show the whole time" });
  const zoom = (from, to) => {
    const size = Math.min(Math.max(to - from, 0.2), whole[1] - whole[0]), start = Math.min(Math.max(from, whole[0]), whole[1] - size);
    shown = size < whole[1] - whole[0] ? [start, start + size] : null;
    back.hidden = !shown;
    plots.filter((plot) => plot.x === "s").forEach((plot) => { clear(plot); draw(plot); });
  };
  if (ends.length) {
    const textContent = "Point at a chart for values. Drag to zoom the time of all charts, drag with Shift to move, double-click to show all.";
    const hint = Object.assign(document.createElement("p"), { className: "hint", textContent });
    plots.find((plot) => plot.x === "s").figure.after(hint);
  }
  document.body.append(back);
  back.addEventListener("click", () => zoom(...whole));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") zoom(...whole); });
  // Where a pointer is: its chart, and its place on it.
  const under = (svg, event) => {
    const own = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / own.width;
    const x = (event.clientX - own.left) * scale, y = (event.clientY - own.top) * scale;
    const plot = plots.find((of) => of.svg === svg && x >= of.rect[0] - 20 && x <= of.rect[2] + 20 && y >= of.rect[1] - 20 && y <= of.rect[3] + 20);
    if (!plot) return null;
    const [from, to] = span(plot), [left, , right] = plot.rect;
    return { plot, y, x: Math.min(to, Math.max(from, from + ((x - left) / (right - left)) * (to - from))) };
  };
  for (const svg of new Set(plots.map((plot) => plot.svg))) {
    let drag = null;
    svg.classList.add("live");
    svg.addEventListener("pointerdown", (event) => {
      const at = under(svg, event);
      if (!at || at.plot.x !== "s" || event.button) return;
      drag = { ...at, start: at.x, screen: event.clientX, pan: event.shiftKey, shown: span(at.plot) };
      svg.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    svg.addEventListener("pointermove", (event) => {
      const at = under(svg, event);
      if (drag?.pan) {
        const [left, , right] = drag.plot.rect, scale = svg.viewBox.baseVal.width / svg.getBoundingClientRect().width;
        const by = ((drag.screen - event.clientX) * scale * (drag.shown[1] - drag.shown[0])) / (right - left);
        return void zoom(drag.shown[0] + by, drag.shown[1] + by);
      }
      plots.forEach(clear);
      if (!at) return;
      const seen = plots.filter((plot) => plot === at.plot || (plot.x === "s" && at.plot.x === "s"));
      seen.forEach((plot) => sight(plot, at.x, plot === at.plot ? at.y : null));
      if (drag && at.plot.x === "s") {
        const [a, b] = [drag.start, at.x].map((x) => place(drag.plot, x)).sort((x, y) => x - y);
        element("rect", { x: a, y: drag.plot.rect[1], width: b - a, height: drag.plot.rect[3] - drag.plot.rect[1] }, drag.plot.sight);
      }
    });
    svg.addEventListener("pointerup", (event) => {
      const at = drag && !drag.pan && Math.abs(event.clientX - drag.screen) > 6 && under(svg, event);
      if (at) zoom(Math.min(drag.start, at.x), Math.max(drag.start, at.x));
      drag = null;
    });
    for (const name of ["pointercancel", "pointerleave"]) svg.addEventListener(name, () => { drag = null; plots.forEach(clear); });
    svg.addEventListener("dblclick", () => zoom(...whole));
  }
});

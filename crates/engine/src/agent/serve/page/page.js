// The live page: polls the agent and shows its answers. If the agent does not answer, the page says so and keeps showing the
// last answer.

import { ages, age, bytes, bytesParts, curve, make, percent } from "./draw.js";

const MOST_ROWS = 500;
const PATIENCE_MS = 10000;

const columns = [
  { key: "name", title: "Workload", words: true, of: row => row.name },
  { key: "policy", title: "Policy", words: true, of: row => row.policy },
  { key: "memory", title: "Memory", of: row => row.memory_bytes, show: size },
  { key: "set", title: "Working set", of: row => row.working_set_bytes, show: size },
  { key: "cold", title: "Cold", of: row => row.cold_bytes, show: size },
  { key: "saved", title: "Saved, net", of: row => row.saved_net_bytes, show: size },
  { key: "pressure", title: "Pressure", of: row => row.pressure_percent, show: value => [percent(value)] },
  { key: "brake", title: "Brake", words: true, of: row => row.brakes.map(held => held.brake).join(", ") },
];

const $ = id => document.getElementById(id);
const state = { overview: null, detail: null, open: null, goneRow: null, side: "both", sort: "memory", down: true, token: "", answered: 0, failures: 0, timer: 0, turn: 0 };
const drawn = new Map(); // id -> { tr, cells, button, share }
const detailRow = make("tr", { class: "detail", role: "row" });

// --- words and figures

function size(value) {
  if (value === null) return ["–", make("span", { class: "unit" })];
  const [number, unit] = bytesParts(value);
  return [number, make("span", { class: "unit" }, unit)];
}

function time(seconds) {
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
  if (seconds < 120) return Math.floor(seconds) + " s";
  if (hours < 2) return minutes + " min";
  return days < 2 ? `${hours} h ${minutes % 60} min` : `${days} d ${hours % 24} h`;
}

/** A text from outside without what would hide or turn around what is beside it. */
const plain = text => text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, "\ufffd");
const clock = t_s => new Date(1000 * ((state.overview?.agent.started_unix_s ?? 0) + t_s)).toLocaleTimeString("en-GB");
const facts = (list, pairs) => list.replaceChildren(...pairs.map(([name, ...value]) => make("div", {}, make("dt", {}, name), make("dd", {}, ...value))));
const set = (element, text) => { if (element.textContent !== text) element.textContent = text; };

// --- asking

async function ask(path) {
  const patience = new AbortController();
  const limit = setTimeout(() => patience.abort(), PATIENCE_MS);
  const headers = state.token ? { Authorization: "Bearer " + state.token } : {};
  try {
    const answer = await fetch(path, { headers, cache: "no-store", signal: patience.signal });
    if (answer.status === 401) throw Object.assign(new Error("the token is missing or another one"), { token: true });
    if (answer.status === 404) return null;
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return await answer.json();
  } finally {
    clearTimeout(limit);
  }
}

async function refresh() {
  clearTimeout(state.timer);
  // A newer request takes over: the answer to an earlier one is ignored.
  const turn = ++state.turn;
  try {
    const overview = await ask("api/workloads");
    if (overview === null) throw new Error("this is no lowtide agent");
    const open = state.open;
    const detail = open === null ? null : await ask("api/workloads/" + encodeURIComponent(open));
    if (turn !== state.turn) return;
    state.overview = overview;
    if (detail !== null) state.detail = detail;
    [state.failures, state.answered] = [0, Date.now()];
    $("token").hidden = true;
    show();
  } catch (error) {
    if (turn !== state.turn) return;
    state.failures += 1;
    if (error.token) {
      $("token").hidden = false;
      $("refused").textContent = state.token ? "That is another token." : "";
    }
    lost(error);
  }
  const every = Math.min(Math.max(state.overview?.agent.every_s ?? 2, 2), 10);
  state.timer = setTimeout(refresh, 1000 * (state.failures ? Math.min(2 * state.failures, 10) : every));
}

function lost(error) {
  const since = state.answered ? `since ${new Date(state.answered).toLocaleTimeString("en-GB")}; what is shown is from then` : "yet";
  const why = error.name === "AbortError" ? "it took too long" : error.message;
  $("lost").hidden = Boolean(error.token);
  set($("lost"), `No answer from the agent ${since}. Trying again. (${why})`);
  document.body.classList.add("lost");
}

// --- showing

function show() {
  const { agent } = state.overview;
  document.body.classList.remove("lost");
  $("lost").hidden = true;
  const mode = agent.stopped ? "stopped" : agent.dry_run ? "dry run" : "acting";
  set($("mode"), mode);
  $("mode").className = mode === "acting" ? "mode" : "mode warn";
  facts($("agent"), [
    ["CPU", agent.cpu_percent === null ? "–" : percent(agent.cpu_percent)],
    ["of it evicting", `${agent.cpu_evicting_s.toFixed(1)} of ${(agent.cpu_watching_s + agent.cpu_evicting_s).toFixed(1)} s`],
    ["memory", bytes(agent.rss_bytes)],
    ["up for", time(agent.now_s)],
    ["last reading", clock(agent.now_s)],
  ]);
  set($("version"), "lowtide " + agent.version);
  const says = [];
  if (agent.stopped) says.push(`Nothing is taken while ${agent.stop_file} is there.`);
  if (agent.dry_run) says.push("Dry run: the agent samples and decides, and evicts nothing.");
  for (const held of agent.brakes) says.push(`Policy ${held.policy} is paused everywhere: ${held.why}.`);
  $("held").hidden = says.length === 0;
  set($("held"), says.join(" "));
  $("notes").hidden = agent.notes.length === 0;
  set($("notes").firstElementChild, `What the agent cannot measure (${agent.notes.length})`);
  $("notes").lastElementChild.replaceChildren(...agent.notes.map(note => make("li", {}, plain(note))));
  sums();
  rows();
}

function sums() {
  const all = state.overview.workloads;
  const sum = name => all.reduce((total, row) => total + (row[name] ?? 0), 0);
  const known = name => { const missing = all.filter(row => row[name] === null).length; return missing ? `not known of ${missing}` : ""; };
  const tile = (title, name, more) => [title, all.length && all.every(row => row[name] === null) ? "–" : bytes(sum(name)), make("small", {}, more)];
  facts($("sums"), [
    tile("Memory in use", "memory_bytes", `${all.length} workload${all.length === 1 ? "" : "s"}`),
    tile("Working set", "working_set_bytes", known("working_set_bytes") || "of all workloads"),
    tile("Cold", "cold_bytes", known("cold_bytes") || "in memory and not in use"),
    tile("Saved, net", "saved_net_bytes", `${bytes(sum("swapped_bytes"))} paged out` + (known("saved_net_bytes") ? ", " + known("saved_net_bytes") : "")),
  ]);
}

function wanted() {
  const text = $("filter").value.trim().toLowerCase();
  const list = state.overview.workloads.filter(row => !text || row.name.toLowerCase().includes(text) || row.policy.toLowerCase().includes(text));
  if (state.goneRow && !state.overview.workloads.some(row => row.id === state.open)) list.push(state.goneRow);
  const { of, words } = columns.find(column => column.key === state.sort);
  const down = state.down ? -1 : 1;
  return list.sort((a, b) => {
    const [x, y] = [of(a), of(b)];
    // What is not known, and what no brake holds, comes last in any order.
    if (x === y) return a.name < b.name ? -1 : 1;
    if (x === null || x === "") return 1;
    if (y === null || y === "") return -1;
    return down * (words ? (x < y ? -1 : 1) : x - y);
  });
}

function rows() {
  const total = state.overview.workloads.length;
  const current = state.overview.workloads.find(row => row.id === state.open);
  if (current) state.goneRow = current;
  const all = wanted();
  const list = all.slice(0, MOST_ROWS);
  if (state.open !== null && !list.some(row => row.id === state.open)) list.push(...all.filter(row => row.id === state.open));
  const most = Math.max(1, ...list.map(row => row.memory_bytes));
  const ids = new Set(list.map(row => row.id));
  for (const [id, { tr }] of drawn) if (!ids.has(id)) { tr.remove(); drawn.delete(id); }
  let before = null;
  const body = $("rows");
  for (const row of list) {
    const tr = fill(row, most);
    const next = before ? before.nextSibling : body.firstChild;
    // Moved only where it has to: a focused row keeps its focus.
    if (next !== tr) body.insertBefore(tr, next);
    before = tr;
    if (row.id === state.open) {
      if (tr.nextSibling !== detailRow) body.insertBefore(detailRow, tr.nextSibling);
      before = detailRow;
    }
  }
  if (state.open === null || !ids.has(state.open)) detailRow.remove();
  set($("count"), String(total));
  $("workloads").hidden = list.length === 0;
  $("empty").hidden = list.length > 0;
  set($("empty"), total ? "No workload has that in its name or policy." : "No workloads: none of the cgroups that the agent's file names is there.");
  $("more").hidden = all.length <= MOST_ROWS;
  set($("more"), `The first ${MOST_ROWS} of ${all.length} are shown; filter to see others.`);
  detail();
}

function fill(row, most) {
  let known = drawn.get(row.id);
  if (!known) {
    const button = make("button", { type: "button", "aria-expanded": "false" });
    const share = make("div", { class: "share", "aria-hidden": "true" }, make("i", { class: "s-set" }), make("i", { class: "s-cold" }), make("i", { class: "s-rest" }));
    const cells = columns.map(({ key, title, words }) => make("td", { class: `c-${key}${words ? " words" : ""}`, "data-label": title, role: "cell" }));
    cells[0].append(button, share);
    const tr = make("tr", { class: "row", role: "row", "data-id": row.id }, ...cells);
    known = { tr, cells, button, share, shown: [] };
    drawn.set(row.id, known);
  }
  const { tr, cells, button, share, shown } = known;
  const isOpen = row.id === state.open;
  tr.classList.toggle("open", isOpen);
  tr.classList.toggle("gone", row === state.goneRow && !state.overview.workloads.includes(row));
  button.setAttribute("aria-expanded", String(isOpen));
  if (!known.named) {
    const name = plain(row.name), last = name.lastIndexOf("/") + 1;
    button.append(make("span", { class: "above" }, name.slice(0, last)), name.slice(last));
    known.named = true;
  }
  const parts = row.cold_bytes === null ? [0, 0, row.memory_bytes] : [row.memory_bytes - row.cold_bytes, row.cold_bytes, 0];
  parts.forEach((part, at) => { share.children[at].style.width = (100 * part / most).toFixed(2) + "%"; });
  columns.forEach((column, at) => {
    if (at === 0) return;
    const value = column.of(row);
    if (shown[at] === value) return;
    shown[at] = value;
    if (column.key === "brake") cells[at].replaceChildren(...row.brakes.map(held => make("span", { class: "brake", title: `policy ${held.policy} is paused here: ${held.why}` }, held.brake)));
    else cells[at].replaceChildren(make("span", {}, ...(column.words ? [plain(value)] : column.show(value))));
  });
  return tr;
}

function toggle(id) {
  [state.open, state.detail, state.goneRow] = [state.open === id ? null : id, null, null];
  history.replaceState(null, "", state.open === null ? location.pathname : "#" + state.open);
  if (!state.overview) return;
  rows();
  if (state.open !== null) refresh();
}

// --- one workload

const parts = {
  cell: make("td", { colspan: String(columns.length), role: "cell" }),
  gone: make("p", { class: "banner", role: "status" }),
  facts: make("dl", { class: "facts" }),
  curveSay: make("p", { class: "say" }), curve: make("div", { class: "chart curve" }),
  sides: make("fieldset", { class: "sides" }, make("legend", { class: "hidden" }, "Which memory")),
  ages: make("div", { class: "chart ages" }),
  table: make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Tide curve as a table" }),
  log: make("div", { class: "log", tabindex: "0", role: "region", "aria-label": "Actions" }),
};
for (const [side, title] of [["both", "all"], ["anon", "anonymous"], ["file", "file"]]) {
  const choice = make("input", { type: "radio", name: "side", value: side });
  choice.checked = side === state.side;
  choice.addEventListener("change", () => { state.side = side; detail(); });
  parts.sides.append(make("label", {}, choice, title));
}
parts.cell.append(parts.gone, parts.facts, make("div", { class: "pair" },
  make("section", {}, make("h3", {}, "Tide curve"), parts.curveSay, parts.curve),
  make("section", {}, make("h3", {}, "Idle ages"), parts.sides, parts.ages)), parts.table, parts.log);
detailRow.append(parts.cell);

function detail() {
  const { detail: of, open } = state;
  if (open === null || !detailRow.isConnected) return;
  const known = of !== null && of.workload.id === open;
  const isGone = !state.overview.workloads.some(row => row.id === open);
  parts.gone.hidden = known && !isGone;
  set(parts.gone, isGone ? "This workload is gone. What is shown is what was last known of it." : "Asking the agent …");
  for (const element of [...parts.cell.children].slice(1)) element.hidden = !known;
  if (!known) return;
  const row = of.workload;
  facts(parts.facts, [
    ["monitor", row.monitor ?? "–"],
    ["anonymous", bytes(row.anon_bytes)],
    ["file", bytes(row.file_bytes)],
    ["paged out", bytes(row.swapped_bytes)],
    ["kept in", bytes(row.kept_bytes)],
    ["working set of", row.working_set_window_s === null ? "–" : "the last " + age(row.working_set_window_s)],
    ["inode", row.kind === "cgroup" ? row.id : "–"],
  ]);
  const tide = of.curve;
  set(parts.curveSay, tide ? `What less memory would cost, from the last ${time(tide.span_s)}. Labels: gone once idle for so long. ` +
    `A page that comes back costs ${(1e6 * tide.refault_swap_s).toFixed(0)} µs from swap, ${(1e6 * tide.refault_disk_s).toFixed(0)} µs from a file.` : `No curve: ${of.curve_missing}.`);
  parts.curve.hidden = parts.table.hidden = !tide;
  if (tide) {
    curve(parts.curve, tide);
    parts.table.replaceChildren(tideTable(tide));
  }
  ages(parts.ages, of.ages, state.side, clock);
  parts.log.replaceChildren(make("h3", {}, "Actions"), of.actions.length ? actions(of.actions) : make("p", { class: "say" }, "Nothing was done to it yet."));
}

function table(heads, lines, words = []) {
  const cell = (tag, content, at, more = "") => make(tag, { class: (words.includes(at) ? "words" : "") + more, ...(tag === "th" ? { scope: "col" } : {}) }, ...[content].flat());
  return make("table", { class: "small" }, make("thead", {}, make("tr", {}, ...heads.map((head, at) => cell("th", head, at)))),
    make("tbody", {}, ...lines.map(line => make("tr", {}, ...line.map((content, at) => cell("td", content, at, at === heads.length - 1 && words.includes(at) ? " long" : ""))))));
}

function tideTable(tide) {
  const most = tide.total_anon_bytes + tide.total_file_bytes || 1;
  const lines = tide.points.map(point => {
    const [anon, file] = [make("i", { class: "f-anon" }), make("i", { class: "f-file" })];
    anon.style.width = 100 * point.anon_cold_bytes / most + "%";
    file.style.width = 100 * point.file_cold_bytes / most + "%";
    return [age(point.age_s), make("span", { class: "split", "aria-hidden": "true" }, anon, file), size(point.anon_cold_bytes), size(point.file_cold_bytes), size(point.kept_bytes),
      [...size(point.anon_back_bytes_per_s), "/s"], [...size(point.file_back_bytes_per_s), "/s"],
      `${percent(point.slowdown_percent)} (${percent(point.slowdown_low_percent)} to ${percent(point.slowdown_high_percent)})`];
  });
  return table(["Idle for", "would go", "anonymous", "file", "kept", "anonymous back", "file back", "slowdown"], lines, [0, 1]);
}

function actions(list) {
  const lines = list.map(action => {
    const amount = action.anon_bytes + action.file_bytes;
    const asked = action.asked_anon_bytes === null ? "" : " of " + bytes(action.asked_anon_bytes + action.asked_file_bytes);
    const reason = [plain(action.reason)];
    if (action.stopped !== null) reason.push(make("span", { class: "stopped" }, ` (cut short: ${plain(action.stopped)})`));
    return [clock(action.t_s), action.what, bytes(amount) + asked, action.by ?? "", action.took_s.toFixed(2) + " s", reason];
  });
  return table(["when", "what", "memory", "by", "took", "why"], lines, [0, 1, 3, 5]);
}

// --- what people do

function sortBy(key) {
  const { words } = columns.find(column => column.key === key);
  [state.down, state.sort] = [state.sort === key ? !state.down : !words, key];
  heads();
  if (state.overview) rows();
}

function heads() {
  for (const th of $("head").children) {
    if (th.dataset.key === state.sort) th.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    else th.removeAttribute("aria-sort");
  }
  $("order").value = state.sort;
}

for (const { key, title, words } of columns) {
  const button = make("button", { type: "button" }, title);
  button.addEventListener("click", () => sortBy(key));
  $("head").append(make("th", { scope: "col", class: `c-${key}${words ? " words" : ""}`, "data-key": key }, button));
  $("order").append(make("option", { value: key }, title));
}
heads();
$("order").addEventListener("change", event => sortBy(event.target.value));
$("filter").addEventListener("input", () => { if (state.overview) rows(); });
$("rows").addEventListener("click", event => {
  const tr = event.target.closest("tr.row");
  if (tr && !String(getSelection())) toggle(tr.dataset.id);
});
$("rows").addEventListener("keydown", event => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || !event.target.closest("tr.row")) return;
  const buttons = [...$("rows").querySelectorAll("tr.row button")];
  buttons[buttons.indexOf(event.target) + step]?.focus();
  event.preventDefault();
});
$("token").addEventListener("submit", event => {
  event.preventDefault();
  state.token = $("secret").value;
  refresh();
});
document.addEventListener("visibilitychange", () => {
  clearTimeout(state.timer);
  if (!document.hidden) refresh();
});
let resized = 0;
addEventListener("resize", () => { cancelAnimationFrame(resized); resized = requestAnimationFrame(() => { if (state.overview) detail(); }); });
if (/^#\d+$/.test(location.hash)) state.open = location.hash.slice(1);
refresh();

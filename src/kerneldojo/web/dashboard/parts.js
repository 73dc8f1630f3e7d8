"use strict";
// Pieces that both views are made of: badges, ages, bars, and lists that change in place so that focus and place stay.

// Glyph, class of the badge, and what it means.
const STATUSES = new Map(Object.entries({
  passed: ["✓", "good", "right in every round"],
  incorrect: ["≠", "bad", "its answers are not the reference's"],
  exploit: ["⚑", "cheat", "sought credit without the work"],
  compile_error: ["⌧", "bad", "could not be read or compiled"],
  runtime_error: ["✗", "bad", "failed while running"],
  timeout: ["◷", "bad", "did not finish in time"],
  out_of_memory: ["▣", "bad", "asked for too much memory"],
  unsupported_on_device: ["⊘", "masked", "this device cannot judge it; never scored"],
  invalid_problem: ["?", "masked", "the problem itself cannot be judged; never scored"],
  infrastructure_error: ["!", "masked", "the judge's own fault; never scored"],
  queued: ["…", "", "waits to be judged"],
  running: ["▶", "now", "is being judged"],
  cancelled: ["–", "", "ended without a verdict"],
}));
const statusOf = task => task.status || task.state;

function badge(name) {
  const [glyph, style, meaning] = STATUSES.get(name) || ["", "", ""];
  return el("span", { class: "badge " + style, title: meaning }, el("span", { "aria-hidden": "true" }, glyph + " "), words(name));
}

const against = baseline => baseline === "compile" ? "torch.compile" : "eager";

// Times are the service's; its clock and the browser's need not agree.
const clock = { behind: 0, set(now) { this.behind = now - Date.now() / 1000; }, now() { return Date.now() / 1000 + this.behind; } };

function span(seconds) {
  const s = Math.max(0, seconds);
  if (s < 60) return Math.floor(s) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
}
const seconds = s => s === null || s === undefined ? "–" : s < 0.0005 ? "0 s" : s < 1 ? digits(s * 1000) + " ms" : s < 100 ? digits(s) + " s" : span(s);

function age(at, suffix = " ago") {
  if (at === null || at === undefined) return el("span", {}, "–");
  return el("time", { datetime: new Date(at * 1000).toISOString(), title: new Date(at * 1000).toLocaleString(), "data-at": at, "data-suffix": suffix }, span(clock.now() - at) + suffix);
}
function refreshAges() {
  for (const one of document.querySelectorAll("time[data-at]")) {
    const text = span(clock.now() - Number(one.dataset.at)) + one.dataset.suffix;
    if (one.textContent !== text) one.textContent = text;
  }
}

function setText(node, text) { if (node.textContent !== text) node.textContent = text; }

// Make the children of `parent` those of `items`. A child is kept while its signature is the same; focus survives.
function keyed(parent, items, key, make, signature = JSON.stringify) {
  const before = parent.kept || new Map(), kept = new Map();
  for (const item of items) {
    const name = key(item), mark = signature(item), had = before.get(name);
    kept.set(name, had && had.mark === mark ? had : { mark, item });
  }
  let focused = null;
  for (const [name, one] of before) if (kept.get(name) !== one) {
    if (one.node.contains(document.activeElement)) focused = name;
    one.node.remove();
  }
  let at = parent.firstChild;
  for (const one of kept.values()) {
    one.node ??= make(one.item);
    if (one.node === at) at = at.nextSibling;
    else parent.insertBefore(one.node, at);
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
  parent.kept = kept;
  if (focused !== null && kept.has(focused)) kept.get(focused).node.querySelector("a, button")?.focus();
}

function bar(style, share, label) {
  return el("div", { class: "bar", role: "img", "aria-label": label }, el("i", { class: style, width: Math.max(0, Math.min(100, 100 * share)) + "%" }));
}

// Name, bar and figure, for the columns of `.kernels`. A long name is cut, whole in its title: a candidate's may have thousands of characters.
const MOST_OF_NAME = 160;
function barRow(name, style, share, figure) {
  const letters = [...name], shown = letters.length > MOST_OF_NAME ? letters.slice(0, MOST_OF_NAME).join("") + " …" : name;
  return el("div", { class: "same" }, el("span", { class: "name", title: harmless(name) }, harmless(shown)), bar(style, share || 0, harmless(figure)), el("span", { class: "figure" }, figure));
}

function sparkline(history) {
  const most = Math.max(1, ...history), width = 5, height = 40;
  const root = svg("svg", { viewBox: `0 0 ${history.length * width} ${height}`, preserveAspectRatio: "none", class: "spark", role: "img",
    "aria-label": `evaluations a minute in the last hour: at most ${Math.max(...history)}, this minute ${history.at(-1)}` });
  history.forEach((number, i) => {
    const tall = number ? Math.max(2, (height - 2) * number / most) : 1;
    const one = svg("rect", { x: i * width, y: height - tall, width: width - 1, height: tall, rx: 1, class: number ? i === history.length - 1 ? "now" : "some" : "none" });
    one.append(svg("title", {}, `${history.length - 1 - i} min ago: ${number}`));
    root.append(one);
  });
  return root;
}

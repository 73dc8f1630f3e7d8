"use strict";
// Words, figures, code and differences as elements. Every string goes in as text; nothing here ever parses markup.

function el(name, options = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (value === undefined || value === null) continue;
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "width") node.style.width = value;
    else node.setAttribute(key, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

// Control characters, what is not seen (bidirectional marks, soft hyphens, tags) and halves of surrogate pairs are spelled out, so that a
// line cannot read as something that it is not.
function harmless(text) {
  return String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, c => {
    const code = c.codePointAt(0).toString(16);
    return code.length > 4 ? `\\u{${code}}` : "\\u" + code.padStart(4, "0");
  });
}

const digits = v => v === 0 ? "0" : v >= 100 ? v.toFixed(0) : v >= 0.1 ? String(Number(v.toPrecision(3))) : v.toPrecision(2);
const three = v => v >= 0.1 && v < 100 ? v.toPrecision(3) : digits(v);  // as `digits`, but of one width: 4.40
const percent = v => v === null || v === undefined ? "–" : (v > 0 && v < 0.1 ? (100 * v).toFixed(1) : (100 * v).toFixed(0)) + " %";
const ratio = v => v === null || v === undefined ? "–" : three(v) + "×";
const magnitude = v => (v >= 100 ? thousands(Number(v.toPrecision(2))) : digits(Number(v.toPrecision(2)))) + "×";
const words = name => String(name).replaceAll("_", " ");
function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  return ms >= 1000 ? three(ms / 1000) + " s" : ms >= 1 ? three(ms) + " ms" : three(ms * 1000) + " µs";
}
function thousands(n) { return n.toLocaleString("en-US"); }

const KEYWORDS = new Set(("False None True and as assert async await break class continue def del elif else except finally for " +
  "from global if import in is lambda nonlocal not or pass raise return try while with yield").split(" "));
const TOKEN = /("""|''')[^]*?(?:\1|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|#[^\n]*|@[\w.]+|\b\d[\w.]*\b|\b[A-Za-z_]\w*\b/g;

// Python source as a list of lines, each a list of [class, text].
function tokens(source) {
  const lines = [[]];
  const put = (kind, text) => text.split("\n").forEach((part, i) => {
    if (i) lines.push([]);
    if (part) lines[lines.length - 1].push([kind, part]);
  });
  let at = 0, before = "";
  for (const match of source.matchAll(TOKEN)) {
    put("", source.slice(at, match.index));
    const text = match[0], first = text[0];
    let kind = "";
    if (first === "#") kind = "t-c";
    else if (first === '"' || first === "'") kind = "t-s";
    else if (first === "@" || before === "def" || before === "class") kind = "t-d";
    else if (first >= "0" && first <= "9") kind = "t-n";
    else if (KEYWORDS.has(text)) kind = "t-k";
    put(kind, text);
    before = text;
    at = match.index + text.length;
  }
  put("", source.slice(at));
  return lines;
}

const codeLine = (number, parts, kind = "") => el("div", { class: kind }, el("span", { class: "n" }, number),
  parts.length ? parts.map(([style, text]) => style ? el("span", { class: style }, harmless(text)) : harmless(text)) : " ");

function codeView(source) {
  return el("div", { class: "source mono", tabindex: "0" }, tokens(source.replace(/\n$/, "")).map((parts, i) => codeLine(String(i + 1), parts)));
}

// Longest common subsequence of lines, after cutting the common ends; very long changes are shown as replaced whole.
function difference(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const n = a.length - head - tail, m = b.length - head - tail, rows = [];
  for (let i = 0; i < head; i++) rows.push([" ", i, i]);
  if (n * m <= 4e6) {
    const width = m + 1, table = new Uint16Array((n + 1) * width);
    for (let i = n - 1; i >= 0; i--) for (let j = m - 1; j >= 0; j--)
      table[i * width + j] = a[head + i] === b[head + j] ? table[(i + 1) * width + j + 1] + 1
        : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    let i = 0, j = 0;
    while (i < n || j < m) {
      if (i < n && j < m && a[head + i] === b[head + j]) rows.push([" ", head + i++, head + j++]);
      else if (i < n && (j === m || table[(i + 1) * width + j] >= table[i * width + j + 1])) rows.push(["-", head + i++, null]);
      else rows.push(["+", null, head + j++]);
    }
  } else {
    for (let i = 0; i < n; i++) rows.push(["-", head + i, null]);
    for (let j = 0; j < m; j++) rows.push(["+", null, head + j]);
  }
  for (let i = 0; i < tail; i++) rows.push([" ", a.length - tail + i, b.length - tail + i]);
  return rows;
}

function diffView(before, after, context = 3) {
  const rows = difference(before, after), old = tokens(before), now = tokens(after);
  const near = new Array(rows.length).fill(false);
  rows.forEach(([mark], i) => {
    if (mark !== " ") for (let k = Math.max(0, i - context); k <= Math.min(rows.length - 1, i + context); k++) near[k] = true;
  });
  const view = el("div", { class: "source mono", tabindex: "0" });
  if (!rows.some(([mark]) => mark !== " ")) view.append(el("div", { class: "gap" }, "the same code as in the turn before"));
  let hidden = 0;
  const flush = () => { if (hidden) view.append(el("div", { class: "gap" }, `⋯ ${hidden} equal line${hidden > 1 ? "s" : ""} ⋯`)); hidden = 0; };
  rows.forEach(([mark, i, j], at) => {
    if (!near[at]) { hidden++; return; }
    flush();
    if (mark === "-") view.append(codeLine("− " + (i + 1), old[i], "cut"));
    else view.append(codeLine((mark === "+" ? "+ " : "") + (j + 1), now[j], mark === "+" ? "add" : ""));
  });
  if (rows.some(([mark]) => mark !== " ")) flush();
  return view;
}

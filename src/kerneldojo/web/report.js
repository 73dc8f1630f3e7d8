// A run's report: headline, curves, the grid of problems, and the viewer of one episode.

const DATA = JSON.parse(document.getElementById("data").textContent), M = DATA.metrics, page = document.getElementById("page");
const modeled = M.timing_sources.includes("modeled"), FAST = M.config.thresholds;

const MEANING = {
  passed: "right in every round", incorrect: "its answers are not the reference's", exploit: "sought credit without the work",
  compile_error: "could not be read or compiled", runtime_error: "failed while running", timeout: "did not finish in time",
  out_of_memory: "asked for too much memory", no_code: "no code found in the answer", policy_failed: "the policy gave no answer (masked)",
  unsupported_on_device: "this device cannot judge it (masked)", invalid_problem: "the problem cannot be judged (masked)",
  infrastructure_error: "the judge failed (masked)",
};
function kind([outcome, speedup, , scored]) {
  if (!scored) return "masked";
  if (outcome === "passed") return speedup !== null && speedup > 1 ? "fast" : "right";
  return outcome === "exploit" ? "cheat" : "wrong";
}
const BADGE = { fast: "good", right: "good", wrong: "bad", cheat: "cheat", masked: "masked" };
const badge = turn => el("span", { class: "badge " + BADGE[kind(turn)], title: MEANING[turn[0]] || "" }, words(turn[0]));

const CORRECT = FAST.includes(0) ? "correct, fast at 0×" : "correct";
const times = v => digits(v) + "×";
const find = wanted => M.figures.find(one => Object.entries({ unit: "sample", aggregate: "all", k: null, p: null, failures: null, against: M.figures[0].against, ...wanted })
  .every(([key, value]) => one[key] === value));
const isSpeed = name => name.startsWith("speedup");
const show = (figure, value) => isSpeed(figure.name) ? ratio(value) : percent(value);
const interval = figure => figure && figure.low !== null ? `${show(figure, figure.low)} to ${show(figure, figure.high)}` : "";
const cellOf = figure => el("td", { title: figure ? `over ${thousands(figure.count)} ${figure.unit}s` : null }, figure && figure.value !== null ? show(figure, figure.value) : "–",
  figure && figure.value !== null ? el("span", { class: "range" }, interval(figure)) : null);

const counted = (n, noun) => `${thousands(n)} ${noun}${n === 1 ? "" : "s"}`;
function costWords(cost) {
  const tokens = cost.prompt_tokens || cost.answer_tokens ? `${thousands(cost.prompt_tokens)} prompt and ${thousands(cost.answer_tokens)} generated tokens` : "no tokens counted";
  return [counted(cost.calls, "answer"), counted(cost.verdicts, "verdict"), tokens, cost.dollars && "$" + (cost.dollars >= 1 ? cost.dollars.toFixed(2) : digits(cost.dollars))].filter(Boolean).join(", ");
}

function header() {
  const c = M.counts, facts = { ...DATA.about, problems: thousands(c.problems), "samples each": c.samples, "turns each": c.turns_each, "turns played": thousands(c.turns) };
  if (c.masked_turns) facts["masked turns"] = `${thousands(c.masked_turns)} (no verdict could be had; in no figure)`;
  if (c.cut_episodes) facts["cut episodes"] = thousands(c.cut_episodes);
  facts.cost = costWords(M.cost);
  if (M.search_cost) facts["cost of the searches"] = costWords(M.search_cost);
  page.append(el("h1", {}, harmless(DATA.title)),
    el("ul", { class: "facts" }, Object.entries(facts).map(([key, value]) => el("li", {}, el("b", {}, harmless(key)), harmless(value)))));
  if (c.planned_episodes > c.episodes) page.append(el("div", { class: "notice" }, el("b", {}, "Not finished"), `: ${thousands(c.episodes)} of ${counted(c.planned_episodes, "episode")} have ended. The slow ones are among the others, so that figures may change.`));
  const best = find({ name: "correct", turn: "best of history", unit: "problem", aggregate: "best", k: c.samples });
  if (best && best.count < c.problems) page.append(el("div", { class: "notice" }, `avg@${c.samples} and best@${c.samples} are over ${thousands(best.count)} of ${counted(c.problems, "problem")}: the others have fewer samples that were scored.`));
  if (c.too_long_samples) page.append(el("div", { class: "notice" }, el("b", {}, `${counted(c.too_long_samples, "sample")} of ${counted(c.too_long_problems, "problem")} never began`),
    ": not even the first prompt fits the limit of tokens. They are failures in every figure."));
  for (const one of M.refusals) page.append(el("div", { class: "notice" }, el("b", {}, `Left out for ${words(one.status)}: ${counted(one.answers, "answer")} to ${counted(one.problems, "problem")}`), harmless(`; the first, ${one.first_problem}: ${one.first_reason}`)));
  const part = M.against_compile;
  if (part && part.judged < part.passed) page.append(el("div", { class: "notice", id: "partial" }, el("b", {}, "The part against torch.compile is not finished"), `: of ${counted(part.passed, "answer")} that passed, ${thousands(part.judged)} were judged against it. ` +
    "The others are left out and failures are not, so that figures against it are too low. Starting the benchmark again goes on."));
  if (modeled) page.append(el("div", { class: "notice" }, "The times in this report are ", el("b", {}, "modelled"),
    ", not measured: a roofline of the device priced them. They are for development, not for a board."));
  if (!M.timing_sources.length && c.turns) page.append(el("div", { class: "notice" }, "Nothing was timed, so there are no speedups; none are invented."));
}

function tiles() {
  const tile = (name, figure, note) => el("div", { class: "tile" }, el("div", { class: "name" }, name),
    el("div", { class: "value" }, figure && figure.value !== null ? show(figure, figure.value) : "–"),
    el("div", { class: "range" }, figure && figure.low !== null ? interval(figure) : ""), el("div", { class: "range" }, note));
  const last = { turn: "last turn" }, cheats = M.exploits.length ? M.statuses.find(one => one.name === "exploit") : null;
  page.append(el("div", { class: "tiles" },
    tile("Correct", find({ name: "correct", ...last }), "samples, last turn"),
    tile("fast₁", find({ name: "fast", p: 1, ...last }), "correct and faster; samples, last turn"),
    tile("Best of history", find({ name: "fast", p: 1, turn: "best of history" }), "fast₁ of samples"),
    tile("Geometric speedup", find({ name: "speedup geometric", failures: "left out", ...last }), "correct answers, last turn"),
    tile("Exploits", { name: "exploits", value: cheats ? cheats.share : 0, low: null }, "of all scored turns")));
}

function headline() {
  const n = M.counts.samples, against = [...new Set(M.figures.map(one => one.against))];
  const rows = [[CORRECT, { name: "correct" }], ...FAST.filter(p => p > 0).map(p => [`fast at ${p}×`, { name: "fast", p }]),
    ["mean speedup, failures as 0", { name: "speedup mean", failures: "zero" }], ["mean speedup, correct alone", { name: "speedup mean", failures: "left out" }],
    ["geometric, failures as 0", { name: "speedup geometric", failures: "zero" }], ["geometric, failures keep the reference (1×)", { name: "speedup geometric", failures: "one" }],
    ["geometric, correct alone", { name: "speedup geometric", failures: "left out" }]];
  const columns = [["last turn", "sample", { turn: "last turn" }], ["best of history", "sample", { turn: "best of history" }],
    ["avg@" + n, "problem, last turn", { turn: "last turn", unit: "problem", aggregate: "average", k: n }],
    ["best@" + n, "problem, best of history", { turn: "best of history", unit: "problem", aggregate: "best", k: n }]];
  for (const base of against) {
    const card = el("section", { class: "card" }, el("h2", {}, base === "compile" ? "Against torch.compile" : "Against eager PyTorch"),
      el("p", { class: "soft small" }, `fast at p: correct and ${M.config.strictly ? "more than" : "at least"} p times as fast. Ranges: 95 %, bootstrap over problems, and what problems that are all alike do not exclude. ` +
        "Best of history and best@k choose with the verdicts that they report."));
    card.append(el("div", { class: "scroll" }, el("table", { id: "headline-" + base },
      el("tr", {}, el("th", {}, ""), columns.map(([name, unit]) => el("th", {}, name, el("br"), el("span", { class: "soft small" }, "per " + unit)))),
      rows.map(([name, wanted]) => el("tr", {}, el("td", {}, name), columns.map(([, , column]) => cellOf(find({ ...wanted, ...column, against: base }))))))));
    page.append(card);
  }
}

function curves() {
  const grid = el("div", { class: "grid2" }), card = (title, note, chart) => grid.append(el("section", { class: "card" }, el("h2", {}, title), el("p", { class: "soft small" }, note), chart));
  const T = M.counts.turns_each, turns = Array.from({ length: T }, (_, i) => i + 1);
  const line = (wanted, name, label) => ({ name, points: turns.map(t => {
    const one = find({ ...wanted, turn: label(t) }); return one ? [t, one.value, one.low, one.high] : [t, null]; }) });
  const at = t => "turn " + t, upTo = t => t === T ? "best of history" : "best of turns 1-" + t;
  const names = ["last turn", "best of history"].filter(name => DATA.fast[name]);
  card("Fast at p", `Share of samples that are correct and ${M.config.strictly ? "more than" : "at least"} p times as fast, over p.`,
    lineChart(names.map(name => ({ name, dots: false, points: DATA.fast.p.map((p, i) => [p, DATA.fast[name][i]]) })), { xTitle: "p", format: percent, yMax: 1, aria: "fast_p over p" }));
  if (T > 1) card("Correct, by turn", "Share of samples.", lineChart([line({ name: "correct" }, "this turn", at), line({ name: "correct" }, "best so far", upTo)],
    { xTitle: "turn", format: percent, yMax: 1, xTicks: turns, aria: "correct by turn" }));
  if (T > 1) card("Speedup, by turn", "Mean over samples, failures as 0.", lineChart([line({ name: "speedup mean", failures: "zero" }, "this turn", at), line({ name: "speedup mean", failures: "zero" }, "best so far", upTo)],
    { xTitle: "turn", format: ratio, tick: times, xTicks: turns, aria: "speedup by turn" }));
  card("What a larger budget buys", "Expected best answer per problem (best@k, unbiased), failures as 0, for what it costs on average. Dashed: searches, whose answers were judged again after they were chosen.", budget());
  page.append(grid);
}

// Curves by what is bounded: calls, and verdicts and generated tokens where there is a record of them.
function budget() {
  const chart = el("div", { id: "budget" }), points = M.budgets.flatMap(curve => curve.points);
  const axes = ["calls", "verdicts", "tokens"].filter(axis => points.some(point => point[axis]));
  const figures = [["correct", percent, 1, percent], ["fast at 1×", percent, 1, percent], ["mean speedup", ratio, undefined, times]];
  const chosen = { axis: "calls", figure: 2 };
  const fill = () => {
    const [, format, yMax, tick] = figures[chosen.figure], axis = chosen.axis, at = point => { const one = point.figures[chosen.figure]; return [point[axis], one.value, one.low, one.high]; };
    const series = M.budgets.map(curve => ({ name: curve.strategy, dashed: curve.strategy.endsWith("judged again"), points: curve.points.filter(point => point[axis]).map(at) })).filter(one => one.points.length);
    chart.replaceChildren(lineChart(series, { xTitle: `${axis === "tokens" ? "generated tokens" : axis} for one problem`, format, tick, yMax, log: true, aria: "budget curves" }));
  };
  const tabs = (name, choices) => {
    const row = el("div", { class: "tabs" }, choices.map(([label, value]) => el("button", { "aria-pressed": String(chosen[name] === value), onclick: event => {
      chosen[name] = value; row.querySelectorAll("button").forEach(one => one.setAttribute("aria-pressed", one === event.target)); fill(); } }, label)));
    return row;
  };
  fill();
  return el("div", {}, el("div", { class: "row spread" }, tabs("figure", figures.map(([label], i) => [label, i])), axes.length > 1 ? tabs("axis", axes.map(axis => [axis, axis])) : null), chart);
}

// What each strategy of search reached with its whole budget.
function searches() {
  if (!M.searches.length) return;
  const first = M.searches[0], rows = first.figures.map((figure, i) => [figure, i]).filter(([figure]) => figure.p !== 0 && (M.timing_sources.length || figure.name === "correct"));
  const bounds = budget => ["calls", "verdicts", "tokens", "seconds"].filter(name => budget[name]).map(name => counted(budget[name], name.slice(0, -1))).join(", ");
  const label = figure => figure.name === "correct" ? CORRECT : figure.name === "fast" ? `fast at ${figure.p}×` : "mean speedup, failures as 0";
  page.append(el("section", { class: "card" }, el("h2", {}, "Searches"), el("p", { class: "soft small" }, `Per problem, over the ${counted(first.problems, "problem")} that every strategy searched. What a search found was judged again after the choice, so that these figures are stricter than those above.`),
    el("div", { class: "scroll" }, el("table", { id: "searches" }, el("tr", {}, el("th", {}, ""), M.searches.map(one => el("th", {}, harmless(one.strategy), el("br"), el("span", { class: "soft small" }, bounds(one.budget))))),
      rows.map(([figure, i]) => el("tr", {}, el("td", {}, label(figure)), M.searches.map(one => cellOf(one.figures[i])))),
      M.timing_sources.length ? el("tr", {}, el("td", {}, "best confirmed speedup"), M.searches.map(one => el("td", {}, ratio(one.best)))) : null,
      [["answers", "calls"], ["verdicts", "verdicts"], ["generated tokens", "answer_tokens"]].map(([name, key]) => M.searches.some(one => one.cost[key]) ? el("tr", {}, el("td", {}, name + " in all"), M.searches.map(one => el("td", {}, thousands(one.cost[key])))) : null)))));
}

function outcomes() {
  const colour = { passed: "var(--good)", exploit: "var(--cheat)", incorrect: "var(--bad)", runtime_error: "var(--s2)", compile_error: "var(--s3)", timeout: "var(--s4)", no_code: "var(--soft)" };
  const of = name => colour[name] || "var(--masked)", card = el("section", { class: "card" }, el("h2", {}, "What became of the answers"));
  M.statuses_by_turn.forEach((row, t) => {
    const total = Object.values(row).reduce((a, b) => a + b, 0), stack = el("div", { class: "stack" });
    for (const one of M.statuses) if (row[one.name]) { const part = el("i", { width: 100 * row[one.name] / total + "%", title: `${words(one.name)}: ${row[one.name]}` }); part.style.background = of(one.name); stack.append(part); }
    card.append(el("div", { class: "stackrow" }, el("span", { class: "soft" }, "turn " + (t + 1)), stack));
  });
  card.append(el("div", { class: "legend" }, M.statuses.map(one => { const mark = el("i"); mark.style.background = of(one.name); return el("span", { title: MEANING[one.name] }, mark, `${words(one.name)} ${thousands(one.count)} (${percent(one.share)})`); })));
  if (M.exploits.length) card.append(el("h3", {}, "Exploits by class"), el("div", { class: "kernels" }, M.exploits.map(one => [el("span", { class: "name mono" }, harmless(one.name)),
    el("div", { class: "bar" }, el("i", { class: "other", width: 100 * one.count / M.exploits[0].count + "%" })), el("span", {}, `${one.count} (${percent(one.share)})`)]).flat()));
  const q = M.coverage;
  if (q.count) card.append(el("h3", {}, "Coverage"), el("p", { class: "soft small" }, `Share of device time in own kernels, over ${thousands(q.count)} correct answers: mean ${percent(q.mean)}; ` +
    Object.entries(q.quantiles).map(([level, value]) => `${level} % at most ${percent(value)}`).join(", ") + "."));
  page.append(card);
}

const tooLong = episode => episode.finish === "budget" && !episode.turns.length;  // its first prompt does not fit
const PAGE_SIZE = 100, viewer = el("section", { class: "card", id: "viewer" });

function problems() {
  const body = el("tbody"), more = el("button", { onclick: () => { shown += PAGE_SIZE; fill(); } }, "Show more"), search = el("input", { type: "search", placeholder: "filter by name", "aria-label": "filter problems by name", oninput: () => { shown = PAGE_SIZE; fill(); } });
  let shown = PAGE_SIZE;
  const rows = DATA.problems.map((problem, at) => {
    const scored = problem.episodes.map(one => one.turns.filter(turn => turn[3])), best = scored.flat().map(turn => turn[1]).filter(v => v !== null);
    const right = scored.filter(turns => turns.some(turn => turn[0] === "passed")).length, judged = scored.filter((turns, i) => turns.length || tooLong(problem.episodes[i])).length;
    return { problem, at, best: best.length ? Math.max(...best) : null, right: judged ? right / judged : null };
  });
  function fill() {
    const wanted = rows.filter(row => row.problem.name.toLowerCase().includes(search.value.toLowerCase()));
    body.replaceChildren(...wanted.slice(0, shown).map(row => el("tr", {}, el("td", { title: harmless(row.problem.notes) }, harmless(row.problem.name)), el("td", { "data-name": "samples right" }, percent(row.right)), el("td", { "data-name": "best" }, ratio(row.best)),
      el("td", { class: "full" }, el("div", { class: "cells" }, row.problem.episodes.map((one, e) => el("button", { class: "cell", "data-at": `${row.at}/${e}`, "aria-label": `sample ${one.sample}`, title: `sample ${one.sample}: ` + (tooLong(one) ? "the first prompt does not fit" : "") + one.turns.map(turn => words(turn[0]) + (turn[1] !== null ? " " + ratio(turn[1]) : "")).join(", "),
        onclick: () => go(row.at, e, Math.max(0, one.turns.length - 1)) }, one.turns.length ? one.turns.map(turn => el("i", { class: "k-" + kind(turn) })) : el("i", { class: tooLong(one) ? "k-wrong" : "k-none" }))))))));
    more.hidden = wanted.length <= shown;
    mark();
  }
  const key = [["fast", "faster than the reference"], ["right", "correct"], ["wrong", "failed"], ["cheat", "exploit"], ["masked", "masked"]];
  page.append(el("section", { class: "card" }, el("div", { class: "row spread" }, el("h2", {}, "Problem by problem"), search),
    el("p", { class: "soft small" }, "One group of bars a sample, one bar a turn. Choose one to walk through it."),
    el("div", { class: "legend" }, key.map(([name, text]) => el("span", {}, el("i", { class: "k-" + name }), text))),
    el("div", { class: "scroll" }, el("table", { class: "problems" }, el("thead", {}, el("tr", {}, el("th", {}, "problem"), el("th", {}, "samples right"), el("th", {}, "best"), el("th", { class: "start" }, "samples"))), body)), more), viewer);
  fill();
}

const mark = () => document.querySelectorAll(".cell").forEach(one => one.classList.toggle("now", one.dataset.at === `${place[0]}/${place[1]}`));
let place = [-1, 0, 0], drawn = 0;
const unpacked = new Map();
async function block(at) {
  if (!unpacked.has(at)) {
    const bytes = Uint8Array.from(atob(document.getElementById("block-" + at).textContent), c => c.charCodeAt(0));
    const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
    unpacked.set(at, JSON.parse(text));
  }
  return unpacked.get(at);
}
function go(...next) { location.hash = next.join("/"); }
function follow() {
  const next = location.hash.slice(1).split("/").map(Number), episode = DATA.problems[next[0]]?.episodes[next[1]];
  if (next.length !== 3 || next.some(v => !Number.isInteger(v) || v < 0) || !episode) return;
  const isNew = place[0] !== next[0] || place[1] !== next[1];
  place = [next[0], next[1], Math.min(next[2], Math.max(0, episode.turns.length - 1))];
  mark();
  draw(isNew);
}

async function draw(scroll) {
  const [p, e, t] = place, problem = DATA.problems[p], row = problem.episodes[e], turn = ++drawn;
  const { texts, episodes, reference } = await block(p);
  if (turn !== drawn) return;
  const details = episodes[e], detail = details[t];
  const title = el("div", { class: "row spread" }, el("h2", {}, `${harmless(problem.name)}, sample ${row.sample}`),
    el("div", { class: "row" }, [[-1, "← sample"], [1, "sample →"]].map(([by, label]) => el("button", { onclick: () => { const next = problem.episodes[e + by]; if (next) go(p, e + by, t); }, disabled: problem.episodes[e + by] ? null : "" }, label))));
  const tabs = el("div", { class: "tabs", role: "tablist" }, row.turns.map((one, i) => el("button", { role: "tab", "aria-selected": String(i === t), onclick: () => go(p, e, i) },
    `Turn ${i + 1} `, badge(one), one[1] !== null ? " " + ratio(one[1]) : "")));
  viewer.replaceChildren(title, tabs);
  if (!detail) viewer.append(el("p", { class: "soft" }, tooLong(row) ? "No turn was played: the first prompt does not fit. It counts as a failure." : "No turn was played."));
  else viewer.append(...turnView(detail, row.turns[t], texts, details.slice(0, t)));
  viewer.append(el("details", {}, el("summary", {}, "The problem"), codeView(texts[reference])));
  if (row.finish && row.finish !== "turns") viewer.append(el("p", { class: "soft small" }, "This episode ended early: " + row.finish + "."));
  if (scroll) viewer.scrollIntoView({ block: "start" });
}

function turnView(detail, row, texts, earlier) {
  const verdict = detail.verdict, parts = [el("p", {}, badge(row), " ", MEANING[row[0]] || "")];
  if (detail.error) parts.push(el("div", { class: "text" }, harmless(detail.error)));
  if (verdict) parts.push(...verdictView(verdict, row, texts));
  const answer = texts[detail.answer], code = detail.code === null ? null : texts[detail.code];
  if (code !== null) {
    const before = earlier.filter(one => one.code !== null).at(-1), holder = el("div", { id: "code" });
    const buttons = [["Code", () => codeView(code)], ...(before ? [["Changes since the turn before", () => diffView(texts[before.code], code)]] : [])].map(([name, view]) => {
      const button = el("button", { "aria-pressed": "false", onclick: () => { buttons.forEach(one => one.setAttribute("aria-pressed", one === button)); holder.replaceChildren(view()); } }, name);
      return button;
    });
    parts.push(el("div", { class: "tabs" }, buttons), holder);
    buttons[buttons.length - 1].click();
  }
  const plan = code !== null && answer.includes(code.trim()) ? answer.replace(code.trim(), () => "⟨the code above⟩") : answer;
  if (plan.trim()) parts.push(el("details", { open: plan.length < 1500 ? "" : null }, el("summary", {}, "What the policy wrote"), el("div", { class: "text", id: "plan" }, harmless(plan))));
  if (texts[detail.feedback]) parts.push(el("details", { open: "" }, el("summary", {}, "Feedback that it reads next"), el("div", { class: "text", id: "feedback" }, harmless(texts[detail.feedback]))));
  const u = detail.usage, cost = [u.answer_tokens && `${thousands(u.answer_tokens)} tokens`, u.seconds && `${digits(u.seconds)} s`, u.dollars && `$${u.dollars.toFixed(4)}`, detail.reward !== null && `reward ${digits(detail.reward)}`, detail.finish === "length" && "cut at the length limit"].filter(Boolean);
  if (cost.length) parts.push(el("p", { class: "soft small" }, cost.join(" · ")));
  return parts;
}

function verdictView(v, row, texts) {
  const parts = v.exploits.map(one => el("div", { class: "evidence" }, el("b", { class: "mono" }, harmless(one.name)), el("br"), harmless(one.evidence)));
  if (v.unverified && v.unverified.speedup) parts.push(el("p", { class: "soft small" }, `A naive evaluator would have credited it with ${ratio(v.unverified.speedup)}.`));
  const message = texts[v.message];
  const isTold = row[0] === "passed" && row[1] !== null;  // by its badge and its speedup
  if (message && !isTold && !v.exploits.some(one => message.includes(one.evidence))) parts.push(el("div", { class: "text", id: "message" }, harmless(message)));
  const word = v.modeled ? " modelled" : "", bars = [], longest = Math.max(v.kernel_ms || 0, v.reference_ms || 0);
  const bar = (name, style, share, text) => bars.push(el("span", { class: "name", title: harmless(name) }, harmless(name)), el("div", { class: "bar" }, el("i", { class: style, width: Math.min(100, 100 * share) + "%" })), el("span", {}, text));
  if (v.kernel_ms !== null) {
    bar("kernel", "own", v.kernel_ms / longest, duration(v.kernel_ms) + word);
    if (v.reference_ms !== null) bar("reference", "other", v.reference_ms / longest, duration(v.reference_ms) + word);
    if (v.roofline && v.roofline.fraction !== null) bar("of the roofline", "limit", v.roofline.fraction, `${percent(v.roofline.fraction)} (${v.roofline.bound})`);
    if (v.coverage !== null) bar("coverage", "own", v.coverage, percent(v.coverage) + " own");
    parts.push(el("h3", {}, row[1] === null ? "Times" : `${ratio(row[1])} as fast${v.modeled ? ", modelled" : ""}${v.host_bound ? ", host-bound" : ""}`), el("div", { class: "kernels" }, bars.splice(0)));
  }
  if (v.kernels.length) {
    const total = v.kernels.reduce((sum, one) => sum + (one.device_ms || 0), 0) || 1;
    for (const one of v.kernels) bar((one.own ? "● " : "○ ") + one.name, one.own ? "own" : "other", (one.device_ms || 0) / total, duration(one.device_ms) + (one.num_launches > 1 ? ` in ${digits(one.num_launches)} launches` : ""));
    parts.push(el("h3", {}, "Where the time went (● its own kernel, ○ a library's)"), el("div", { class: "kernels", id: "kernels" }, bars));
  }
  const print = [v.device, v.protocol, v.precision_class && "arithmetic " + v.precision_class, v.max_error !== null && `largest error ${magnitude(v.max_error)} the tolerance`, ...v.notes].filter(Boolean);
  parts.push(el("p", { class: "soft small" }, harmless(print.join(" · "))));
  return parts;
}

document.addEventListener("keydown", event => {
  if (place[0] < 0 || event.target.closest("input") || event.altKey || event.ctrlKey || event.metaKey) return;
  const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0, turns = DATA.problems[place[0]].episodes[place[1]].turns;
  if (by && turns[place[2] + by] && !event.target.closest(".source, .scroll")) go(place[0], place[1], place[2] + by);
});

page.replaceChildren();
header(); tiles(); headline(); searches(); curves(); outcomes(); problems();
viewer.append(el("p", { class: "soft" }, "Choose a sample above; arrow keys go from turn to turn."));
window.addEventListener("hashchange", follow);
follow();

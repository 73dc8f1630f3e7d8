"use strict";
// One evaluation: the verdict, where the time went, what its author is told, both sources, and how it was judged.

const MOST_CHARACTERS = 60000, MOST_LINES = 3000, MOST_KERNELS = 40, NO_STAGES = ["total", "held", "stopping", "alone"];

class TaskView {
  constructor() { this.id = null; this.asked = 0; this.root = el("div"); }

  enter(page, id) {
    if (id !== this.id) { this.shown = ""; this.root.replaceChildren(el("p", { class: "soft" }, "Looking it up …")); }
    this.id = id;
    if (page.firstChild !== this.root) page.replaceChildren(this.root);
    this.fetch();
  }

  leave() { this.id = null; this.asked++; }

  took(task) { if (task.id === this.id) this.fetch(); }

  // What was missed may concern this one; what has ended changes no more.
  again() { if (this.id !== null && !this.isOver) this.fetch(); }

  async fetch() {
    const turn = ++this.asked;
    let text, record;
    try {
      text = await (await request(`v1/tasks/${encodeURIComponent(this.id)}?include=job`)).text();
      record = JSON.parse(text);
    } catch (error) {
      if (turn !== this.asked || error instanceof NeedsToken) return;
      this.isOver = false;
      this.shown = "";
      this.root.replaceChildren(backLink(), el("h1", {}, error instanceof Refused ? harmless(error.message) : "The service does not answer"), el("p", { class: "soft mono small" }, harmless(this.id)));
      return;
    }
    if (turn !== this.asked || text === this.shown) return;
    this.shown = text;
    this.isOver = record.state === "done" || record.state === "cancelled";
    document.title = `${words(statusOf(record))} · ${harmless(record.problem)} · Kernel Dojo`;
    this.root.replaceChildren(...taskParts(record));
  }
}

const backLink = () => el("p", { class: "small" }, el("a", { href: "#/" }, "← all evaluations"));
const factList = facts => el("ul", { class: "facts" }, facts.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) =>
  el("li", {}, el("b", {}, name), typeof value === "string" || typeof value === "number" ? harmless(value) : value)));
const card = (title, ...parts) => el("section", { class: "card" }, el("h2", {}, title), ...parts);

// What a pass says of the candidate's own kernels: where answers to other inputs are the same, nothing.
function meaningOf(task) {
  const meaning = STATUSES.get(statusOf(task))?.[2] || "";
  if (statusOf(task) !== "passed" || !task.evaluation) return meaning;
  const isShown = !task.evaluation.notes.some(note => note.startsWith("whether its own kernels cause"));
  return meaning + (isShown ? "; its own kernels have a part in it" : "; whether its own kernels have a part in it nobody can say");
}

function taskParts(task) {
  const verdict = task.evaluation, job = task.job, meaning = meaningOf(task);
  const parts = [backLink(), el("h1", {}, harmless(task.problem || task.id)),
    el("div", { class: "row" }, badge(statusOf(task)), el("span", { class: "soft" }, task.expired ? "its deadline passed while it waited" : meaning)),
    factList([["device", verdict?.device || task.device], ["client", task.client], ["priority", task.priority === "normal" ? "" : task.priority],
      ["submitted", age(task.submitted_at)], ["waited", task.started_at && seconds(task.started_at - task.submitted_at)],
      ["took", task.finished_at && task.started_at ? seconds(task.finished_at - task.started_at) : task.started_at ? age(task.started_at, " so far") : null],
      ["attempts", task.attempts > 1 ? task.attempts : null], ["task", el("span", { class: "mono" }, harmless(task.id))]])];
  if (verdict) parts.push(...verdictParts(verdict));
  if (job) parts.push(sources(job, verdict));
  if (verdict) parts.push(howJudged(verdict, job));
  return parts;
}

function verdictParts(v) {
  const parts = [], told = v.exploits.length || v.message;
  if (v.timing.source === "modeled") parts.push(el("div", { class: "notice" }, "These times are ", el("b", {}, "modelled"), ", not measured: a roofline of the device priced them."));
  if (told) parts.push(card("What its author is told", v.exploits.map(one => el("div", { class: "evidence" }, el("b", { class: "mono" }, harmless(one.name)), el("br"), harmless(one.evidence))),
    v.message && !v.exploits.some(one => v.message.includes(one.evidence)) ? el("div", { class: "text", id: "message", tabindex: "0" }, harmless(v.message)) : null,
    v.unverified?.speedup ? el("p", { class: "soft small" }, `A naive evaluator would have credited it with ${ratio(v.unverified.speedup)}.`) : null));
  const cards = [speedCard(v), kernelCard(v)].filter(Boolean);
  if (cards.length) parts.push(el("div", { class: "grid2 pair" }, cards));
  return parts;
}

function speedCard(v) {
  const rows = [], longest = Math.max(v.kernel_ms || 0, v.reference_ms || 0) || 1, name = against(v.protocol.baseline);
  if (v.kernel_ms !== null) rows.push(barRow("its kernel", "own", v.kernel_ms / longest, duration(v.kernel_ms)));
  if (v.reference_ms !== null) rows.push(barRow("reference, " + name, "other", v.reference_ms / longest, duration(v.reference_ms)));
  if (v.coverage !== null) rows.push(barRow("own kernels' share", "own", v.coverage, percent(v.coverage)));
  if (v.roofline && v.roofline.fraction !== null) rows.push(barRow("of the roofline", "limit", v.roofline.fraction, percent(v.roofline.fraction)));
  if (!rows.length) return null;
  const t = v.timing, interval = t.confidence_interval_ms;
  return card(v.speedup === null ? "Times" : "Speed", v.speedup === null ? null : el("div", { class: "hero" }, ratio(v.speedup), el("span", { class: "soft" }, `the speed of ${name === "eager" ? "eager PyTorch" : name}`)),
    el("div", { class: "kernels", id: "speed" }, rows),
    factList([["physical limit", v.roofline && `${duration(v.roofline.limit_ms)} (${v.roofline.bound})`], ["95 %", interval && t.source === "measured" ? `${duration(interval[0])} to ${duration(interval[1])}` : null],
      ["trials", t.source === "measured" && t.num_trials || null], ["device claims", t.device_ms !== null && t.source === "measured" ? duration(t.device_ms) : null], ["first call", t.first_call_ms !== null ? duration(t.first_call_ms) : null],
      ["constructor", t.construction_ms !== null ? duration(t.construction_ms) : null], ["clocks", t.clock_mhz && `${t.clock_mhz[0]} to ${t.clock_mhz[1]} MHz`], ["bound by", t.host_bound ? "launches on the host" : null]]));
}

function kernelCard(v) {
  if (!v.kernels.length) return null;
  const kernels = [...v.kernels].sort((a, b) => (b.device_ms || 0) - (a.device_ms || 0)), total = kernels.reduce((sum, one) => sum + (one.device_ms || 0), 0) || 1;
  const rows = kernels.slice(0, MOST_KERNELS).map(one => barRow((one.own ? "● " : "○ ") + one.name, one.own ? "own" : "other", (one.device_ms || 0) / total,
    duration(one.device_ms) + (one.num_launches > 1 ? `, ${digits(one.num_launches)} launches` : "")));
  const left = kernels.length - MOST_KERNELS;
  return card("Where the time went", el("div", { class: "legend" }, el("span", {}, el("i", { class: "own-mark" }), "● its own kernel"), el("span", {}, el("i", { class: "other-mark" }), "○ a library's")),
    el("div", { class: "kernels", id: "kernels" }, rows), left > 0 ? el("p", { class: "soft small" }, `and ${left} more`) : null);
}

// A source with line numbers; a very long one is cut until it is asked for, for its lines would stall the page.
function sourceView(title, source, note, id) {
  const beginning = source.slice(0, MOST_CHARACTERS).split("\n", MOST_LINES).join("\n"), holder = el("div", { id });
  const isCut = beginning.length < source.replace(/\n$/, "").length;
  holder.append(codeView(isCut ? beginning : source));
  const more = isCut ? el("button", { onclick: () => { holder.replaceChildren(codeView(source)); more.remove(); } }, `Show all ${thousands(source.length)} characters`) : null;
  return el("section", { class: "card" }, el("div", { class: "row spread" }, el("h2", {}, title), el("span", { class: "soft small" }, harmless(note))), holder, more);
}

function sources(job, verdict) {
  const language = verdict?.language || job.candidate.language;
  return el("div", { class: "grid2 pair code" }, sourceView("Candidate", job.candidate.source, [job.candidate.entry_point, language === "auto" ? "" : language].filter(Boolean).join(" · "), "candidate"),
    sourceView("Reference", job.problem.source, [job.problem.suite, job.problem.level && "level " + job.problem.level, job.problem.size].filter(Boolean).join(" · "), "reference"));
}

function howJudged(v, job) {
  const stages = Object.entries(v.stage_seconds).filter(([name, s]) => s > 0 && !NO_STAGES.includes(name)), longest = Math.max(...stages.map(([, s]) => s || 0), 1e-9), p = v.protocol;
  const settings = Object.entries(p.settings).map(([name, value]) => [harmless(words(name)), typeof value === "object" ? JSON.stringify(value) : String(value)]);
  return el("section", { class: "card" }, el("h2", {}, "How it was judged"),
    factList([["protocol", `${p.name} ${p.version}`], ["rounds", p.num_rounds || null], ["timed calls", v.timing.source === "measured" && p.num_trials || null], ["baseline", against(p.baseline)], ["precision", p.precision],
      ["arithmetic found", v.precision_class], ["largest error", v.max_error === null ? null : magnitude(v.max_error) + " the tolerance"], ["oracle", p.oracle], ["mode", p.mode], ["deadline", job?.timeout ? seconds(job.timeout) : null]]),
    p.isolation.length ? factList([["isolation", p.isolation.map(words).join(", ")]]) : null,
    v.notes.length ? el("ul", { class: "notes small" }, v.notes.map(note => el("li", {}, harmless(note)))) : null,
    stages.length ? [el("h3", {}, "Time the judge took" + (v.stage_seconds.total ? `: ${seconds(v.stage_seconds.total)}` : "")), el("div", { class: "kernels", id: "stages" }, stages.map(([name, s]) => barRow(words(name), "stage", (s || 0) / longest, seconds(s))))] : null,
    settings.length ? el("details", {}, el("summary", {}, "Every setting"), factList(settings)) : null,
    factList([["problem", el("span", { class: "mono hash" }, v.problem_hash.slice(0, 16))], ["candidate", el("span", { class: "mono hash" }, v.candidate_hash.slice(0, 16))]].filter(([name]) => v[name + "_hash"])));
}

"use strict";
// The first view: what the devices do, what waits, how fast it goes, and the latest verdicts.

const PAGE = 50, MOST_RUNNING = 12, MOST_KEPT = 4000;
const CHOICES = ["", ...STATUSES.keys()];
const STATES = new Set(["queued", "running", "cancelled"]);

class Home {
  constructor() {
    this.tasks = new Map();
    this.overview = null;
    this.filter = "";
    this.hasOlder = false;
    this.shown = PAGE;
    this.asked = 0;
    this.problem = "";
  }

  enter(page, filter) {
    const isNew = filter !== this.filter;
    this.filter = filter;
    if (!this.root) this.build();
    if (page.firstChild !== this.root) page.replaceChildren(this.root);
    document.title = (filter ? words(filter) + " · " : "") + "Kernel Dojo";
    if (isNew) this.shown = PAGE;
    this.fetch();
    this.draw();
  }

  build() {
    const tile = (name, ...rest) => el("div", { class: "tile" }, el("div", { class: "name" }, name), ...rest);
    const part = (name, style = "value") => this[name] = el("div", { class: style });
    this.tiles = el("div", { class: "tiles" },
      el("div", { class: "tile wide" }, el("div", {}, el("div", { class: "name" }, "Rate"), part("rate"), el("div", { class: "range" }, "evaluations a minute")), part("spark", "sparkbox")),
      tile("Waiting", part("waiting"), part("waitingNote", "range")), tile("Running", part("running"), part("runningNote", "range")),
      tile("Judged", part("judged"), part("judgedNote", "range")));
    this.devices = el("div", { class: "devices" });
    this.queues = el("div", { class: "kernels" });
    this.now = el("ul", { class: "now" });
    this.queuesNote = el("p", { class: "soft small" });
    this.nowNote = el("p", { class: "soft small" });
    this.draining = el("div", { class: "notice", hidden: "" }, "The service is about to stop: what runs may finish, what waits stays in its store, nothing new is taken.");
    this.chips = el("div", { class: "tabs", role: "group", "aria-label": "filter by status" });
    const heads = ["status", "problem", "speedup", "coverage", "roofline", "device", "client", "age"];
    this.rows = el("tbody");
    this.table = el("table", { class: "latest" }, el("caption", { class: "unseen" }, "latest evaluations, newest first"),
      el("thead", {}, el("tr", {}, heads.map(name => el("th", { scope: "col" }, name)))), this.rows);
    this.nothing = el("p", { class: "soft" });
    this.more = el("button", { onclick: () => { this.shown += PAGE; this.fetch(); } }, "Show older ones");
    this.root = el("div", {}, el("h1", { class: "unseen" }, "Kernel Dojo"), this.draining, this.tiles,
      el("h2", { class: "above" }, "Devices"), this.devices,
      el("div", { class: "grid2" }, el("section", { class: "card" }, el("h2", {}, "Queues"), this.queuesNote, this.queues),
        el("section", { class: "card" }, el("h2", {}, "Running now"), this.nowNote, this.now)),
      el("section", { class: "card" }, el("h2", {}, "Latest evaluations"), this.chips, this.table, this.nothing, this.more));
  }

  matches(task) {
    if (this.filter === "") return task.state === "done";
    return STATES.has(this.filter) ? task.state === this.filter : task.status === this.filter;
  }

  // Keep what is told of a task. What has ended stays so: a page that was asked for before may come after the event.
  // Bounded here, for a tab may be left open at one evaluation for days, where nothing of this is drawn.
  keep(tasks) {
    for (const task of tasks) {
      const had = this.tasks.get(task.id);
      if (!had || had.sequence !== task.sequence || had.finished_at === null || task.finished_at !== null) this.tasks.set(task.id, task);
    }
    if (this.tasks.size > MOST_KEPT + this.shown) {
      this.tasks = new Map(this.found().slice(0, this.shown).map(task => [task.id, task]));
      this.hasOlder = true;
    }
  }

  // Those that the filter lets through, newest first.
  found() {
    const at = task => task.finished_at ?? task.sequence;
    return [...this.tasks.values()].filter(task => this.matches(task)).sort((a, b) => at(b) - at(a) || b.sequence - a.sequence);
  }

  // As many of the newest as are shown. What the service no longer lists among them has changed while nobody told.
  async fetch() {
    const known = new Map(this.found().map(task => [task.id, task]));
    const turn = ++this.asked, name = STATES.has(this.filter) ? "state" : "status", wanted = this.filter ? `${name}=${this.filter}` : "state=done";
    try {
      let before = null, number = 0;
      do {
        const page = await ask(`v1/tasks?${wanted}&limit=${Math.min(500, this.shown - number)}${before === null ? "" : "&before=" + before}`);
        if (turn !== this.asked) return;
        this.keep(page.tasks);
        for (const task of page.tasks) known.delete(task.id);
        for (const [id, task] of known) if (task.sequence > (page.next ?? -1) && this.tasks.get(id) === task) this.tasks.delete(id);
        number += page.tasks.length;
        before = page.next;
      } while (before !== null && number < this.shown);
      this.hasOlder = before !== null;
      this.problem = "";
    } catch (error) {
      if (error instanceof NeedsToken || turn !== this.asked) return;
      this.problem = error instanceof Refused ? error.message : "The service does not answer.";
    }
    this.draw();
  }

  took(task) { this.keep([task]); this.draw(); }

  look(overview) {
    this.overview = overview;
    this.keep([...overview.latest, ...overview.running]);
    this.draw();
  }

  // A few times a second at most, however much happens.
  draw() {
    if (!this.root?.isConnected || this.drawing) return;
    this.drawing = setTimeout(() => {
      this.drawing = null;
      if (!this.root.isConnected) return;
      if (this.overview) this.drawOverview(this.overview);
      this.drawLatest();
    }, this.drawnOnce ? 200 : 0);
    this.drawnOnce = true;
  }

  drawOverview(o) {
    const ended = o.states.done || 0, passed = o.statuses.passed || 0, clients = Object.entries(o.queue.clients);
    this.draining.hidden = !o.draining;
    setText(this.rate, digits(o.per_minute));
    keyed(this.spark, [o.per_minute_history], () => "spark", sparkline);
    setText(this.waiting, thousands(o.queue.queued));
    setText(this.waitingNote, clients.length === 1 ? "of one client" : clients.length ? `of ${clients.length} clients` : "nothing waits");
    setText(this.running, thousands(o.queue.running));
    setText(this.runningNote, `of ${thousands(o.queue.slots)} slot${o.queue.slots === 1 ? "" : "s"}`);
    setText(this.judged, thousands(ended));
    setText(this.judgedNote, ended ? `${percent(passed / ended)} passed` : "none yet");
    keyed(this.devices, o.devices, device => device.name, deviceCard);
    if (!o.devices.length) keyed(this.devices, ["none"], () => "none", () => el("p", { class: "soft" }, "There is no device: nothing can be judged."));
    clients.sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    const most = clients.length ? clients[0][1] : 1;
    setText(this.queuesNote, clients.length ? "Waiting tasks of each client; clients are served in turn." : "Nothing waits.");
    keyed(this.queues, clients.slice(0, 20).map(([name, number]) => [name, number, number / most]), row => row[0],
      ([name, number, share]) => barRow(name, "own", share, thousands(number)));
    setText(this.nowNote, o.queue.running > MOST_RUNNING ? `The ${MOST_RUNNING} that have run longest, of ${thousands(o.queue.running)}.` : o.queue.running ? "" : "Nothing runs.");
    this.nowNote.hidden = this.nowNote.textContent === "";
    keyed(this.now, o.running.slice(0, MOST_RUNNING), task => task.id, runningItem);
  }

  drawLatest() {
    const o = this.overview, number = name => name === "" ? o?.states.done || 0 : STATES.has(name) ? o?.states[name] || 0 : o?.statuses[name] || 0;
    keyed(this.chips, CHOICES.filter(name => name === "" || name === this.filter || number(name)).map(name => [name, number(name), name === this.filter]), row => row[0],
      ([name, count, isNow]) => el("button", { "aria-pressed": String(isNow), onclick: () => { location.hash = name ? "#/status/" + name : "#/"; } },
        name ? (STATUSES.get(name)[0] + " " + words(name)) : "all judged", el("span", { class: "soft" }, " " + thousands(count))));
    const found = this.found();
    keyed(this.rows, found.slice(0, this.shown), task => task.id, latestRow);
    this.table.hidden = !found.length;
    this.nothing.hidden = found.length > 0;
    setText(this.nothing, this.problem || (this.filter ? `None is ${words(this.filter)}.` : "Nothing has been judged yet. What is submitted appears here by itself."));
    this.more.hidden = !this.hasOlder && found.length <= this.shown;
  }
}

const linkTo = (task, style) => el("a", { href: "#/tasks/" + encodeURIComponent(task.id), class: style, title: harmless(task.problem) }, harmless(task.problem || task.id));

function deviceCard(device) {
  const well = device.is_healthy, isStarting = !well && device.reason === "starting";
  return el("article", { class: "device" + (well || isStarting ? "" : " ill") },
    el("div", { class: "row spread" }, el("b", { class: "mono" }, harmless(device.name)), el("span", { class: "badge " + (well ? "well" : isStarting ? "" : "bad") }, well ? "✓ well" : isStarting ? "◌ starting" : "✗ out of the pool")),
    el("p", { class: "soft small" }, harmless(device.description || { cpu: "interpreter: correctness, no times", model: "modelled: a roofline prices it", cuda: "GPU" }[device.kind])),
    device.reason && !isStarting ? el("p", { class: "reason" }, harmless(device.reason)) : null,
    el("ul", { class: "doing" }, device.running.length ? device.running.map(one => {
      const cut = one.lastIndexOf(": ");
      return el("li", {}, el("span", { class: "what" }, harmless(cut < 0 ? one : one.slice(0, cut))), cut < 0 ? null : el("span", { class: "stage" }, harmless(one.slice(cut + 2))));
    }) : el("li", { class: "soft" }, well ? "idle" : isStarting ? "will take work in a moment" : "waits until it is well")),
    el("div", { class: "soft small done" }, thousands(device.num_done) + " done"));
}

function runningItem(task) {
  return el("li", {}, linkTo(task), el("span", { class: "soft small" }, harmless(task.client)), el("span", { class: "small" }, age(task.started_at, "")));
}

function meter(name, style, value) {
  if (value === null) return el("td", { class: name + " none" }, "–");
  return el("td", { class: name, "data-name": name }, percent(value), el("div", { class: "bar mini", "aria-hidden": "true" }, el("i", { class: style, width: Math.min(100, 100 * value) + "%" })));
}

function latestRow(task) {
  const speed = task.speedup === null ? "–" : ratio(task.speedup);
  const note = task.speedup === null ? null : el("span", { class: "range" }, "over " + against(task.baseline) + (task.timing_source === "modeled" ? ", modelled" : ""));
  return el("tr", {}, el("td", { class: "status" }, badge(statusOf(task))), el("td", { class: "problem" }, linkTo(task)),
    el("td", { class: "speedup" + (task.speedup === null ? " none" : task.speedup > 1 ? " fast" : "") }, speed, note),
    meter("coverage", "own", task.coverage), meter("roofline", "limit", task.roofline_fraction),
    el("td", { class: "on small", title: harmless(task.judged_on || task.device) }, harmless((task.judged_on || task.device).split(" (")[0])), el("td", { class: "client small" }, harmless(task.client)),
    el("td", { class: "age small" }, age(task.finished_at ?? task.submitted_at)));
}

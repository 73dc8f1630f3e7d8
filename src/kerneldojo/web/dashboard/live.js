"use strict";
// What the service says, as it says it: a stream of events that is opened again when it ends, and questions in between
// where it cannot be had. The token, where one is needed, goes into a header and stays in this tab.

const TOKEN_KEY = "dojo-token";
const SILENCE_MS = 25000, POLL_MS = 3000, LONGEST_PAUSE_MS = 15000;

class NeedsToken extends Error {}
class Refused extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}

const token = {
  get: () => sessionStorage.getItem(TOKEN_KEY) || "",
  set: value => value ? sessionStorage.setItem(TOKEN_KEY, value) : sessionStorage.removeItem(TOKEN_KEY),
};

// Relative to the page, so that a proxy may serve it under a prefix; credentials are left out, so that a refusal
// opens no dialog of the browser's.
async function request(path, signal) {
  const headers = token.get() ? { Authorization: "Bearer " + token.get() } : {};
  const response = await fetch(new URL(path, location.origin + location.pathname),
    { headers, signal, credentials: "omit", cache: "no-store", redirect: "error" });
  if (response.ok) return response;
  if (response.status === 401) throw new NeedsToken();
  const problem = await response.json().catch(() => ({}));
  throw new Refused(response.status, typeof problem.detail === "string" ? problem.detail : "HTTP " + response.status);
}
// A page that nobody sees holds no stream open: a browser has only a handful of connections for each service.
const seen = () => document.hidden ? new Promise(resume => document.addEventListener("visibilitychange", resume, { once: true })) : null;
const ask = async (path, signal) => (await request(path, signal)).json();

// Events as `receive(kind, data)`, until the stream ends or is silent for too long.
async function readEvents(receive, opened) {
  const abort = new AbortController();
  const hide = () => { if (document.hidden) abort.abort(); };
  document.addEventListener("visibilitychange", hide);
  let timer = setTimeout(() => abort.abort(), SILENCE_MS);
  try {
    const response = await request("v1/events", abort.signal);
    opened();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), SILENCE_MS);
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const lines = event.split("\n"), of = name => lines.find(line => line.startsWith(name))?.slice(name.length);
        const data = of("data: ");
        if (data !== undefined) receive(of("event: "), JSON.parse(data));
      }
    }
  } finally {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", hide);
    abort.abort();
  }
}

const wait = ms => new Promise(resume => setTimeout(resume, ms));

// Follows the service for as long as the page is open. `on` has: overview(data), task(summary), missed(), link(state,
// words), needToken(wasRefused). States of the link: live, polling, lost.
class Live {
  constructor(on) { this.on = on; this.pause = 500; this.polling = null; }

  async follow() {
    for (;;) {
      await seen();
      try {
        await readEvents((kind, data) => this.receive(kind, data), () => this.opened());
      } catch (error) {
        if (error instanceof NeedsToken) { await this.askToken(); continue; }
        this.reason = error instanceof Refused ? error.message : "";
      }
      this.poll();
      await wait(this.pause);
      this.pause = Math.min(this.pause * 2, LONGEST_PAUSE_MS);
    }
  }

  receive(kind, data) {
    this.pause = 500;
    if (kind === "overview") this.on.overview(data);
    else if (kind === "task") this.on.task(data);
    else if (kind === "missed") this.on.missed();
  }

  opened() {
    this.polling = null;
    this.reason = "";
    this.on.link("live", "live");
    this.on.missed();
  }

  // While there is no stream.
  async poll() {
    if (this.polling) return;
    const mine = this.polling = {};
    while (this.polling === mine) {
      await seen();
      try {
        const overview = await ask("v1/overview", AbortSignal.timeout(10000));
        if (this.polling !== mine) return;
        this.on.link("polling", "asking every few seconds" + (this.reason ? ": " + this.reason : ""));
        this.on.overview(overview);
        this.on.missed();
      } catch (error) {
        if (this.polling !== mine) return;
        const said = error instanceof Refused ? error.message : error instanceof NeedsToken ? "it wants a token" : "no answer";
        this.on.link("lost", said + "; trying again");
      }
      await wait(POLL_MS);
    }
  }

  async askToken() {
    this.polling = null;
    const wasRefused = token.get() !== "";
    token.set("");
    this.on.link("lost", "a token is needed");
    await this.on.needToken(wasRefused);
  }
}

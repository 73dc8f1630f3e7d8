"use strict";
// From addresses to views: #/ , #/status/NAME and #/tasks/ID; and from what the service says to the view that is open.

const page = document.getElementById("page"), about = document.getElementById("about"), link = document.getElementById("link");
const home = new Home(), view = new TaskView();
let isAsking = false;

function route() {
  if (isAsking) return;
  const [, kind, rest] = location.hash.match(/^#\/(status|tasks)\/(.+)$/) || [];
  let name = "";
  try { name = decodeURIComponent(rest || ""); } catch { /* not an address of ours: the first view */ }
  if (kind === "tasks" && name) view.enter(page, name);
  else { view.leave(); home.enter(page, kind === "status" && STATUSES.has(name) ? name : ""); }
}

function follow() {
  route();
  scrollTo(0, 0);
  page.focus({ preventScroll: true });
}

function needToken(wasRefused) {
  isAsking = true;
  return new Promise(resolve => {
    const input = el("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: "", "aria-describedby": "token-note" });
    const error = el("p", { class: "reason", role: "alert" }, wasRefused ? "That token was refused." : "");
    const submit = event => {
      event.preventDefault();
      const value = input.value.trim();
      if (!/^[\x21-\x7e]+$/.test(value)) { error.textContent = "A token has printable characters and no spaces."; return; }
      token.set(value);
      isAsking = false;
      resolve();
      route();
    };
    page.replaceChildren(el("form", { class: "card ask", onsubmit: submit }, el("h1", {}, "Who is asking?"),
      el("p", { id: "token-note", class: "soft" }, "This service wants a bearer token. It is kept in this tab alone and forgotten when it is closed."),
      el("label", { for: "token" }, "Token"), el("div", { class: "row" }, input, el("button", { type: "submit", class: "main" }, "Look")), error));
    input.focus();
  });
}

const live = new Live({
  overview(data) {
    clock.set(data.now);
    setText(about, `${data.version} · up ${span(data.uptime_seconds)}`);
    home.look(data);
  },
  task(summary) { home.took(summary); view.took(summary); },
  missed() { if (home.root?.isConnected) home.fetch(); view.again(); },
  link(state, said) { link.className = "link " + state; setText(link, { live: "● live", polling: "◐ polling", lost: "○ not connected" }[state]); link.title = said; },
  needToken,
});

document.querySelector(".skip").addEventListener("click", event => { event.preventDefault(); page.focus(); });
window.addEventListener("hashchange", follow);
setInterval(refreshAges, 1000);
route();
live.follow();

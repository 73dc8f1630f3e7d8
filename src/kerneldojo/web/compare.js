// Two runs side by side.

const DATA = JSON.parse(document.getElementById("data").textContent), C = DATA.comparison, page = document.getElementById("page");
const shown = (name, v) => name.startsWith("speedup") ? ratio(v) : percent(v);
const signed = (name, v) => (v > 0 ? "+" : v < 0 ? "−" : "") + (name.startsWith("speedup") ? digits(Math.abs(v)) + "×" : (100 * Math.abs(v)).toFixed(1) + " points");

page.replaceChildren(el("h1", {}, "Two runs, problem by problem"),
  el("ul", { class: "facts" }, [["A", C.a], ["B", C.b], ["shared problems", C.problems.length], ["A better", C.wins.a], ["B better", C.wins.b], ["alike", C.wins.tie]]
    .map(([key, value]) => el("li", {}, el("b", {}, key), harmless(value)))));
const left = [[C.only_a, "only in A"], [C.only_b, "only in B"], [C.changed, "whose sources differ"]].filter(([list]) => list.length);
if (left.length) page.append(el("div", { class: "notice" }, "Left out: " + left.map(([list, why]) => `${list.length} problems ${why}`).join("; ") + "."));
page.append(el("section", { class: "card" }, el("h2", {}, "Differences"),
  el("p", { class: "soft small" }, "Per problem, avg@n. The range is the 95 % interval of B − A by a paired bootstrap over problems; bold where it leaves 0 out."),
  el("div", { class: "scroll" }, el("table", { id: "differences" }, el("tr", {}, ["", "turn", "A", "B", "B − A", "95 %"].map(name => el("th", {}, name))),
    C.differences.map(d => { const clear = d.low > 0 || d.high < 0, style = clear ? (d.difference > 0 ? "plus" : "minus") : "";
      return el("tr", {}, el("td", {}, words(d.name) + (d.name.startsWith("speedup") ? ", failures as 0" : "")), el("td", { class: "soft" }, d.turn), el("td", {}, shown(d.name, d.a)), el("td", {}, shown(d.name, d.b)),
        el("td", { class: style }, clear ? el("b", {}, signed(d.name, d.difference)) : signed(d.name, d.difference)), el("td", { class: "soft" }, `${signed(d.name, d.low)} to ${signed(d.name, d.high)}`)); })))));
const longest = Math.max(1, ...C.problems.flatMap(one => [one.best_a || 0, one.best_b || 0]));
const side = (share, best, style) => el("div", {}, el("div", { class: "bar" }, el("i", { class: style, width: 100 * (best || 0) / longest + "%" })), el("span", { class: "soft small" }, `${ratio(best)}, ${percent(share)} right`));
page.append(el("section", { class: "card" }, el("h2", {}, "Problem by problem"), el("p", { class: "soft small" }, "Best speedup over all samples and turns, and the share of samples that were right at least once."),
  el("div", { class: "scroll" }, el("table", { class: "problems" }, el("tr", {}, ["problem", "A", "B", "better"].map(name => el("th", {}, name))),
    C.problems.map(one => el("tr", {}, el("td", {}, harmless(one.problem)), el("td", {}, side(one.correct_a, one.best_a, "own")), el("td", {}, side(one.correct_b, one.best_b, "other")), el("td", {}, one.winner === "tie" ? "–" : one.winner.toUpperCase())))))));

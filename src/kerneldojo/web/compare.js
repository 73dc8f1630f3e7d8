// Two runs side by side.

const DATA = JSON.parse(document.getElementById("data").textContent), C = DATA.comparison, page = document.getElementById("page");
const shown = (name, v) => name.startsWith("speedup") ? ratio(v) : percent(v);
const step = (name, v) => { const shown = name.startsWith("speedup") ? Math.abs(v).toFixed(2) : (100 * Math.abs(v)).toFixed(1); return (Number(shown) === 0 ? "" : v > 0 ? "+" : "−") + shown; };
const unit = name => name.startsWith("speedup") ? "×" : " points";
const label = name => name === "correct" ? "correct, fast at 0×" : name.startsWith("fast_") ? `fast at ${name.slice(5)}×` : words(name) + (name.startsWith("speedup") ? ", failures as 0" : "");
const row = d => { const clear = d.low !== null && (d.low > 0 || d.high < 0), style = clear ? (d.difference > 0 ? "plus" : "minus") : "", change = step(d.name, d.difference) + unit(d.name);
  return el("tr", {}, el("td", {}, label(d.name)), el("td", {}, shown(d.name, d.a)), el("td", {}, shown(d.name, d.b)),
    el("td", { class: style }, clear ? el("b", {}, change) : change, d.low === null ? null : el("span", { class: "range" }, `${step(d.name, d.low)} to ${step(d.name, d.high)}`))); };
const turns = [...new Set(C.differences.map(d => d.turn))];

page.replaceChildren(el("h1", {}, "Two runs, problem by problem"),
  el("ul", { class: "facts" }, [["A", C.a], ["B", C.b], ["shared problems", C.problems.length], ["A better", C.wins.a], ["B better", C.wins.b], ["alike", C.wins.tie]]
    .map(([key, value]) => el("li", {}, el("b", {}, key), harmless(value)))));
const left = [[C.only_a, "only in A"], [C.only_b, "only in B"], [C.changed, "whose sources differ"], [C.unscored, "of which one run has masked answers alone"]].filter(([list]) => list.length);
if (left.length) page.append(el("div", { class: "notice" }, "Left out: " + left.map(([list, why]) => `${list.length} problem${list.length === 1 ? "" : "s"} ${why}`).join("; ") + "."));
for (const one of C.unlike.filter(one => one.is_of_verdicts)) page.append(el("div", { class: "notice" }, "The runs differ in ", el("b", {}, one.setting), harmless(` (A: ${one.a}; B: ${one.b}). Their figures are not of one kind.`)));
const others = C.unlike.filter(one => !one.is_of_verdicts).map(one => `${one.setting} (${one.a} against ${one.b})`);
if (others.length) page.append(el("div", { class: "notice" }, harmless(`The runs ${others.length < C.unlike.length ? "also " : ""}differ in ${others.join(", ")}.`)));
page.append(el("section", { class: "card" }, el("h2", {}, "Differences"),
  el("p", { class: "soft small" }, "Per problem, avg@n. The range is the 95 % interval of B − A by a paired bootstrap over problems, and what problems that are all alike do not exclude; bold and coloured where it leaves 0 out."),
  el("div", { class: "scroll" }, el("table", { id: "differences" }, el("tr", {}, ["", "A", "B", "B − A"].map(name => el("th", {}, name))),
    turns.map(turn => [el("tr", { class: "group" }, el("th", { colspan: "4", scope: "rowgroup" }, turn)), C.differences.filter(d => d.turn === turn).map(row)]).flat(2)))));
const longest = Math.max(1, ...C.problems.flatMap(one => [one.best_a || 0, one.best_b || 0]));
const side = (share, best, style) => el("div", {}, el("div", { class: "bar" }, el("i", { class: style, width: 100 * (best || 0) / longest + "%" })), el("span", { class: "soft small side" }, el("span", {}, ratio(best)), el("span", {}, `${percent(share)} right`)));
page.append(el("section", { class: "card" }, el("h2", {}, "Problem by problem"), el("p", { class: "soft small" }, "Best speedup over all samples and turns, and the share of samples that were right at least once."),
  el("div", { class: "scroll" }, el("table", { class: "problems" }, el("thead", {}, el("tr", {}, ["problem", "A", "B", "better"].map(name => el("th", {}, name)))),
    el("tbody", {}, C.problems.map(one => el("tr", {}, el("td", {}, harmless(one.problem)), el("td", { "data-name": "A" }, side(one.correct_a, one.best_a, "own")), el("td", { "data-name": "B" }, side(one.correct_b, one.best_b, "other")), el("td", { "data-name": "better" }, one.winner === "tie" ? "–" : one.winner.toUpperCase()))))))));

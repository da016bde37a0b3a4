// The parts that the server sends, and their places on the page.

import { Grid, count, element } from "./grid.js";

const at = (id) => document.getElementById(id);
const shown = { group: null, lags: {}, history: { restores: [], rebalances: [], moves: [] } };
const clock = (ms) => new Date(ms).toLocaleTimeString();
const grid = new Grid(at("grid"), ask);
let asked = null;
let frame = null;

function fill(table, rows) {
  at(table).tBodies[0].replaceChildren(
    ...rows.map((cells) => {
      const row = element("tr");
      for (const [text, name, title] of cells) {
        const cell = element("td", text, name);
        if (title) cell.title = title;
        row.append(cell);
      }
      return row;
    }),
  );
}

// Draws once for all parts that arrive together: a large group has twenty thousand cells.
function drawGrid() {
  if (frame === null) frame = requestAnimationFrame(() => ((frame = null), drawNow()));
}

function drawNow() {
  if (!shown.group) return;
  const [first, last, all] = grid.draw(shown.group, shown.lags, shown.history.restores);
  at("range").textContent = ` ${count(first)}\u2013${count(last)} of ${count(all)} `;
  at("before").disabled = first <= 1;
  at("after").disabled = last >= all;
  at("pages").hidden = first <= 1 && last >= all;
}

function drawGroup() {
  const group = shown.group;
  document.title = `${group.group}: ${group.state}`;
  at("name").textContent = group.group;
  const processes = new Set(group.members.map((member) => member.label.replace(/\d+$/, ""))).size;
  const generation = group.generation === null ? "" : `, generation ${group.exact ? "" : "at least "}${group.generation}`;
  at("summary").textContent =
    `${group.state}${generation}; ${count(group.members.length)} members in ${count(processes)} processes, ` +
    `${count(group.tasks.length)} tasks`;
  const remarks = [...group.problems];
  if (group.state !== "Stable" && group.state !== "Empty") remarks.unshift("The group is rebalancing: the page shows where tasks were before.");
  const idle = group.tasks.filter((task) => task[1] === null).length;
  if (idle) remarks.unshift(`${count(idle)} of ${count(group.tasks.length)} tasks run on no member now.`);
  for (const next of group.next)
    remarks.push(`Next rebalance: ${group.members[next.member].label} requests it ${next.at ? `at ${clock(next.at)}` : "immediately"}.`);
  at("remarks").replaceChildren(...remarks.map((text) => element("li", text)));
  at("remarks").hidden = remarks.length === 0;
  drawMembers();
  drawGrid();
}

// "app-<uuid>-StreamThread-1-consumer" without the parts that all members share.
function short(member, group) {
  const own = member.client.startsWith(`${group.group}-`) ? member.client.slice(group.group.length + 1) : member.client;
  return own.replace(/([0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}-/, "$1\u2026 ").replace(/-consumer$/, "") || member.client;
}

function drawMembers() {
  const group = shown.group;
  const sums = group.members.map(() => ({ active: 0, standby: 0, warmup: 0, lag: null }));
  for (const [id, owner, , , , standbys, warmups] of group.tasks) {
    if (owner !== null) {
      sums[owner].active += 1;
      if (id in shown.lags) sums[owner].lag = (sums[owner].lag ?? 0) + shown.lags[id];
    }
    for (const [place] of standbys) sums[place].standby += 1;
    for (const [place] of warmups) sums[place].warmup += 1;
  }
  at("members").classList.toggle("bare", !group.members.some((member) => member.rack || Object.keys(member.tags).length));
  fill(
    "members",
    group.members.map((member, place) => [
      [member.label.length > 12 ? "\u2026" : member.label, place === group.leader ? "leader" : ""],
      [member.instance ? `${short(member, group)} (${member.instance})` : short(member, group), "", member.client],
      [member.host],
      [[member.rack, ...Object.entries(member.tags).map(([key, value]) => `${key}=${value}`)].filter(Boolean).join(", ")],
      [count(sums[place].active), "n"],
      [count(sums[place].standby), "n"],
      [count(sums[place].warmup), "n"],
      [count(sums[place].lag), "n"],
    ]),
  );
}

function drawHistory() {
  const { events, rebalances, moves } = shown.history;
  at("no-events").textContent = events
    ? rebalances.length ? "" : `Topic ${events} has no events yet.`
    : "This group writes no events. Python applications write them with assignment.events.level.";
  at("rebalances").hidden = rebalances.length === 0;
  fill(
    "rebalances",
    rebalances.map((each) => [
      [clock(each.at)],
      [count(each.generation), "n"],
      [each.trigger.join(", ").replaceAll("_", " ")],
      [count(each.moved), "n"],
      [count(each.withheld), "n"],
      [count(each.warmup), "n"],
      [each.us === null ? "" : `${(each.us / 1000).toFixed(1)} ms`, "n"],
      [each.error ?? each.outcome, each.outcome === "ok" ? "" : "nobody"],
    ]),
  );
  drawLine(rebalances);
  at("no-moves").hidden = moves.length > 0;
  at("moves").hidden = moves.length === 0;
  fill("moves", moves.map((move) => [[clock(move.at)], [move.task], [move.from ?? "no member", move.from ? "" : "nobody"], [move.to ?? "no member", move.to ? "" : "nobody"]]));
  drawGrid();
}

function drawLine(rebalances) {
  const line = at("line");
  line.toggleAttribute("hidden", rebalances.length === 0);
  if (rebalances.length === 0) return;
  const draw = (tag, settings, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(settings)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    return made;
  };
  const width = line.clientWidth || 900;
  line.setAttribute("viewBox", `0 0 ${width} 54`);
  const from = rebalances[rebalances.length - 1].at;
  const span = Math.max(Date.now() - from, 60_000);
  const x = (ms) => 12 + ((width - 24) * Math.min(Math.max(ms - from, 0), span)) / span;
  const parts = [draw("line", { x1: 12, x2: width - 12, y1: 22, y2: 22 })];
  for (const each of rebalances) {
    const kind = each.outcome !== "ok" ? "bad" : each.moved ? "moved" : "";
    const dot = draw("circle", { cx: x(each.at), cy: 22, r: 5 + Math.min(6, Math.sqrt(each.moved ?? 0)), class: kind });
    dot.append(draw("title", {}, `${clock(each.at)}, generation ${each.generation}: ${each.trigger.join(", ")}; ${each.moved ?? 0} moved`));
    parts.push(dot);
  }
  parts.push(draw("text", { x: 12, y: 48 }, clock(from)), draw("text", { x: width - 12, y: 48, "text-anchor": "end" }, "now"));
  line.replaceChildren(...parts);
}

async function ask(task) {
  asked = task;
  at("why").hidden = false;
  at("h-why").textContent = `Why is ${task} where it is?`;
  at("reason").textContent = "\u2026";
  let text;
  try {
    const answer = await fetch(`why/${encodeURIComponent(task)}`);
    const said = await answer.json();
    text = answer.ok ? said.text : said.message;
  } catch {
    text = "no response from streams-py; check that it is still running";
  }
  if (asked !== task) return;
  at("reason").textContent = text;
  at("h-why").focus({ preventScroll: true });
  at("why").scrollIntoView({ block: "nearest" });
}

at("close").addEventListener("click", () => {
  at("why").hidden = true;
  document.querySelector('#grid button[tabindex="0"]')?.focus();
});
at("why").addEventListener("keydown", (event) => event.key === "Escape" && at("close").click());
at("filter").addEventListener("input", (event) => {
  grid.filter(event.target.value);
  drawNow();
});
at("before").addEventListener("click", () => (grid.turn(-1), drawNow()));
at("after").addEventListener("click", () => (grid.turn(1), drawNow()));
addEventListener("resize", () => drawLine(shown.history.rebalances));

const updates = new EventSource("updates");
const on = (part, show) => updates.addEventListener(part, (event) => show(JSON.parse(event.data)));
on("group", (group) => ((shown.group = group), drawGroup()));
on("lags", (lags) => {
  shown.lags = lags;
  grid.lags(lags);
  if (shown.group) drawMembers();
});
on("history", (history) => ((shown.history = history), drawHistory()));
on("trouble", ({ text }) => {
  at("trouble").textContent = text ?? "";
  at("trouble").hidden = text === null;
});
const live = (text, isOff) => {
  at("live").textContent = text;
  at("live").classList.toggle("off", isOff);
};
updates.addEventListener("open", () => live("live", false));
updates.addEventListener("error", () => live("not connected; retrying", true));

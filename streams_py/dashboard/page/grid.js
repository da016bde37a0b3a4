// The grid of tasks and members. Data of the group is inserted as text, never as markup.

// Size of a page of tasks. A browser draws it without delay, even with a hundred members.
const ROWS_MIN = 25, ROWS_MAX = 200, CELLS = 6000;
const number = new Intl.NumberFormat();

export function element(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (name) made.className = name;
  return made;
}

export const count = (value) => (value === null || value === undefined ? "" : number.format(value));

export class Grid {
  constructor(table, ask) {
    this.head = table.tHead;
    this.body = table.tBodies[0];
    this.ask = ask;
    this.first = 0;
    this.rows = ROWS_MAX;
    this.wanted = "";
    this.was = new Map(); // cell -> its last content, to mark changes
    this.current = null; // the cell that Tab focuses
    table.addEventListener("keydown", (event) => this.#key(event));
    table.addEventListener("focusin", (event) => this.#focus(event.target));
    table.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.ask(button.dataset.task);
    });
  }

  filter(text) {
    this.wanted = text.trim().toLowerCase();
    this.first = 0;
  }

  turn(by) {
    this.first = Math.max(0, this.first + by * this.rows);
  }

  // group, lags, restores: as sent by the server. Returns [first, last, all] of the rows shown.
  draw(group, lags, restores) {
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.at : null;
    const rows = group.tasks.filter((task) => this.#fits(task, group));
    this.rows = Math.max(ROWS_MIN, Math.min(ROWS_MAX, Math.floor(CELLS / Math.max(1, group.members.length))));
    if (this.first >= rows.length) this.first = 0;
    const shown = rows.slice(this.first, this.first + this.rows);
    this.#drawHead(group);
    const restored = new Map(restores.map((each) => [`${each.task} ${each.member}`, each]));
    let before = null;
    const made = document.createDocumentFragment();
    for (const task of shown) {
      const sub = task[0].replace(/_\d+$/, "");
      made.append(this.#row(task, group, lags, restored, before !== null && before !== sub));
      before = sub;
    }
    this.body.replaceChildren(made);
    const again = [...this.body.querySelectorAll("button")].find((button) => button.dataset.at === (focused ?? this.current));
    const stop = again ?? this.body.querySelector("button");
    if (stop) stop.tabIndex = 0;
    if (focused && again) again.focus({ preventScroll: true });
    return [shown.length ? this.first + 1 : 0, this.first + shown.length, rows.length];
  }

  #fits(task, group) {
    if (!this.wanted) return true;
    const names = [task[0], ...task[4]];
    for (const place of [task[1], ...task[5].map((copy) => copy[0]), ...task[6].map((copy) => copy[0])])
      if (place !== null) names.push(group.members[place].label);
    return names.some((name) => name.toLowerCase().startsWith(this.wanted));
  }

  #drawHead(group) {
    const row = element("tr");
    row.append(element("th", "task"));
    group.members.forEach((member, place) => {
      const cell = element("th", member.label.length > 12 ? "\u2026" : member.label, place === group.leader ? "leader" : "");
      cell.title = `${member.client} at ${member.host}${place === group.leader ? ", leads the group" : ""}`;
      row.append(cell);
    });
    row.append(element("th", "input lag", "n"), element("th", "reads", "reads"));
    for (const cell of row.children) cell.scope = "col";
    this.head.replaceChildren(row);
  }

  #row(task, group, lags, restored, isFirstOfSub) {
    const [id, owner, leaving, , topics, standbys, warmups, heading] = task;
    const row = element("tr", null, isFirstOfSub ? "sub" : "");
    const name = element("th");
    name.scope = "row";
    name.append(this.#button(id, 0, id, "", `why is task ${id} where it is?`));
    if (owner === null) name.append(element("span", leaving === null ? " no member" : " withheld", "nobody"));
    row.append(name);
    const marks = new Map();
    for (const [place, lag] of standbys) marks.set(place, ["standby", "S", lag]);
    for (const [place, lag] of warmups) marks.set(place, ["warmup", "W", lag]);
    if (heading !== null) marks.set(heading, ["coming", "\u2192", null]);
    if (leaving !== null) marks.set(leaving, ["leaving", "\u2026", null]);
    if (owner !== null) marks.set(owner, ["active", "\u25cf", null]);
    group.members.forEach((member, place) => {
      const cell = element("td");
      const mark = marks.get(place);
      const key = `${id}|${member.id}`;
      const kind = mark ? mark[0] : "";
      if (this.was.has(key) && this.was.get(key) !== kind) cell.className = "new";
      this.was.set(key, kind);
      if (mark) {
        const progress = restored.get(`${id} ${member.label}`);
        const part = progress && progress.total ? Math.min(99, Math.floor((100 * progress.done) / progress.total)) : null;
        const text = part !== null ? `${mark[1]} ${part} %` : mark[2] ? `${mark[1]} \u2264 ${count(mark[2])}` : mark[1];
        const says = { active: "runs", standby: "has a standby of", warmup: "warms up", leaving: "must revoke", coming: "will run" }[kind];
        const behind = mark[2] === null ? "" : `, at most ${count(mark[2])} records behind`;
        const label = `${member.label} ${says} ${id}${part !== null ? `, ${part} % restored` : behind}`;
        cell.append(this.#button(id, place + 1, text, part !== null ? "restoring" : kind, label));
      }
      row.append(cell);
    });
    const lag = element("td", count(lags[id]), "n");
    lag.dataset.lag = id;
    const reads = element("td", topics.join(", "), "reads");
    reads.title = topics.join(", ");
    row.append(lag, reads);
    return row;
  }

  #button(task, column, text, kind, label) {
    const button = element("button", text, kind);
    button.type = "button";
    button.tabIndex = -1;
    button.dataset.task = task;
    button.dataset.at = `${task} ${column}`;
    button.dataset.column = column;
    button.setAttribute("aria-label", label);
    button.title = label;
    return button;
  }

  lags(lags) {
    for (const cell of this.body.querySelectorAll("[data-lag]")) {
      const text = count(lags[cell.dataset.lag]);
      if (cell.textContent !== text) cell.textContent = text;
    }
  }

  #focus(target) {
    if (!target.dataset.at) return;
    for (const other of this.body.querySelectorAll('button[tabindex="0"]')) other.tabIndex = -1;
    target.tabIndex = 0;
    this.current = target.dataset.at;
  }

  #key(event) {
    const at = event.target.closest("button");
    if (!at) return;
    const inRow = (row) => [...row.querySelectorAll("button")];
    const row = at.closest("tr");
    const column = Number(at.dataset.column);
    const nearest = (other) => other && inRow(other).filter((each) => Number(each.dataset.column) <= column).pop();
    const along = inRow(row);
    const to = {
      ArrowRight: () => along[along.indexOf(at) + 1],
      ArrowLeft: () => along[along.indexOf(at) - 1],
      ArrowDown: () => nearest(row.nextElementSibling),
      ArrowUp: () => nearest(row.previousElementSibling),
      Home: () => along[0],
      End: () => along[along.length - 1],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    to()?.focus();
  }
}

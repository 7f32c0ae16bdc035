// What pages gain from a script: local times, ages, copy buttons, pictures to zoom, tables to search, sort and page.
// All of it is extra: without a script every page tells the same. Text from data is only ever set as text.
"use strict";

const MOST_ROWS = 50;
const LONGEST_WORD = 20; // characters that stay together
const LONGEST_NAME = 40; // of a name in a row
const LOOK_EVERY = 5000; // milliseconds

function age(seconds) {
  for (const [unit, length, least] of [["day", 86400, 3], ["hour", 3600, 2], ["minute", 60, 2]]) {
    if (seconds >= least * length) {
      const number = Math.floor(seconds / length);
      return `${number} ${unit}${number === 1 ? "" : "s"}`;
    }
  }
  return "moments";
}

// Times stand in UTC. A button turns them into local time, also where no pointer can rest on them; the first line of the
// front has both.
let isLocal = false;
const CLOCK = "afterlog-local-time"; // of what the browser remembers

function localOf(at, utc) {
  const two = (number) => String(number).padStart(2, "0");
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `;
  const seconds = /:\d\d:\d\d/.test(utc) ? `:${two(at.getSeconds())}` : "";
  return `${/^\d{4}/.test(utc) ? date : ""}${two(at.getHours())}:${two(at.getMinutes())}${seconds}${utc.endsWith("UTC") ? " local" : ""}`;
}

function tellTimes(within) {
  for (const time of within.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (!isNaN(at)) {
      const utc = time.dataset.utc = time.dataset.utc || time.textContent;
      const seconds = (Date.now() - at) / 1000;
      const other = isLocal ? `${at.toISOString().slice(0, 19).replace("T", " ")} UTC` : `${at.toLocaleString()} local time`;
      time.title = `${other}${seconds >= 0 ? `, ${age(seconds)} ago` : ""}`;
      time.textContent = isLocal ? localOf(at, utc) : utc;
      if (time.closest("#now") && at.getTimezoneOffset()) {
        time.textContent = `${utc}, ${localOf(at, utc)}`;
      }
    }
  }
}

function turnClock(toLocal) {
  isLocal = toLocal;
  document.getElementById("clock").setAttribute("aria-pressed", String(isLocal));
  document.getElementById("clocks").textContent = isLocal ? ", shown as local time" : "; the button at the top shows local time";
  for (const head of document.querySelectorAll("th button, th")) {
    if (!head.children.length && /\((UTC|local)\)$/.test(head.textContent)) {
      head.textContent = head.textContent.replace(/\((UTC|local)\)$/, isLocal ? "(local)" : "(UTC)");
    }
  }
  tellTimes(document);
}

function addClock() {
  const button = document.getElementById("clock");
  const remembered = (set) => {
    try { // a page from disk may have no memory
      return set === undefined ? localStorage.getItem(CLOCK) : localStorage.setItem(CLOCK, set);
    } catch {
      return null;
    }
  };
  if (new Date().getTimezoneOffset()) {
    button.hidden = false;
    button.addEventListener("click", () => {
      turnClock(!isLocal);
      remembered(isLocal ? "yes" : "no");
    });
    turnClock(remembered() === "yes");
  }
}

function tellAge() {
  const made = document.getElementById("made");
  const at = made && new Date(made.dateTime);
  const said = document.getElementById("page-age");
  if (at && said) {
    const seconds = (Date.now() - at) / 1000;
    const remedy = location.protocol === "file:" ? ": run afterlog report" : "";
    said.textContent = seconds > 120 ? ` This page is ${age(seconds)} old${remedy}.` : "";
  }
}

async function copy(text) {
  if (navigator.clipboard && window.isSecureContext) {
    return navigator.clipboard.writeText(text);
  }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

function addCopying() {
  for (const button of document.querySelectorAll("button.copy")) {
    const code = button.parentElement.querySelector("code");
    button.hidden = false;
    button.addEventListener("click", async () => {
      const before = button.textContent;
      try {
        await copy(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = before; }, 1500);
    });
  }
}

function addZoom() {
  for (const picture of document.querySelectorAll(".picture")) {
    const svg = picture.querySelector("svg");
    const tools = picture.previousElementSibling;
    if (!svg || !tools || !tools.classList.contains("zoom")) {
      continue;
    }
    const width = Number(svg.getAttribute("width"));
    const height = Number(svg.getAttribute("height"));
    let scale = 1;
    tools.hidden = false;
    tools.addEventListener("click", (event) => {
      const by = event.target.dataset && event.target.dataset.zoom;
      if (by) {
        picture.dataset.zoomed = by;
        scale = by === "fit" ? Math.min(1, picture.clientWidth / width) : Math.min(4, Math.max(0.1, scale * Number(by)));
        svg.setAttribute("width", width * scale);
        svg.setAttribute("height", height * scale);
      }
    });
    let from = null;
    picture.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse" && !event.target.closest("a")) {
        from = [event.clientX + picture.scrollLeft, event.clientY + picture.scrollTop];
      }
    });
    picture.addEventListener("pointermove", (event) => {
      if (from && event.buttons) {
        picture.scrollTo(from[0] - event.clientX, from[1] - event.clientY);
      } else {
        from = null;
      }
    });
  }
}

// Text whose long names lack their middle, which the pointer shows; others break behind signs.
function cut(text) {
  return text.split(/(\s+)/).flatMap((name) => {
    if (name.length <= LONGEST_WORD) {
      return name;
    }
    if (name.length <= LONGEST_NAME) {
      return name.split(/(?<=[._/])(?=\w)/).flatMap((part, index) => (index ? [document.createElement("wbr"), part] : part));
    }
    const short = document.createElement("span");
    short.title = name;
    short.textContent = `${name.slice(0, LONGEST_NAME / 2)}…${name.slice(1 - LONGEST_NAME / 2)}`;
    return short;
  });
}

// A table whose rows are data: {"columns": [{"name", "kind"}], "rows": [[...]]}. The kinds of cells: text, number, time,
// chip (the text is its class, too) and link, which is [text, address].
class Finder {
  constructor(root) {
    const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
    this.root = root;
    this.columns = data.columns;
    this.rows = data.rows.map((cells, index) => ({ cells, index, text: this.textOf(cells) }));
    this.chosen = this.rows;
    this.page = 0;
    this.by = null;
    this.down = false;
    this.search = root.querySelector("input[type='search']");
    this.choices = [...root.querySelectorAll("select[data-column]")];
    this.said = root.querySelector("[role='status']");
    root.querySelector(".tools").hidden = false;
    root.querySelector(".pager").hidden = false;
    this.search.addEventListener("input", () => this.choose());
    for (const select of this.choices) {
      select.addEventListener("change", () => this.choose());
    }
    root.querySelectorAll("th").forEach((head, column) => {
      const button = document.createElement("button");
      button.className = "sort";
      button.type = "button";
      button.textContent = head.textContent;
      button.addEventListener("click", () => this.sort(column, head));
      head.replaceChildren(button);
    });
    this.before = root.querySelector("[data-page='before']");
    this.after = root.querySelector("[data-page='after']");
    this.before.addEventListener("click", () => this.turn(-1));
    this.after.addEventListener("click", () => this.turn(1));
    const asked = new URLSearchParams(location.hash.slice(1)).get("search");
    if (asked) {
      this.search.value = asked;
    }
    this.choose();
  }

  textOf(cells) {
    return cells.map((cell) => (Array.isArray(cell) ? cell[0] : cell === null ? "" : String(cell))).join("\n").toLowerCase();
  }

  choose() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = this.choices.filter((choice) => choice.value).map((choice) => [Number(choice.dataset.column), choice.value.split(" ")]);
    this.chosen = this.rows.filter((row) =>
      words.every((word) => row.text.includes(word)) && wanted.every(([column, values]) => row.cells[column].split(" ").some((word) => values.includes(word))));
    this.page = 0;
    this.show();
  }

  sort(column, head) {
    this.down = this.by === column ? !this.down : this.columns[column].kind === "number" || this.columns[column].kind === "time";
    this.by = column;
    const valueOf = (row) => (Array.isArray(row.cells[column]) ? row.cells[column][0] : row.cells[column]);
    const ranks = { critical: 0, high: 1, medium: 2, low: 3 };
    this.rows.sort((left, right) => {
      let a = valueOf(left), b = valueOf(right);
      if (a in ranks && b in ranks) {
        [a, b] = [ranks[a], ranks[b]];
      }
      if (a === null || b === null) {
        return a === b ? left.index - right.index : a === null ? 1 : -1;
      }
      const order = a < b ? -1 : a > b ? 1 : 0;
      return (this.down ? -order : order) || left.index - right.index;
    });
    for (const header of this.root.querySelectorAll("th")) {
      header.removeAttribute("aria-sort");
    }
    head.setAttribute("aria-sort", this.down ? "descending" : "ascending");
    this.choose();
  }

  turn(by) {
    this.page += by;
    this.show();
    this.root.querySelector("table").scrollIntoView({ block: "start" });
  }

  show() {
    const first = this.page * MOST_ROWS;
    const shown = this.chosen.slice(first, first + MOST_ROWS);
    this.root.querySelector("tbody").replaceChildren(...shown.map((row) => this.row(row.cells)));
    const all = this.chosen.length;
    this.said.textContent = all ? `${first + 1} to ${first + shown.length} of ${all}` : "Nothing matches.";
    this.before.disabled = this.page === 0;
    this.after.disabled = first + MOST_ROWS >= all;
    this.before.hidden = this.after.hidden = all <= MOST_ROWS;
    tellTimes(this.root);
  }

  row(cells) {
    const row = document.createElement("tr");
    this.columns.forEach(({ name, kind }, index) => {
      const value = cells[index];
      const cell = document.createElement("td");
      cell.dataset.label = name;
      if (value === null) {
        cell.textContent = "";
      } else if (kind === "link") {
        const link = document.createElement("a");
        link.href = value[1];
        link.append(...cut(value[0]));
        cell.append(link);
      } else if (kind === "number") {
        cell.className = "n";
        cell.textContent = Number(value).toLocaleString("en");
      } else if (kind === "time") {
        const time = document.createElement("time");
        time.dateTime = value;
        time.textContent = `${value.slice(0, 10)} ${value.slice(11, 16)}`;
        cell.append(time);
      } else if (kind === "chip") {
        const chip = document.createElement("span");
        chip.className = `chip ${value.replace(/[^a-z]/g, "")}`;
        chip.textContent = value;
        cell.append(chip);
      } else {
        cell.append(...cut(String(value)));
      }
      row.append(cell);
    });
    return row;
  }
}

// A page that a server shows looks whether it was built again. It loads itself anew unless somebody works with it.
function isInUse() {
  const field = document.querySelector("input[type='search']");
  return Boolean(document.querySelector("details[open], [data-zoomed]") || (field && field.value) || String(getSelection()));
}

function followChanges() {
  const notice = document.getElementById("changed");
  let known = null;
  const look = async () => {
    if (document.hidden) {
      return;
    }
    try {
      const answer = await fetch(location.pathname, { method: "HEAD", cache: "no-store" });
      const at = answer.headers.get("Last-Modified");
      const tag = answer.headers.get("ETag") || at;
      if (!answer.ok || !at) {
        return;
      }
      const isNew = known === null ? Date.parse(at) > Date.parse(document.lastModified) : tag !== known;
      known = known === null ? tag : known;
      if (isNew && !isInUse()) {
        location.reload();
      } else if (isNew) {
        known = "";
        notice.hidden = false;
      }
    } catch {
      // The server is away: the page stays as it is, and its age tells.
    }
  };
  notice.querySelector("button").addEventListener("click", () => location.reload());
  look();
  setInterval(look, LOOK_EVERY);
}

tellAge();
if (location.protocol.startsWith("http")) {
  followChanges();
}
setInterval(tellAge, 30000);
addCopying();
addZoom();
for (const root of document.querySelectorAll(".finder")) {
  new Finder(root);
}
tellTimes(document);
addClock();

// Tools around the text: colours, copying commands and filters, sorting and searching tables.

const byId = (id) => document.getElementById(id);
const counted = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const UNITS = { ns: 1, µs: 1e3, ms: 1e6, s: 1e9, min: 6e10, h: 3.6e12, B: 1, kB: 1e3, MB: 1e6, GB: 1e9 };

/** Makes the tools work; `paint` draws the page's charts in new colours, all of them if asked to. */
function useTools(paint) {
  themes(paint);
  copyButtons();
  sortableTables();
  search(byId("search"), byId("found"));
}

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "dataset") Object.assign(made.dataset, value);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function themes(paint) {
  const root = document.documentElement;
  const choices = [...document.querySelectorAll("[data-theme-choice]")];
  const set = (theme, everything = false) => {
    root.dataset.theme = theme;
    choices.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.themeChoice === theme)));
    paint(everything);
  };
  choices.forEach((button) => button.addEventListener("click", () => set(button.dataset.themeChoice)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => root.dataset.theme === "auto" && paint(false));
  let before;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    document.querySelectorAll("details").forEach((fold) => {
      fold.open = true;
    });
    set("light", true);
  });
  addEventListener("afterprint", () => set(before));
}

/** Adds a button to each command and filter that copies it. */
function copyButtons() {
  for (const code of document.querySelectorAll(".filters code, .remedies code, .more code, code.command")) {
    const button = element("button", { type: "button", className: "copy", title: "copy", ariaLabel: `copy ${code.textContent.slice(0, 80)}` }, "copy");
    button.addEventListener("click", async () => {
      button.textContent = (await copied(code)) ? "copied" : "select it and press Ctrl+C";
      setTimeout(() => button.replaceChildren("copy"), 2000);
    });
    code.after(" ", button);
  }
}

/** Copies the text of an element; where the clipboard is not allowed, as a selection. */
async function copied(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(code);
    return document.execCommand("copy");
  }
}

/** Makes the heads of large tables buttons that sort their rows. */
function sortableTables() {
  for (const table of document.querySelectorAll(".scroll table:not(.kept)")) {
    if (table.tBodies[0].rows.length < 2) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = element("button", { type: "button", className: "sort" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sortTable(table, head, column));
    });
  }
}

function sortTable(table, head, column) {
  const down = head.ariaSort !== "descending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.ariaSort = down ? "descending" : "ascending";
  const keyed = [...table.tBodies[0].rows].map((row) => [sortKey(row.cells[column].textContent.trim()), row]);
  const order = ([a], [b]) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en"));
  keyed.sort((a, b) => (down ? order(b, a) : order(a, b)));
  table.tBodies[0].append(...keyed.map(([, row]) => row));
}

/** Reads a figure with its unit; other text is its own key. */
function sortKey(text) {
  const [whole, number, unit] = text.match(/^#?([\d,]*\.?\d+)(?: (\S+))?/) ?? [];
  return whole && (!unit || unit in UNITS || unit.startsWith("(")) ? Number(number.replaceAll(",", "")) * (UNITS[unit] ?? 1) : text;
}

/** Hides the findings and the rows of tables without the text that is searched. */
function search(input, status) {
  const all = [...document.querySelectorAll(".finding, .scroll tbody tr")].map((one) => [one, one.textContent.toLowerCase()]);
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let shown = 0;
    for (const [one, text] of all) {
      one.hidden = !text.includes(wanted);
      shown += !one.hidden;
    }
    status.textContent = wanted ? `${shown.toLocaleString("en")} of ${counted(all.length, "finding or row")} shown` : "";
  });
}

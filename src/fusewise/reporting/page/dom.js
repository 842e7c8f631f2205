// Elements and figures. Data become text only: nothing here, or anywhere in the page, reads data as HTML.
(() => {
  "use strict";
  const fusewise = (window.fusewise = window.fusewise || {});
  const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]/gu;
  const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

  // A character that cannot be seen, as an escape.
  function escaped(one) {
    if (SHORT[one]) return SHORT[one];
    const code = one.codePointAt(0);
    if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
    return code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
  }

  // Text whose characters can all be seen: those that control, hide or change direction stand as escapes. `lines` keeps line ends and tabs.
  function shown(text, lines = false) {
    return String(text ?? "").replace(UNSEEN, (one) => (lines && (one === "\n" || one === "\t") ? one : escaped(one)));
  }

  function set(element, key, value) {
    if (value === null || value === undefined || value === false) return;
    if (key === "class") element.className = value;
    else if (key === "text") element.append(shown(value));
    else if (key === "on") for (const [name, listener] of Object.entries(value)) element.addEventListener(name, listener);
    else if (key === "data") for (const [name, each] of Object.entries(value)) element.dataset[name] = each;
    else element.setAttribute(key, value === true ? "" : shown(value));
  }

  // el("p", {class: "soft", on: {click: f}, title: text}, "text", element, [more]): empty children are left out.
  function el(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) set(element, key, value);
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      element.append(child instanceof Node ? child : shown(child, tag === "pre"));
    }
    return element;
  }

  // A name of the model: it keeps its direction to itself. What has none is said to have none.
  const name = (text) => (text === "" ? el("span", { class: "soft" }, "unnamed") : el("bdi", { class: "name" }, text));

  function button(label, act, attributes = {}) {
    return el("button", { type: "button", ...attributes, on: { click: act } }, label);
  }

  function live(text) {
    document.getElementById("said").textContent = shown(text);
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = el("textarea", { class: "unseen", "aria-hidden": "true" });
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  // A button that puts text on the clipboard, and says so.
  function copyButton(text, label = "Copy") {
    const made = button(
      label,
      async () => {
        const done = await copy(text);
        made.textContent = done ? "Copied" : "Not copied";
        live(done ? "Copied" : "The browser did not let it be copied");
        setTimeout(() => (made.textContent = label), 1500);
      },
      { class: "small", "aria-label": `${label}: ${String(text).slice(0, 80)}` },
    );
    return made;
  }

  const grouped = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
  const count = (value) => (value === null || value === undefined ? "" : grouped.format(value));

  function scaled(value, steps, factor, digits = 1) {
    let unit = 0;
    while (Math.abs(value) >= factor && unit < steps.length - 1) [value, unit] = [value / factor, unit + 1];
    return `${unit ? value.toFixed(digits) : grouped.format(value)} ${steps[unit]}`.trim();
  }

  const bytes = (value) => (value === null || value === undefined ? "" : scaled(value, ["B", "KiB", "MiB", "GiB"], 1024));
  const short = (value) => (value === null || value === undefined ? "" : scaled(value, ["", "k", "M", "G", "T"], 1000));
  const percent = (value, digits = 1) => (value === null || value === undefined ? "" : `${(100 * value).toFixed(digits)}%`);

  function ms(value) {
    if (value === null || value === undefined) return "";
    if (value >= 10000) return `${(value / 1000).toFixed(1)} s`;
    if (value >= 100) return `${grouped.format(value)} ms`;
    if (value >= 1 || value === 0) return `${Number(value.toPrecision(3))} ms`;
    return `${Number((value * 1000).toPrecision(3))} µs`;
  }

  // A bar of a share between 0 and 1, for the eye only: the figure stands beside it.
  function bar(share) {
    const inner = el("span");
    inner.style.width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
    return el("span", { class: "share", "aria-hidden": "true" }, inner);
  }

  // Terms and what belongs to each; rows without a value are left out.
  function facts(rows) {
    const kept = rows.filter(
      ([, value]) => value !== null && value !== undefined && value !== "" && !(Array.isArray(value) && !value.length),
    );
    return el(
      "dl",
      { class: "facts" },
      kept.map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value))),
    );
  }

  function order(a, b) {
    const missing = (x) => x === null || x === undefined || x === "";
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  }

  // One cell; the first column heads its row.
  function cell(column, row, first) {
    const value = column.show ? column.show(row) : row[column.key];
    return el(first ? "th" : "td", { scope: first ? "row" : null, class: column.number ? "n" : column.class }, value ?? "");
  }

  function heading(column, state, sortBy) {
    const label = column.title;
    if (column.sort === false)
      return el(
        "th",
        { scope: "col", class: column.number ? "n" : null },
        column.hidden ? el("span", { class: "unseen" }, label) : label,
      );
    const up = state.column === column ? (state.down ? "descending" : "ascending") : null;
    const arrow = el("span", { class: "arrow", "aria-hidden": "true" }, up ? (state.down ? "▾" : "▴") : "");
    return el(
      "th",
      { scope: "col", class: column.number ? "n" : null, "aria-sort": up },
      button([label, arrow], () => sortBy(column), { class: "sort" }),
    );
  }

  // A sortable table in its own scroll box. Columns: {title, key or value(row), show(row), number, sort, down}; `limit` rows are drawn at first.
  // `target(row)` is what a row selects. The element has `update(rows)`.
  function table({ columns, rows, caption, limit = 100, target = null, sorted = null, down = true, empty = "Nothing fits." }) {
    const state = { column: columns.find((one) => one.title === sorted) || null, down, rows, limit };
    const box = el("div", { class: "listing" });
    const valued = (column) => column.value || ((row) => row[column.key]);
    function arranged() {
      if (!state.column) return state.rows;
      const value = valued(state.column);
      const missing = (x) => x === null || x === undefined || x === "";
      return [...state.rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        return missing(x) || missing(y) ? order(x, y) : (state.down ? -1 : 1) * order(x, y);
      });
    }
    function line(row) {
      const aim = target && target(row);
      const cells = columns.map((column, k) => cell(column, row, k === 0));
      if (!aim) return el("tr", {}, cells);
      const made = el("tr", { class: "pick", data: { kind: aim.kind, id: aim.id, graph: aim.graph || "" } }, cells);
      const first = cells[0];
      if (!first.textContent) first.append(el("span", { class: "soft" }, "unnamed"));
      first.replaceChildren(button([...first.childNodes], () => fusewise.select(aim), { class: "link" }));
      made.addEventListener("click", (event) => {
        if (!event.target.closest("button, a, summary") && !String(getSelection())) fusewise.select(aim);
      });
      return made;
    }
    function sortBy(column) {
      state.down = state.column === column ? !state.down : Boolean(column.number);
      state.column = column;
      draw();
      const at = columns.indexOf(column);
      box.querySelectorAll("thead th")[at]?.querySelector("button")?.focus();
    }
    function draw() {
      const all = arranged();
      const head = el(
        "tr",
        {},
        columns.map((column) => heading(column, state, sortBy)),
      );
      const body = el("tbody", {}, all.slice(0, state.limit).map(line));
      const scroll = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption });
      scroll.append(el("table", { class: "table" }, el("thead", {}, head), body));
      box.replaceChildren(all.length ? scroll : el("p", { class: "soft" }, empty));
      const left = all.length - state.limit;
      if (left > 0) {
        const more = () => {
          const from = state.limit;
          state.limit += 500;
          draw();
          box.querySelectorAll("tbody tr")[from]?.querySelector("button")?.focus();
        };
        box.append(button(`Show ${count(Math.min(500, left))} more of ${count(all.length)}`, more, { class: "small" }));
      }
      fusewise.mark?.(box);
    }
    box.update = (found) => {
      state.rows = found;
      state.limit = limit;
      draw();
    };
    draw();
    return box;
  }

  fusewise.dom = { el, set, name, button, copyButton, live, shown, count, bytes, short, percent, ms, bar, facts, table, order };
})();

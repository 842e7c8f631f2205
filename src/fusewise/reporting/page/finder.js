// The search box: nodes, groups, values, kernels and decisions by any of their names. Ctrl-K, Cmd-K and "/" lead to it.
(() => {
  "use strict";
  const fusewise = window.fusewise;
  const { el, name, count, live } = fusewise.dom;
  const MOST = 60;
  let entries = null;
  let hits = [];
  let at = -1;
  let input = null;
  let box = null;

  // Every thing with a name: {kind, id, graph, label, about, text}. A node that keeps its name is one entry, nearest to the program.
  function collect() {
    const made = [];
    const add = (kind, id, graph, label, about, ...more) =>
      made.push({ kind, id, graph, label, about, text: [label, about, ...more].join("\n").toLowerCase() });
    const title = (graph) => (fusewise.document.stages || []).find((stage) => stage.id === graph)?.title || graph;
    const met = new Set();
    const values = new Set();
    for (const graph of ["native", "clean", "written"]) {
      const index = fusewise.index.graphs[graph];
      if (!index) continue;
      for (const node of index.graph.nodes) {
        if (met.has(node.name)) continue;
        met.add(node.name);
        add("node", node.id, graph, node.name || node.op, `${node.op}, ${title(graph)}`, ...(node.origin || []));
      }
    }
    for (const group of fusewise.document.groups || []) add("group", group.id, null, group.title, `group ${group.id}`);
    for (const kernel of fusewise.document.kernels || [])
      add("kernel", kernel.id, null, kernel.symbol, kernel.way || kernel.family || "");
    for (const graph of ["native", "clean", "written"]) {
      for (const [value, about] of Object.entries(fusewise.index.graphs[graph]?.graph.values || {})) {
        if (values.has(value)) continue;
        values.add(value);
        add("value", value, graph, value, `${about.type ?? ""}, ${title(graph)}`);
      }
    }
    for (const [position, decision] of (fusewise.document.decisions || []).entries()) {
      add(
        "decision",
        position,
        null,
        decision.what,
        `${decision.kind}, ${fusewise.details.outcome(decision)}${decision.where?.length ? `: ${decision.where.slice(0, 3).join(", ")}` : ""}`,
        decision.reason || "",
      );
    }
    return made;
  }

  // How well an entry fits: lower is better, null where it does not.
  function rank(entry, whole, words) {
    if (!words.every((word) => entry.text.includes(word))) return null;
    const label = entry.label.toLowerCase();
    if (label === whole) return 0;
    if (label.startsWith(whole)) return 1;
    return label.includes(whole) ? 2 : words.every((word) => label.includes(word)) ? 3 : 4;
  }

  function search(text) {
    entries = entries || collect();
    const whole = text.trim().toLowerCase();
    if (!whole) return [];
    const words = whole.split(/\s+/);
    const ranked = [[], [], [], [], []];
    for (const entry of entries) {
      const found = rank(entry, whole, words);
      if (found !== null) ranked[found].push(entry);
    }
    return ranked.flat();
  }

  const graphShown = () => document.querySelector('[data-tab="graph"]:not([hidden])');

  function choose(entry) {
    shut();
    input.blur();
    if (entry.kind === "decision") fusewise.show("decisions");
    fusewise.select({ kind: entry.kind, id: entry.id, graph: entry.graph });
    if (graphShown() && ["node", "group", "value"].includes(entry.kind)) fusewise.locate(fusewise.selected);
    const panel = document.getElementById("details");
    if (!panel.hidden) panel.querySelector("h2").focus();
  }

  function point(to) {
    at = hits.length ? (to + hits.length) % hits.length : -1;
    for (const [k, option] of [...box.querySelectorAll('[role="option"]')].entries()) {
      option.setAttribute("aria-selected", String(k === at));
      if (k === at) {
        input.setAttribute("aria-activedescendant", option.id);
        option.scrollIntoView({ block: "nearest" });
      }
    }
    if (at < 0) input.removeAttribute("aria-activedescendant");
  }

  function shut() {
    box.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function find() {
    const all = search(input.value);
    hits = all.slice(0, MOST);
    const option = (entry, k) =>
      el(
        "div",
        {
          role: "option",
          id: `hit-${k}`,
          "aria-selected": "false",
          class: "hit",
          on: { mousedown: (event) => event.preventDefault(), click: () => choose(entry) },
        },
        el("span", { class: "hit-kind" }, entry.kind),
        el("span", { class: "hit-name" }, name(entry.label)),
        el("span", { class: "soft hit-about" }, entry.about && name(entry.about)),
      );
    box.replaceChildren(...hits.map(option));
    const asked = Boolean(input.value.trim());
    if (asked && !hits.length)
      box.append(
        el(
          "div",
          { role: "option", "aria-disabled": "true", "aria-selected": "false", class: "hit soft" },
          "Nothing has this name.",
        ),
      );
    if (all.length > MOST)
      box.append(
        el(
          "div",
          { role: "option", "aria-disabled": "true", "aria-selected": "false", class: "hit soft" },
          `and ${count(all.length - MOST)} more`,
        ),
      );
    box.hidden = !asked;
    input.setAttribute("aria-expanded", String(asked));
    if (asked) live(`${count(all.length)} found`);
    point(hits.length ? 0 : -1);
    if (fusewise.graph?.search && fusewise.graph?.highlight && graphShown())
      fusewise.graph.highlight(asked ? fusewise.graph.search(input.value.trim()) : []);
  }

  function typed(event) {
    const acts = {
      ArrowDown: () => (box.hidden ? find() : point(at + 1)),
      ArrowUp: () => point(at - 1),
      Enter: () => at >= 0 && !box.hidden && choose(hits[at]),
    };
    if (event.key === "Escape") {
      if (box.hidden) input.value = "";
      shut();
      find();
      shut();
      if (!input.value) input.blur();
    } else if (acts[event.key]) acts[event.key]();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // A key that means the box, unless somebody is typing elsewhere.
  function called(event) {
    const typing =
      event.target instanceof Element && event.target.closest("input:not([type=radio]), textarea, select, [contenteditable]");
    const wanted =
      ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") ||
      (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey);
    if (!wanted) return;
    event.preventDefault();
    input.focus();
    input.select();
  }

  function mount(element) {
    input = el("input", {
      type: "search",
      id: "find",
      role: "combobox",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: "Find by name",
      "aria-label": "Find nodes, groups, values, kernels and decisions",
      "aria-expanded": "false",
      "aria-controls": "hits",
      "aria-autocomplete": "list",
      "aria-keyshortcuts": "Control+K /",
    });
    box = el("div", { id: "hits", class: "hits", role: "listbox", "aria-label": "Found", hidden: true });
    input.addEventListener("input", find);
    input.addEventListener("keydown", typed);
    input.addEventListener("blur", shut);
    input.addEventListener("focus", () => input.value.trim() && find());
    document.addEventListener("keydown", called);
    element.prepend(el("div", { class: "finder" }, input, el("kbd", { class: "key", "aria-hidden": "true" }, "/"), box));
  }

  fusewise.finder = { mount, search };
})();

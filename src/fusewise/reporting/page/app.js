// The shell: unpacks the document, shows one tab at a time, keeps what is selected in the address, switches themes.
(() => {
  "use strict";
  const fusewise = window.fusewise;
  const { el, button, live, shown } = fusewise.dom;
  fusewise.sections = fusewise.sections || {};
  fusewise.selected = null;
  const GRAPH = ["cytoscape.min.js", "elk-api.js"];
  const CHARTS = ["vega.min.js", "vega-lite.min.js", "vega-embed.min.js"];
  const state = { tab: null, mounted: new Map(), loaded: new Map() };

  // What is packed in the page, as text.
  async function text(name) {
    const packed = [...document.querySelectorAll("script[data-name]")].find((one) => one.dataset.name === name);
    if (!packed) throw new Error(`${name} is not in this page`);
    const letters = atob(packed.textContent);
    const found = new Uint8Array(letters.length);
    for (let k = 0; k < letters.length; k += 1) found[k] = letters.charCodeAt(k);
    return new Response(new Blob([found]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  // Run a library that is packed in the page, once. The page's policy allows it by its hash.
  function load(name) {
    if (!state.loaded.has(name)) {
      const running = text(name).then((source) => {
        const script = document.createElement("script");
        script.textContent = source;
        document.head.append(script);
      });
      state.loaded.set(name, running);
    }
    return state.loaded.get(name);
  }

  const loadAll = async (names) => {
    for (const name of names) await load(name);
  };

  // #tab or #tab/kind/graph/id, each part escaped.
  function address(tab, target) {
    if (!target) return `#${tab}`;
    return `#${[tab, target.kind, target.graph || "-", target.id].map((part) => encodeURIComponent(String(part).toWellFormed())).join("/")}`;
  }

  function addressed() {
    let parts;
    try {
      parts = location.hash.slice(1).split("/").map(decodeURIComponent);
    } catch {
      parts = [""];
    }
    const [tab, kind, graph, id] = parts;
    const numbered = kind !== "value";
    const target = kind && id !== undefined ? { kind, id: numbered ? Number(id) : id, graph: graph === "-" ? null : graph } : null;
    return { tab: document.querySelector(`[data-tab="${CSS.escape(tab)}"]`) ? tab : null, target };
  }

  function write(tab, target) {
    const wanted = address(tab, target);
    if (location.hash === wanted) return;
    try {
      if (document.documentElement.dataset.ready) location.hash = wanted;
      else history.replaceState(null, "", wanted);
    } catch {
      // A page inside another one may have no address of its own.
    }
  }

  const same = (a, b) => a === b || (a && b && a.kind === b.kind && a.id === b.id && (a.graph || null) === (b.graph || null));

  function known(target) {
    const { index } = fusewise;
    const graphs = Object.keys(index.graphs);
    if (target.kind === "node") return Boolean(fusewise.lookup.node(target.graph || fusewise.lookup.compiled(), target.id));
    if (target.kind === "group") return index.groups.has(target.id);
    if (target.kind === "kernel") return index.kernels.has(target.id);
    if (target.kind === "step") return index.steps.has(target.id);
    if (target.kind === "decision") return Boolean((fusewise.document.decisions || [])[target.id]);
    if (target.kind !== "value") return false;
    return graphs.some((id) => Object.hasOwn(index.graphs[id].graph.values || {}, target.id)) || index.buffers.has(target.id);
  }

  // Select something everywhere: {kind: "node|group|kernel|value|step|decision", id, graph}, or null for nothing.
  function select(target) {
    choose(target, { silent: false });
    write(state.tab, fusewise.selected);
  }

  function choose(target, { silent }) {
    const wanted = target && known(target) ? { kind: target.kind, id: target.id, graph: target.graph || null } : null;
    if (wanted && !wanted.graph && ["node", "group", "value"].includes(wanted.kind)) wanted.graph = fusewise.lookup.compiled();
    if (same(wanted, fusewise.selected)) return;
    fusewise.selected = wanted;
    document.dispatchEvent(new CustomEvent("fusewise-select", { detail: wanted || { kind: null, id: null, graph: null } }));
    mark(document);
    if (wanted && !silent) live(`Selected: ${fusewise.details?.titleOf?.(wanted) ?? wanted.kind}`);
  }

  // Mark the rows below an element that stand for what is selected.
  function mark(root) {
    for (const row of root.querySelectorAll("tr[data-kind]")) {
      const one = fusewise.selected;
      const found =
        one &&
        row.dataset.kind === one.kind &&
        row.dataset.id === String(one.id) &&
        (!row.dataset.graph || row.dataset.graph === one.graph);
      row.classList.toggle("selected", Boolean(found));
      if (found) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  }

  async function mountTab(id, panel) {
    for (const one of panel.querySelectorAll(".static")) one.remove();
    const box = el("div", { class: `mount mount-${id}` });
    panel.append(box);
    if (id === "graph") {
      await loadAll(GRAPH);
      await fusewise.graph?.mount(box);
    } else {
      await fusewise.sections[id]?.mount(box);
      await mountCharts(id, box);
    }
  }

  // The charts of a tab, where its section left a place for them, else at its end.
  async function mountCharts(id, box) {
    const sections = new Set((fusewise.document.charts || []).map((chart) => chart.section).filter((name) => tabOf(name) === id));
    if (!sections.size || !fusewise.charts) return;
    await loadAll(CHARTS);
    const place = box.querySelector(".charts") || box.appendChild(el("div", { class: "charts" }));
    for (const name of sections) {
      const part = el("div", { class: "charts-part" });
      place.append(part);
      await fusewise.charts.mount(part, name);
    }
  }

  const tabOf = (section) => ({ times: "time", compile: "time" })[section] || section;

  // Mount a tab the first time; whoever needs its contents waits for what this gives.
  function mounted(id) {
    if (!state.mounted.has(id)) {
      const panel = document.getElementById(`panel-${id}`);
      const running = mountTab(id, panel).catch((error) => {
        console.error(error);
        panel.append(el("p", { class: "notice", role: "alert" }, `This part could not be drawn: ${error.message}`));
      });
      state.mounted.set(id, running);
    }
    return state.mounted.get(id);
  }

  // One panel is there, and its tab is the chosen one.
  function uncover(id) {
    for (const panel of document.querySelectorAll("[data-tab]")) panel.hidden = panel.dataset.tab !== id;
    for (const tab of document.querySelectorAll('[role="tab"]')) {
      const chosen = tab.id === `tab-${id}`;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      if (chosen) tab.parentElement.scrollLeft = tab.offsetLeft - tab.parentElement.clientWidth / 2 + tab.clientWidth / 2;
    }
  }

  // Show one tab, and give a promise that ends when its contents are there.
  function show(id) {
    const changed = state.tab !== id;
    state.tab = id;
    if (changed) uncover(id);
    write(id, fusewise.selected);
    if (changed) {
      document.dispatchEvent(new CustomEvent("fusewise-tab", { detail: id }));
      window.scrollTo(0, 0);
    }
    return mounted(id);
  }

  // The address changed: by going back or forward, or by hand. A change of ours is done already.
  function follow() {
    if (location.hash === address(state.tab, fusewise.selected)) return;
    const { tab, target } = addressed();
    if (!tab) return;
    choose(target, { silent: true });
    if (tab !== state.tab) show(tab);
  }

  function makeTabs() {
    const bar = document.getElementById("tabs");
    bar.setAttribute("role", "tablist");
    bar.setAttribute("aria-label", "Sections of this report");
    const tabs = [...bar.querySelectorAll("a")];
    for (const tab of tabs) {
      const id = tab.id.slice(4);
      tab.setAttribute("role", "tab");
      tab.setAttribute("aria-controls", `panel-${id}`);
      const panel = document.getElementById(`panel-${id}`);
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", tab.id);
      panel.removeAttribute("aria-label");
      tab.addEventListener("click", (event) => {
        event.preventDefault();
        show(id);
      });
    }
    bar.addEventListener("keydown", (event) => {
      const at = tabs.indexOf(document.activeElement);
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (at < 0) return;
      if (event.key === " ") tabs[at].click();
      else if (to !== undefined) tabs[(to + tabs.length) % tabs.length].focus();
      else return;
      event.preventDefault();
    });
  }

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  const announce = () => document.dispatchEvent(new CustomEvent("fusewise-theme", { detail: theme() }));

  function setTheme(choice) {
    if (choice === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    try {
      localStorage.setItem("fusewise-theme", choice);
    } catch {
      // Where nothing may be kept, the choice holds for this view.
    }
    announce();
  }

  function makeThemes() {
    let kept = null;
    try {
      kept = localStorage.getItem("fusewise-theme");
    } catch {
      kept = null;
    }
    const choices = ["auto", "light", "dark"];
    const chosen = choices.includes(kept) ? kept : "auto";
    const choice = (value) =>
      el(
        "label",
        {},
        el("input", { type: "radio", name: "theme", value, checked: value === chosen, on: { change: () => setTheme(value) } }),
        el("span", {}, value[0].toUpperCase() + value.slice(1)),
      );
    document
      .getElementById("tools")
      .append(el("fieldset", { class: "themes" }, el("legend", { class: "unseen" }, "Theme"), choices.map(choice)));
    if (chosen !== "auto") document.documentElement.dataset.theme = chosen;
    dark.addEventListener("change", announce);
  }

  // Rows that the page has without scripts become ways to what they stand for.
  function enliven() {
    for (const row of document.querySelectorAll("tr[data-kind]")) {
      const target = { kind: row.dataset.kind, id: Number(row.dataset.id), graph: null };
      const head = row.querySelector("th");
      if (!head || !known(target)) continue;
      row.classList.add("pick");
      head.replaceChildren(button([...head.childNodes], () => select(target), { class: "link" }));
      row.addEventListener("click", (event) => {
        if (!event.target.closest("button") && !String(getSelection())) select(target);
      });
    }
    for (const head of document.querySelectorAll("th[data-stage]")) {
      const stage = head.dataset.stage;
      if (fusewise.graph) head.replaceChildren(button([...head.childNodes], () => openStage(stage), { class: "link" }));
    }
  }

  async function openStage(stage) {
    await show("graph");
    await fusewise.graph?.show(stage);
  }

  // Show something in the graph: the tab, then what is closed around it.
  async function locate(target) {
    await show("graph");
    await fusewise.graph?.reveal(target);
  }

  // What is packed cannot be had: the page stays what it is without scripts.
  function plain(why) {
    const box = document.getElementById("trouble");
    box.textContent = shown(`${why} The tables below are all that can be shown.`);
    box.hidden = false;
    for (const panel of document.querySelectorAll("[data-tab]")) panel.hidden = false;
  }

  // Before anything is unpacked: tabs, the theme, and nothing but the panel that is asked for.
  function prepare() {
    document.documentElement.classList.add("scripted");
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault();
      document.getElementById("main").focus();
    });
    makeTabs();
    makeThemes();
    uncover(addressed().tab || "overview");
  }

  async function start() {
    if (!("DecompressionStream" in window)) {
      plain("This browser is too old to unpack the report.");
      return;
    }
    try {
      fusewise.document = JSON.parse(await text("document"));
      fusewise.index = fusewise.makeIndex(fusewise.document);
    } catch (error) {
      plain(`The report could not be unpacked (${error.message}).`);
      return;
    }
    state.mounted.set("overview", Promise.resolve());
    fusewise.finder?.mount(document.getElementById("tools"));
    enliven();
    fusewise.details?.mount(document.getElementById("details"));
    window.addEventListener("hashchange", follow);
    const { tab, target } = addressed();
    choose(target, { silent: true });
    await show(tab || "overview");
    document.documentElement.dataset.ready = "true";
    document.dispatchEvent(new CustomEvent("fusewise-ready"));
  }

  Object.assign(fusewise, { text, load, select, show, mounted, mark, locate, theme });
  prepare();
  document.addEventListener("DOMContentLoaded", start);
})();

// The graph view: draws what is open of a stage, and ties drawing, outline, map and selection together.
(() => {
  "use strict";
  const fusewise = (window.fusewise = window.fusewise || {});
  const { el, button, count, live } = fusewise.dom;
  const MOST_OPEN = 1200;
  const READABLE = 0.85;
  const LEGIBLE = 0.6;
  const STAGES = ["written", "clean", "native", "groups"];
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const state = { models: new Map(), model: null, cy: null, layout: null, heat: false, picked: null, hits: new Set(), turn: 0, own: false, waiting: [] };
  const parts = {};

  const stages = () => (fusewise.document.stages || []).filter((stage) => STAGES.includes(stage.id) && fusewise.document.graphs?.[stage.graph]);

  function modelOf(stage) {
    if (!state.models.has(stage)) state.models.set(stage, fusewise.graphModel.make(stage));
    return state.models.get(stage);
  }

  // What is selected in the page, as items of the stage that is shown.
  function selectedItems() {
    const { model } = state;
    const target = fusewise.selected;
    return target ? itemsOf(model, target) : [];
  }

  const compiled = (model) => model.graphId === fusewise.lookup.compiled();

  // Nodes of a model's graph that a target stands for: itself, or what shares an origin with it in another graph.
  function nodesFor(model, target) {
    const graph = target.graph || fusewise.lookup.compiled();
    const { lookup, index } = fusewise;
    const groupNodes = (ids) => [...new Set(ids)].flatMap((id) => index.groups.get(id)?.nodes || []);
    let found = [];
    let from = fusewise.lookup.compiled();
    if (target.kind === "node") [found, from] = [[target.id], graph];
    else if (target.kind === "group") found = groupNodes([target.id]);
    else if (target.kind === "step") found = groupNodes([index.steps.get(target.id)?.group]);
    else if (target.kind === "kernel") found = groupNodes((index.kernels.get(target.id)?.steps || []).map((step) => index.steps.get(step)?.group));
    else if (target.kind === "value") {
      const there = index.graphs[graph] || {};
      const made = there.producer?.get(target.id);
      [found, from] = [made === undefined ? there.readers?.get(target.id) || [] : [made], graph];
    }
    if (from === model.graphId) return found;
    return found.flatMap((id) => (lookup.node(from, id) ? lookup.became(from, lookup.node(from, id), model.graphId).map((node) => node.id) : []));
  }

  function itemsOf(model, target) {
    if (target.kind === "group" && model.grouped && model.owner.has(target.id)) return [model.owner.get(target.id)];
    const leaves = nodesFor(model, target).map((id) => model.leafOf(id));
    const whole = model.grouped && target.kind !== "node" && target.kind !== "value";
    return [...new Set(leaves.map((leaf) => (whole && leaf.parent.kind === "group" ? leaf.parent : leaf)))];
  }

  // Which target an item is when somebody picks it; none for scopes and repeats.
  function targetOf(model, item) {
    if (item.kind === "node") return { kind: "node", id: model.shownNode(item), graph: model.graphId };
    if (item.kind === "group") return { kind: "group", id: model.shownGroup(item), graph: model.graphId };
    if (item.kind === "input" || item.kind === "output") return { kind: "value", id: item.values[0], graph: model.graphId };
    return null;
  }

  function pick(item, { centre = true } = {}) {
    state.picked = item;
    const target = targetOf(state.model, item);
    state.own = true;
    fusewise.select?.(target);
    state.own = false;
    if (centre) reach([item]);
    marks();
  }

  // Lay out and draw what is open. `anchor` is an item that stays where it is seen.
  async function draw({ anchor = null, fit = false } = {}) {
    const { model } = state;
    const turn = ++state.turn;
    const waiting = setTimeout(() => (parts.busy.hidden = false), 150);
    let layout;
    try {
      layout = await fusewise.graphLayout.arrange(model, (item, open) => fusewise.graphDraw.measure(model, item, open));
    } finally {
      clearTimeout(waiting);
      if (turn === state.turn) parts.busy.hidden = true;
    }
    if (!parts.stage.clientWidth) await sized();
    if (turn !== state.turn || model !== state.model) return;
    const before = anchor && state.layout?.boxes.find((box) => box.item === anchor);
    state.layout = layout;
    paint();
    const after = before && layout.boxes.find((box) => box.item === anchor);
    if (after) {
      const zoom = state.cy.zoom();
      state.cy.panBy({ x: (before.x + before.width / 2 - after.x - after.width / 2) * zoom, y: (before.y - after.y) * zoom });
    } else if (fit) first();
    parts.tree.sync();
    marks();
    // The page's own clock of how soon the graph is there.
    if (!parts.stage.dataset.drawn) performance.mark("fusewise-graph-drawn");
    parts.stage.dataset.drawn = model.stage;
  }

  // Resolves when the drawing has a size again: in a tab that is not shown it has none, and nothing can be placed in it.
  const sized = () => new Promise((done) => state.waiting.push(done));

  function paint() {
    const { model, layout, cy } = state;
    const palette = fusewise.graphDraw.colours();
    const places = new Map(layout.boxes.map((box) => [box.item.key, box]));
    cy.startBatch();
    cy.elements().remove();
    cy.add(layout.boxes.map((box) => fusewise.graphDraw.boxElement(model, box, palette, state.heat)));
    fusewise.graphDraw.placeWords(layout.lines);
    cy.add(layout.lines.map((line, k) => fusewise.graphDraw.lineElement(model, line, k, places)));
    cy.style(fusewise.graphDraw.style(palette));
    cy.endBatch();
    const colourOf = (box) => fusewise.graphDraw.face(model, box.item, false, box.width, palette, state.heat)[state.heat ? "fill" : "band"];
    parts.map.show(layout, palette, colourOf);
    parts.legend.replaceChildren(...legend());
    parts.image.setAttribute("aria-label", `Drawing of the graph: ${count(layout.boxes.length)} boxes, ${count(layout.lines.length)} lines. The outline has the same as text.`);
  }

  // Mark what is selected, what its lines are, and what was found.
  function marks() {
    const { model, cy } = state;
    const chosen = new Set(selectedItems());
    if (state.picked && state.model.items.includes(state.picked)) chosen.add(state.picked);
    const seen = new Set([...chosen].map((item) => model.visible(item).key));
    const hits = new Set([...state.hits].map((item) => model.visible(item).key));
    cy.batch(() => {
      cy.elements(".marked, .near, .hit").removeClass("marked near hit");
      for (const key of seen) cy.getElementById(key).addClass("marked").connectedEdges().addClass("near");
      for (const key of hits) cy.getElementById(key).addClass("hit");
    });
    parts.tree.mark(seen, hits);
    tools();
  }

  // The zoom at which all is seen, or the beginning of it where all would be too small to read.
  function first() {
    const { cy, layout } = state;
    cy.resize();
    const whole = Math.min((cy.width() - 24) / layout.width, (cy.height() - 24) / layout.height);
    const zoom = Math.min(1.1, Math.max(whole, READABLE));
    if (!layout.boxes.length) return;
    const start = layout.boxes.reduce((top, box) => (box.y < top.y ? box : top));
    const middle = layout.width * zoom <= cy.width() ? layout.width / 2 : start.x + start.width / 2;
    cy.viewport({ zoom, pan: { x: cy.width() / 2 - middle * zoom, y: layout.height * zoom <= cy.height() ? (cy.height() - layout.height * zoom) / 2 : 12 } });
  }

  function fitAll() {
    state.cy.animate({ fit: { padding: 16 }, duration: still.matches ? 0 : 180 });
  }

  function zoomBy(factor) {
    const { cy } = state;
    cy.zoom({ level: cy.zoom() * factor, renderedPosition: { x: cy.width() / 2, y: cy.height() / 2 } });
  }

  // Bring boxes into sight: nothing moves where they are seen already.
  function reach(items, centre = false) {
    const { cy, model } = state;
    const boxes = cy.collection(items.map((item) => cy.getElementById(model.visible(item).key)).filter((one) => one.nonempty()));
    if (boxes.empty()) return;
    const [box, seen] = [boxes.boundingBox({ includeLabels: false, includeOverlays: false }), cy.extent()];
    if (!centre && box.x1 >= seen.x1 && box.x2 <= seen.x2 && box.y1 >= seen.y1 && box.y2 <= seen.y2) return;
    const fit = Math.min((cy.width() - 40) / box.w, (cy.height() - 40) / box.h);
    const least = items.length > 1 ? 0.15 : Math.min(cy.zoom(), LEGIBLE);
    const zoom = Math.min(Math.max(cy.zoom(), READABLE), Math.max(least, fit), 1.5);
    const tall = box.h * zoom > cy.height() - 40; // what does not fit is shown from its top
    const pan = { x: cy.width() / 2 - (zoom * (box.x1 + box.x2)) / 2, y: tall ? 16 - zoom * box.y1 : cy.height() / 2 - (zoom * (box.y1 + box.y2)) / 2 };
    cy.stop();
    cy.animate({ zoom, pan, duration: still.matches ? 0 : 200 });
  }

  async function toggle(item, open = !item.open) {
    if (!item.children.length || item.open === open) return;
    item.open = open;
    live(`${fusewise.graphDraw.told(state.model, item).title} is ${open ? "open" : "closed"}`);
    await draw({ anchor: item });
    if (open) reach([item]);
  }

  // Open items, outer ones first, as long as the drawing stays within what can be drawn smoothly.
  async function openAll(from = state.model.root.children) {
    let boxes = state.layout.boxes.length;
    let left = 0;
    const waiting = [...from];
    while (waiting.length) {
      const item = waiting.shift();
      if (!item.children.length) continue;
      if (!item.open && boxes + item.children.length > MOST_OPEN) {
        left += 1;
        continue;
      }
      if (!item.open) boxes += item.children.length;
      item.open = true;
      waiting.push(...item.children);
    }
    await draw({ fit: true });
    live(left ? `${count(boxes)} boxes are open; ${count(left)} stay closed, since more would be slow to draw` : "Everything is open");
  }

  async function closeAll() {
    for (const item of state.model.items) item.open = item === state.model.root;
    await draw({ fit: true });
    live("Everything is closed");
  }

  // Open what is closed around a target, have repeats show the copy that it lies in, and bring it to the middle.
  async function reveal(target) {
    if (!state.cy) return;
    if (target.kind === "group" && !state.model.grouped && stages().some((stage) => stage.id === "groups")) await show("groups");
    const items = itemsOf(state.model, target);
    const nodes = nodesFor(state.model, target);
    if (nodes.length) state.model.showCopies(nodes[0]);
    for (const item of items.slice(0, 20)) for (const around of state.model.ancestors(item)) around.open = true;
    await draw();
    reach(items.slice(0, 20), true);
  }

  // Show a stage, with what is selected carried over. The program is shown as the groups that it runs.
  async function show(wanted) {
    const stage = wanted === "program" ? "groups" : wanted;
    if (!state.cy || !stages().some((one) => one.id === stage)) return;
    const changed = state.model?.stage !== stage;
    state.model = modelOf(stage);
    state.picked = null;
    state.hits = new Set();
    for (const input of parts.stages.querySelectorAll("input")) input.checked = input.value === stage;
    if (!changed) return;
    parts.tree.show(state.model);
    const items = selectedItems();
    for (const item of items.slice(0, 20)) for (const around of state.model.ancestors(item)) around.open = true;
    const nodes = fusewise.selected ? nodesFor(state.model, fusewise.selected) : [];
    if (nodes.length) state.model.showCopies(nodes[0]);
    await draw({ fit: true });
    if (items.length) reach(items.slice(0, 20), true);
  }

  // Nodes of the graph that is shown by any of their names: {kind, id, graph}.
  function search(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length || !state.model) return [];
    const fits = (node) => {
      const names = [node.name, node.op, ...(node.origin || []), ...node.outputs].join("\n").toLowerCase();
      return words.every((word) => names.includes(word));
    };
    return state.model.graph.nodes.filter(fits).map((node) => ({ kind: "node", id: node.id, graph: state.model.graphId }));
  }

  function highlight(hits) {
    if (!state.model) return;
    state.hits = new Set(hits.flatMap((hit) => itemsOf(state.model, hit)));
    marks();
  }

  function setHeat(on) {
    state.heat = on;
    paint();
    marks();
  }

  // The repeat that the copy switch is about: the innermost one around what is selected.
  function currentRepeat() {
    const [item] = state.picked ? [state.picked] : selectedItems();
    return item ? [item, ...state.model.ancestors(item)].find((one) => one.kind === "repeat") || null : null;
  }

  function turnCopy(by) {
    const repeat = currentRepeat();
    const item = state.picked || selectedItems()[0];
    repeat.copy = (repeat.copy + by + repeat.times) % repeat.times;
    paint();
    parts.tree.show(state.model);
    parts.tree.sync();
    if (item && targetOf(state.model, item)) pick(item, { centre: false });
    else marks();
    live(`Copy ${repeat.copy + 1} of ${repeat.times}`);
  }

  function tools() {
    const repeat = currentRepeat();
    parts.copy.hidden = !repeat;
    if (repeat) parts.copyText.textContent = `Copy ${repeat.copy + 1} of ${repeat.times}`;
    const item = state.picked || selectedItems()[0];
    const closed = item && [item, ...state.model.ancestors(item)].find((one) => one.children.length);
    parts.turn.disabled = !closed || closed.kind === "root";
    parts.turn.textContent = closed?.open && closed.kind !== "root" ? "Close" : "Open";
    parts.heat.hidden = !fusewise.lookup.timed();
    parts.heat.disabled = !compiled(state.model);
    parts.heat.setAttribute("aria-pressed", String(state.heat));
  }

  function turnSelected() {
    const item = state.picked || selectedItems()[0];
    const found = item && [item, ...state.model.ancestors(item)].find((one) => one.children.length && one.kind !== "root");
    if (!found) return;
    state.picked = found;
    toggle(found);
  }

  function legend() {
    const { MAPPINGS, words } = fusewise.graphDraw;
    const entry = (text, kind, colour) => {
      const sign = el("i", { class: kind, "aria-hidden": "true" });
      if (colour) sign.style.setProperty(kind === "heat" ? "--fill" : "--swatch", `var(${colour})`);
      return el("li", {}, sign, text);
    };
    if (state.heat) return ["under 0.8%", "0.8% to 3%", "3% to 8%", "8% to 20%", "20% and more"].map((text, k) => entry(`${text} of the time`, "heat", `--heat-${k}`));
    const met = new Set(state.layout.boxes.flatMap((box) => fusewise.graphDraw.mappingOf(state.model, box.item) || []));
    return [...MAPPINGS.filter((mapping) => met.has(mapping)).map((mapping) => entry(words(mapping), "", `--map-${mapping.replaceAll("_", "-")}`)), entry("on the host", "host"), entry("repeated", "stack"), el("li", {}, "▸ opens")];
  }

  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { cy } = state;
    const acts = {
      "+": () => zoomBy(1.25),
      "=": () => zoomBy(1.25),
      "-": () => zoomBy(0.8),
      0: fitAll,
      ArrowUp: () => cy.panBy({ x: 0, y: 60 }),
      ArrowDown: () => cy.panBy({ x: 0, y: -60 }),
      ArrowLeft: () => cy.panBy({ x: 60, y: 0 }),
      ArrowRight: () => cy.panBy({ x: -60, y: 0 }),
      Enter: turnSelected,
    };
    if (!acts[event.key]) return;
    acts[event.key]();
    event.preventDefault();
  }

  function tip(event) {
    const { target, renderedPosition } = event;
    const item = state.model.items[Number(target.id().slice(1))];
    const lines = target.isNode() ? fusewise.graphDraw.tipOf(state.model, item) : fusewise.graphDraw.tipOfLine(state.model, target.data("values"));
    parts.tip.replaceChildren(el("b", {}, lines[0]), ...lines.slice(1).map((line) => el("div", {}, line)));
    parts.tip.hidden = false;
    const { clientWidth, clientHeight } = parts.stage;
    parts.tip.style.left = `${Math.max(4, Math.min(renderedPosition.x + 14, clientWidth - parts.tip.offsetWidth - 6))}px`;
    parts.tip.style.top = `${Math.max(4, Math.min(renderedPosition.y + 16, clientHeight - parts.tip.offsetHeight - 6))}px`;
  }

  const hideTip = () => (parts.tip.hidden = true);

  function makeDrawing() {
    const cy = window.cytoscape({ container: parts.drawing, elements: [], style: [], autoungrabify: true, boxSelectionEnabled: false, selectionType: "single", minZoom: 0.03, maxZoom: 3, layout: { name: "preset" }, textureOnViewport: false, hideEdgesOnViewport: false, pixelRatio: "auto" });
    const itemOf = (node) => state.model.items[Number(node.id().slice(1))];
    cy.on("tap", "node", (event) => {
      hideTip();
      const item = itemOf(event.target);
      const box = event.target.boundingBox({ includeLabels: false });
      const onMark = item.children.length && event.position.x - box.x1 < 26 && (!item.open || event.position.y - box.y1 < 32);
      if (onMark) toggle(item);
      else pick(item, { centre: false });
    });
    cy.on("dbltap", "node", (event) => toggle(itemOf(event.target)));
    cy.on("tap", "edge", (event) => {
      state.picked = null;
      fusewise.select?.({ kind: "value", id: event.target.data("values")[0], graph: state.model.graphId });
    });
    cy.on("tap", (event) => {
      if (event.target !== cy) return;
      state.picked = null;
      fusewise.select?.(null);
      marks();
    });
    cy.on("mouseover", "node.closed, edge", tip);
    cy.on("mouseout", "node, edge", hideTip);
    cy.on("viewport", () => {
      parts.map.update();
      hideTip();
    });
    return cy;
  }

  function makeTools() {
    parts.stages = el("div", { class: "graph-stages", role: "radiogroup", "aria-label": "Stage" }, stages().map((stage) => el("label", { title: stage.what || null }, el("input", { type: "radio", name: "graph-stage", value: stage.id, on: { change: () => show(stage.id) } }), el("span", {}, stage.title))));
    parts.turn = button("Open", turnSelected, { title: "Open or close what is selected (Enter, or double click)" });
    parts.heat = button("Heat", () => setHeat(!state.heat), { "aria-pressed": "false", title: "Colour by share of the time" });
    parts.copyText = el("span", { class: "graph-copy" });
    parts.copy = el("div", { class: "graph-copies", hidden: true }, button("‹", () => turnCopy(-1), { "aria-label": "Copy before" }), parts.copyText, button("›", () => turnCopy(1), { "aria-label": "Next copy" }));
    const sizes = el("div", { class: "row", role: "group", "aria-label": "Zoom" }, button("−", () => zoomBy(0.8), { class: "sign", "aria-label": "Zoom out" }), button("+", () => zoomBy(1.25), { class: "sign", "aria-label": "Zoom in" }), button("Fit", fitAll));
    const folds = el("div", { class: "row" }, parts.turn, button("Open all", () => openAll()), button("Close all", closeAll));
    return el("div", { class: "graph-tools" }, parts.stages, folds, sizes, parts.heat);
  }

  async function mount(element) {
    if (state.cy || !stages().length) return;
    fusewise.graphLayout.warm();
    parts.drawing = el("div", { class: "graph-drawing" });
    parts.image = el("div", { role: "img", "aria-label": "Drawing of the graph" }, parts.drawing);
    const map = el("canvas", { class: "graph-map", "aria-hidden": "true" });
    parts.legend = el("ul", {});
    parts.tip = el("div", { class: "graph-tip", "aria-hidden": "true", hidden: true });
    parts.busy = el("div", { class: "graph-busy", hidden: true }, "Laying out");
    const bar = makeTools();
    const help = "The drawing. Arrow keys move it, + and - zoom, 0 fits, Enter opens or closes what is selected.";
    parts.stage = el("div", { class: "graph-stage", tabindex: "0", role: "group", "aria-label": help, on: { keydown: pressed } }, parts.image, el("details", { class: "graph-legend" }, el("summary", {}, "Legend"), parts.legend), map, parts.copy, parts.tip, parts.busy);
    const outline = el("div", { class: "graph-outline" });
    element.append(el("div", { class: "graph" }, bar, outline, parts.stage));
    parts.tree = fusewise.graphTree.make(outline, { toggle, pick, toggleAll: openAll });
    state.cy = makeDrawing();
    parts.map = fusewise.graphMap.make(
      map,
      () => {
        const seen = state.cy.extent();
        return { x: seen.x1, y: seen.y1, width: seen.w, height: seen.h };
      },
      (point) => state.cy.pan({ x: state.cy.width() / 2 - point.x * state.cy.zoom(), y: state.cy.height() / 2 - point.y * state.cy.zoom() }),
    );
    document.addEventListener("fusewise-select", selectedElsewhere);
    document.addEventListener("fusewise-theme", async () => {
      if (!parts.stage.clientWidth) await sized();
      if (state.layout) (paint(), marks());
    });
    new ResizeObserver(resized).observe(parts.stage);
    fusewise.graph.drawing = state.cy;
    const ids = stages().map((stage) => stage.id);
    const target = fusewise.selected?.kind === "node" ? fusewise.selected.graph : null;
    await show(ids.includes(target) && target !== fusewise.lookup.compiled() ? target : ids.includes("groups") ? "groups" : ids.at(-1));
  }

  // What was in the middle stays there.
  function resized() {
    const { cy, waiting } = state;
    if (!parts.stage.clientWidth) return;
    const before = [cy.width(), cy.height()];
    cy.resize();
    if (before[0] && cy.width()) cy.panBy({ x: (cy.width() - before[0]) / 2, y: (cy.height() - before[1]) / 2 });
    for (const go of waiting.splice(0)) go();
  }

  async function selectedElsewhere() {
    if (!state.layout) return;
    if (!state.own) state.picked = null;
    const items = selectedItems();
    if (!state.own && items.length && parts.stage.offsetParent) {
      const nodes = nodesFor(state.model, fusewise.selected);
      const turned = nodes.length && state.model.showCopies(nodes[0]);
      const closed = [...state.model.ancestors(items[0])].filter((one) => !one.open);
      for (const one of closed) one.open = true;
      if (closed.length || turned) await draw();
      reach(items.slice(0, 20));
    }
    marks();
  }

  fusewise.graph = { mount, show, reveal, search, highlight };
})();

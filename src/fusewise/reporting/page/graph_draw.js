// How boxes and lines look: words, colours and elements for Cytoscape. What Cytoscape gets of names is text only.
(() => {
  "use strict";
  const fusewise = (window.fusewise = window.fusewise || {});
  const { count, ms, percent, bytes, shown } = fusewise.dom;
  const FAMILY = "system-ui, Segoe UI, Roboto, Helvetica Neue, Noto Sans, sans-serif";
  const FONT = `12px ${FAMILY}`;
  const HEIGHT = 46;
  const WIDEST = 232;
  const MAPPINGS = ["one_to_one", "one_to_many", "many_to_many", "reorganize", "shuffle", "opaque"];
  const LETTERS = document.createElement("canvas").getContext("2d");
  const widths = new Map();

  function widthOf(text) {
    if (!widths.has(text)) {
      if (widths.size > 20000) widths.clear();
      LETTERS.font = FONT;
      widths.set(text, LETTERS.measureText(text).width);
    }
    return widths.get(text);
  }

  // Text that fits, with an ellipsis where it was longer.
  function fitted(text, room) {
    const whole = shown(text).slice(0, 200);
    if (widthOf(whole) <= room) return whole;
    let [low, high] = [0, whole.length];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (widthOf(`${whole.slice(0, middle)}…`) <= room) low = middle;
      else high = middle - 1;
    }
    return `${whole.slice(0, low)}…`;
  }

  const words = (mapping) => (mapping || "").replaceAll("_", " ");
  const operators = (number) => `${count(number)} ${number === 1 ? "operator" : "operators"}`;
  const nodeOf = (model, item) => model.graph.nodes[model.shownNode(item)];
  const groupOf = (model, item) => fusewise.index.groups.get(model.shownGroup(item));
  const spaced = (title) => title.replaceAll("+", " + ");

  function mappingOf(model, item) {
    if (item.kind === "node") return nodeOf(model, item).mapping;
    if (item.kind === "group") return groupOf(model, item)?.mapping;
    return null;
  }

  // Does an item run on the host? A group does where any of its steps does.
  function hosted(model, item) {
    if (item.kind === "node") return nodeOf(model, item).runs === "host";
    if (item.kind !== "group") return false;
    return model.nodesOf(item).some((id) => model.graph.nodes[id].runs === "host");
  }

  // Its title and what stands below it, in full.
  function told(model, item) {
    if (item.kind === "node") {
      const node = nodeOf(model, item);
      return { title: node.domain ? `${node.domain}.${node.op}` : node.op, name: node.name, about: [hosted(model, item) && "host", words(node.mapping)] };
    }
    if (item.kind === "group") {
      const group = groupOf(model, item);
      return { title: spaced(group?.title || item.title), name: group ? `group ${group.id}, ${operators(group.nodes.length)}` : "", about: [hosted(model, item) && "host", words(group?.mapping)] };
    }
    if (item.kind === "input" || item.kind === "output") {
      const type = item.values.length === 1 ? model.graph.values[item.values[0]]?.type || "" : "";
      return { title: item.title, name: item.kind, about: [`${item.kind}${type ? ` ${type}` : ""}`] };
    }
    if (item.kind === "repeat") return { title: `${item.title}`, name: `repeated ${item.times} times`, about: [`×${item.times}`, `${operators(item.count / item.times)} each`] };
    return { title: item.title, name: "", about: [operators(item.count)] };
  }

  // ms of an item by the groups of its nodes, all copies counted; null where nothing was measured.
  function timeOf(model, item) {
    if (!fusewise.lookup.timed() || model.graphId !== fusewise.lookup.compiled()) return null;
    if (item.ms === undefined) {
      const groups = new Set(allNodes(model, item).map((id) => model.graph.nodes[id].group));
      item.ms = [...groups].reduce((sum, id) => sum + (fusewise.lookup.groupMs(id) || 0), 0);
    }
    return item.ms;
  }

  // All nodes that an item stands for; an item inside a repeat stands for those of every copy.
  function allNodes(model, item) {
    let found = item.kind === "repeat" ? item.copies.flat() : model.nodesOf(item, true);
    for (const around of model.ancestors(item)) {
      if (around.kind === "repeat") found = around.copies.flatMap((copy) => found.map((id) => copy[around.where.get(id)[1]]));
    }
    return found;
  }

  function totalTime() {
    const timed = fusewise.lookup.timed();
    return (timed?.groups || []).reduce((sum, row) => sum + (row.ms || 0), 0) || timed?.ms || 0;
  }

  function measure(model, item, open = false) {
    const { title, about } = told(model, item);
    const first = widthOf(shown(title).slice(0, 200)) + (item.children.length ? 16 : 0);
    const timed = timeOf(model, item) ? widthOf(`${item.kind === "repeat" ? "×88 · " : ""}888 ms · 88.8%`) : 0;
    const below = Math.max(timed, widthOf(about.filter(Boolean).join(" · ")));
    if (open) return { width: Math.min(WIDEST + 90, first + 76 + below), height: 0 };
    const width = Math.max(first, below);
    return { width: Math.round(Math.max(92, Math.min(WIDEST, width + 34))), height: item.kind === "input" || item.kind === "output" ? 40 : HEIGHT };
  }

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    const found = { ink: read("--ink"), soft: read("--soft"), box: read("--box"), raised: read("--raised"), accent: read("--accent"), line: read("--graph-line"), back: read("--graph-back"), open: read("--graph-open"), openLine: read("--graph-open-line"), hit: read("--graph-hit"), none: read("--map-none") };
    for (const mapping of MAPPINGS) found[mapping] = read(`--map-${mapping.replaceAll("_", "-")}`);
    found.heat = [0, 1, 2, 3, 4].map((k) => read(`--heat-${k}`));
    return found;
  }

  const heatStep = (share) => (share >= 0.2 ? 4 : share >= 0.08 ? 3 : share >= 0.03 ? 2 : share >= 0.008 ? 1 : 0);

  // What a box shows: words, its band and its fill.
  function face(model, item, open, width, palette, heat) {
    const { title, about } = told(model, item);
    const mark = item.children.length ? (open ? "▾ " : "▸ ") : "";
    const lines = about.filter(Boolean);
    let fill = item.kind === "scope" || item.kind === "repeat" ? palette.raised : palette.box;
    const time = heat && !["input", "output"].includes(item.kind) ? timeOf(model, item) : null;
    if (time !== null) {
      const share = time / (totalTime() || 1);
      lines.splice(0, lines.length, `${item.kind === "repeat" ? `×${item.times} · ` : ""}${fusewise.lookup.isEstimate() ? "est. " : ""}${ms(time)} · ${percent(share)}`);
      fill = palette.heat[heatStep(share)];
    }
    const label = open ? `${fitted(mark + title, width - 40)}  ${fitted(lines.join(" · "), Math.max(0, width - 60 - widthOf(fitted(mark + title, width - 40))))}` : `${fitted(mark + title, width - 22)}\n${fitted(lines.join(" · "), width - 22)}`;
    return { label, fill: open ? palette.open : fill, band: palette[mappingOf(model, item)] || (item.kind === "scope" || item.kind === "repeat" ? palette.line : palette.none), shift: open ? -width / 2 + widthOf(label) / 2 + 12 : 0 };
  }

  function boxElement(model, box, palette, heat) {
    const { item, open, width, height } = box;
    const data = { id: item.key, w: width, h: height, ...face(model, item, open, width, palette, heat), depth: item.depth };
    const classes = [item.kind, open ? "open" : "closed", hosted(model, item) ? "host" : ""].filter(Boolean).join(" ");
    return { group: "nodes", pannable: true, grabbable: false, data, position: { x: box.x + width / 2, y: box.y + height / 2 }, classes };
  }

  function shapeOf(type) {
    const found = /\[(.*)\]/.exec(type || "");
    return found ? found[1].replaceAll(",", "×") || "scalar" : type || "";
  }

  // Where each line says its tensor: at its beginning, once for all lines that begin in one box and carry the same. Where they carry
  // different ones, at its end; midway where others end there, too.
  function placeWords(lines) {
    const kinds = new Map();
    const ends = new Map();
    for (const line of lines) {
      const carried = line.values.join("\n");
      if (!kinds.has(line.from)) kinds.set(line.from, new Set());
      const met = kinds.get(line.from);
      line.told = met.has(carried) ? "untold" : "told-once";
      met.add(carried);
      ends.set(line.to, (ends.get(line.to) || 0) + 1);
    }
    for (const line of lines) {
      if (line.told === "told-once" && kinds.get(line.from).size > 1) line.told = ends.get(line.to) > 1 ? "told-midway" : "told-at-end";
    }
  }

  // A line through points as Cytoscape takes it: ends from the middles of boxes, bends by how far along and beside the straight way.
  function lineElement(model, line, k, places) {
    const { points, values, from, to, told: place } = line;
    const [a, b] = [points[0], points.at(-1)];
    const [dx, dy] = [b.x - a.x, b.y - a.y];
    const length = Math.hypot(dx, dy) || 1;
    const weights = [];
    const distances = [];
    for (const point of points.slice(1, -1)) {
      weights.push((((point.x - a.x) * dx + (point.y - a.y) * dy) / (length * length)).toFixed(5));
      distances.push((((point.x - a.x) * -dy + (point.y - a.y) * dx) / length).toFixed(2));
    }
    const middle = (key) => ({ x: places.get(key).x + places.get(key).width / 2, y: places.get(key).y + places.get(key).height / 2 });
    const [s, t] = [middle(from.key), middle(to.key)];
    const type = model.graph.values[values[0]]?.type;
    const text = values.length === 1 ? shapeOf(type) : `${values.length} tensors`;
    return {
      group: "edges",
      data: {
        id: `l${k}`,
        source: from.key,
        target: to.key,
        values,
        label: fitted(text, 160),
        reach: Math.round(Math.min(18, length / 2)),
        start: `${(a.x - s.x).toFixed(2)}px ${(a.y - s.y).toFixed(2)}px`,
        end: `${(b.x - t.x).toFixed(2)}px ${(b.y - t.y).toFixed(2)}px`,
        weights: weights.join(" "),
        distances: distances.join(" "),
      },
      classes: `${weights.length ? "bent" : "straight"} ${place}`,
    };
  }

  function style(palette) {
    return [
      {
        selector: "node",
        style: {
          shape: "round-rectangle",
          "corner-radius": 6,
          width: "data(w)",
          height: "data(h)",
          label: "data(label)",
          "font-family": FAMILY,
          "font-size": 12,
          "line-height": 1.35,
          color: palette.ink,
          "text-wrap": "wrap",
          "text-max-width": 400,
          "text-valign": "center",
          "text-halign": "center",
          "min-zoomed-font-size": 5,
          "background-color": "data(fill)",
          "border-width": 1,
          "border-color": palette.line,
          "overlay-opacity": 0,
          "z-index-compare": "manual",
          "z-index": 1000,
        },
      },
      {
        selector: "node.node, node.group.closed",
        style: {
          "background-fill": "linear-gradient",
          "background-gradient-direction": "to-right",
          "background-gradient-stop-colors": (node) => `${node.data("band")} ${node.data("band")} ${node.data("fill")} ${node.data("fill")}`,
          "background-gradient-stop-positions": (node) => `0% ${(500 / node.data("w")).toFixed(2)}% ${(500 / node.data("w")).toFixed(2)}% 100%`,
        },
      },
      { selector: "node.repeat.closed", style: { "border-style": "double", "border-width": 4 } },
      { selector: "node.host", style: { "border-style": "dashed", "border-width": 2 } },
      { selector: "node.input, node.output", style: { "corner-radius": 20, "background-color": palette.back, "border-style": "solid", color: palette.ink } },
      {
        selector: "node.open",
        style: { "background-color": palette.open, "background-fill": "solid", "border-color": palette.openLine, "text-valign": "top", "text-halign": "center", "text-margin-y": 25, "text-margin-x": "data(shift)", "text-wrap": "none", "z-index": "data(depth)", color: palette.soft },
      },
      { selector: "node.group.open", style: { "border-color": "data(band)" } },
      {
        selector: "edge",
        style: {
          width: 1.4,
          "line-color": palette.line,
          "target-arrow-color": palette.line,
          "target-arrow-shape": "triangle",
          "arrow-scale": 0.8,
          "curve-style": "straight",
          "source-endpoint": "data(start)",
          "target-endpoint": "data(end)",
          "font-family": FAMILY,
          "font-size": 10,
          "min-zoomed-font-size": 8,
          color: palette.soft,
          "text-background-color": palette.back,
          "text-background-opacity": 0.9,
          "text-background-padding": 1.5,
          "overlay-opacity": 0,
          "z-index-compare": "manual",
          "z-index": 900,
        },
      },
      { selector: "edge.bent", style: { "curve-style": "round-segments", "segment-weights": "data(weights)", "segment-distances": "data(distances)", "segment-radii": 6, "edge-distances": "endpoints" } },
      { selector: "edge.told-once", style: { "source-label": "data(label)", "source-text-offset": "data(reach)" } },
      { selector: "edge.told-at-end", style: { "target-label": "data(label)", "target-text-offset": "data(reach)" } },
      { selector: "edge.told-midway", style: { label: "data(label)" } },
      { selector: "node.hit", style: { "border-color": palette.hit, "border-width": 3 } },
      { selector: "node.marked", style: { "border-color": palette.accent, "border-width": 3, "border-style": "solid" } },
      { selector: "edge.near", style: { width: 2.4, "line-color": palette.accent, "target-arrow-color": palette.accent, color: palette.ink, "z-index": 950 } },
    ];
  }

  // Words for a pointer that rests on a box, or a line.
  function tipOf(model, item) {
    const { title, name, about } = told(model, item);
    const lines = [title, name, about.filter(Boolean).join(", ")];
    const time = timeOf(model, item);
    if (time) lines.push(`${ms(time)}, ${percent(time / (totalTime() || 1))} of the run`);
    return lines.filter(Boolean);
  }

  function tipOfLine(model, values) {
    const one = model.graph.values[values[0]];
    if (values.length > 1) return [`${values.length} tensors`, values.slice(0, 6).join(", ") + (values.length > 6 ? ", ..." : "")];
    return [values[0], one?.type, one?.bytes ? bytes(one.bytes) : null].filter(Boolean);
  }

  fusewise.graphDraw = { MAPPINGS, words, told, timeOf, totalTime, measure, colours, face, boxElement, placeWords, lineElement, style, mappingOf, hosted, tipOf, tipOfLine, operators };
})();

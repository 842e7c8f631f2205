// Where boxes lie: every level is laid out by ELK for itself, in a worker, from the inside out, and kept. Values that cross the
// border of an open box do so at ports, so that a line is laid level by level.
(() => {
  "use strict";
  const fusewise = (window.fusewise = window.fusewise || {});
  const HEAD = 34;
  const LARGE = 30;
  const MOST_KEPT = 400;
  let engine = null;

  // The worker is made once, of the text that is packed in the page.
  async function elk() {
    if (!engine) {
      engine = (async () => {
        const address = URL.createObjectURL(new Blob([await fusewise.text("elk-worker.min.js")], { type: "text/javascript" }));
        return new window.ELK({ workerUrl: address });
      })();
    }
    return engine;
  }

  function optionsFor(boxes, lines) {
    const large = boxes > LARGE || lines > 3 * LARGE;
    return {
      "elk.algorithm": "layered",
      "elk.direction": "DOWN",
      "elk.edgeRouting": "ORTHOGONAL",
      "elk.layered.mergeEdges": "true",
      "elk.spacing.nodeNode": "26",
      "elk.spacing.edgeNode": "16",
      "elk.spacing.edgeEdge": "10",
      "elk.layered.spacing.nodeNodeBetweenLayers": "34",
      "elk.layered.spacing.edgeNodeBetweenLayers": "14",
      "elk.layered.spacing.edgeEdgeBetweenLayers": "10",
      "elk.layered.considerModelOrder.strategy": "NODES_AND_EDGES",
      "elk.layered.nodePlacement.strategy": large ? "BRANDES_KOEPF" : "NETWORK_SIMPLEX",
      "elk.layered.thoroughness": large ? "3" : "7",
      "elk.separateConnectedComponents": "false",
    };
  }

  // For every wire its course: the segments that it consists of, each {level: item, from, to}. Ends are the key of a box, or of a port
  // ("key<number" where a value goes into an open box, "key>number" where it leaves one).
  function course(model, wire) {
    const from = model.visible(wire.from);
    const to = model.visible(wire.to);
    if (from === to) return null;
    const outer = new Set(model.ancestors(to));
    const meeting = model.ancestors(from).find((one) => outer.has(one));
    const segments = [];
    let end = from.key;
    for (let level = from.parent; level !== meeting; level = level.parent) {
      segments.push({ level, from: end, to: `${level.key}>${wire.number}` });
      end = `${level.key}>${wire.number}`;
    }
    const inwards = [];
    let target = to.key;
    for (let level = to.parent; level !== meeting; level = level.parent) {
      inwards.unshift({ level, from: `${level.key}<${wire.number}`, to: target });
      target = `${level.key}<${wire.number}`;
    }
    return { from, to, segments: [...segments, { level: meeting, from: end, to: target }, ...inwards] };
  }

  // Lines that are drawn: one for each pair of boxes on one level, one for each value where a border is crossed.
  function linesOf(model) {
    const lines = new Map();
    for (const wire of model.wires) {
      const found = course(model, wire);
      if (!found) continue;
      const key = found.segments.length === 1 ? `${found.from.key} ${found.to.key}` : `${found.from.key} ${found.to.key} ${wire.number}`;
      const line = lines.get(key);
      if (line) line.values.includes(wire.value) || line.values.push(wire.value);
      else lines.set(key, { ...found, values: [wire.value] });
    }
    return [...lines.values()];
  }

  // What is to be laid out of a level, as ELK takes it. Names of the model stay out of it: ends are numbered.
  function task(item, model, segments, sizes) {
    const ids = new Map();
    const id = (end) => ids.get(end) ?? (ids.set(end, `e${ids.size}`), ids.get(end));
    const children = item.children.map((child) => {
      const size = sizes.get(child);
      const box = { id: id(child.key), width: size.width, height: size.height };
      if (size.ports?.length) {
        box.ports = size.ports.map((port) => ({ id: id(port.end), x: port.x, y: port.y, width: 0, height: 0, layoutOptions: { "elk.port.side": port.side } }));
        box.layoutOptions = { "elk.portConstraints": "FIXED_POS" };
      }
      return box;
    });
    const own = new Set();
    for (const { from, to } of segments) for (const end of [from, to]) if (end.startsWith(`${item.key}<`) || end.startsWith(`${item.key}>`)) own.add(end);
    const ports = [...own].map((end) => ({ id: id(end), width: 0, height: 0, layoutOptions: { "elk.port.side": end[item.key.length] === "<" ? "NORTH" : "SOUTH" } }));
    const edges = segments.map(({ from, to }, k) => ({ id: `s${k}`, sources: [id(from)], targets: [id(to)] }));
    const layoutOptions = { ...optionsFor(children.length, edges.length), "elk.padding": item.parent ? `[top=${HEAD + 8},left=16,bottom=16,right=16]` : "[top=20,left=20,bottom=20,right=20]" };
    if (ports.length) layoutOptions["elk.portConstraints"] = "FIXED_SIDE";
    // ELK lays ports out at the border of a box, not at that of the whole.
    const level = { id: "level", layoutOptions, children, edges, ports };
    return { ids, graph: { id: "whole", layoutOptions: { "elk.algorithm": "fixed" }, children: [level] } };
  }

  function answer({ ids }, whole, item, segments) {
    const [result] = whole.children;
    const ends = new Map([...ids].map(([end, id]) => [id, end]));
    const places = new Map(result.children.map((child) => [ends.get(child.id), { x: child.x, y: child.y }]));
    const ports = (result.ports || []).map((port) => ({ end: ends.get(port.id), x: port.x, y: port.y, side: ends.get(port.id)[item.key.length] === "<" ? "NORTH" : "SOUTH" }));
    const courses = new Map();
    result.edges.forEach((edge, k) => {
      const section = edge.sections?.[0];
      if (section) courses.set(`${segments[k].from} ${segments[k].to}`, [section.startPoint, ...(section.bendPoints || []), section.endPoint]);
    });
    return { width: result.width, height: result.height, places, ports, courses };
  }

  // Which boxes inside an item are open, as text: what its layout depends on.
  function signature(model, item) {
    return model.isOpen(item) ? `(${item.children.map((child, k) => (model.isOpen(child) ? k + signature(model, child) : "")).join("")})` : "";
  }

  // Lay out what is visible. Gives {boxes: [{item, x, y, width, height, open}], lines: [{..., points}], width, height}.
  async function arrange(model, measure) {
    const lines = linesOf(model);
    const byLevel = new Map();
    for (const line of lines) {
      for (const segment of line.segments) {
        const found = byLevel.get(segment.level) || byLevel.set(segment.level, new Map()).get(segment.level);
        found.set(`${segment.from} ${segment.to}`, segment);
      }
    }
    model.kept = model.kept || new Map();
    const sizes = new Map();
    async function level(item) {
      await Promise.all(item.children.map(async (child) => sizes.set(child, model.isOpen(child) ? await level(child) : measure(child))));
      const key = item.key + signature(model, item);
      if (!model.kept.has(key)) {
        const segments = [...(byLevel.get(item)?.values() || [])];
        const asked = task(item, model, segments, sizes);
        const result = await (await elk()).layout(asked.graph);
        const found = answer(asked, result, item, segments);
        if (item.parent) found.width = Math.max(found.width, measure(item, true).width);
        if (model.kept.size > MOST_KEPT) model.kept.clear();
        model.kept.set(key, found);
      }
      return model.kept.get(key);
    }
    const whole = await level(model.root);
    return placed(model, whole, sizes, lines);
  }

  // From places within levels to places in the drawing.
  function placed(model, whole, sizes, lines) {
    const boxes = [];
    const origin = new Map([[model.root, { x: 0, y: 0 }]]);
    function place(item, layout) {
      const base = origin.get(item);
      for (const child of item.children) {
        const at = layout.places.get(child.key);
        const size = sizes.get(child);
        const open = model.isOpen(child);
        const box = { item: child, x: base.x + at.x, y: base.y + at.y, width: size.width, height: size.height, open };
        origin.set(child, box);
        boxes.push(box);
        if (open) place(child, size);
      }
    }
    place(model.root, whole);
    const layoutOf = (item) => (item === model.root ? whole : sizes.get(item));
    for (const line of lines) {
      line.points = [];
      for (const { level, from, to } of line.segments) {
        const base = origin.get(level);
        for (const point of layoutOf(level).courses.get(`${from} ${to}`) || []) line.points.push({ x: base.x + point.x, y: base.y + point.y });
      }
      line.points = bends(line.points);
    }
    return { boxes, lines: lines.filter((line) => line.points.length > 1), width: whole.width, height: whole.height };
  }

  // Points without those that lie on a straight way.
  function bends(points) {
    const near = (a, b) => Math.abs(a - b) < 0.5;
    const found = [];
    for (const point of points) {
      const [before, last] = [found.at(-2), found.at(-1)];
      if (last && near(last.x, point.x) && near(last.y, point.y)) continue;
      if (before && ((near(before.x, last.x) && near(last.x, point.x)) || (near(before.y, last.y) && near(last.y, point.y)))) found.pop();
      found.push(point);
    }
    return found;
  }

  fusewise.graphLayout = { arrange, HEAD, warm: elk };
})();

// What the parts about single verbs have in common: figures, words, small drawings of a few nodes.
(() => {
  "use strict";
  const fusewise = window.fusewise;
  const { el, count, copyButton, name } = fusewise.dom;
  let elk = null;
  let drawn = 0;

  // Rows of [name, value, note]: the figures at the head of a part.
  function figures(rows) {
    const kept = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
    return el(
      "dl",
      { class: "figures" },
      kept.map(([term, value, note]) =>
        el("div", {}, el("dt", {}, term), el("dd", {}, el("b", {}, value), note ? el("span", {}, note) : null)),
      ),
    );
  }

  const card = (title, ...children) => el("section", { class: "card wide" }, el("h3", {}, title), children);
  const paragraph = (...children) => el("p", {}, children);
  const soft = (...children) => el("p", { class: "soft" }, children);
  const list = (rows) =>
    rows.length
      ? el(
          "ul",
          {},
          rows.map((row) => el("li", {}, row)),
        )
      : null;

  // Words of a command line that can be taken along; nothing where there are none.
  const option = (words) =>
    words ? el("span", { class: "option" }, el("code", {}, words), copyButton(words)) : el("span", { class: "soft" }, "none");

  const number = (value) =>
    value === null || value === undefined
      ? ""
      : Number.isInteger(value)
        ? count(value)
        : Math.abs(value) >= 1000
          ? count(value)
          : Number(value.toPrecision(4)).toString();
  const tiny = (value) => (value === null || value === undefined ? "" : value === 0 ? "0" : value.toExponential(1));
  const names = (found, most = 3) => [
    found.slice(0, most).map((one, k) => [k ? ", " : "", name(one)]),
    found.length > most ? ` and ${count(found.length - most)} more` : "",
  ];

  // A value on a scale that ends at `most`, with a mark where the limit is; for the eye only.
  function gauge(value, most, limit = null) {
    const inner = el("span", { class: limit !== null && value >= limit ? "over" : null });
    inner.style.width = `${most > 0 ? Math.max(0, Math.min(1, value / most)) * 100 : 0}%`;
    const box = el("span", { class: "gauge", "aria-hidden": "true" }, inner);
    if (limit !== null && most > 0 && limit <= most) {
      const at = el("i");
      at.style.left = `${(limit / most) * 100}%`;
      box.append(at);
    }
    return box;
  }

  async function layouter() {
    if (!elk) {
      await fusewise.load("elk-api.js");
      const source = await fusewise.text("elk-worker.min.js");
      const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
      elk = new window.ELK({ workerFactory: () => new Worker(address) });
    }
    return elk;
  }

  const SVG = "http://www.w3.org/2000/svg";
  function shape(tag, attributes, text) {
    const made = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = fusewise.dom.shown(text);
    return made;
  }

  const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, most / 2 - 1)}…${text.slice(-(most / 2))}`);

  // Nodes as boxes and what flows between them, placed by ELK. A node is {name, op, inputs, outputs, mark}; `types` of values are on hover.
  async function drawing(nodes, { label, types = {} }) {
    const producer = new Map();
    nodes.forEach((node, k) => node.outputs.forEach((value) => producer.set(value, k)));
    const edges = [];
    nodes.forEach((node, k) => {
      for (const value of new Set(node.inputs))
        if (producer.has(value) && producer.get(value) !== k) edges.push({ from: producer.get(value), to: k, value });
    });
    const children = nodes.map((_, k) => ({ id: `n${k}`, width: 190, height: 42 }));
    const graph = {
      id: "root",
      layoutOptions: {
        "elk.algorithm": "layered",
        "elk.direction": "DOWN",
        "elk.spacing.nodeNode": "16",
        "elk.layered.spacing.nodeNodeBetweenLayers": "26",
        "elk.padding": "[top=6,left=6,bottom=6,right=6]",
      },
      children,
    };
    graph.edges = edges.map((edge, k) => ({ id: `e${k}`, sources: [`n${edge.from}`], targets: [`n${edge.to}`] }));
    const placed = await (await layouter()).layout(graph);
    const picture = shape("svg", {
      viewBox: `0 0 ${placed.width} ${placed.height}`,
      width: placed.width,
      height: placed.height,
      role: "img",
      "aria-label": fusewise.dom.shown(label),
      class: "nodes",
    });
    const arrow = `arrow${(drawn += 1)}`;
    const marker = shape("marker", {
      id: arrow,
      viewBox: "0 0 8 8",
      refX: 7,
      refY: 4,
      markerWidth: 7,
      markerHeight: 7,
      orient: "auto",
    });
    marker.append(shape("path", { d: "M0 0L8 4L0 8z", class: "head" }));
    picture.append(marker);
    for (const [k, edge] of placed.edges.entries()) {
      for (const part of edge.sections || []) {
        const points = [part.startPoint, ...(part.bendPoints || []), part.endPoint];
        const line = shape("polyline", {
          points: points.map((at) => `${at.x},${at.y}`).join(" "),
          class: "edge",
          "marker-end": `url(#${arrow})`,
        });
        const { value } = edges[k];
        line.append(shape("title", {}, types[value] ? `${value}: ${types[value]}` : value));
        picture.append(line);
      }
    }
    placed.children.forEach((at, k) => {
      const node = nodes[k];
      const box = shape("g", { class: `box ${node.mark || ""}`, transform: `translate(${at.x} ${at.y})` });
      box.append(
        shape(
          "title",
          {},
          `${node.op} ${node.name}${node.outputs.map((value) => (types[value] ? `\n${value}: ${types[value]}` : "")).join("")}`,
        ),
      );
      box.append(shape("rect", { width: at.width, height: at.height, rx: 5 }));
      box.append(shape("text", { x: 10, y: 17, class: "op" }, cut(node.op, 24)));
      box.append(shape("text", { x: 10, y: 33, class: "soft" }, cut(node.name, 28)));
      picture.append(box);
    });
    return el("div", { class: "scroll drawing", tabindex: "0", role: "region", "aria-label": label }, picture);
  }

  fusewise.parts = { figures, card, paragraph, soft, list, option, number, tiny, names, gauge, drawing };
})();

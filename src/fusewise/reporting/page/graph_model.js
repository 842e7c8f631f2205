// The graph as boxes: the outline of a stage as a tree of items, what is open in it, and which values go from box to box.
(() => {
  "use strict";
  const fusewise = (window.fusewise = window.fusewise || {});
  const MOST_TERMINALS = 16;
  const MOST_BOXES = 120;

  // The graph of a stage, and whether its groups are boxes.
  function stageOf(id) {
    const stages = fusewise.document.stages || [];
    const stage = stages.find((one) => one.id === id);
    const name = stage?.graph ?? (id === "written" || id === "clean" ? id : "native");
    return { id, graph: name, grouped: id === "groups" || id === "program" };
  }

  class Model {
    constructor(id) {
      const stage = stageOf(id);
      this.stage = id;
      this.graphId = stage.graph;
      this.graph = fusewise.document.graphs[stage.graph];
      this.grouped = stage.grouped;
      this.items = [];
      this.home = []; // node in a first copy to its leaf
      this.first = []; // node to the node of the first copies that stands for it
      this.root = this.add({ kind: "root", title: "" }, null);
      const outline = this.graph.outline?.length ? this.graph.outline : this.graph.nodes.map((node) => ({ kind: "node", title: node.name, node: node.id }));
      this.grow(outline, this.root);
      this.countNodes(this.root);
      this.root.open = true;
      this.owner = new Map(); // group to its item
      for (const item of this.items) if (item.kind === "group") this.owner.set(item.group, item);
      this.wire();
    }

    add(told, parent) {
      const item = { ...told, key: `b${this.items.length}`, parent, children: [], depth: parent ? parent.depth + 1 : 0, open: false, copy: 0 };
      this.items.push(item);
      if (parent) parent.children.push(item);
      return item;
    }

    // Where groups are no boxes of their own, their nodes stand in their place, as long as the level can be read.
    grow(outline, parent) {
      const size = outline.reduce((sum, one) => sum + (one.kind === "group" ? one.children.length : 1), 0);
      const whole = this.grouped || size > MOST_BOXES;
      for (const one of outline) {
        if (one.kind === "group" && !whole) {
          this.grow(one.children, parent);
          continue;
        }
        const item = this.add({ kind: one.kind, title: one.title, node: one.node, group: one.group, times: one.times, copies: one.copies }, parent);
        if (one.kind === "node") this.leaf(one.node, item);
        else if (one.kind === "group" && one.children.length === 1) this.leaf(one.children[0].node, item);
        else this.grow(one.children, item);
        if (one.kind === "repeat") this.fold(item);
      }
    }

    leaf(node, item) {
      item.node = node;
      this.home[node] = item;
      this.first[node] = node;
    }

    // The nodes of other copies are drawn where those of the first are; inner repeats have been folded before.
    fold(item) {
      item.where = new Map();
      item.copies.forEach((copy, j) => copy.forEach((node, k) => item.where.set(node, [j, k])));
      item.copies.slice(1).forEach((copy) => copy.forEach((node, k) => (this.first[node] = this.first[item.copies[0][k]])));
    }

    // How many nodes an item stands for, those of all copies included.
    countNodes(item) {
      item.count = item.children.length ? item.children.reduce((sum, child) => sum + this.countNodes(child), 0) * (item.times || 1) : 1;
      return item.count;
    }

    leafOf(node) {
      return this.home[this.first[node]];
    }

    ancestors(item) {
      const found = [];
      for (let one = item.parent; one; one = one.parent) found.push(one);
      return found;
    }

    // The repeats around a node, from the outside in, with the copy that it lies in.
    instances(node) {
      const around = this.ancestors(this.leafOf(node)).filter((one) => one.kind === "repeat").reverse();
      const found = [];
      for (const item of around) {
        const [copy, place] = item.where.get(node);
        found.push([item, copy]);
        node = item.copies[0][place];
      }
      return found;
    }

    // The node that a leaf shows, by the copies that its repeats show.
    shownNode(leaf) {
      let node = leaf.node;
      for (const item of this.ancestors(leaf)) if (item.kind === "repeat") node = item.copies[item.copy][item.where.get(node)[1]];
      return node;
    }

    shownGroup(item) {
      let leaf = item;
      while (leaf.children.length) leaf = leaf.children[0];
      return this.graph.nodes[this.shownNode(leaf)].group;
    }

    // Have repeats show the copies that a node lies in; true where that changed any.
    showCopies(node) {
      let changed = false;
      for (const [item, copy] of this.instances(node)) {
        changed = changed || item.copy !== copy;
        item.copy = copy;
      }
      return changed;
    }

    // The nodes that an item stands for in the copies shown; all copies where `all`.
    nodesOf(item, all = false) {
      if (item.kind === "repeat" && all) return item.copies.flat();
      if (!item.children.length) return item.node === undefined ? [] : [all ? item.node : this.shownNode(item)];
      return item.children.flatMap((child) => this.nodesOf(child, all));
    }

    isOpen(item) {
      return item.open && item.children.length > 0;
    }

    // The outermost closed item around an item, or the item itself.
    visible(item) {
      let found = item;
      for (const one of this.ancestors(item)) if (!one.open) found = one;
      return found;
    }

    // Items that are drawn, outer ones first.
    drawn(from = this.root, found = []) {
      for (const child of from.children) {
        found.push(child);
        if (this.isOpen(child)) this.drawn(child, found);
      }
      return found;
    }

    // Which values go where: {value, from: item, to: item}, once for each pair of leaves. Constants are not drawn. What one copy hands
    // to the next is where the first one reads from outside.
    wire() {
      const { nodes, values } = this.graph;
      const producer = new Map();
      for (const node of nodes) for (const value of node.outputs) if (value) producer.set(value, node.id);
      const ends = this.terminals();
      const wires = new Map();
      const put = (value, from, to) => wires.set(`${from.key} ${to.key} ${value}`, { value, from, to });
      for (const node of nodes) {
        for (const value of new Set(node.inputs)) {
          const made = producer.get(value);
          if (made !== undefined && this.apart(made, node.id)) continue;
          if (made !== undefined) put(nodes[this.first[made]].outputs[nodes[made].outputs.indexOf(value)] || value, this.leafOf(made), this.leafOf(node.id));
          else if (ends.inputs.has(value) && !values[value]?.constant) put(value, ends.inputs.get(value), this.leafOf(node.id));
        }
      }
      for (const [value, end] of ends.outputs) {
        if (producer.has(value)) put(value, this.leafOf(producer.get(value)), end);
        else if (ends.inputs.has(value)) put(value, ends.inputs.get(value), end);
      }
      const numbers = new Map(); // values by number: names may hold anything, and stand in no key
      for (const { value } of wires.values()) if (!numbers.has(value)) numbers.set(value, numbers.size);
      this.wires = [...wires.values()].filter(({ from, to }) => from !== to).map((wire) => ({ ...wire, number: numbers.get(wire.value) }));
    }

    // Do nodes lie in different copies of one repeat?
    apart(one, other) {
      const [a, b] = [this.instances(one), this.instances(other)];
      for (let k = 0; k < Math.min(a.length, b.length) && a[k][0] === b[k][0]; k += 1) if (a[k][1] !== b[k][1]) return true;
      return false;
    }

    // Inputs and outputs of the graph as items; where there are many, one for all.
    terminals() {
      const made = { inputs: new Map(), outputs: new Map() };
      for (const [kind, names] of [["input", this.graph.inputs], ["output", this.graph.outputs]]) {
        const distinct = [...new Set(names)];
        const common = distinct.length > MOST_TERMINALS ? this.add({ kind, title: `${distinct.length} ${kind}s`, values: distinct }, this.root) : null;
        for (const value of distinct) made[`${kind}s`].set(value, common || this.add({ kind, title: value, values: [value] }, this.root));
      }
      const { children } = this.root;
      this.root.children = [...children.filter((item) => item.kind === "input"), ...children.filter((item) => item.kind !== "input")];
      return made;
    }
  }

  fusewise.graphModel = { make: (id) => new Model(id) };
})();

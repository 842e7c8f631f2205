// The outline as a tree for keyboards and screen readers, beside the drawing and open where that is open.
(() => {
  "use strict";
  const fusewise = (window.fusewise = window.fusewise || {});
  const { el, shown } = fusewise.dom;
  const draw = () => fusewise.graphDraw;

  // `acts`: {toggle(item, open), pick(item)}; the tree tells of what is done in it and shows what it is told.
  class Tree {
    constructor(element, acts) {
      this.acts = acts;
      this.rows = new Map(); // key of an item to its element
      this.list = el("ul", { role: "tree", "aria-label": "Outline of the graph", on: { keydown: (event) => this.pressed(event), click: (event) => this.clicked(event) } });
      element.append(this.list);
      this.typed = { text: "", at: 0 };
    }

    show(model) {
      this.model = model;
      this.rows.clear();
      this.active = null;
      this.list.replaceChildren(...this.rowsOf(model.root));
      this.activate(model.root.children[0], false);
    }

    rowsOf(parent) {
      const { children } = parent;
      return children.map((item, k) => this.row(item, k + 1, children.length));
    }

    row(item, position, size) {
      const { title, name, about } = draw().told(this.model, item);
      const asides = { repeat: `×${item.times}`, scope: String(item.count), group: String(item.count) };
      const aside = item.children.length ? asides[item.kind] : "";
      const said = [title, item.kind === "node" && name, item.kind === "repeat" ? `repeated ${item.times} times, ${about[1]}` : about.filter(Boolean).join(", ")];
      const turn = el("span", { class: "turn", "aria-hidden": "true" }, item.children.length ? "▸" : "");
      const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
      const mapping = draw().mappingOf(this.model, item);
      if (mapping) swatch.style.setProperty("--swatch", `var(--map-${mapping.replaceAll("_", "-")})`);
      const row = el("div", { class: "tree-row", title: name && item.kind === "node" ? `${title}: ${name}` : title }, turn, mapping ? swatch : null, el("bdi", { class: "title" }, item.kind === "node" && name ? name : title), aside ? el("span", { class: "aside", "aria-hidden": "true" }, aside) : null);
      row.style.setProperty("--depth", item.depth - 1);
      const made = el("li", { role: "treeitem", tabindex: "-1", "aria-level": item.depth, "aria-posinset": position, "aria-setsize": size, "aria-selected": "false", "aria-label": said.filter(Boolean).join(", "), data: { key: item.key } }, row);
      if (item.children.length) made.setAttribute("aria-expanded", "false");
      this.rows.set(item.key, made);
      if (this.model.isOpen(item)) this.expand(item);
      return made;
    }

    expand(item) {
      const row = this.rows.get(item.key);
      if (!row || row.querySelector(':scope > [role="group"]')) return;
      row.setAttribute("aria-expanded", "true");
      row.querySelector(".turn").textContent = "▾";
      row.append(el("ul", { role: "group" }, this.rowsOf(item)));
    }

    collapse(item) {
      const row = this.rows.get(item.key);
      const inside = row?.querySelector(':scope > [role="group"]');
      if (!inside) return;
      if (inside.contains(this.rows.get(this.active?.key))) this.activate(item, inside.contains(document.activeElement));
      for (const one of inside.querySelectorAll("[data-key]")) this.rows.delete(one.dataset.key);
      inside.remove();
      row.setAttribute("aria-expanded", "false");
      row.querySelector(".turn").textContent = "▸";
    }

    // Be open where the model is.
    sync(item = this.model.root) {
      for (const child of item.children) {
        if (!child.children.length) continue;
        if (this.model.isOpen(child)) {
          this.expand(child);
          this.sync(child);
        } else this.collapse(child);
      }
    }

    mark(picked, hits) {
      for (const [key, row] of this.rows) {
        const chosen = picked.has(key);
        row.setAttribute("aria-selected", String(chosen));
        row.classList.toggle("hit", hits.has(key));
      }
      const first = [...picked].map((key) => this.rows.get(key)).find(Boolean);
      if (!first || this.list.contains(document.activeElement)) return;
      this.activate(this.itemOf(first), false);
      const box = this.list.parentElement;
      const line = first.firstElementChild.getBoundingClientRect();
      const edge = box.getBoundingClientRect();
      if (line.top < edge.top || line.bottom > edge.bottom) box.scrollTop += line.top - edge.top - edge.height / 3;
    }

    itemOf(row) {
      return this.model.items[Number(row.dataset.key.slice(1))];
    }

    // The one row that the Tab key leads to.
    activate(item, focus = true) {
      if (this.active) this.rows.get(this.active.key)?.setAttribute("tabindex", "-1");
      this.active = item || null;
      const row = item && this.rows.get(item.key);
      row?.setAttribute("tabindex", "0");
      if (row && focus) row.focus();
    }

    clicked(event) {
      const row = event.target.closest("[data-key]");
      if (!row) return;
      const item = this.itemOf(row);
      this.activate(item);
      if (event.target.closest(".turn") && item.children.length) this.acts.toggle(item, !item.open);
      else this.acts.pick(item);
    }

    // Rows that are there, from top to bottom.
    order() {
      return [...this.list.querySelectorAll("[data-key]")];
    }

    step(by) {
      const rows = this.order();
      const to = rows[rows.indexOf(this.rows.get(this.active?.key)) + by];
      if (to) this.activate(this.itemOf(to));
    }

    pressed(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || !this.active) return;
      const item = this.active;
      const open = this.model.isOpen(item);
      const acts = {
        ArrowDown: () => this.step(1),
        ArrowUp: () => this.step(-1),
        ArrowRight: () => (open ? this.activate(item.children[0]) : item.children.length && this.acts.toggle(item, true)),
        ArrowLeft: () => (open ? this.acts.toggle(item, false) : item.depth > 1 && this.activate(item.parent)),
        Home: () => this.activate(this.model.root.children[0]),
        End: () => this.activate(this.itemOf(this.order().at(-1))),
        Enter: () => this.acts.pick(item),
        " ": () => this.acts.pick(item),
        "*": () => this.acts.toggleAll(item.parent.children),
      };
      const typing = event.key === " " && this.typed.text && performance.now() - this.typed.at < 1000;
      if (acts[event.key] && !typing) acts[event.key]();
      else if (event.key.length === 1 && event.key !== "/") this.typeahead(event.key);
      else return;
      event.preventDefault();
      event.stopPropagation();
    }

    // The next row whose words begin with what was typed within a second.
    typeahead(letter) {
      const now = performance.now();
      this.typed = { text: (now - this.typed.at < 1000 ? this.typed.text : "") + letter.toLowerCase(), at: now };
      const rows = this.order();
      const at = rows.indexOf(this.rows.get(this.active.key));
      const from = this.typed.text.length > 1 ? at : at + 1;
      const found = [...rows.slice(from), ...rows.slice(0, from)].find((row) => shown(row.querySelector(".title").textContent).toLowerCase().startsWith(this.typed.text));
      if (found) this.activate(this.itemOf(found));
    }
  }

  fusewise.graphTree = { make: (element, acts) => new Tree(element, acts) };
})();

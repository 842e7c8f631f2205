// A layer-fusion plan: groups and what they need, why they end where they do, how groups were split.
(() => {
  "use strict";
  const fusewise = window.fusewise;
  const { el, button, count, bytes, percent, table, name } = fusewise.dom;
  let part = null;

  const operator = (id) => fusewise.document.graphs?.native?.nodes[id];
  const named = (id) => operator(id)?.name ?? `operator ${id}`;
  const target = (id) => ({ kind: "group", id, graph: "native" });
  const cost = (value) =>
    value === null || value === undefined
      ? ""
      : part.unit === "bytes"
        ? bytes(value)
        : `${Number(value.toPrecision(4))} ${part.unit}`;
  const range = (row) => (row.first === row.last ? name(row.first) : [name(row.first), " … ", name(row.last)]);
  const link = (id) => button(named(id), () => fusewise.select({ kind: "node", id, graph: "native" }), { class: "link" });
  const inGraph = (id) =>
    button("Show", () => (fusewise.locate ? fusewise.locate(target(id)) : fusewise.select(target(id))), {
      class: "small",
      "aria-label": `Show group ${id} in the graph`,
    });

  function groups() {
    const { gauge } = fusewise.parts;
    const most = Math.max(1, ...part.groups.map((row) => row.dram_bytes));
    const columns = [
      { title: "Group", key: "id" },
      { title: "From … to", class: "wide", value: (row) => row.first, show: range },
      { title: "Operators", value: (row) => row.nodes.length, show: (row) => count(row.nodes.length), number: true },
      {
        title: "Buffer need",
        key: "buffer_bytes",
        show: (row) => [gauge(row.buffer_bytes, part.capacity_bytes * 1.02, part.capacity_bytes), bytes(row.buffer_bytes)],
        number: true,
      },
      {
        title: "Of the buffer",
        value: (row) => row.buffer_bytes,
        show: (row) => percent(row.buffer_bytes / part.capacity_bytes, 0),
        number: true,
      },
      { title: "DRAM", key: "dram_bytes", show: (row) => [gauge(row.dram_bytes, most), bytes(row.dram_bytes)], number: true },
      { title: "Latency, ms", key: "latency_ms", show: (row) => row.latency_ms.toFixed(4), number: true },
      { title: "Energy, mJ", key: "energy_mj", show: (row) => row.energy_mj.toFixed(4), number: true },
      { title: "In the graph", sort: false, show: (row) => inGraph(row.id) },
    ];
    return table({ columns, rows: part.groups, caption: "Groups of the plan", target: (row) => target(row.id) });
  }

  function boundaries() {
    const { option } = fusewise.parts;
    const reasons = [...new Set(part.boundaries.map((row) => row.reason))].sort();
    const group = (id) => (id === null ? "left out" : count(id));
    const columns = [
      { title: "From group", key: "before", show: (row) => group(row.before) },
      { title: "To group", key: "after", show: (row) => group(row.after) },
      {
        title: "Edge",
        class: "wide",
        value: (row) => named(row.producer),
        show: (row) => [link(row.producer), " → ", link(row.consumer)],
      },
      {
        title: "Why they are not one",
        class: "wide",
        key: "reason",
        show: (row) => [el("b", {}, row.reason), `${row.sentence.slice(row.sentence.indexOf(row.reason) + row.reason.length)}`],
      },
      { title: "Crosses DRAM", key: "crossing_bytes", show: (row) => bytes(row.crossing_bytes), number: true },
      {
        title: "Needed as one",
        key: "needs_bytes",
        show: (row) => (row.needs_bytes === null ? "" : bytes(row.needs_bytes)),
        number: true,
      },
      { title: "What makes room", class: "wide", value: (row) => row.option || "", show: (row) => option(row.option) },
    ];
    const box = table({ columns, rows: part.boundaries, caption: "Why groups end where they do", limit: 60 });
    const choice = el(
      "select",
      {
        "aria-label": "Reason",
        on: { change: () => box.update(part.boundaries.filter((row) => !choice.value || row.reason === choice.value)) },
      },
      el("option", { value: "" }, `all reasons (${count(part.boundaries.length)})`),
      reasons.map((reason) =>
        el("option", { value: reason }, `${reason} (${count(part.boundaries.filter((row) => row.reason === reason).length)})`),
      ),
    );
    return [el("p", {}, el("label", {}, "Reason ", choice)), box];
  }

  function excluded() {
    const { gauge, option } = fusewise.parts;
    const most = Math.max(1, ...part.excluded.map((row) => row.buffer_bytes || 0));
    const columns = [
      { title: "Operator", class: "wide", key: "name", show: (row) => link(row.node) },
      { title: "Why", key: "reason" },
      {
        title: "Buffer need",
        key: "buffer_bytes",
        show: (row) =>
          row.buffer_bytes === null
            ? "none would do"
            : [gauge(row.buffer_bytes, most, part.capacity_bytes), bytes(row.buffer_bytes)],
        number: true,
      },
      { title: "DRAM", key: "dram_bytes", show: (row) => bytes(row.dram_bytes), number: true },
      { title: "What makes room", class: "wide", value: (row) => row.option || "", show: (row) => option(row.option) },
    ];
    return table({ columns, rows: part.excluded, caption: "Operators that are left out", limit: 60 });
  }

  function splitting(found, k) {
    const { gauge } = fusewise.parts;
    const most = Math.max(part.capacity_bytes, ...found.parts.map((row) => row.buffer_bytes || 0));
    const told = (row) =>
      row.split
        ? `cut ${row.edge ? `at ${named(row.edge[0])} → ${named(row.edge[1])}` : "at random"}: ${row.verdict}`
        : row.group === null
          ? "runs alone"
          : `group ${row.group}`;
    const indent = (row) => {
      const cell = el("span", {}, range(row));
      cell.style.paddingInlineStart = `${row.depth * 1.2}em`;
      return cell;
    };
    const columns = [
      { title: "Part", class: "wide", sort: false, show: indent },
      {
        title: "What became of it",
        sort: false,
        show: (row) =>
          row.split || row.group === null
            ? told(row)
            : button(told(row), () => fusewise.select(target(row.group)), { class: "link" }),
      },
      { title: "Operators", sort: false, number: true, show: (row) => count(row.nodes.length) },
      {
        title: "Buffer need",
        sort: false,
        number: true,
        show: (row) =>
          row.buffer_bytes === null
            ? "no buffer would do"
            : [gauge(row.buffer_bytes, most * 1.02, part.capacity_bytes), bytes(row.buffer_bytes)],
      },
    ];
    const edges = found.candidates.map((edge) => el("li", {}, link(edge.from), " → ", link(edge.to)));
    const inner = [
      el("p", {}, found.sentence),
      edges.length ? el("details", {}, el("summary", {}, "Edges that the explanation blames"), el("ul", {}, edges)) : null,
      table({ columns, rows: found.parts, caption: `Splits of group ${k + 1} that did not fit` }),
    ];
    return el(
      "details",
      { open: k === 0 },
      el("summary", {}, `${count(found.nodes.length)} operators, ${count(found.became)} groups`),
      inner,
    );
  }

  // Groups in the order in which they run, each as a box with the operators in it.
  function layers() {
    const inside = (group) =>
      el(
        "ul",
        { class: "operators" },
        group.nodes.slice(0, 14).map((id) => el("li", { title: named(id) }, operator(id)?.op ?? String(id))),
        group.nodes.length > 14 ? el("li", { class: "soft" }, `and ${count(group.nodes.length - 14)} more`) : null,
      );
    const box = (group) => {
      const fill = group.buffer_bytes / part.capacity_bytes;
      const head = button(
        [
          el("b", {}, `Group ${group.id}`),
          el(
            "span",
            { class: "soft" },
            ` ${bytes(group.buffer_bytes)} (${percent(fill, 0)}), DRAM ${bytes(group.dram_bytes)}`.replace(
              /(\d) ([KMG]?i?B)/g,
              "$1\u00a0$2",
            ),
          ),
        ],
        () => fusewise.select(target(group.id)),
        { class: "link" },
      );
      return el(
        "li",
        { class: "layer" },
        head,
        fusewise.parts.gauge(group.buffer_bytes, part.capacity_bytes * 1.02, part.capacity_bytes),
        inside(group),
      );
    };
    return el(
      "ol",
      { class: "layers scroll", tabindex: "0", "aria-label": "Groups in the order in which they run" },
      part.groups.map(box),
    );
  }

  function proof() {
    const found = part.summary;
    if (found.optimal) return "Proven optimal: no plan of this model under this scheme and buffer costs less.";
    if (found.gap === null) return "No lower bound is known for this plan; --search exact gives one.";
    return `Within ${(100 * found.gap).toFixed(2)} % of the least cost possible.`;
  }

  function mount(element) {
    part = fusewise.document.plan;
    const { figures, card, paragraph, soft, list } = fusewise.parts;
    const found = part.summary;
    const rate = found.rectify_rate;
    element.append(
      figures([
        ["DRAM traffic of the groups", bytes(found.dram_bytes), `${bytes(found.dram_bytes_full)} with what is left out`],
        ["groups", count(found.groups), found.excluded ? `${count(found.excluded)} operators left out` : "nothing left out"],
        ["largest buffer need", bytes(found.max_buffer_bytes), `of ${bytes(part.capacity_bytes)}`],
        ["latency, estimated", `${found.latency_ms.toFixed(3)} ms`],
        ["energy, estimated", `${found.energy_mj.toFixed(3)} mJ`],
        [
          "search",
          part.setting.search,
          `${count(found.plans_evaluated)} plan${found.plans_evaluated === 1 ? "" : "s"}, ${found.search_s.toFixed(2)} s`,
        ],
        ["bound", cost(part.bound), found.gap === null || part.bound === null ? "" : `gap ${(100 * found.gap).toFixed(2)} %`],
        [
          "groups repaired",
          rate === null || rate === undefined ? null : percent(rate),
          `${count(found.rectified)} of ${count(found.invalid)} by explanations alone`,
        ],
      ]),
      paragraph(`${proof()} ${part.setting.scheme.toUpperCase()} on ${part.hardware.name}, least ${part.setting.objective}.`),
      part.notes.length ? card("Notes", list(part.notes)) : "",
      el("div", { class: "charts" }),
      card(
        "Groups in order",
        soft(
          "The bar of a group is its need of the buffer. Choose a group for its details; the Graph tab draws the network with the groups as boxes.",
        ),
        layers(),
      ),
      card("Groups", groups()),
    );
    if (part.boundaries.length) element.append(card("Why groups end where they do", boundaries()));
    if (part.splittings.length)
      element.append(
        card(
          "Groups that were split",
          paragraph(
            "These groups came up in the search and did not fit; what they were split into stands in the plan. A part is followed by its halves.",
          ),
          part.splittings.map(splitting),
        ),
      );
    if (part.excluded.length) element.append(card("Left out", excluded()));
  }

  (fusewise.sections = fusewise.sections || {}).plan = { title: "Plan", mount };
})();

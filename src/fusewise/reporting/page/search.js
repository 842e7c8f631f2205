// The search for substitutions: its path, and what each step did to the graph around its place.
(() => {
  "use strict";
  const fusewise = window.fusewise;
  const { el, count, ms, table, name, live } = fusewise.dom;
  const ENDED = {
    searched: "nothing was left to follow",
    graphs: "the budget was spent",
    seconds: "the time was up",
    interrupted: "it was interrupted",
    "not searched": "no search, passes only",
  };
  let part = null;
  let detail = null;
  let chosen = null;

  const amount = (value) =>
    value === null || value === undefined ? "" : `${Number(value.toPrecision(4))}\u00a0${part.unit}`.trim();

  // Nodes before or after, those that stay unmarked.
  const drawnNodes = (own, beside, mark) => [...beside, ...own.map((node) => ({ ...node, mark }))];

  const listed = (nodes) => nodes.map((node) => el("li", {}, el("b", {}, node.op), " ", name(node.name)));

  async function show(number) {
    const point = part.points[number];
    chosen = number;
    for (const row of document.querySelectorAll("tr[data-step]"))
      row.classList.toggle("selected", row.dataset.step === String(number));
    const heading = el("h3", { tabindex: "-1" }, number ? `Step ${number}: ${point.rule}` : "The graph the search began with");
    detail.replaceChildren(
      heading,
      el(
        "p",
        {},
        number
          ? [`${point.reason}. Cost ${amount(part.points[number - 1].cost)} to ${amount(point.cost)}.`]
          : `Cost ${amount(point.cost)}.`,
      ),
    );
    live(heading.textContent);
    const { change } = point;
    if (!change) {
      if (number)
        detail.append(el("p", { class: "soft" }, "This search applies all rules at once, so a step has no place of its own."));
      return;
    }
    const types = { ...change.constants, ...change.types };
    const side = (title, nodes, beside, mark) => ({
      title,
      nodes,
      box: el(
        "div",
        { class: "side" },
        el("h4", {}, `${title}: ${count(nodes.length)} node${nodes.length === 1 ? "" : "s"}`),
        el("ul", { class: "plain" }, listed(nodes)),
      ),
      drawn: drawnNodes(nodes, beside, mark),
    });
    const sides = [side("Taken out", change.removed, change.before, "gone"), side("Put in", change.added, change.after, "new")];
    detail.append(
      el(
        "div",
        { class: "sides" },
        sides.map((one) => one.box),
      ),
    );
    for (const one of sides) {
      const label = `${one.title === "Put in" ? "After" : "Before"} step ${number}, around its place: ${one.drawn.map((node) => `${node.op} ${node.name}`).join(", ")}`;
      const picture =
        one.drawn.length > 60
          ? el("p", { class: "soft" }, `${count(one.drawn.length)} nodes are around this place: too many to draw.`)
          : await fusewise.parts.drawing(one.drawn, { label, types });
      if (chosen === number) one.box.append(picture);
    }
  }

  function pathTable() {
    const columns = [
      { title: "Step", key: "step" },
      {
        title: "Cost",
        value: (row) => row.cost,
        show: (row) => [amount(row.cost), row.step === part.best ? el("b", { class: "tag" }, "best") : null],
        number: true,
      },
      { title: "Change", value: (row) => change(row), show: (row) => signed(change(row)), number: true },
      {
        title: "Substitution",
        class: "wide",
        value: (row) => row.rule || "",
        show: (row) => el("button", { type: "button", class: "link", on: { click: () => show(row.step) } }, row.rule || "start"),
      },
      { title: "Where", class: "wide", value: (row) => row.where[0] || "", show: (row) => fusewise.parts.names(row.where, 2) },
      {
        title: "Nodes",
        value: (row) => (row.change ? row.change.added.length - row.change.removed.length : null),
        show: (row) => (row.change ? `-${row.change.removed.length} +${row.change.added.length}` : ""),
        number: true,
      },
    ];
    return table({ columns, rows: part.points, caption: "Path of the search", limit: 200, sorted: null });
  }

  const change = (row) => (row.step ? row.cost - part.points[row.step - 1].cost : null);
  const signed = (value) => (value === null ? "" : `${value > 0 ? "+" : ""}${Number(value.toPrecision(3))}`);

  function operators() {
    const { before, after } = part.operators;
    const rows = [...new Set([...Object.keys(before), ...Object.keys(after)])].map((op) => ({
      op,
      before: before[op] || 0,
      after: after[op] || 0,
    }));
    const columns = [
      { title: "Operator", key: "op" },
      { title: "Before", key: "before", number: true },
      { title: "After", key: "after", number: true },
      { title: "Change", value: (row) => row.after - row.before, show: (row) => signed(row.after - row.before), number: true },
    ];
    return table({ columns, rows, caption: "Operators before and after", limit: 30 });
  }

  function mount(element) {
    part = fusewise.document.search;
    const { figures, card, list, paragraph } = fusewise.parts;
    const timed = part.timed;
    element.append(
      figures([
        ["cost before", amount(part.cost_before), part.cost],
        [
          "cost after",
          amount(part.cost_after),
          part.cost_after ? `${(part.cost_before / part.cost_after).toFixed(3)} times less` : "",
        ],
        [
          "graphs expanded",
          part.search === "none" ? null : count(part.explored),
          part.budget ? `of at most ${count(part.budget)}` : "",
        ],
        ["met again", part.search === "none" ? null : count(part.duplicates)],
        ["alpha", part.alpha],
        ["search", part.search, ENDED[part.ended] || part.ended],
        ["time", part.search === "none" ? null : ms(part.seconds * 1000)],
        [
          "as a whole",
          timed ? `${timed.speedup.toFixed(3)} times as fast` : null,
          timed ? `in ${timed.runtime}, at least ${timed.at_least.toFixed(3)}` : "",
        ],
      ]),
      el("div", { class: "charts" }),
    );
    const notes = [
      ...part.notes,
      ...(part.answers ? [`Answers ${part.answers}`] : []),
      ...part.refused.map((one) => `${one.rule} is not used: ${one.reason}`),
    ];
    if (notes.length) element.append(card("Notes", list(notes)));
    if (part.points.length > 1) {
      detail = el("section", { class: "card wide point", "aria-label": "What a step did" });
      element.append(
        card("Path", paragraph("Choose a substitution to see the graph around its place before and after it."), pathTable()),
        detail,
      );
      show(Math.min(1, part.points.length - 1));
    } else if (part.search !== "none") element.append(card("Path", paragraph("No substitution made the model cheaper.")));
    element.append(card("Operators", operators()));
  }

  document.addEventListener("fusewise-chart", (event) => {
    if (part && event.detail?.kind === "search" && part.points[event.detail.id]) show(event.detail.id);
  });
  (fusewise.sections = fusewise.sections || {}).search = { title: "Search", mount };
})();

// Passes: of which family the model is, what each run did, and what orders are worth.
(() => {
  "use strict";
  const fusewise = window.fusewise;
  const { el, count, ms, percent, table } = fusewise.dom;
  const ENDED = { finished: "nothing was left to try", seconds: "the time was up", budget: "the budget was spent" };
  const did = (row) =>
    Object.entries(row.did || {})
      .map(([rule, times]) => (times > 1 ? `${rule} x ${times}` : rule))
      .join(", ");

  function runs(rows) {
    const numbered = rows.map((row, k) => ({ ...row, turn: k + 1 }));
    const changed = numbered.filter((row) => row.changed);
    const columns = [
      { title: "Turn", key: "turn" },
      { title: "Pass", key: "pass", show: (row) => el("span", { title: row.what }, row.pass) },
      {
        title: "Nodes",
        value: (row) => row.nodes_after - row.nodes_before,
        show: (row) => (row.changed ? `${count(row.nodes_before)} to ${count(row.nodes_after)}` : ""),
        number: true,
      },
      { title: "Time", key: "ms", show: (row) => ms(row.ms), number: true },
      {
        title: "What it did",
        class: "wide",
        value: (row) => (row.changed ? did(row) || row.what : row.why),
        show: (row) => (row.changed ? did(row) || row.what : el("span", { class: "soft" }, row.why || "nothing to do")),
      },
    ];
    const box = table({ columns, rows: changed.length ? changed : numbered, caption: "Runs of passes" });
    const all = el("input", { type: "checkbox", on: { change: () => box.update(all.checked ? numbered : changed) } });
    if (!changed.length) all.checked = true;
    return [
      el("label", { class: "check" }, all, ` also the ${count(numbered.length - changed.length)} runs that changed nothing`),
      box,
    ];
  }

  const order = (passes) =>
    el(
      "details",
      {},
      el("summary", {}, `${count(passes.length)} ${passes.length === 1 ? "pass" : "passes"}`),
      el("p", {}, passes.join(", ") || "none"),
    );

  function orders(part) {
    const unit = part.search?.unit || "";
    const rows = part.orders.map((one, k) => ({ ...one, number: k + 1 }));
    const first = rows[0]?.cost;
    const columns = [
      { title: "Tried", key: "number" },
      {
        title: "Cost",
        value: (row) => row.cost,
        show: (row) => (row.cost === null ? "could not be told" : `${Number(row.cost.toPrecision(4))} ${unit}`),
        number: true,
      },
      {
        title: "To the default",
        value: (row) => (row.cost && first ? row.cost / first : null),
        show: (row) => (row.cost && first ? (row.cost / first).toFixed(3) : ""),
        number: true,
      },
      { title: "Fusion", key: "fusion" },
      { title: "Order", sort: false, show: (row) => order(row.passes) },
    ];
    return table({ columns, rows, caption: "Orders that were tried", limit: 50, sorted: "Cost", down: false });
  }

  function raced(rows) {
    const columns = [
      { title: "Order", value: (row) => row.passes.length, show: (row) => order(row.passes) },
      { title: "Fusion", key: "fusion" },
      { title: "Median", key: "p50_ms", show: (row) => ms(row.p50_ms), number: true },
      { title: "Least", key: "min_ms", show: (row) => ms(row.min_ms), number: true },
      { title: "90 % within", key: "p90_ms", show: (row) => ms(row.p90_ms), number: true },
    ];
    return table({ columns, rows, caption: "Orders timed in turn" });
  }

  function experiment(found) {
    const columns = [
      { title: "List", key: "pipeline", show: (row) => el("span", { title: row.about }, row.pipeline) },
      { title: "Nodes", key: "nodes", number: true },
      { title: "Fusion", key: "fusion" },
      {
        title: "Median",
        value: (row) => row.latency?.latency_p50_ms,
        show: (row) => ms(row.latency?.latency_p50_ms),
        number: true,
      },
      {
        title: "90 % within",
        value: (row) => row.latency?.latency_p90_ms,
        show: (row) => ms(row.latency?.latency_p90_ms),
        number: true,
      },
      ...(found.rows.find((row) => row.metrics.length)?.metrics || []).map((metric, k) => ({
        title: `${metric.name}, ${metric.unit}`,
        value: (row) => row.metrics[k]?.value ?? null,
        show: (row) => row.metrics[k]?.text || "",
        number: true,
      })),
      { title: "Passes", key: "total_pass_ms", show: (row) => ms(row.total_pass_ms), number: true },
      { title: "Same as", key: "same_as" },
    ];
    return table({ columns, rows: found.rows, caption: "Lists of passes" });
  }

  function agreement(found) {
    const words = (title, names) =>
      names.length ? el("div", {}, el("dt", {}, `${title} (${count(names.length)})`), el("dd", {}, names.join(", "))) : null;
    return el(
      "dl",
      { class: "facts" },
      words("listed and at work", found.both),
      words("at work, not listed", found.found_only),
      words("listed, nothing to do", found.listed_only),
    );
  }

  function mount(element) {
    const part = fusewise.document.passes;
    const { figures, card, paragraph } = fusewise.parts;
    if (part.experiment) {
      element.append(el("div", { class: "charts" }));
      element.append(card(`Experiment: ${part.experiment.name}`, experiment(part.experiment)));
      for (const row of part.experiment.rows)
        element.append(
          card(
            row.pipeline,
            el(
              "details",
              {},
              el("summary", {}, `${count(row.pass_ms.length)} runs, ${ms(row.total_pass_ms)}`),
              table({
                columns: [
                  { title: "Pass", key: "pass" },
                  { title: "Time", key: "ms", show: (one) => ms(one.ms), number: true },
                  {
                    title: "",
                    sort: false,
                    hidden: true,
                    show: (one) => (one.changed ? "changed the graph" : one.why || "nothing to do"),
                  },
                ],
                rows: row.pass_ms,
                caption: `Passes of ${row.pipeline}`,
              }),
            ),
          ),
        );
      return;
    }
    const search = part.search;
    element.append(
      figures([
        ["family", part.family, `confidence ${part.confidence.toFixed(2)}`],
        ["passes that matter", count(part.relevant.length), `${count(part.order.length)} runs changed the graph`],
        ["nodes", `${count(part.nodes.before)} to ${count(part.nodes.after)}`],
        ["time of all passes", ms(part.total_ms), `finding what matters took ${ms(part.finding_ms)}`],
        ["fusion", part.fusion],
        ...part.metrics.map((metric) => [metric.name.toLowerCase(), metric.value === null ? null : metric.text, metric.unit]),
        [
          "order chosen",
          search?.chosen,
          search
            ? `${search.speedup.toFixed(3)} times the default${search.at_least ? `, at least ${search.at_least.toFixed(3)}` : ""}`
            : "",
        ],
      ]),
      el("div", { class: "charts" }),
    );
    const nearest = part.nearest.map((one) => ({ ...one }));
    element.append(
      card("Runs", runs(part.runs)),
      card(
        "Family",
        table({
          columns: [
            { title: "Family", key: "family" },
            {
              title: "Score",
              key: "score",
              show: (row) => [fusewise.parts.gauge(row.score, 1), row.score.toFixed(2)],
              number: true,
            },
          ],
          rows: nearest,
          caption: "Nearest families",
        }),
        part.agreement
          ? [
              paragraph(
                `Beside ${part.agreement.set}, the published list of the family: ${percent(part.agreement.recall, 0)} of what it lists and can ever act has work here, and it lists ${percent(part.agreement.precision, 0)} of what has.`,
              ),
              agreement(part.agreement),
            ]
          : null,
      ),
    );
    if (search?.raced) element.append(card("Timed in turn", raced(search.raced)));
    if (part.orders.length)
      element.append(
        card(
          "Orders tried",
          paragraph(
            `${count(search.tried)} different graphs; ${count(search.duplicates)} other orders led to one of them. By ${search.objective}, in ${search.unit}; ${ENDED[search.ended] || search.ended}.`,
          ),
          orders(part),
        ),
      );
    if (part.batches.length)
      element.append(
        card(
          "Batches",
          table({
            columns: [
              { title: "Batch", key: "batch", number: true },
              { title: "Throughput, per s", key: "throughput_per_s", show: (row) => row.throughput_per_s.toFixed(1), number: true },
            ],
            rows: part.batches,
            caption: "Throughput by batch",
          }),
        ),
      );
  }

  (fusewise.sections = fusewise.sections || {}).passes = { title: "Passes", mount };
})();

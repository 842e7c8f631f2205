// Answers beside a reference, and runtimes beside one another.
(() => {
  "use strict";
  const fusewise = window.fusewise;
  const { el, bytes, count, ms, table, name } = fusewise.dom;

  // Every output for every set of inputs, and sets that were refused.
  function outputs(cases) {
    const { tiny, gauge } = fusewise.parts;
    const rows = cases.flatMap((one) =>
      one.outputs.length
        ? one.outputs.map((row) => ({ ...row, inputs: one.inputs }))
        : [{ inputs: one.inputs, told: one.refused || "nothing to compare" }],
    );
    // An error that JSON has no number for is beyond every limit.
    const share = (row) =>
      row.output === undefined
        ? null
        : row.error === null
          ? Infinity
          : row.tolerance
            ? row.error / row.tolerance
            : row.error
              ? Infinity
              : 0;
    const drawn = (row) =>
      share(row) === null
        ? ""
        : [gauge(share(row), 1, 1), share(row) === Infinity ? "beyond" : `${(100 * share(row)).toFixed(1)}%`];
    const columns = [
      { title: "Inputs", key: "inputs" },
      {
        title: "Output",
        value: (row) => row.output || "",
        show: (row) => (row.output === undefined ? el("span", { class: "soft" }, row.told) : name(row.output)),
      },
      { title: "Relative error", key: "error", show: (row) => (row.error === null ? "not finite" : tiny(row.error)), number: true },
      { title: "May be", key: "tolerance", show: (row) => tiny(row.tolerance), number: true },
      { title: "Share of what it may be", value: share, show: drawn, number: true },
    ];
    return table({ columns, rows, caption: "Outputs, by sets of inputs" });
  }

  function verification(element) {
    const part = fusewise.document.verification;
    const { figures, card, paragraph, option, tiny } = fusewise.parts;
    element.append(
      figures([
        ["answers", part.agrees ? "agree" : "differ", `with ${part.reference}`],
        ["largest relative error", part.max_rel_error === null ? "not finite" : tiny(part.max_rel_error), `inputs: ${part.inputs}`],
        ["sets of inputs", count(part.cases.length)],
        ["decisions", count(part.decisions), part.builds > 1 ? `built ${count(part.builds)} times to find the one to blame` : ""],
      ]),
      el("p", { class: part.agrees ? "" : "notice" }, `${part.sentence[0].toUpperCase()}${part.sentence.slice(1)}.`),
    );
    if (part.blame || part.fault) {
      const blamed = part.blamed;
      element.append(
        card(
          "What is to blame",
          part.blame ? paragraph(part.blame, part.confirmed ? "; without this one decision the answers agree." : ".") : null,
          blamed
            ? fusewise.dom.facts([
                ["decision", `${blamed.kind} ${blamed.what}`],
                ["where", fusewise.parts.names(blamed.where, 5)],
                ["reason", blamed.reason],
                ["what refuses it", option(blamed.option)],
              ])
            : null,
          part.fault ? paragraph(part.fault.sentence) : null,
        ),
      );
    }
    element.append(card("Outputs, by sets of inputs", outputs(part.cases)));
  }

  function runtimes(rows) {
    const best = Math.min(...rows.map((row) => row.p50_ms ?? Infinity));
    const most = Math.max(...rows.map((row) => row.p50_ms ?? 0));
    const columns = [
      { title: "Runtime", key: "runtime" },
      {
        title: "Median",
        key: "p50_ms",
        show: (row) =>
          row.error ? el("span", { class: "soft" }, "cannot") : [fusewise.parts.gauge(row.p50_ms, most), ms(row.p50_ms)],
        number: true,
      },
      {
        title: "To the fastest",
        value: (row) => row.p50_ms,
        show: (row) => (row.error ? "" : (row.p50_ms / best).toFixed(2)),
        number: true,
      },
      { title: "Least", key: "min_ms", show: (row) => ms(row.min_ms), number: true },
      { title: "90 % within", key: "p90_ms", show: (row) => ms(row.p90_ms), number: true },
      { title: "Runs", key: "runs", show: (row) => count(row.runs), number: true },
      { title: "Compile", key: "compile_ms", show: (row) => ms(row.compile_ms), number: true },
      { title: "Load", key: "load_ms", show: (row) => ms(row.load_ms), number: true },
      {
        title: "Peak memory",
        key: "peak_rss_mb",
        show: (row) => (row.peak_rss_mb ? bytes(row.peak_rss_mb * 1e6) : ""),
        number: true,
      },
      { title: "Difference", key: "max_rel_error", show: (row) => fusewise.parts.tiny(row.max_rel_error), number: true },
    ];
    return table({ columns, rows, caption: "Runtimes" });
  }

  const speed = (row) =>
    row.ratio === null
      ? "no other runtime"
      : `${(row.ratio >= 1 ? row.ratio : 1 / row.ratio).toFixed(2)} times ${row.ratio >= 1 ? "faster" : "slower"} than ${row.best_peer}`;

  function bench(element) {
    const part = fusewise.document.bench;
    const { figures, card, soft } = fusewise.parts;
    const first = part.sizes[0];
    const ours = first.runtimes.find((row) => row.runtime === "fusewise") || {};
    const single = part.sizes.length === 1;
    element.append(
      figures([
        ["median of a run", single ? ms(ours.p50_ms) : null, ours.runs ? `of ${count(ours.runs)} runs` : ""],
        ["beside others", single && first.ratio !== null ? `${first.ratio.toFixed(2)} x` : null, `as fast as ${first.best_peer}`],
        ["sizes", single ? null : count(part.sizes.length)],
        ["threads", count(part.threads)],
        ["precision", part.precision],
      ]),
      el("div", { class: "charts" }),
    );
    if (!single) {
      const names = [...new Set(part.sizes.flatMap((row) => row.runtimes.map((one) => one.runtime)))];
      const of = (row, runtime) => row.runtimes.find((one) => one.runtime === runtime) || {};
      const sizes = (row) =>
        Object.entries(row.symbols)
          .map(([symbol, size]) => `${symbol}=${size}`)
          .join(", ");
      const columns = [
        { title: "Sizes", value: sizes },
        ...names.map((runtime) => ({
          title: runtime,
          value: (row) => of(row, runtime).p50_ms,
          show: (row) => (of(row, runtime).error ? "cannot" : ms(of(row, runtime).p50_ms)),
          number: true,
        })),
        { title: "Speed", value: (row) => row.ratio, show: speed, number: true },
        { title: "Difference", key: "max_rel_error", show: (row) => fusewise.parts.tiny(row.max_rel_error), number: true },
      ];
      columns[0].show = sizes;
      element.append(card("Sizes", table({ columns, rows: part.sizes, caption: "Medians by sizes" })));
    }
    for (const row of part.sizes) {
      const sizes = Object.entries(row.symbols)
        .map(([symbol, size]) => `${symbol}=${size}`)
        .join(", ");
      const refused = row.runtimes.filter((one) => one.error).map((one) => soft(`${one.runtime} cannot run it: ${one.error}`));
      element.append(card(sizes || "Runtimes, in turn on the same inputs and threads", runtimes(row.runtimes), refused));
    }
    if (part.memory) element.append(card("Memory accesses", memory(part.memory)));
  }

  function memory(found) {
    const rows = Object.entries(found.variants).map(([variant, row]) => ({ variant, ...row }));
    const columns = [
      { title: "Variant", key: "variant" },
      { title: "Groups", key: "groups", number: true, show: (row) => count(row.groups) },
      { title: "Loads", key: "loads", number: true, show: (row) => count(row.loads) },
      { title: "Stores", key: "stores", number: true, show: (row) => count(row.stores) },
      ...found.caches.map((level) => ({
        title: `${level.name} misses`,
        number: true,
        value: (row) => row.misses?.[level.name],
        show: (row) => count(row.misses?.[level.name]),
      })),
      { title: "Time", key: "ms", number: true, show: (row) => ms(row.ms) },
    ];
    return table({ columns, rows, caption: "Memory accesses" });
  }

  const sections = (fusewise.sections = fusewise.sections || {});
  sections.verification = { title: "Verification", mount: verification };
  sections.bench = { title: "Runtimes", mount: bench };
})();

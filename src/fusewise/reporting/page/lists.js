// The tabs Kernels, Decisions, Time and Memory: lists that sort and filter, from the document.
(() => {
  "use strict";
  const fusewise = window.fusewise;
  const { el, name, count, bytes, short, percent, ms, bar, facts, table } = fusewise.dom;
  const { compiled, node: nodeOf, isEstimate } = fusewise.lookup;

  // Fields above a list. `fields`: [label, choices or null, words for no choice]; `act` is told their values when one changes.
  function filters(fields, act) {
    const inputs = fields.map(([label, choices, any = "all"]) => {
      if (!choices) return el("input", { type: "search", "aria-label": label, placeholder: label, class: "filter" });
      return el(
        "select",
        { "aria-label": label, class: "filter" },
        el("option", { value: "" }, `${label}: ${any}`),
        choices.map(([value, text]) => el("option", { value }, text)),
      );
    });
    const said = el("span", { class: "soft", role: "status" });
    const tell = () => {
      const found = act(inputs.map((one) => (one.type === "search" ? one.value.trim().toLowerCase() : one.value)));
      said.textContent = found;
    };
    for (const one of inputs) one.addEventListener("input", tell);
    return { bar: el("div", { class: "filters" }, inputs, said), tell };
  }

  // A list under filters: `fits(row, values)` says which rows stay.
  function filtered(fields, rows, fits, options) {
    const list = table({ rows, ...options });
    const { bar: above, tell } = filters(fields, (values) => {
      const kept = rows.filter((row) => fits(row, values));
      list.update(kept);
      return kept.length === rows.length ? `${count(rows.length)}` : `${count(kept.length)} of ${count(rows.length)}`;
    });
    tell();
    return el("div", {}, above, list);
  }

  const has = (text, wanted) => wanted.split(/\s+/).every((word) => text.includes(word));
  // Values with how many rows have each, the most frequent first.
  function counted(rows, of) {
    const found = new Map();
    for (const row of rows) found.set(of(row), (found.get(of(row)) || 0) + 1);
    return [...found]
      .sort((a, b) => b[1] - a[1] || String(a[0]).localeCompare(String(b[0])))
      .map(([value, times]) => [String(value).toLowerCase(), `${value} (${count(times)})`]);
  }

  const kinds = (rows, of) =>
    [...new Set(rows.map(of).filter(Boolean))].sort().map((value) => [String(value).toLowerCase(), value]);

  function groupRows() {
    const graph = compiled();
    return (fusewise.document.groups || []).map((group) => {
      const time = fusewise.index.times.get(group.id) || {};
      const nodes = group.nodes.map((id) => nodeOf(graph, id)).filter(Boolean);
      const kernels = [...new Set((group.steps || []).map((at) => fusewise.index.steps.get(at)?.kernel))]
        .map((id) => fusewise.index.kernels.get(id))
        .filter(Boolean);
      const ways = kernels.map((kernel) => kernel.way || kernel.symbol).join("; ");
      const families = [...new Set(kernels.map((kernel) => kernel.family || kernel.way || kernel.symbol))].join("; ");
      const lead = nodes.find((one) => one.id === group.anchor) || nodes[0];
      const hosted = (group.steps || []).some((at) => fusewise.index.steps.get(at)?.kind === "host");
      const runs = kernels.length ? "native" : hosted ? "host" : "view";
      return {
        ...group,
        nodes,
        time,
        ms: time.ms ?? null,
        share: time.share ?? null,
        peak: time.peak ?? null,
        bound: time.limit || (time.bound === "compute" ? "arithmetic" : time.bound || ""),
        level: time.level || "",
        ways,
        families,
        lead,
        runs,
        flops: nodes.reduce((sum, one) => sum + (one.flops || 0), 0),
        text: [group.title, group.id, ways, ...nodes.map((one) => one.name)].join("\n").toLowerCase(),
      };
    });
  }

  function groupsList() {
    const rows = groupRows();
    const measured = rows.some((row) => row.ms !== null);
    const ran = Boolean(fusewise.document.steps?.length);
    const most = Math.max(...rows.map((row) => row.share || 0), 1e-9);
    const clock = isEstimate() ? "Estimate" : "Time";
    const timed = [
      { title: clock, number: true, key: "ms", show: (row) => ms(row.ms) },
      { title: "Share", number: true, key: "share", show: (row) => [percent(row.share), bar(row.share / most)] },
      { title: "Of its roof", number: true, key: "peak", show: (row) => percent(row.peak, 0) },
      { title: isEstimate() ? "Most of it for" : "Bound by", key: "bound" },
      ...(fusewise.document.device ? [] : [{ title: "Level", key: "level" }]),
    ];
    const kernel = {
      title: "Kernel",
      key: "families",
      class: "way",
      show: (row) => (row.families ? el("span", { title: row.ways }, name(row.families)) : el("span", { class: "soft" }, row.runs)),
    };
    const columns = [
      { title: "Group", value: (row) => row.title, show: (row) => [name(row.title), el("span", { class: "soft" }, ` ${row.id}`)] },
      { title: "Around", value: (row) => row.lead?.name ?? "", class: "way", show: (row) => row.lead && name(row.lead.name) },
      ...(measured ? timed : []),
      { title: "Operators", number: true, value: (row) => row.nodes.length, show: (row) => count(row.nodes.length) },
      { title: "Arithmetic", number: true, key: "flops", show: (row) => (row.flops ? short(row.flops) : "") },
      { title: "Saved", number: true, key: "bytes_saved", show: (row) => (row.bytes_saved ? bytes(row.bytes_saved) : "") },
      ...(ran ? [kernel] : []),
    ];
    const fields = [
      ["Filter by name, operator or kernel", null],
      ...(ran ? [["Runs", kinds(rows, (row) => row.runs)]] : []),
      ...(measured ? [[isEstimate() ? "Most of it for" : "Bound by", kinds(rows, (row) => row.bound)]] : []),
    ];
    const fits = (row, [text, runs, bound]) =>
      has(row.text, text) && (!runs || row.runs === runs) && (!bound || row.bound === bound);
    return filtered(fields, rows, fits, {
      columns,
      caption: "Groups",
      sorted: measured ? clock : "Arithmetic",
      target: (row) => ({ kind: "group", id: row.id, graph: compiled() }),
    });
  }

  // What a kernel's way says beside its family.
  const scheduled = (kernel) =>
    Object.entries(kernel.schedule || {})
      .map(([key, value]) => `${key}=${value}`)
      .join(" ") ||
    kernel.way ||
    "";

  function kernelsList() {
    const rows = (fusewise.document.kernels || []).map((kernel) => {
      const groups = new Set((kernel.steps || []).map((at) => fusewise.index.steps.get(at)?.group));
      const times = [...groups]
        .map((id) => fusewise.index.times.get(id)?.ms)
        .filter((value) => value !== undefined && value !== null);
      return {
        ...kernel,
        used: (kernel.steps || []).length,
        ms: times.length ? times.reduce((a, b) => a + b, 0) : null,
        lines: kernel.ir || kernel.source ? (kernel.ir || kernel.source).split("\n").length : null,
        registers: kernel.gpu?.registers ?? null,
        shared_bytes: kernel.gpu?.shared_bytes ?? null,
        occupancy: kernel.gpu?.occupancy ?? null,
        text: [kernel.symbol, kernel.way, kernel.family].join("\n").toLowerCase(),
      };
    });
    const columns = [
      { title: "Kernel", value: (row) => row.symbol, show: (row) => name(row.symbol) },
      { title: "Family", key: "family", show: (row) => row.family && name(row.family) },
      { title: "Schedule", sort: false, class: "way", show: (row) => scheduled(row) && name(scheduled(row)) },
      { title: "Steps", number: true, key: "used", show: (row) => count(row.used) },
      ...(rows.some((row) => row.ms !== null)
        ? [{ title: `${isEstimate() ? "Estimate" : "Time"} of its groups`, number: true, key: "ms", show: (row) => ms(row.ms) }]
        : []),
      ...(rows.some((row) => row.gpu)
        ? [
            { title: "Registers", number: true, key: "registers", show: (row) => count(row.registers) },
            { title: "Shared memory", number: true, key: "shared_bytes", show: (row) => bytes(row.shared_bytes) },
            { title: "Occupancy", number: true, key: "occupancy", show: (row) => percent(row.occupancy, 0) },
          ]
        : []),
      { title: rows.some((row) => row.source) ? "Lines for Triton" : "Lines of LLVM IR", number: true, key: "lines", show: (row) => count(row.lines) },
      ...(rows.some((row) => row.code_bytes)
        ? [{ title: "Machine code", number: true, key: "code_bytes", show: (row) => bytes(row.code_bytes) }]
        : []),
    ];
    const fits = (row, [text, family]) => has(row.text, text) && (!family || String(row.family).toLowerCase() === family);
    const fields = [
      ["Filter kernels", null],
      ["Family", kinds(rows, (row) => row.family)],
    ];
    return filtered(fields, rows, fits, {
      columns,
      caption: "Kernels",
      sorted: "Steps",
      target: (row) => ({ kind: "kernel", id: row.id }),
    });
  }

  function kernels(element) {
    if (fusewise.document.groups?.length)
      element.append(
        el(
          "p",
          {},
          "A group is computed in one go; what lies between its operators is never written to memory. Its time is that of its steps together.",
        ),
        el("h3", {}, "Groups"),
        groupsList(),
      );
    if (fusewise.document.kernels?.length)
      element.append(el("h3", {}, "Kernels"), el("p", {}, "Equal groups share their kernel."), kernelsList());
  }

  // Text of a few names, and how many more there are.
  const few = (names, most = 2) =>
    names.length > 0 && [
      name(names.slice(0, most).join(", ")),
      names.length > most ? el("span", { class: "soft" }, ` and ${count(names.length - most)} more`) : null,
    ];

  const optional = (row) => (row.option ? el("code", {}, row.option) : "");

  function decisionsList() {
    const rows = fusewise.document.decisions.map((decision, at) => ({
      ...decision,
      at,
      where: decision.where || [],
      outcome: fusewise.details.outcome(decision),
      text: [decision.what, decision.kind, decision.reason, decision.option, ...(decision.where || [])].join("\n").toLowerCase(),
    }));
    const columns = [
      { title: "What", value: (row) => row.what, show: (row) => name(row.what) },
      { title: "Kind", key: "kind" },
      { title: "Outcome", key: "outcome", show: fusewise.details.outcomeMark },
      { title: "Where", value: (row) => row.where[0] || "", class: "way", show: (row) => few(row.where) },
      { title: "Reason", key: "reason", class: "way", show: (row) => row.reason && name(row.reason) },
      ...(rows.some((row) => row.outcome !== "idle" && fusewise.details.figures(row))
        ? [{ title: "Cost", sort: false, show: (row) => fusewise.details.figures(row) }]
        : []),
      ...(rows.some((row) => row.option) ? [{ title: "Changed by", key: "option", show: optional }] : []),
    ];
    const fields = [
      ["Filter decisions by anything they say", null],
      ["Kind", counted(rows, (row) => row.kind)],
      ["What", counted(rows, (row) => row.what)],
      ["Outcome", counted(rows, (row) => row.outcome), "all but idle passes"],
    ];
    const fits = (row, [text, kind, what, outcome]) =>
      has(row.text, text) &&
      (!kind || String(row.kind).toLowerCase() === kind) &&
      (!what || String(row.what).toLowerCase() === what) &&
      (outcome ? row.outcome === outcome : row.outcome !== "idle");
    return filtered(fields, rows, fits, { columns, caption: "Decisions", target: (row) => ({ kind: "decision", id: row.at }) });
  }

  function verdictsList() {
    const graph = compiled();
    const label = (id) => nodeOf(graph, id)?.name ?? "";
    const rows = fusewise.document.verdicts.map((one) => {
      const [from, to] = [label(one.from), label(one.to)];
      return {
        ...one,
        fromName: from,
        toName: to,
        outcome: one.fused ? "fused" : "not fused",
        why: one.reason || one.verdict || "",
        changed: one.option ? "an option" : "no option",
        text: [from, to, one.verdict, one.reason, one.option].join("\n").toLowerCase(),
      };
    });
    const columns = [
      { title: "From", value: (row) => row.fromName, class: "way", show: (row) => name(row.fromName) },
      { title: "To", value: (row) => row.toName, class: "way", show: (row) => name(row.toName) },
      { title: "Outcome", key: "outcome", show: (row) => fusewise.details.state(row.fused, "fused", "not fused") },
      { title: "Verdict", key: "verdict" },
      { title: "Reason", key: "why", class: "way", show: (row) => row.why && name(row.why) },
      { title: "Bytes", number: true, key: "saved_bytes", show: (row) => (row.saved_bytes ? bytes(row.saved_bytes) : "") },
      ...(rows.some((row) => row.option) ? [{ title: "Changed by", key: "option", show: optional }] : []),
    ];
    const fields = [
      ["Filter edges", null],
      ["Outcome", counted(rows, (row) => row.outcome)],
      ["Why", counted(rows, (row) => row.why)],
      ...(rows.some((row) => row.option) ? [["Changed by", counted(rows, (row) => row.changed)]] : []),
    ];
    const fits = (row, [text, outcome, why, changed]) =>
      has(row.text, text) &&
      (!outcome || row.outcome === outcome) &&
      (!why || row.why.toLowerCase() === why) &&
      (!changed || row.changed === changed);
    return filtered(fields, rows, fits, {
      columns,
      caption: "Edges",
      sorted: "Bytes",
      target: (row) => ({ kind: "node", id: row.from, graph }),
    });
  }

  function decisions(element) {
    if (fusewise.document.decisions?.length)
      element.append(
        el(
          "p",
          {},
          "In the order in which they were made. Where an option changes one, it stands beside it; the details of a decision copy it.",
        ),
        decisionsList(),
      );
    if (fusewise.document.verdicts?.length)
      element.append(
        el("h3", {}, "Edges"),
        el("p", {}, "What lies between two operators: whether they are fused, why, and the bytes that fusing saves or would save."),
        verdictsList(),
      );
  }

  // Has the document charts of a section? They bring their figures as a table.
  const drawn = (section) =>
    Boolean(fusewise.charts) && (fusewise.document.charts || []).some((chart) => chart.section === section);

  // The GPU that a model is for, by its maker's data sheet.
  const ofDevice = (device) =>
    facts([
      ["GPU", `${device.architecture}, as the ${device.product}: ${count(device.multiprocessors)} multiprocessors`],
      [
        "Peaks of its data sheet",
        Object.entries(device.peaks_gflops).map(([kind, gflops]) =>
          el("span", { class: "line" }, `${kind}: ${(gflops / 1000).toFixed(1)} TFLOP/s`),
        ),
      ],
      ["Memory", `${device.copy_gbs.toFixed(0)} GB/s, ${bytes(device.l2_bytes)} of cache`],
      ["A launch", `${device.launch_us} µs, an estimate`],
    ]);

  function time(element) {
    const times = fusewise.document.times;
    const { device, estimates } = fusewise.document;
    const stages = fusewise.document.compile?.stages || [];
    if (device) element.append(ofDevice(device));
    if (isEstimate())
      element.append(
        el("p", {}, "Nothing was measured: these are estimates, from the data sheet of the GPU and the bytes and arithmetic of each launch."),
        facts([["All launches, one after another", `${ms(estimates.ms)}, an estimate`]]),
      );
    else if (times) {
      const limits = times.limits || {};
      const levels = (limits.levels || []).map((one) =>
        el(
          "span",
          { class: "line" },
          `${one.name}${one.bytes ? ` ${bytes(one.bytes)}` : ""}: ${one.gbs?.toFixed?.(1) ?? one.gbs} GB/s`,
        ),
      );
      element.append(
        facts([
          ["A run", `${ms(times.ms)}${times.runs ? `, median of ${count(times.runs)}` : ""}`],
          ["Arithmetic", limits.gflops ? `${limits.gflops.toFixed(0)} GFLOP/s at most` : null],
          ["Copying", limits.copy_gbs && !device ? `${limits.copy_gbs.toFixed(1)} GB/s from memory` : null],
          [device ? "Of its data sheet" : "Levels, all threads", levels],
          ["Disturbed", times.disturbed || limits.disturbed || null],
        ]),
      );
    } else element.append(el("p", {}, "No times of runs were measured for this report."));
    element.append(el("div", { class: "charts" }));
    if (stages.length && !drawn("compile")) {
      const most = Math.max(...stages.map((one) => one.ms || 0), 1e-9);
      const columns = [
        { title: "Stage", key: "name", show: (row) => name(row.name) },
        { title: "Time", number: true, key: "ms", show: (row) => ms(row.ms) },
        { title: "Bar of the time", sort: false, hidden: true, show: (row) => bar(row.ms / most) },
      ];
      element.append(el("h3", {}, "Compiling"), table({ columns, rows: stages, caption: "Time of each stage of compiling" }));
    }
  }

  function memory(element) {
    const about = fusewise.document.memory;
    const peak = Math.max(0, ...(about.steps || []).map((one) => one.live_bytes || 0));
    element.append(
      facts([
        ["Memory of a run", bytes(about.arena_bytes)],
        ["Alive at once, at most", peak ? bytes(peak) : null],
        ["Constants", bytes(about.constant_bytes)],
        ["Buffers", count((about.buffers || []).length)],
      ]),
    );
    element.append(el("div", { class: "charts" }));
    if (!about.buffers?.length) return;
    const rows = about.buffers.map((one) => ({ ...one, text: `${one.value}\n${one.kind}`.toLowerCase() }));
    const columns = [
      {
        title: "Value",
        value: (row) => row.value,
        class: "way",
        show: (row) => (row.value ? name(row.value) : `for step ${row.first}`),
      },
      { title: "Kind", key: "kind" },
      { title: "Size", number: true, key: "bytes", show: (row) => bytes(row.bytes) },
      { title: "Offset", number: true, key: "offset", show: (row) => count(row.offset) },
      { title: "First step", number: true, key: "first", show: (row) => count(row.first) },
      { title: "Last step", number: true, key: "last", show: (row) => count(row.last) },
    ];
    const fits = (row, [text, kind]) => has(row.text, text) && (!kind || String(row.kind).toLowerCase() === kind);
    element.append(
      el("h3", {}, "Buffers"),
      filtered(
        [
          ["Filter buffers", null],
          ["Kind", kinds(rows, (row) => row.kind)],
        ],
        rows,
        fits,
        {
          columns,
          caption: "Buffers",
          sorted: "Size",
          target: (row) => (row.value ? { kind: "value", id: row.value, graph: compiled() } : { kind: "step", id: row.first }),
        },
      ),
    );
  }

  Object.assign(fusewise.sections, {
    kernels: { title: "Kernels", mount: kernels },
    decisions: { title: "Decisions", mount: decisions },
    time: { title: "Time", mount: time },
    memory: { title: "Memory", mount: memory },
  });
})();

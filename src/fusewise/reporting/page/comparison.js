// Two reports beside each other.
(() => {
  "use strict";
  const fusewise = window.fusewise;
  const { el, count, bytes, ms, table } = fusewise.dom;
  const shown = (value, unit) =>
    value === null || value === undefined
      ? "-"
      : unit === "ms"
        ? ms(value)
        : unit === "bytes"
          ? bytes(value)
          : `${fusewise.parts.number(value)} ${unit}`.trim();

  // A ratio in words that say which side is better.
  function judged(row) {
    if (row.ratio === null || row.ratio === undefined) return "";
    if (row.ratio === 1) return "as before";
    const better = row.better === undefined ? "less" : row.better;
    const text = `${row.ratio.toFixed(3)} x`;
    if (!better || Math.abs(row.ratio - 1) < 0.05) return text;
    return el(
      "span",
      { class: row.ratio < 1 === (better === "less") ? "good" : "bad" },
      `${text} ${row.ratio < 1 === (better === "less") ? "better" : "worse"}`,
    );
  }

  function pairs(rows, caption) {
    const columns = [
      { title: "Figure", key: "name" },
      { title: "First", key: "first", show: (row) => shown(row.first, row.unit ?? "ms"), number: true },
      { title: "Second", key: "second", show: (row) => shown(row.second, row.unit ?? "ms"), number: true },
      { title: "Second to first", key: "ratio", show: judged, number: true },
    ];
    return table({ columns, rows, caption });
  }

  function groups(part) {
    const timed = part.groups.some((row) => row.first !== null || row.second !== null);
    const told = (row) =>
      [row.regrouped ? "other groups" : "", row.another_way ? "another kernel" : ""].filter(Boolean).join(", ") || "the same";
    const ways = (row) =>
      row.another_way
        ? el(
            "details",
            {},
            el("summary", {}, `${row.first_ways[0] || "none"} → ${row.second_ways[0] || "none"}`),
            el("p", {}, `First: ${row.first_ways.join("; ") || "none"}`),
            el("p", {}, `Second: ${row.second_ways.join("; ") || "none"}`),
          )
        : el("span", { class: "soft" }, row.second_ways[0] || "");
    const columns = [
      { title: "Group", key: "title" },
      {
        title: "Written nodes",
        class: "wide",
        value: (row) => row.written[0] || "",
        show: (row) => fusewise.parts.names(row.written, 2),
      },
      ...(timed
        ? [
            { title: "First", key: "first", show: (row) => ms(row.first), number: true },
            { title: "Second", key: "second", show: (row) => ms(row.second), number: true },
            {
              title: "Change",
              value: (row) => (row.second ?? 0) - (row.first ?? 0),
              show: (row) =>
                row.first === null || row.second === null
                  ? ""
                  : row.second === row.first
                    ? "0"
                    : `${row.second > row.first ? "+" : "-"}${ms(Math.abs(row.second - row.first))}`,
              number: true,
            },
            { title: "Second to first", key: "ratio", show: judged, number: true },
          ]
        : []),
      { title: "What differs", value: told, show: told },
      { title: "Kernels", class: "wide", sort: false, show: ways },
    ];
    const differing = part.groups.filter((row) => row.regrouped || row.another_way);
    const box = table({ columns, rows: part.groups, caption: "Groups of both, matched by the nodes of the model", limit: 50 });
    const only = el("input", { type: "checkbox", on: { change: () => box.update(only.checked ? differing : part.groups) } });
    return [
      el(
        "label",
        { class: "check" },
        only,
        ` only the ${count(differing.length)} of ${count(part.groups.length)} that were made in another way`,
      ),
      box,
    ];
  }

  function decisions(found, which) {
    const columns = [
      { title: "Kind", key: "kind" },
      { title: "What", key: "what" },
      { title: "Where", value: (row) => row.where[0] || "", show: (row) => fusewise.parts.names(row.where, 3) },
      { title: "Done", value: (row) => String(row.applied), show: (row) => (row.applied ? "yes" : "no") },
      { title: "Reason", key: "reason" },
    ];
    const left = found.count - found.rows.length;
    return [
      el("h4", {}, `Only in the ${which}: ${count(found.count)}`),
      left > 0 ? el("p", { class: "soft" }, `The first ${count(found.rows.length)} are listed.`) : null,
      found.count ? table({ columns, rows: found.rows, caption: `Decisions only in the ${which}`, limit: 30 }) : null,
    ];
  }

  function sides(part) {
    const rows = [
      ["Model", "title"],
      ["Fusewise", "fusewise"],
      ["Made at", "at"],
      ["Verb", "verb"],
      ["Command", "command"],
      ["Processor", "processor"],
      ["Threads", "threads"],
      ["Instruction set", "instruction_set"],
    ].map(([title, key]) => ({ title, first: part.sides[0][key], second: part.sides[1][key] }));
    const differs = (row) => (row.first === row.second ? "" : "differs");
    const text = (value) => (Array.isArray(value) ? value.join(", ") : value);
    const columns = [
      { title: "Made with", key: "title", sort: false },
      { title: "First", sort: false, show: (row) => text(row.first) },
      { title: "Second", sort: false, show: (row) => text(row.second) },
      { title: "", sort: false, hidden: true, show: differs },
    ];
    return table({ columns, rows: rows.filter((row) => row.first || row.second), caption: "What both were made with" });
  }

  function mount(element) {
    const part = fusewise.document.comparison;
    const { card, list, soft } = fusewise.parts;
    const told = part.differences.map((row) => `${row.what}: ${row.first} in the first, ${row.second} in the second`);
    element.append(
      card(
        "The two reports",
        sides(part),
        told.length
          ? [el("h4", {}, "What differs in how they were made"), list(told)]
          : soft("Both were made with the same version, machine and options."),
      ),
    );
    element.append(card("Figures", pairs(part.figures, "Figures of both")), el("div", { class: "charts" }));
    if (part.stages.length) element.append(card("Time to compile, by stage", pairs(part.stages, "Stages of both")));
    if (part.groups.length)
      element.append(
        card(
          "Groups",
          soft(
            "Groups that cover the same nodes of the model as it was written stand in one row; where nodes are grouped otherwise, these groups together.",
          ),
          groups(part),
        ),
      );
    element.append(
      card(
        "Decisions",
        soft(`${count(part.decisions.both)} decisions are the same.`),
        decisions(part.decisions.first, "first"),
        decisions(part.decisions.second, "second"),
      ),
    );
  }

  (fusewise.sections = fusewise.sections || {}).comparison = { title: "Comparison", mount };
})();

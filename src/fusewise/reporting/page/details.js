// The panel about what is selected: what it is, where it comes from, what was decided about it and what would change that.
(() => {
  "use strict";
  const fusewise = window.fusewise;
  const { el, name, button, copyButton, count, bytes, short, percent, ms, facts } = fusewise.dom;
  const { compiled, node: nodeOf, became, decisionsOf, groupTitle, isEstimate } = fusewise.lookup;
  const MANY = 12;
  let panel = null;
  let before = null;

  const MAPPINGS = {
    one_to_one: "one-to-one: each element of the result comes from one element of each operand",
    reorganize: "reorganize: the elements of the operand in the same order, under another shape",
    shuffle: "shuffle: the elements of the operand in another order",
    one_to_many: "one-to-many: elements of the operand are used for several of the result",
    many_to_many: "many-to-many: each element of the result comes from many of the operand",
    opaque: "opaque: which elements are read depends on data, so nothing is fused with it",
  };
  const RUNS = {
    kernel: "in a kernel",
    host: "on the host",
    view: "not at all: its result is another view of the same memory",
  };

  const words = (mapping) =>
    MAPPINGS[
      String(mapping ?? "")
        .toLowerCase()
        .replaceAll("-", "_")
    ] || mapping;
  const stageOf = (graph) => (fusewise.document.stages || []).find((stage) => stage.id === graph)?.title || graph;
  const to = (kind, id, label, graph = null) => button(name(label), () => fusewise.select({ kind, id, graph }), { class: "link" });
  const toNode = (graph, one) => to("node", one.id, one.name || one.op, graph);
  const toValue = (graph, value) => to("value", value, value, graph);
  const section = (title, ...children) => el("section", {}, el("h3", {}, title), children);

  // A list that shows its first rows, and the others when asked.
  function list(items, attributes = {}) {
    const made = el(
      "ul",
      { class: "plain", ...attributes },
      items.slice(0, MANY).map((item) => el("li", {}, item)),
    );
    if (items.length <= MANY) return made;
    const rest = button(
      `Show ${count(items.length - MANY)} more`,
      () => {
        made.append(...items.slice(MANY).map((item) => el("li", {}, item)));
        rest.remove();
        made.children[MANY].querySelector("button, a")?.focus();
      },
      { class: "small" },
    );
    return el("div", {}, made, rest);
  }

  // The command-line text that changes a decision, to be copied.
  function option(text) {
    return text
      ? el("div", { class: "option" }, el("span", { class: "soft" }, "Changed by "), el("code", {}, text), copyButton(text))
      : null;
  }

  // What a decision cost or saved, by its own unit.
  function figures(decision) {
    const { before: was, after: is, unit } = decision;
    if (was === null || was === undefined || is === null || is === undefined) return null;
    const write = { bytes, ms }[unit] || short;
    return el(
      "span",
      { class: "figure" },
      `${write(was)} → ${write(is)}${unit && !["bytes", "ms"].includes(unit) ? ` ${unit}` : ""}`,
    );
  }

  function saved(verdict) {
    const parts = [];
    if (verdict.saved_bytes) parts.push(bytes(verdict.saved_bytes));
    if (verdict.saved_ms) parts.push(ms(verdict.saved_ms));
    if (!parts.length) return "";
    return `${verdict.fused ? "saves" : "fusing would save"} ${parts.join(", ")}`;
  }

  const state = (good, yes, no) => el("span", { class: good ? "state good" : "state off" }, good ? yes : no);

  // What became of a decision: a pass that found nothing to change was not refused.
  const outcome = (decision) =>
    decision.applied
      ? "applied"
      : decision.kind === "pass" && decision.before === decision.after && decision.before !== null
        ? "idle"
        : "refused";
  const outcomeMark = (decision) => state(decision.applied, "applied", outcome(decision));

  function decisionCard(at) {
    const decision = fusewise.document.decisions[at];
    const head = [to("decision", at, decision.what), " ", el("span", { class: "soft" }, decision.kind), " ", outcomeMark(decision)];
    return el(
      "div",
      { class: "decision" },
      el("p", {}, head),
      decision.reason && el("p", {}, name(decision.reason)),
      figures(decision),
      option(decision.option),
    );
  }

  function verdictCard(at, here) {
    const graph = compiled();
    const verdict = fusewise.document.verdicts[at];
    const outward = verdict.from === here;
    const other = nodeOf(graph, outward ? verdict.to : verdict.from);
    const head = [
      el("span", { "aria-hidden": "true" }, outward ? "→ " : "← "),
      el("span", { class: "unseen" }, outward ? "to " : "from "),
      other ? toNode(graph, other) : "outside",
      " ",
      state(verdict.fused, "fused", "not fused"),
    ];
    const why = [verdict.verdict, verdict.reason].filter(Boolean).join(": ");
    return el(
      "div",
      { class: "decision" },
      el("p", {}, head),
      why && el("p", {}, name(why)),
      saved(verdict) && el("span", { class: "figure" }, saved(verdict)),
      verdict.rule && el("p", { class: "soft" }, `Rule ${verdict.rule}`),
      option(verdict.option) || (!verdict.fused && el("p", { class: "soft" }, "No option changes this")),
    );
  }

  function values(graph, names) {
    const types = fusewise.index.graphs[graph]?.graph.values || {};
    return names.map((value) =>
      value
        ? [
            toValue(graph, value),
            el("span", { class: "type" }, types[value]?.type ?? ""),
            types[value]?.constant ? el("span", { class: "soft" }, " constant") : null,
          ]
        : el("span", { class: "soft" }, "left out"),
    );
  }

  function stages(graph, one) {
    const rows = [];
    for (const other of Object.keys(fusewise.index.graphs)) {
      if (other === graph) continue;
      const found = became(graph, one, other);
      const items = found.map((each) => [toNode(other, each), el("span", { class: "soft" }, ` ${each.op}`)]);
      rows.push([stageOf(other), items.length ? list(items) : el("span", { class: "soft" }, "nothing of it")]);
    }
    return rows.length ? section("In the other stages", facts(rows)) : null;
  }

  function ofNode({ id, graph }) {
    const one = nodeOf(graph, id);
    const verdicts = graph === compiled() ? fusewise.index.verdicts.get(id) || [] : [];
    const decisions = decisionsOf(graph, one);
    const attributes = Object.entries(one.attributes || {}).map(([key, value]) => [key, el("code", { class: "value" }, value)]);
    return {
      kind: "Node",
      title: one.name || one.op,
      body: [
        facts([
          ["Operator", one.domain ? `${one.domain}.${one.op}` : one.op],
          ["Stage", stageOf(graph)],
          ["Mapping", words(one.mapping)],
          ["Arithmetic", one.flops ? `${short(one.flops)}FLOP` : null],
          ["Memory", one.bytes ? bytes(one.bytes) : null],
          ["Runs", one.runs ? RUNS[one.runs] || one.runs : null],
          ["How", one.how ? name(one.how) : null],
          [
            "Group",
            one.group !== null && one.group !== undefined && fusewise.index.groups.has(one.group)
              ? to("group", one.group, groupTitle(one.group))
              : null,
          ],
        ]),
        section("Reads", list(values(graph, one.inputs))),
        section("Writes", list(values(graph, one.outputs))),
        attributes.length ? section("Attributes", facts(attributes)) : null,
        verdicts.length ? section("Neighbours", list(verdicts.map((at) => verdictCard(at, id)))) : null,
        section(
          "Decisions",
          decisions.length ? list(decisions.map(decisionCard)) : el("p", { class: "soft" }, "None names this node."),
        ),
        stages(graph, one),
      ],
    };
  }

  // What a group reads that it does not make, and what it makes that is read outside.
  function border(graph, members) {
    const index = fusewise.index.graphs[graph];
    if (!index) return [[], []];
    const inside = new Set(members.map((one) => one.id));
    const made = new Set(members.flatMap((one) => one.outputs));
    const reads = new Set(members.flatMap((one) => one.inputs).filter((value) => value && !made.has(value)));
    const results = new Set(index.graph.outputs);
    const leaves = (value) => results.has(value) || (index.readers.get(value) || []).some((id) => !inside.has(id));
    return [[...reads], [...made].filter((value) => value && leaves(value))];
  }

  // Ceilings of kernels that multiply less often than the operator says are above what the machine does.
  const spared = (row) =>
    row.ceiling_gflops > 1.01 * fusewise.lookup.timed()?.limits?.gflops ? ", multiplications that its kernel saves counted" : "";

  function roof(row) {
    if (!row) return [];
    return [
      [
        isEstimate() ? "Estimate" : "Time",
        row.ms === null || row.ms === undefined ? null : `${ms(row.ms)}, ${percent(row.share)} of ${isEstimate() ? "all launches, not measured" : "a run"}`,
      ],
      [
        "Arithmetic",
        row.gflops ? `${row.gflops.toFixed(1)} of ${row.ceiling_gflops?.toFixed(1) ?? "?"} GFLOP/s${spared(row)}` : null,
      ],
      [
        "Moving data",
        row.gbs ? `${row.gbs.toFixed(1)} of ${row.ceiling_gbs?.toFixed(1) ?? "?"} GB/s${row.level ? `, ${row.level}` : ""}` : null,
      ],
      [
        row.limit ? "Most of it for" : "Bound by",
        row.limit ||
          (row.bound
            ? `${row.bound === "compute" ? "arithmetic" : "memory"}${row.peak === null || row.peak === undefined ? "" : `, ${percent(row.peak, 0)} of its roof reached`}`
            : null),
      ],
    ];
  }

  function ofGroup({ id }) {
    const group = fusewise.index.groups.get(id);
    const graph = compiled();
    const members = group.nodes.map((each) => nodeOf(graph, each)).filter(Boolean);
    const [reads, writes] = border(graph, members);
    const anchor = group.anchor === null || group.anchor === undefined ? null : nodeOf(graph, group.anchor);
    const steps = (group.steps || []).map((each) => fusewise.index.steps.get(each)).filter(Boolean);
    const kernels = [...new Set(steps.map((step) => step.kernel))].map((each) => fusewise.index.kernels.get(each)).filter(Boolean);
    const outward = members.flatMap((one) =>
      (fusewise.index.verdicts.get(one.id) || [])
        .filter((at) => !fusewise.document.verdicts[at].fused)
        .map((at) => verdictCard(at, one.id)),
    );
    return {
      kind: `Group ${id}`,
      title: group.title,
      body: [
        facts([
          ...roof(fusewise.index.times.get(id)),
          ["Mapping", words(group.mapping)],
          ["Anchor", anchor && toNode(graph, anchor)],
          [kernels.length > 1 ? "Kernels" : "Kernel", kernels.map((one) => el("span", { class: "line" }, to("kernel", one.id, one.family || one.symbol)))],
          ["Saved by fusion", group.bytes_saved ? `${bytes(group.bytes_saved)} never written` : null],
        ]),
        section("Members", list(members.map((one) => [toNode(graph, one), el("span", { class: "soft" }, ` ${one.op}`)]))),
        group.stopped_by?.length ? section("Why it ends here", list(group.stopped_by.map((text) => name(text)))) : null,
        outward.length ? section("Edges that were not fused", list(outward)) : null,
        section("Reads", list(values(graph, reads))),
        section("Writes", list(values(graph, writes))),
        steps.length ? section("Steps", list(steps.map(stepLine))) : null,
      ],
    };
  }

  function stepLine(step) {
    const kernel = fusewise.index.kernels.get(step.kernel);
    return [
      to("step", step.index, `${step.index}: ${step.label || step.kind}`),
      " ",
      kernel ? to("kernel", kernel.id, kernel.family || kernel.symbol) : el("span", { class: "soft" }, step.kind),
      step.reason ? el("p", {}, name(step.reason)) : null,
    ];
  }

  // Text that may be long: folded, made when it is opened, with its number of lines.
  function folded(title, text) {
    const lines = text.split("\n").length;
    const box = el("details", { class: "folded" }, el("summary", {}, `${title}, ${count(lines)} line${lines === 1 ? "" : "s"}`));
    box.addEventListener("toggle", () => {
      if (box.open && box.children.length === 1)
        box.append(
          copyButton(text, `Copy ${title}`),
          el("pre", { class: "scroll code", tabindex: "0", "aria-label": title }, text),
        );
    });
    return box;
  }

  // What a kernel takes of a GPU's multiprocessor.
  function ofMultiprocessor(gpu) {
    if (!gpu) return [];
    return [
      ["Registers", `${count(gpu.registers)} of a thread, ${count(gpu.threads)} threads of a block`],
      ["Shared memory", gpu.shared_bytes ? `${bytes(gpu.shared_bytes)} of a block` : "none"],
      ["Spilled", gpu.stack_bytes ? `${bytes(gpu.stack_bytes)} of a thread` : null],
      ["Tensor cores", gpu.tensor_instructions ? `${count(gpu.tensor_instructions)} instructions` : "not used"],
      [
        "Occupancy",
        `${percent(gpu.occupancy, 0)}: ${count(gpu.blocks_per_multiprocessor)} block${gpu.blocks_per_multiprocessor === 1 ? "" : "s"} of a multiprocessor, limited by ${gpu.occupancy_limit}`,
      ],
    ];
  }

  const us = (value) => `${value.toFixed(value < 10 ? 2 : 1)} µs`;

  // What a launch may take.
  function ofEstimate(estimate) {
    if (!estimate) return [];
    return [
      ["Estimate, not measured", `${us(estimate.us)}, most of it for ${estimate.limit}`],
      ["Of that", `launch ${us(estimate.launch_us)}, memory ${us(estimate.memory_us)} beside arithmetic ${us(estimate.arithmetic_us)}`],
      ["Waves", `${estimate.waves.toFixed(2)}: how often its blocks fill the device`],
    ];
  }

  function ofKernel({ id }) {
    const kernel = fusewise.index.kernels.get(id);
    const steps = (kernel.steps || []).map((each) => fusewise.index.steps.get(each)).filter(Boolean);
    const groups = [...new Set(steps.map((step) => step.group).filter((each) => fusewise.index.groups.has(each)))];
    const schedule = Object.entries(kernel.schedule || {}).map(([key, value]) => [key, String(value)]);
    return {
      kind: kernel.family ? `Kernel: ${kernel.family}` : "Kernel",
      title: kernel.symbol,
      body: [
        facts([
          ["Way", schedule.length ? null : kernel.way && name(kernel.way)],
          ...ofMultiprocessor(kernel.gpu),
          ["Machine code", kernel.code_bytes ? bytes(kernel.code_bytes) : null],
          ["Used by", `${count(steps.length)} step${steps.length === 1 ? "" : "s"}`],
        ]),
        schedule.length ? section("Schedule", facts(schedule)) : null,
        kernel.nest || kernel.ir || kernel.source
          ? section(
              "Code",
              kernel.nest ? folded("Loop nest", kernel.nest) : null,
              kernel.ir ? folded("LLVM IR", kernel.ir) : null,
              kernel.source ? folded("Source for Triton", kernel.source) : null,
            )
          : null,
        groups.length ? section("Groups", list(groups.map((each) => to("group", each, groupTitle(each))))) : null,
        steps.length
          ? section("Steps", list(steps.map((step) => to("step", step.index, `${step.index}: ${step.label || step.kind}`))))
          : null,
      ],
    };
  }

  function ofValue({ id, graph }) {
    const there = fusewise.index.graphs[graph];
    const about = there?.graph.values?.[id] || {};
    const buffer = fusewise.index.buffers.get(id);
    const maker = there?.producer.get(id);
    const readers = (there?.readers.get(id) || []).map((each) => toNode(graph, there.graph.nodes[each]));
    const role = there?.graph.inputs.includes(id) ? "an input of the model" : about.constant ? "a constant" : null;
    return {
      kind: "Value",
      title: id,
      body: [
        facts([
          ["Type", about.type && el("span", { class: "type" }, about.type)],
          ["Size", about.bytes === null || about.bytes === undefined ? null : bytes(about.bytes)],
          ["Stage", stageOf(graph)],
          ["Made by", maker === undefined ? role : toNode(graph, there.graph.nodes[maker])],
          ["Result", there?.graph.outputs.includes(id) ? "an output of the model" : null],
        ]),
        section("Read by", readers.length ? list(readers) : el("p", { class: "soft" }, "No node of this stage.")),
        buffer
          ? section(
              "In memory",
              facts([
                ["Kind", buffer.kind],
                ["Offset", buffer.offset === null || buffer.offset === undefined ? null : `${count(buffer.offset)} B`],
                ["Size", bytes(buffer.bytes)],
                ["Alive", `from step ${buffer.first} to step ${buffer.last}`],
              ]),
            )
          : null,
      ],
    };
  }

  function ofStep({ id }) {
    const step = fusewise.index.steps.get(id);
    const graph = compiled();
    const kernel = fusewise.index.kernels.get(step.kernel);
    const link = (value) =>
      Object.hasOwn(fusewise.index.graphs[graph]?.graph.values || {}, value) ? toValue(graph, value) : name(value);
    return {
      kind: `Step ${id}`,
      title: step.label || step.kind,
      body: [
        facts([
          ["Runs", step.kind === "host" ? "on the host" : fusewise.document.device ? "as a launch on the GPU" : "natively"],
          ["Why", step.reason ? name(step.reason) : null],
          ["Group", fusewise.index.groups.has(step.group) ? to("group", step.group, groupTitle(step.group)) : null],
          ["Kernel", kernel ? to("kernel", kernel.id, kernel.family || kernel.symbol) : null],
          ["Way", kernel?.way ? name(kernel.way) : null],
          ...ofEstimate(step.estimate),
          ["Strips", step.strips ? count(step.strips) : null],
          ["Barrier", step.barrier ? "workers wait for each other before it" : null],
        ]),
        step.waits_for?.length ? section("Waits for", list(step.waits_for.map((each) => stepLine(fusewise.index.steps.get(each))))) : null,
        step.reads?.length ? section("Reads", list(step.reads.map(link))) : null,
        step.writes?.length ? section("Writes", list(step.writes.map(link))) : null,
      ],
    };
  }

  // The node that a name means, in the graph nearest to the program.
  function named(text) {
    for (const graph of ["native", "clean", "written"]) {
      const id = fusewise.index.graphs[graph]?.named.get(text);
      if (id !== undefined) return toNode(graph, fusewise.index.graphs[graph].graph.nodes[id]);
    }
    return name(text);
  }

  function ofDecision({ id }) {
    const decision = fusewise.document.decisions[id];
    return {
      kind: "Decision",
      title: decision.what,
      body: [
        facts([
          ["Kind", decision.kind],
          ["Outcome", outcomeMark(decision)],
          ["Reason", decision.reason && name(decision.reason)],
          ["Cost", figures(decision)],
        ]),
        option(decision.option),
        decision.where?.length ? section("Where", list(decision.where.map(named))) : null,
      ],
    };
  }

  const KINDS = { node: ofNode, group: ofGroup, kernel: ofKernel, value: ofValue, step: ofStep, decision: ofDecision };

  function titleOf(target) {
    if (target.kind === "node") return nodeOf(target.graph, target.id)?.name;
    if (target.kind === "group") return groupTitle(target.id);
    if (target.kind === "kernel") return fusewise.index.kernels.get(target.id)?.symbol;
    if (target.kind === "decision") return fusewise.document.decisions[target.id]?.what;
    if (target.kind === "step") return `step ${target.id}`;
    return target.id;
  }

  function close() {
    fusewise.select(null);
    if (before?.isConnected) before.focus();
    else document.getElementById("main").focus();
  }

  function draw(target) {
    const had = !panel.hidden;
    panel.hidden = !target.kind;
    document.getElementById("content").classList.toggle("with-details", Boolean(target.kind));
    if (!target.kind) {
      panel.replaceChildren();
      return;
    }
    if (!panel.contains(document.activeElement) && document.activeElement !== document.body) before = document.activeElement;
    const inside = panel.contains(document.activeElement);
    const { kind, title, body } = KINDS[target.kind](target);
    const locatable = fusewise.graph && ["node", "group", "value"].includes(target.kind);
    panel.replaceChildren(
      el(
        "div",
        { class: "details-head" },
        el("p", { class: "kind" }, kind),
        button("Close", close, { class: "small", "aria-label": "Close the details" }),
      ),
      el("h2", { tabindex: "-1" }, name(title)),
      el(
        "div",
        { class: "actions" },
        locatable ? button("Show in the graph", () => fusewise.locate(target), { class: "small" }) : null,
        copyButton(title, "Copy name"),
      ),
      ...body.filter(Boolean),
    );
    panel.scrollTop = 0;
    if (inside) panel.querySelector("h2").focus({ preventScroll: true });
    if (matchMedia("(max-width: 800px)").matches && (inside || !had || document.activeElement !== document.body))
      panel.scrollIntoView({ block: "start" });
  }

  function mount(element) {
    panel = element;
    document.addEventListener("fusewise-select", (event) => draw(event.detail));
    panel.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
    });
  }

  fusewise.details = { mount, titleOf, words, named, figures, option, saved, state, outcome, outcomeMark, to, toNode };
})();

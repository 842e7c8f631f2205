// What belongs to what in a document: made once, read by the lists, the details and the search.
(() => {
  "use strict";
  const fusewise = window.fusewise;

  function push(map, key, value) {
    const found = map.get(key);
    if (found) found.push(value);
    else map.set(key, [value]);
  }

  // Of one graph: who makes and who reads each value, nodes by name and by the written nodes they come from.
  function ofGraph(graph) {
    const made = { graph, producer: new Map(), readers: new Map(), named: new Map(), from: new Map() };
    for (const node of graph.nodes) {
      for (const value of node.outputs) if (value) made.producer.set(value, node.id);
      for (const value of new Set(node.inputs)) if (value) push(made.readers, value, node.id);
      made.named.set(node.name, node.id);
      for (const origin of node.origin || []) push(made.from, origin, node.id);
    }
    return made;
  }

  function make(whole) {
    const by = (rows, key) => new Map((rows || []).map((row) => [row[key], row]));
    const index = {
      graphs: Object.fromEntries(
        Object.entries(whole.graphs || {})
          .filter(([, graph]) => graph)
          .map(([id, graph]) => [id, ofGraph(graph)]),
      ),
      groups: by(whole.groups, "id"),
      kernels: by(whole.kernels, "id"),
      steps: by(whole.steps, "index"),
      times: by((whole.times || whole.estimates)?.groups, "group"),
      buffers: new Map(
        (whole.memory?.buffers || []).flatMap((row) => [row.value, ...(row.values || [])].map((value) => [value, row])),
      ),
      decisions: new Map(),
      verdicts: new Map(),
    };
    for (const [position, decision] of (whole.decisions || []).entries()) {
      for (const where of new Set(decision.where || [])) push(index.decisions, where, position);
    }
    for (const [position, verdict] of (whole.verdicts || []).entries()) {
      push(index.verdicts, verdict.from, position);
      if (verdict.to !== verdict.from) push(index.verdicts, verdict.to, position);
    }
    return index;
  }

  // The graph that is compiled: groups and verdicts speak of its nodes.
  const compiled = () => (fusewise.index.graphs.native ? "native" : Object.keys(fusewise.index.graphs).at(-1));

  function node(graph, id) {
    return fusewise.index.graphs[graph]?.graph.nodes[id] || null;
  }

  // The written nodes that a node comes from; a written one comes from itself.
  const origins = (graph, one) => (graph === "written" ? [one.name] : one.origin || []);

  // The nodes of another graph that share an origin with a node.
  function became(graph, one, other) {
    const there = fusewise.index.graphs[other];
    if (!there) return [];
    const found = new Set();
    for (const origin of origins(graph, one)) {
      if (other === "written") {
        if (there.named.has(origin)) found.add(there.named.get(origin));
      } else for (const id of there.from.get(origin) || []) found.add(id);
    }
    return [...found].sort((a, b) => a - b).map((id) => there.graph.nodes[id]);
  }

  // Positions of the decisions about a node, by its names now and as written, in their order.
  function decisionsOf(graph, one) {
    const found = new Set();
    for (const name of [one.name, ...origins(graph, one)]) for (const at of fusewise.index.decisions.get(name) || []) found.add(at);
    return [...found].sort((a, b) => a - b);
  }

  const groupTitle = (id) => {
    const group = fusewise.index.groups.get(id);
    return group ? `${group.title} (group ${id})` : `group ${id}`;
  };

  // What groups took, or may take: then it is an estimate.
  const timed = () => fusewise.document.times || fusewise.document.estimates || null;
  const isEstimate = () => !fusewise.document.times && Boolean(fusewise.document.estimates);

  // Time of a group in ms, or null.
  const groupMs = (id) => fusewise.index.times.get(id)?.ms ?? null;

  Object.assign(fusewise, { makeIndex: make, lookup: { compiled, node, origins, became, decisionsOf, groupTitle, groupMs, timed, isEstimate } });
})();

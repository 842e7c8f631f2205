// Charts of the document by Vega-Lite: in the colours of the page, as wide as there is room, with the same data as a table below.
(() => {
  "use strict";
  const fusewise = window.fusewise;
  const { el, button, table } = fusewise.dom;
  const LEAST = 460; // pixels that a chart needs across; where there are fewer it scrolls in its box
  const LARGEST = 2; // times as many pixels in a saved picture
  const SELECTABLE = ["node", "group", "kernel", "value", "step"];
  // Colours that stay apart for people who are colour-blind, after Okabe and Ito, made darker or lighter for the paper.
  const COLOURS = {
    light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6a00", "#56b4e9", "#6b7280", "#8c564b"],
    dark: ["#56b4e9", "#f0924a", "#3ccba0", "#e6a0c8", "#e3c84f", "#9db8ff", "#a3acb8", "#cf9f8f"],
  };

  // How charts look. Styles are those that specifications name (`STYLES` in charts/standalone.py).
  function look() {
    const styles = getComputedStyle(document.documentElement);
    const colour = (name) => styles.getPropertyValue(name).trim();
    const [ink, soft, line, box] = ["--ink", "--soft", "--line", "--box"].map(colour);
    const colours = COLOURS[fusewise.theme() === "dark" ? "dark" : "light"];
    const names = { labelColor: soft, titleColor: ink, titleFontWeight: "normal", labelLimit: 280 };
    return {
      background: box,
      font: colour("--sans") || "sans-serif",
      view: { stroke: null },
      axis: { ...names, gridColor: line, domainColor: soft, tickColor: soft, labelFontSize: 12, titleFontSize: 12 },
      legend: { ...names, orient: "top", titleOrient: "left", labelColor: ink, labelFontSize: 12, titleFontSize: 12 },
      mark: { color: colours[0] },
      range: { category: colours },
      style: {
        barrier: { color: soft, strokeWidth: 0.6, opacity: 0.5 },
        box: { fillOpacity: 0.45, stroke: box, strokeWidth: 0.8 },
        limit: { color: soft, strokeWidth: 1.5, strokeDash: [5, 4] },
        "limit-text": { color: soft, fontSize: 12 },
        spread: { color: ink, strokeWidth: 1.5 },
        "value-text": { color: ink, fontSize: 12 },
        wait: { color: line },
      },
    };
  }

  // Nothing is loaded: the data are in the specification.
  const loader = {
    load: () => Promise.reject(new Error("charts load nothing")),
    sanitize: () => Promise.reject(new Error("charts link to nothing")),
    http: () => Promise.reject(new Error("charts load nothing")),
    file: () => Promise.reject(new Error("charts load nothing")),
  };

  // What a mark stands for, as `select` in its data says: {kind, id}, or null.
  function aim(item) {
    const said = item?.datum?.select;
    if (typeof said !== "string") return null;
    const at = said.indexOf(":");
    const [kind, id] = [said.slice(0, at), said.slice(at + 1)];
    return { kind, id: kind === "value" ? id : Number(id) };
  }

  function clicked(item) {
    const target = aim(item);
    if (!target) return;
    document.dispatchEvent(new CustomEvent("fusewise-chart", { detail: target }));
    if (SELECTABLE.includes(target.kind)) fusewise.select(target);
  }

  async function draw(one) {
    one.view?.finalize();
    // A specification may bring options of its own, which would go before those below.
    const spec = { ...one.chart.spec, description: one.chart.about, usermeta: {} };
    const drawn = await vegaEmbed(one.place, spec, {
      actions: false,
      ast: true, // an interpreter in place of code that is made while the page runs, which its policy forbids
      config: look(),
      defaultStyle: false,
      loader,
      mode: "vega-lite",
      renderer: "svg",
      tooltip: { disableDefaultStyle: true, theme: "fusewise" },
    });
    one.view = drawn.view;
    one.view.addEventListener("click", (event, item) => clicked(item));
  }

  // Draw one chart after another that is asked for while it is drawn.
  function redraw(one) {
    one.drawing = (one.drawing || Promise.resolve()).then(() => draw(one));
    return one.drawing;
  }

  async function save(one, kind) {
    let address;
    if (kind === "svg") address = URL.createObjectURL(new Blob([await one.view.toSVG()], { type: "image/svg+xml" }));
    else address = await one.view.toImageURL("png", LARGEST);
    el("a", { href: address, download: `${one.chart.id}.${kind}` }).click();
    if (kind === "svg") setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }

  const cell = (value) => (typeof value === "number" ? value.toLocaleString("en-GB", { maximumSignificantDigits: 6 }) : value);

  // The data of a chart as a table, closed at first, made when it is opened.
  function data(chart) {
    const [headings, ...rows] = chart.rows;
    const isNumber = headings.map((_, k) => rows.some((row) => typeof row[k] === "number"));
    const box = el("details", { class: "chart-data" }, el("summary", {}, "The same as a table"));
    box.addEventListener("toggle", () => {
      if (box.open && box.children.length === 1) {
        const columns = headings.map((title, k) => ({ title: String(title), value: (row) => row[k], show: (row) => cell(row[k]), number: isNumber[k], sort: title !== "" }));
        box.append(table({ columns, rows, caption: `Data of: ${chart.title}` }));
      }
    });
    return box;
  }

  function figure(chart) {
    const one = { chart, place: el("div", { class: "chart-place" }), view: null, width: 0 };
    const saves = ["svg", "png"].map((kind) => button(`Save ${kind.toUpperCase()}`, () => save(one, kind), { class: "small", "aria-label": `Save ${kind.toUpperCase()}: ${chart.title}` }));
    const scroll = el("div", { class: "chart-scroll scroll", tabindex: "0", role: "region", "aria-label": chart.title }, one.place);
    const head = el("div", { class: "chart-head" }, el("h3", {}, chart.title), el("div", { class: "chart-saves" }, saves));
    one.element = el("section", { class: "card chart", data: { chart: chart.id } }, head, el("p", { class: "soft" }, chart.about), scroll, data(chart));
    one.place.style.minWidth = `${LEAST}px`;
    return one;
  }

  const shown = [];

  // Charts follow the width of their box, which also changes when the panel of details opens.
  const watch = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const one = shown.find((each) => each.place === target);
      const width = Math.round(contentRect.width);
      if (!one?.view || !width || width === one.width) continue;
      one.width = width;
      if (one.chart.spec.width === "container") one.view.signal("width", width).runAsync();
    }
  });

  // Draw the charts of a section below an element. Vega is there by then.
  async function mount(element, section) {
    for (const chart of (fusewise.document.charts || []).filter((each) => each.section === section)) {
      const one = figure(chart);
      element.append(one.element);
      await redraw(one);
      one.width = Math.round(one.place.getBoundingClientRect().width);
      shown.push(one);
      watch.observe(one.place);
    }
  }

  document.addEventListener("fusewise-theme", () => shown.forEach(redraw));
  fusewise.charts = { mount };
})();

"use strict";
// The page is complete without this: scripts sort and filter the table of points and draw power over time.

(function table() {
  const table = document.querySelector("table.sorted");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const heads = Array.from(table.tHead.rows[0].cells);
  const filter = document.getElementById("filter");
  const verdict = document.getElementById("verdict");
  const shown = document.getElementById("shown");

  function order(row, column) {
    const text = row.cells[column].dataset.order;
    return text === undefined || text === "None" ? null : Number(text);
  }
  function compare(a, b, column, sign) {
    const x = order(a, column), y = order(b, column);
    if (x !== null && y !== null) return sign * (x - y);
    if (x !== null || y !== null) return x !== null ? -1 : 1;  // What is unknown stands last either way.
    return sign * a.cells[column].textContent.localeCompare(b.cells[column].textContent);
  }
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    body.append(...rows.slice().sort((a, b) => compare(a, b, column, sign)));
  }));
  function apply() {
    const wanted = filter.value.trim().toLowerCase();
    let count = 0;
    for (const row of rows) {
      const fits = row.textContent.toLowerCase().includes(wanted) && (!verdict?.value || row.dataset.verdict === verdict.value);
      row.hidden = !fits;
      count += fits ? 1 : 0;
    }
    shown.textContent = `${count} of ${rows.length} ${table.dataset.rows}`;
  }
  filter.addEventListener("input", apply);
  verdict?.addEventListener("change", apply);
  apply();
})();

addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.dataset.was = one.open; one.open = true; }));
addEventListener("afterprint", () => document.querySelectorAll("details").forEach((one) => { one.open = one.dataset.was === "true"; }));

(async function power() {
  const source = document.getElementById("power-data");
  if (!source) { document.body.dataset.ready = "yes"; return; }
  const W = 1e-3, BLOCK = 16, LARGE = 256;
  const attempts = JSON.parse(source.textContent);
  const plot = document.getElementById("plot");
  const status = document.getElementById("power-status");
  const legend = document.getElementById("power-legend");
  const view = document.getElementById("power-view");
  let current = null, chart = null, tickS = 0;

  async function unpack(text) {
    const raw = atob(text), packed = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) packed[i] = raw.charCodeAt(i);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
    const n = bytes.length / 4, values = new Float64Array(n);
    let sum = 0;
    for (let i = 0; i < n; i++) {
      sum += bytes[i] | (bytes[n + i] << 8) | (bytes[2 * n + i] << 16) | (bytes[3 * n + i] << 24);
      values[i] = sum;
    }
    return values;
  }
  async function unpackLevels(packed) {
    const levels = await unpack(packed.levels), values = await unpack(packed.ranks);
    for (let i = 0; i < values.length; i++) values[i] = levels[values[i]];
    return values;
  }
  // Least and greatest value of each block of samples, so that a wide view reads few of them.
  function blocks(lows, highs, size) {
    const n = Math.ceil(lows.length / size), low = new Int32Array(n).fill(2147483647), high = new Int32Array(n).fill(-2147483648);
    for (let i = 0; i < lows.length; i++) {
      const b = i / size | 0;
      if (lows[i] < low[b]) low[b] = lows[i];
      if (highs[i] > high[b]) high[b] = highs[i];
    }
    return { low, high };
  }
  function series(t, milliwatts) {
    const mw = Int32Array.from(milliwatts), small = blocks(mw, mw, BLOCK);
    return { t, mw, small, large: blocks(small.low, small.high, LARGE / BLOCK) };
  }
  function lower(values, wanted) {
    let a = 0, b = values.length;
    while (a < b) { const m = (a + b) >> 1; if (values[m] < wanted) a = m + 1; else b = m; }
    return a;
  }
  // The same, from a guess that is near: times are nearly evenly spaced.
  function lowerFrom(values, wanted, guess) {
    let a = Math.min(Math.max(guess, 0), values.length), b = a, step = 1;
    while (a > 0 && values[a - 1] >= wanted) { b = a; a = Math.max(a - step, 0); step *= 2; }
    while (b < values.length && values[b] < wanted) { a = b + 1; b = Math.min(b + step, values.length); step *= 2; }
    while (a < b) { const m = (a + b) >> 1; if (values[m] < wanted) a = m + 1; else b = m; }
    return a;
  }
  function extremes(one, a, b) {
    const { mw, small, large } = one;
    let low = Infinity, high = -Infinity, i = a;
    while (i < b) {
      if (i % LARGE === 0 && i + LARGE <= b) {
        const k = i / LARGE;
        if (large.low[k] < low) low = large.low[k];
        if (large.high[k] > high) high = large.high[k];
        i += LARGE;
      } else if (i % BLOCK === 0 && i + BLOCK <= b) {
        const k = i / BLOCK;
        if (small.low[k] < low) low = small.low[k];
        if (small.high[k] > high) high = small.high[k];
        i += BLOCK;
      } else {
        const v = mw[i++];
        if (v < low) low = v;
        if (v > high) high = v;
      }
    }
    return [low, high];
  }
  // Two places a pixel, its least and its greatest value: exact, whatever the zoom.
  function columns(from, to, width) {
    const n = Math.max(Math.round(width), 50), xs = new Float64Array(2 * n), step = (to - from) / n;
    for (let i = 0; i < n; i++) { xs[2 * i] = from + (i + 0.25) * step; xs[2 * i + 1] = from + (i + 0.75) * step; }
    const found = [xs];
    for (const one of current.series) {
      const ys = new Array(2 * n).fill(null);
      let at = lower(one.t, from / tickS), each = 0;
      for (let i = 0; i < n; i++) {
        const end = lowerFrom(one.t, i === n - 1 ? to / tickS + 1e-9 : (from + (i + 1) * step) / tickS, at + each);
        each = end - at;
        if (end > at) {
          const [low, high] = extremes(one, at, end);
          const rising = one.mw[end - 1] >= one.mw[at];
          ys[2 * i] = (rising ? low : high) * W;
          ys[2 * i + 1] = (rising ? high : low) * W;
          at = end;
        }
      }
      edge(ys, one, from, to, n);
      found.push(ys);
    }
    return found;
  }
  // Where a pixel at an edge holds no sample, the line goes on to the neighbour outside.
  function edge(ys, one, from, to, n) {
    const before = lower(one.t, from / tickS) - 1, after = lower(one.t, to / tickS);
    const mix = (i, x) => {
      if (i < 0 || i + 1 >= one.t.length) return null;
      const share = (x / tickS - one.t[i]) / (one.t[i + 1] - one.t[i]);
      return (one.mw[i] + share * (one.mw[i + 1] - one.mw[i])) * W;
    };
    if (ys[0] === null) ys[0] = mix(before, from);
    if (ys[2 * n - 1] === null) ys[2 * n - 1] = mix(after - 1, to);
  }
  function ink(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

  // Spans of all GPUs in one lane, those that touch or overlap as one.
  function union(spans) {
    const starts = [], ends = [];
    for (const [a, b] of spans.sort((one, other) => one[0] - other[0])) {
      if (ends.length && a <= ends[ends.length - 1]) ends[ends.length - 1] = Math.max(ends[ends.length - 1], b);
      else { starts.push(a); ends.push(b); }
    }
    return { starts, ends };
  }
  function merged(columns) {
    const all = new Float64Array(columns.reduce((sum, one) => sum + one.length, 0));
    let at = 0;
    for (const one of columns) { all.set(one, at); at += one.length; }
    return all.sort();
  }

  function lanes(u) {
    const c = u.ctx, left = u.bbox.left, right = left + u.bbox.width, top = u.bbox.top, p = devicePixelRatio;
    const place = (ticks) => u.valToPos(ticks * tickS, "x", true);
    const inside = (a, b) => b > left && a < right;
    c.save();
    c.beginPath(); c.rect(left, top, u.bbox.width, u.bbox.height); c.clip();
    c.fillStyle = ink("--grid");
    for (const [a, b] of current.attempt.steps) {
      const x = place(a), y = place(b);
      if (inside(x, y)) c.fillRect(x, top, Math.max(y - x - p, p), u.bbox.height);
    }
    const bar = (color, a, b, lane) => { c.fillStyle = color; const x = place(a), y = place(b); if (inside(x, y)) c.fillRect(x, top + lane * 8 * p, Math.max(y - x, p), 6 * p); };
    const colors = { prefill: ink("--s4"), decode: ink("--s5") }, red = ink("--fail");
    for (const [name, a, b] of current.attempt.phases) bar(colors[name], a, b, 0);
    // Of many spans or marks within one pixel, one is drawn.
    const tick = (x) => u.posToVal((x - left) / p, "x") / tickS, first = tick(left), last = tick(right);
    const { starts, ends } = current.limits, anchors = current.anchors;
    for (let i = Math.max(lower(starts, first) - 1, 0); i < starts.length && starts[i] <= last;) {
      bar(red, starts[i], ends[i], 1);
      i = Math.max(i + 1, lower(starts, tick(place(starts[i]) + p)) - 1);
    }
    c.fillStyle = ink("--quiet");
    c.beginPath();
    for (let i = lower(anchors, first); i < anchors.length && anchors[i] <= last;) {
      const x = place(anchors[i]);
      c.rect(x, top + 17 * p, p, 5 * p);
      i = lowerFrom(anchors, tick(x + p), i + 1);
    }
    c.fill();
    c.restore();
  }
  function keys() {
    legend.textContent = "";
    const add = (name, text) => {
      const key = document.createElement("span"), swatch = document.createElement("span");
      key.className = "key"; swatch.className = `swatch ${name}`; swatch.setAttribute("aria-hidden", "true");
      key.append(swatch, text); legend.append(key);
    };
    current.attempt.gpus.forEach((gpu, i) => add(`series${i % 8}`, gpu.name));
    if (current.attempt.steps.length) add("phase-step", current.attempt.span);
    if (current.attempt.phases.length) { add("phase-prefill", "prefill"); add("phase-decode", "decode"); }
    const limits = new Set(current.attempt.gpus.flatMap((gpu) => gpu.limits.map((one) => one[2])));
    if (limits.size) add("phase-limit", `clock held by ${[...limits].join(", ")}`);
    if (current.anchors.length) add("phase-anchor", "new value of the energy counter");
  }
  // What is in view, in words: for people who do not see the chart, and to read a peak's value.
  function describe(min, max, drawn) {
    const spans = current.attempt.gpus.map((gpu, i) => {
      const known = drawn[i + 1].filter((v) => v !== null);
      return known.length ? `${gpu.name} ${Math.min(...known).toFixed(1)} to ${Math.max(...known).toFixed(1)} W` : `${gpu.name} no sample`;
    });
    view.textContent = `${min.toFixed(3)} to ${max.toFixed(3)} s: ${spans.join(", ")}`;
  }
  function draw() {
    if (chart) chart.destroy();
    const top = 1.18 * Math.max(1, ...current.series.map((one) => one.large.high.reduce((a, b) => Math.max(a, b), 0) * W));
    const width = Math.max(plot.clientWidth, 260), whole = [0, current.attempt.end * tickS];
    const axis = { stroke: ink("--quiet"), grid: { stroke: ink("--grid"), width: 1 }, ticks: { stroke: ink("--line"), width: 1 } };
    let busy = false;
    chart = new uPlot({
      width, height: 320, legend: { show: false }, cursor: { drag: { x: true, y: false } },
      scales: { x: { time: false, range: (u, a, b) => [Math.max(a, whole[0]), Math.min(b, whole[1])] }, y: { range: () => [0, top] } },
      axes: [{ ...axis, values: (u, all) => all.map((v) => `${+v.toFixed(4)} s`) }, { ...axis, size: 64, values: (u, all) => all.map((v) => `${v} W`) }],
      series: [{}, ...current.series.map((_, i) => ({ stroke: ink(`--s${i % 8}`), width: 1.4, spanGaps: true, points: { show: false } }))],
      hooks: {
        drawClear: [lanes],
        setScale: [(u, key) => {
          if (key !== "x" || busy) return;
          busy = true;
          const { min, max } = u.scales.x;
          const drawn = columns(min, max, u.bbox.width / devicePixelRatio);
          u.setData(drawn, false);
          describe(min, max, drawn);
          busy = false;
          if (!current.complete && max - min < 0.999 * (whole[1] - whole[0])) complete();
        }],
      },
    }, columns(whole[0], whole[1], width - 80), plot);
    chart.setScale("x", { min: whole[0], max: whole[1] });
    plot.querySelectorAll("canvas").forEach((one) => one.setAttribute("aria-hidden", "true"));
  }
  async function choose(number) {
    const attempt = attempts[number];
    tickS = attempt.tick_s;
    const limits = union(attempt.gpus.flatMap((gpu) => gpu.limits));
    const anchors = [];
    current = { attempt, limits, series: [], anchors: [], complete: attempt.gpus.every((gpu) => !gpu.columns) };
    for (const gpu of attempt.gpus) {
      current.series.push(series(await unpack(gpu.coarse_t || gpu.t), await unpackLevels(gpu.coarse_mw || gpu.mw)));
      anchors.push(gpu.columns ? [] : await unpack(gpu.anchors));
    }
    current.anchors = merged(anchors);
    keys();
    draw();
    document.body.dataset.ready = "yes";
  }
  async function complete() {
    const own = current;
    own.complete = true;
    status.textContent = "reading every sample …";
    // The samples stand behind this script: a long page may not have arrived yet.
    if (document.readyState === "loading") await new Promise((done) => document.addEventListener("DOMContentLoaded", done));
    const anchors = [];
    for (let i = 0; i < own.attempt.gpus.length; i++) {
      if (!own.attempt.gpus[i].columns) continue;
      const gpu = JSON.parse(document.getElementById(own.attempt.gpus[i].columns).textContent);
      own.series[i] = series(await unpack(gpu.t), await unpackLevels(gpu.mw));
      anchors.push(await unpack(gpu.anchors));
      if (own !== current) return;
    }
    own.anchors = merged([own.anchors, ...anchors]);
    status.textContent = "";
    keys();
    const { min, max } = chart.scales.x;
    chart.setScale("x", { min, max });
    document.body.dataset.complete = "yes";
  }
  function zoom(how) {
    const { min, max } = chart.scales.x, span = max - min, end = current.attempt.end * tickS;
    const to = { in: [min + span / 4, max - span / 4], out: [min - span / 2, max + span / 2], left: [min - span / 3, max - span / 3], right: [min + span / 3, max + span / 3], all: [0, end] }[how];
    const length = Math.min(to[1] - to[0], end), from = Math.min(Math.max(to[0], 0), end - length);
    chart.setScale("x", { min: from, max: from + length });
  }
  document.querySelectorAll("[data-zoom]").forEach((one) => one.addEventListener("click", () => zoom(one.dataset.zoom)));
  plot.addEventListener("keydown", (event) => {
    const how = { ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", Home: "all" }[event.key];
    if (how) { event.preventDefault(); zoom(how); }
  });
  document.getElementById("attempt").addEventListener("change", (event) => choose(Number(event.target.value)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart && draw());
  let resizing = 0;
  new ResizeObserver(() => {
    cancelAnimationFrame(resizing);
    resizing = requestAnimationFrame(() => { if (chart && Math.abs(chart.width - plot.clientWidth) > 1) chart.setSize({ width: Math.max(plot.clientWidth, 260), height: 320 }); });
  }).observe(plot);
  await choose(0);
})();

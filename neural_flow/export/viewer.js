"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const CLOSEST = 1 / 60; // of the page's width
  const FARTHEST = 4;
  const CLICK = 4; // pixels that a pointer may move while it clicks
  const search = document.getElementById("nf-search");
  const found = document.getElementById("nf-found");
  const facts = document.getElementById("nf-facts");
  const tabs = [...document.querySelectorAll(".nf-tab")];
  const pages = [...document.querySelectorAll(".nf-page")].map(makePage);
  let page = pages[0];

  function makePage(section) {
    const svg = section.querySelector("svg");
    const full = [0, 0, Number(section.dataset.width), Number(section.dataset.height)];
    const prefix = section.dataset.prefix;
    const nodes = new Map();
    const words = new Map();
    for (const node of svg.querySelectorAll(".nf-stage, .nf-ring")) {
      nodes.set(node.id.slice(prefix.length), node);
      words.set(node, textOf(node).toLowerCase());
    }
    const stages = [...nodes.values()].filter((node) => node.classList.contains("nf-stage"));
    const edges = [...svg.querySelectorAll(".nf-edge")];
    const edgesOf = new Map();
    for (const edge of edges) for (const name of [edge.dataset.src, edge.dataset.dst]) {
      if (!edgesOf.has(name)) edgesOf.set(name, []);
      edgesOf.get(name).push(edge);
    }
    svg.removeAttribute("width");
    svg.removeAttribute("height");
    const ring = svg.appendChild(document.createElementNS(SVG, "rect"));
    ring.setAttribute("class", "nf-focus");
    const made = { section, svg, full, view: full.slice(), prefix, nodes, words, stages, edges, edgesOf, ring,
      hovered: null, chosen: null, hits: [], lit: new Set() };
    watch(made);
    return made;
  }

  function textOf(element) {
    return element.querySelector("title")?.textContent ?? "";
  }

  // -- what is seen ---------------------------------------------------------------------------------------------

  function show(page, view) {
    const [fullX, fullY, fullWidth, fullHeight] = page.full;
    const [x, y, width, height] = view;
    // The middle of the window stays on the page: nobody gets lost.
    const inside = (start, size, from, length) => Math.min(Math.max(start, from - size / 2), from + length - size / 2);
    page.view = [inside(x, width, fullX, fullWidth), inside(y, height, fullY, fullHeight), width, height];
    if (page.isWaiting) return;
    page.isWaiting = true;
    requestAnimationFrame(() => {
      page.isWaiting = false;
      page.svg.setAttribute("viewBox", page.view.map((value) => value.toFixed(3)).join(" "));
    });
  }

  function showAll(page) {
    show(page, page.full.slice());
  }

  function zoom(page, factor, point) {
    const [x, y, width, height] = page.view;
    const scale = Math.min(Math.max(factor, (page.full[2] * CLOSEST) / width), (page.full[2] * FARTHEST) / width);
    const [px, py] = point ?? [x + width / 2, y + height / 2];
    show(page, [px - (px - x) * scale, py - (py - y) * scale, width * scale, height * scale]);
  }

  function pan(page, right, down) {
    const [x, y, width, height] = page.view;
    show(page, [x + right, y + down, width, height]);
  }

  function scaleOf(page) { // pixels a point: the picture is as large as fits the window
    const box = page.svg.getBoundingClientRect();
    return Math.min(box.width / page.view[2], box.height / page.view[3]);
  }

  function pointAt(page, clientX, clientY) {
    const box = page.svg.getBoundingClientRect();
    const [x, y, width, height] = page.view;
    const scale = scaleOf(page);
    return [x + width / 2 + (clientX - box.left - box.width / 2) / scale,
      y + height / 2 + (clientY - box.top - box.height / 2) / scale];
  }

  // -- pointers -------------------------------------------------------------------------------------------------

  function watch(page) {
    const fingers = new Map();
    const svg = page.svg;
    let travelled = 0;
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      const unit = [1, 16, 400][event.deltaMode];
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        pan(page, ((event.deltaX || event.deltaY) * unit) / scaleOf(page), 0);
      } else {
        const factor = Math.exp(event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.0015));
        zoom(page, factor, pointAt(page, event.clientX, event.clientY));
      }
    }, { passive: false });
    svg.addEventListener("pointerdown", (event) => {
      if (event.button > 0) return;
      if (!fingers.size) travelled = 0;
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
    });
    svg.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return hover(page, partAt(event));
      const now = [event.clientX, event.clientY];
      travelled += Math.hypot(now[0] - before[0], now[1] - before[1]);
      if (travelled < CLICK) return;
      if (!svg.hasPointerCapture(event.pointerId)) svg.setPointerCapture(event.pointerId);
      svg.classList.add("is-dragged");
      const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
      if (other) {
        const spread = ([x, y]) => Math.hypot(x - other[0], y - other[1]) || 1;
        zoom(page, spread(before) / spread(now), pointAt(page, ...other));
      } else {
        const scale = scaleOf(page);
        pan(page, (before[0] - now[0]) / scale, (before[1] - now[1]) / scale);
      }
      fingers.set(event.pointerId, now);
    });
    for (const name of ["pointerup", "pointercancel", "pointerleave"]) {
      svg.addEventListener(name, (event) => {
        fingers.delete(event.pointerId);
        if (!fingers.size) svg.classList.remove("is-dragged");
        if (name === "pointerleave") hover(page, null);
      });
    }
    svg.addEventListener("mousedown", (event) => event.preventDefault()); // a drag neither selects text nor focuses
    svg.addEventListener("click", (event) => {
      if (travelled >= CLICK) return;
      const part = partAt(event);
      document.activeElement?.blur?.();
      if (part?.tabIndex >= 0) part.focus({ preventScroll: true });
      choose(page, part);
    });
    // On the section: browsers let the keyboard stop at an svg that listens to focus itself.
    page.section.addEventListener("focusin", (event) => choose(page, partAt(event)));
    page.section.addEventListener("focusout", () => { page.ring.style.display = "none"; });
    svg.addEventListener("dblclick", () => showAll(page));
  }

  function partAt(event) {
    return event.target.closest(".nf-stage, .nf-ring, .nf-edge");
  }

  // -- what stands out: the part under the pointer, else the chosen one, else what was searched -----------------

  function hover(page, part) {
    if (part === page.hovered) return;
    page.hovered = part;
    light(page);
  }

  function choose(page, part) {
    page.chosen = part;
    const isFocused = Boolean(part) && part === document.activeElement;
    page.ring.style.display = isFocused ? "inline" : "none";
    if (isFocused) frame(page.ring, part.getBBox());
    light(page);
  }

  function frame(ring, box) {
    const places = { x: box.x - 3, y: box.y - 3, width: box.width + 6, height: box.height + 6, rx: 3 };
    for (const [key, value] of Object.entries(places)) ring.setAttribute(key, value);
  }

  function light(page) {
    const part = page.hovered ?? page.chosen;
    const lit = new Set(part ? [part, ...partnersOf(page, part)] : page.hits);
    for (const old of page.lit) if (!lit.has(old)) old.classList.remove("is-lit");
    for (const fresh of lit) fresh.classList.add("is-lit");
    page.lit = lit;
    page.svg.classList.toggle("is-focused", lit.size > 0);
    facts.hidden = !part || !textOf(part);
    if (facts.hidden) return;
    facts.textContent = textOf(part);
    const box = part.getBoundingClientRect();
    facts.classList.toggle("is-right", box.left + box.width / 2 < window.innerWidth / 2);
  }

  function partnersOf(page, part) {
    const name = part.id.slice(page.prefix.length);
    const edges = part.classList.contains("nf-edge") ? [part] : page.edgesOf.get(name) ?? [];
    const ends = edges.flatMap((edge) => [page.nodes.get(edge.dataset.src), page.nodes.get(edge.dataset.dst)]);
    return [...edges, ...ends.filter(Boolean)];
  }

  // -- keyboard -------------------------------------------------------------------------------------------------

  function step(page, isForward) {
    let node = document.activeElement?.closest?.(".nf-stage");
    if (!node || !page.svg.contains(node)) return focusOn(page, page.stages.at(isForward ? 0 : -1));
    for (let turn = 0; turn <= page.edges.length; turn += 1) {
      const name = node.id.slice(page.prefix.length);
      const way = (page.edgesOf.get(name) ?? []).filter((edge) => (isForward ? edge.dataset.src : edge.dataset.dst) === name);
      const edge = way.find((one) => one.dataset.kind === "primary") ?? way[0];
      node = edge && page.nodes.get(isForward ? edge.dataset.dst : edge.dataset.src);
      if (!node || node.classList.contains("nf-stage")) break;
    }
    focusOn(page, node);
  }

  function focusOn(page, node) {
    if (!node) return;
    const box = node.getBBox();
    const [x, y, width, height] = page.view;
    const isInside = box.x >= x && box.y >= y && box.x + box.width <= x + width && box.y + box.height <= y + height;
    if (!isInside) show(page, [box.x + box.width / 2 - width / 2, box.y + box.height / 2 - height / 2, width, height]);
    node.focus({ preventScroll: true });
    choose(page, node); // a window in the background tells nobody of a new focus
  }

  const KEYS = {
    ArrowRight: (event) => (event.shiftKey ? pan(page, page.view[2] / 8, 0) : step(page, true)),
    ArrowLeft: (event) => (event.shiftKey ? pan(page, -page.view[2] / 8, 0) : step(page, false)),
    ArrowDown: () => pan(page, 0, page.view[3] / 8),
    ArrowUp: () => pan(page, 0, -page.view[3] / 8),
    Home: () => focusOn(page, page.stages[0]),
    End: () => focusOn(page, page.stages.at(-1)),
    "+": () => zoom(page, 0.8),
    "=": () => zoom(page, 0.8),
    "-": () => zoom(page, 1.25),
    "0": () => showAll(page),
    "/": () => search.focus(),
    Escape: () => { document.activeElement?.blur?.(); choose(page, null); },
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target === search || !KEYS[event.key]) return;
    KEYS[event.key](event);
    event.preventDefault();
  });

  // -- search ---------------------------------------------------------------------------------------------------

  let turn = -1;

  function find() {
    const words = search.value.trim().toLowerCase();
    turn = -1;
    for (const one of pages) {
      one.hits = words ? [...one.nodes.values()].filter((node) => one.words.get(node).includes(words)) : [];
      one.chosen = null;
    }
    found.textContent = words ? `${page.hits.length} found` : "";
    for (const one of [...pages.filter((other) => other !== page), page]) light(one);
  }

  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && page.hits.length) {
      turn = (turn + (event.shiftKey ? -1 : 1) + page.hits.length) % page.hits.length;
      found.textContent = `${turn + 1} of ${page.hits.length}`;
      const hit = page.hits[turn];
      const [, , width, height] = page.view;
      const box = hit.getBBox();
      show(page, [box.x + box.width / 2 - width / 2, box.y + box.height / 2 - height / 2, width, height]);
      choose(page, hit);
    } else if (event.key === "Escape") {
      search.value = "";
      find();
      search.blur();
    } else return;
    event.preventDefault();
  });

  // -- buttons and paper ----------------------------------------------------------------------------------------

  document.getElementById("nf-in").addEventListener("click", () => zoom(page, 0.8));
  document.getElementById("nf-out").addEventListener("click", () => zoom(page, 1.25));
  document.getElementById("nf-fit").addEventListener("click", () => showAll(page));
  tabs.forEach((tab, index) => tab.addEventListener("click", () => {
    page.hovered = page.chosen = null;
    light(page);
    page = pages[index];
    pages.forEach((one) => { one.section.hidden = one !== page; });
    tabs.forEach((one) => one.setAttribute("aria-pressed", String(one === tab)));
    find();
  }));
  window.addEventListener("beforeprint", () => page.svg.setAttribute("viewBox", page.full.join(" ")));
  window.addEventListener("afterprint", () => show(page, page.view));
})();

"use strict";
(() => {
  const pages = [...document.querySelectorAll(".nf-page")].map(makePage);
  const search = document.getElementById("nf-search");
  const found = document.getElementById("nf-found");
  const facts = document.getElementById("nf-facts");
  const next = document.getElementById("nf-next");
  let current = 0;

  function makePage(section) {
    const svg = section.querySelector("svg");
    const full = [0, 0, Number(section.dataset.width), Number(section.dataset.height)];
    const prefix = section.dataset.prefix;
    const nodes = new Map();
    for (const node of svg.querySelectorAll(".nf-stage, .nf-ring")) nodes.set(node.id.slice(prefix.length), node);
    const edges = [...svg.querySelectorAll(".nf-edge")];
    svg.removeAttribute("width");
    svg.removeAttribute("height");
    const page = { section, svg, full, view: full.slice(), prefix, nodes, edges, lit: null };
    watch(page);
    return page;
  }

  function show(page, view) {
    page.view = view;
    page.svg.setAttribute("viewBox", view.map((value) => value.toFixed(3)).join(" "));
  }

  function zoom(page, factor, clientX, clientY) {
    const [x, y, width, height] = page.view;
    const scale = Math.min(Math.max(factor, page.full[2] / 60 / width), (page.full[2] * 4) / width);
    const point = inPage(page, clientX, clientY);
    show(page, [point.x - (point.x - x) * scale, point.y - (point.y - y) * scale, width * scale, height * scale]);
  }

  function inPage(page, clientX, clientY) {
    return new DOMPoint(clientX, clientY).matrixTransform(page.svg.getScreenCTM().inverse());
  }

  function middle(page) {
    const box = page.svg.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  }

  function watch(page) {
    const fingers = new Map();
    const svg = page.svg;
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      zoom(page, Math.exp(event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), event.clientX, event.clientY);
    }, { passive: false });
    svg.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
      svg.classList.add("is-dragged");
    });
    svg.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return light(page, event.target.closest(".nf-stage, .nf-ring, .nf-edge"));
      if (!svg.hasPointerCapture(event.pointerId)) svg.setPointerCapture(event.pointerId);
      const others = [...fingers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      if (others.length) {
        const spread = ([x, y]) => Math.hypot(x - others[0][0], y - others[0][1]) || 1;
        zoom(page, spread(before) / spread([event.clientX, event.clientY]), ...others[0]);
      } else {
        const from = inPage(page, ...before);
        const to = inPage(page, event.clientX, event.clientY);
        const [x, y, width, height] = page.view;
        show(page, [x + from.x - to.x, y + from.y - to.y, width, height]);
      }
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
    });
    for (const name of ["pointerup", "pointercancel", "pointerleave"]) {
      svg.addEventListener(name, (event) => {
        fingers.delete(event.pointerId);
        if (!fingers.size) svg.classList.remove("is-dragged");
        if (name === "pointerleave") light(page, null);
      });
    }
    svg.addEventListener("focusin", (event) => light(page, event.target.closest(".nf-stage, .nf-ring, .nf-edge")));
    svg.addEventListener("dblclick", () => show(page, page.full.slice()));
  }

  function light(page, element) {
    if (element === page.lit) return;
    page.lit = element;
    for (const old of page.svg.querySelectorAll(".is-lit")) old.classList.remove("is-lit");
    for (const old of page.svg.querySelectorAll(".nf-shared")) old.remove();
    page.svg.classList.toggle("is-focused", Boolean(element));
    facts.hidden = !element;
    if (!element) return;
    facts.textContent = element.querySelector("title")?.textContent ?? "";
    const name = element.id.slice(page.prefix.length);
    element.classList.add("is-lit");
    for (const edge of page.edges) {
      if (edge !== element && edge.dataset.src !== name && edge.dataset.dst !== name) continue;
      edge.classList.add("is-lit");
      complete(edge);
      page.nodes.get(edge.dataset.src)?.classList.add("is-lit");
      page.nodes.get(edge.dataset.dst)?.classList.add("is-lit");
    }
  }

  // What several arrows of one source share is drawn once; a lit arrow shows its whole way.
  function complete(edge) {
    const own = edge.dataset.shared && edge.querySelector('path[fill="none"]');
    if (!own) return;
    const way = own.cloneNode();
    way.setAttribute("d", edge.dataset.shared);
    way.classList.add("nf-shared");
    own.before(way);
  }

  function step(page, isForward) {
    const stages = [...page.nodes.values()].filter((node) => node.classList.contains("nf-stage"));
    let node = document.activeElement?.closest?.(".nf-stage");
    if (!node || !page.svg.contains(node)) return focusOn(page, isForward ? stages[0] : stages[stages.length - 1]);
    for (let turn = 0; turn < page.edges.length + 1; turn += 1) {
      const name = node.id.slice(page.prefix.length);
      const way = page.edges.filter((edge) => (isForward ? edge.dataset.src : edge.dataset.dst) === name);
      const edge = way.find((found) => found.dataset.kind === "primary") ?? way[0];
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
  }

  function find(goOn) {
    const page = pages[current];
    const words = search.value.trim().toLowerCase();
    const hits = words ? [...page.nodes.values()].filter((node) => (node.querySelector("title")?.textContent ?? "").toLowerCase().includes(words)) : [];
    found.textContent = words ? String(hits.length) : "";
    light(page, null);
    for (const hit of hits) hit.classList.add("is-lit");
    page.svg.classList.toggle("is-focused", hits.length > 0);
    if (goOn) focusOn(page, hits[0]);
  }

  search.addEventListener("input", () => find(false));
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") find(true); });
  document.getElementById("nf-fit").addEventListener("click", () => show(pages[current], pages[current].full.slice()));
  next?.addEventListener("click", () => {
    pages[current].section.hidden = true;
    current = (current + 1) % pages.length;
    pages[current].section.hidden = false;
    next.textContent = pages[(current + 1) % pages.length].section.dataset.name;
  });
  document.addEventListener("keydown", (event) => {
    const page = pages[current];
    if (event.target === search) { if (event.key === "Escape") { search.value = ""; find(false); search.blur(); } return; }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") step(page, event.key === "ArrowRight");
    else if (event.key === "+" || event.key === "=") zoom(page, 0.8, ...middle(page));
    else if (event.key === "-") zoom(page, 1.25, ...middle(page));
    else if (event.key === "0") show(page, page.full.slice());
    else if (event.key === "/") search.focus();
    else if (event.key === "Escape") { document.activeElement?.blur?.(); light(page, null); }
    else return;
    event.preventDefault();
  });
})();

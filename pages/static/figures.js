/* The figures of the overview, once a second. It inserts text nodes alone, as app.js does. What it knows in the page:
   data-events="/debug/events"   where they come from: one stream a tab, none while the tab is hidden
   data-figure="name"            the text of a figure, struck through when it is old
   tr[data-call], tr[data-none]  an open call, or that there is none;  data-live: what is said of the figures */
"use strict";
(() => {
  const box = document.querySelector("[data-events]"), body = document.querySelector("tr[data-call], tr[data-none]")?.parentNode;
  if (!box || !window.EventSource) return;
  let source = null, last = null, at = 0;
  const make = (name, text, attributes = {}) => { const one = document.createElement(name); one.textContent = text; for (const n in attributes) one.setAttribute(n, attributes[n]); return one; };
  function calls(open) {
    const known = new Map([...body.children].map((row) => [row.dataset.call, row]));
    const rows = open.map((call) => {
      const row = known.get(call.call_id) || make("tr", "", { "data-row": "", "data-call": call.call_id });
      if (!row.firstChild) {
        const cells = ["Call", "Key", "Model", "Policy", "Since", "Chunks", "Held", "Live"].map((l) => make("td", "", { "data-l": l }));
        cells[0].append(make("a", call.call_id.slice(0, 8), { class: "mono", href: call.to, title: call.call_id }));
        cells[4].append(make("time", "", { datetime: call.since }));
        cells[7].append(make("a", "Live", { href: call.live }));
        row.append(...cells);
        sluice.times(row);
      }
      [["key", 1], ["model", 2], ["policy", 3]].forEach(([name, n]) => { if (row.cells[n].textContent !== call[name]) row.cells[n].replaceChildren(make("bdi", call[name])); });
      row.cells[5].className = row.cells[6].className = "num";
      [["chunks", 5], ["held", 6]].forEach(([name, n]) => { row.cells[n].textContent = call[name].toLocaleString("en"); });
      return row;
    });
    if (!rows.length) { const row = make("tr", "", { "data-none": "" }); row.append(make("td", "No call is open.", { colspan: 8 })); rows.push(row); }
    if (rows.length !== body.children.length || rows.some((row, n) => row !== body.children[n])) body.replaceChildren(...rows);
  }
  function draw() {
    for (const one of last ? document.querySelectorAll("[data-figure]") : []) {
      const [text, age, limit] = last.figures[one.dataset.figure] || [], now = Date.now();
      if (text === undefined) continue;
      const old = age === null || age + (now - at) / 1000 > limit;
      one.title = age === null ? "never read" : `${Math.floor(age + (now - at) / 1000)} s old`;
      if (!old) { if (one.textContent !== text) one.textContent = text; }
      else if (!one.querySelector("del")) one.replaceChildren(make("del", text), age === null ? "" : ` since ${new Date(at - age * 1000).toISOString().slice(11, 19)}Z`);
    }
  }
  function listen() {
    if (document.hidden) { source?.close(); source = null; return; }
    if (source) return;
    source = new EventSource(box.dataset.events);
    source.onmessage = (event) => {
      last = JSON.parse(event.data); at = Date.now();
      for (const one of document.querySelectorAll("[data-live]")) one.textContent = "live, once a second";
      if (body) calls(last.open);
      draw();
    };
  }
  setInterval(draw, 1000);
  document.addEventListener("visibilitychange", listen);
  listen();
})();

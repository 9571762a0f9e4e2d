/* The figures of the overview, once a second. It inserts text nodes alone, as app.js does. What it knows in the page:
   data-events="/debug/events"   where they come from: one stream a tab, none while the tab is hidden
   data-figure="name"            the text of a figure, struck through when it is old
   template[data-rows]           the row of an open call, and that there is none;  data-live: what is said of the figures */
"use strict";
(() => {
  const box = document.querySelector("[data-events]"), body = document.querySelector("tr[data-call], tr[data-none]")?.parentNode;
  if (!box || !window.EventSource) return;
  let source = null, last = null, at = 0;
  const [model, none] = document.querySelector("template[data-rows]").content.children;
  function row(call) {
    const made = model.cloneNode(true), [link, live] = made.querySelectorAll("a"), since = made.querySelector("time");
    made.dataset.call = link.title = call.call_id;
    link.textContent = `${call.call_id.slice(0, 8)}…${call.call_id.slice(-8)}`;
    link.href = call.to;
    live.href = call.live;
    since.dateTime = call.since;
    sluice.times(made);
    return made;
  }
  function calls(open) {
    const known = new Map([...body.children].map((one) => [one.dataset.call, one]));
    const rows = open.map((call) => {
      const one = known.get(call.call_id) || row(call), names = one.querySelectorAll("bdi"), counts = one.querySelectorAll(".num");
      [call.key, call.model, call.policy].forEach((name, n) => { if (names[n].textContent !== name) names[n].textContent = name; });
      [call.chunks, call.held].forEach((n, at) => { counts[at].textContent = n.toLocaleString("en"); });
      return one;
    });
    if (!rows.length) rows.push(none.cloneNode(true));
    if (rows.length !== body.children.length || rows.some((one, n) => one !== body.children[n])) body.replaceChildren(...rows);
  }
  function draw() {
    let oldest = 0;
    for (const one of last ? document.querySelectorAll("[data-figure]") : []) {
      const [text, age, limit] = last.figures[one.dataset.figure] || [], now = Date.now();
      if (text === undefined) continue;
      const old = age !== null && age + (now - at) / 1000 > limit;
      oldest = Math.max(oldest, age + (now - at) / 1000);
      one.title = age === null ? "never read" : `${Math.floor(age + (now - at) / 1000)} s old`;
      if (!old) { if (one.textContent !== text) one.textContent = text; }
      else if (!one.querySelector("del")) one.replaceChildren(Object.assign(document.createElement("del"), { textContent: text }), ` since ${sluice.clock(at - age * 1000)}`);
    }
    for (const one of last ? document.querySelectorAll("[data-live]") : []) one.textContent = Date.now() - at > 5000 ? "no news; these figures are old" : `live, once a second; the oldest figure is ${Math.floor(oldest)} s old`;
  }
  function listen() {
    if (document.hidden) { source?.close(); source = null; return; }
    if (source) return;
    source = new EventSource(box.dataset.events);
    source.onmessage = (event) => {
      last = JSON.parse(event.data); at = Date.now();
      if (last.figures.open_calls[1] !== null) document.querySelector("[data-lost]")?.remove();
      if (body) calls(last.open);
      draw();
    };
  }
  setInterval(draw, 1000);
  document.addEventListener("visibilitychange", listen);
  listen();
})();

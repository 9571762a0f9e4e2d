/* Requests for approval: the time left, counted down, and the page loaded again when something changed. It inserts text nodes alone. What it knows:
   data-until="2026-01-31T12:00:00Z"   when a request expires
   data-events, data-changes           where news come from, and what was known when the page was made */
"use strict";
(() => {
  const box = document.querySelector("[data-changes]");
  const two = (n) => String(n).padStart(2, "0");
  function count() {
    for (const one of document.querySelectorAll("[data-until]")) {
      const left = Math.max(0, Math.round((new Date(one.dataset.until) - Date.now()) / 1000)), hours = Math.floor(left / 3600);
      one.textContent = `${hours ? `${hours}:` : ""}${two(Math.floor(left / 60) % 60)}:${two(left % 60)}`;
    }
  }
  // What somebody types is not thrown away.
  const isTyping = () => [...document.querySelectorAll("main input[name=note], main textarea")].some((one) => one.value !== one.defaultValue || one === document.activeElement);
  let source = null;
  function listen() {
    if (document.hidden) { source?.close(); source = null; return; }
    if (source || !box) return;
    source = new EventSource(box.dataset.events);
    source.onmessage = (event) => {
      if (JSON.parse(event.data) === box.dataset.changes) return;
      if (!isTyping()) { source.close(); location.reload(); return; }
      box.hidden = false;
      box.textContent = "Something changed since this page was loaded: load it again before you decide.";
    };
  }
  setInterval(count, 1000);
  count();
  document.addEventListener("visibilitychange", listen);
  listen();
})();

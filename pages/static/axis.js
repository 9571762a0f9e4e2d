/* The time axis above a list: dragging over figure[data-axis] asks for that span of time. A click goes to its hour, as without a script. */
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const figure = document.querySelector("[data-axis]"), box = figure?.querySelector("svg"), mark = figure?.querySelector(".span");
  if (!box) return;
  const begin = Date.parse(figure.dataset.axis), all = figure.dataset.hours * 3600000;
  let from = null, dragged = false;
  const part = (event) => { const rect = box.getBoundingClientRect(); return Math.min(1, Math.max(0, (event.clientX - rect.left) / rect.width)); };
  const span = (event) => [from, part(event)].sort((one, other) => one - other);
  box.addEventListener("dragstart", (event) => event.preventDefault());
  box.addEventListener("pointerdown", (event) => { if (!event.button) { from = part(event); dragged = false; } });
  addEventListener("pointermove", (event) => {
    if (from === null) return;
    const [low, high] = span(event);
    dragged ||= high - low > 0.01;
    mark.setAttribute("x", low * 480);
    mark.setAttribute("width", dragged ? (high - low) * 480 : 0);
  });
  addEventListener("pointerup", (event) => {
    if (from === null) return;
    const [low, high] = span(event), to = new URL(location.href);
    from = null;
    if (!dragged) return;
    for (const [name, place] of [["since", low], ["until", high]]) to.searchParams.set(name, new Date(begin + place * all).toISOString());
    to.searchParams.delete("cursor");
    location.assign(to);
  });
  box.addEventListener("click", (event) => { if (dragged) event.preventDefault(); });
});

/* For all pages; reading works without it. It inserts text nodes alone and never parses HTML.
   What it knows in a page:
   html[data-zone]      the zone asked for by ?tz=; <time datetime> is shown in the zone chosen, and so are input[name=since|until],
                        which are sent in UTC; data-zone-name says which zone it is
   data-zone-switch, data-theme-switch, data-keys-switch, data-help  buttons of the head and the help
   data-copy="text", data-copy-from="/debug/…/raw"  a button that copies the stored whole
   data-row             a row that j and k go to; Enter opens its a[data-open], or its first link
   data-go="c"          a link for `g c`; data-go="wire", "diff": for `w`, `d`; rel=prev, rel=next: for [ and ]
   id="b3", "c398"      a place: `y` copies the link with ?at=b3
   For others: sluice.times(root), sluice.say(text), sluice.clock(ms): the time of day in the zone chosen. */
"use strict";
(() => {
  const root = document.documentElement;
  const kept = {
    get(name) { try { return localStorage.getItem("sluice." + name); } catch { return null; } },
    set(name, value) { try { localStorage.setItem("sluice." + name, value); } catch { /* private window: for this page alone */ } },
  };
  root.classList.add("js");
  const setTheme = (theme) => { if (theme) root.dataset.theme = theme; };
  setTheme(kept.get("theme"));
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

  // Times: UTC with Z, or the browser's with its offset; the title has both.
  const given = new URLSearchParams(location.search).get("tz");
  if (given) kept.set("zone", given);
  let zone = kept.get("zone") || root.dataset.zone || "utc";
  const two = (n) => String(n).padStart(2, "0");
  function parts(at) {
    const off = -at.getTimezoneOffset(), sign = off < 0 ? "-" : "+", a = Math.abs(off);
    return [`${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`,
      `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")} ${sign}${two(Math.floor(a / 60))}:${two(a % 60)}`];
  }
  const stamp = (at) => (zone === "local" ? parts(at) : [at.toISOString().slice(0, 10), at.toISOString().slice(11)]);
  const zoneName = () => (zone === "local" ? `UTC${parts(new Date())[1].slice(13)}` : "UTC");
  const TIMES = "input[name=since], input[name=until]";
  const AT = /^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?)?$/, CLOCK = /^([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d)?$/;
  // A time that was typed in the zone that is shown, in UTC; all else as it is.
  function inUtc(text) {
    if (zone !== "local") return text;
    const day = new Date(), named = /^(today|yesterday)\b *(.*)$/i.exec(text);
    if (named) {
      if (named[1].toLowerCase() === "yesterday") day.setDate(day.getDate() - 1);
      text = `${parts(day)[0]} ${named[2] ? named[2].padStart(5, "0") : "00:00"}`;
    }
    if (CLOCK.test(text)) {
      const [hour, minute, second] = text.split(":");
      day.setHours(hour, minute, second || 0, 0);
      return day.toISOString().slice(11, second ? 19 : 16);
    }
    const at = new Date(text.length === 10 ? `${text}T00:00` : text.replace(" ", "T"));
    return AT.test(text) && !isNaN(at) ? at.toISOString().slice(0, Math.max(16, text.length)).replace(/Z?$/, "Z") : text;
  }
  function fields() {
    for (const one of document.querySelectorAll(TIMES)) {
      one.dataset.at ??= one.defaultValue;
      const at = new Date(one.dataset.at);
      if (isNaN(at) || one.value !== (one.dataset.shown ?? one.defaultValue)) continue; // somebody is typing
      const [date, clock] = stamp(at);
      one.value = one.dataset.shown = `${date} ${clock.slice(0, 8)}`;
    }
  }
  function times(within) {
    for (const one of within.querySelectorAll("time[datetime]")) {
      const at = new Date(one.dateTime);
      if (isNaN(at)) continue;
      const day = one.querySelector(".day"), [date, clock] = stamp(at);
      one.title = `${at.toISOString()}\n${parts(at).join(" ")}`;
      if (day) { day.textContent = date; one.lastChild.data = " " + clock; } else one.textContent = clock;
    }
    for (const one of within.querySelectorAll("title[data-at]")) one.textContent = one.textContent.replace(/^[^,]*/, stamp(new Date(one.dataset.at)).join(" ").replace(/:\d\d\.\d+/, ""));
  }

  let saying;
  function say(text) {
    const toast = document.querySelector(".toast");
    if (!toast) return;
    toast.textContent = text;
    clearTimeout(saying);
    saying = setTimeout(() => { toast.textContent = ""; }, 2500);
  }
  async function copy(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea"); // plain http has no clipboard
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("no clipboard");
  }
  async function copyOf(button) {
    try {
      let text = button.dataset.copy;
      if (button.dataset.copyFrom) {
        const answer = await fetch(button.dataset.copyFrom, { credentials: "same-origin" });
        if (!answer.ok) throw new Error(String(answer.status));
        // exact, BOM included
        text = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true }).decode(await answer.arrayBuffer());
      }
      await copy(text);
      say(`Copied ${text.length.toLocaleString("en")} characters`);
    } catch (error) { say(`Not copied: ${error.message}`); }
  }
  function linkHere() {
    const to = new URL(location.href), row = document.querySelector(".at[id]");
    const at = row ? row.id : to.hash.slice(1);
    for (const name of ["at", "again", "from"]) to.searchParams.delete(name);
    to.hash = "";
    if (at && at !== "main") to.searchParams.set("at", at);
    return to.href;
  }

  const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
  function mark(row = document.getElementById(location.hash.slice(1))?.closest("[data-row]")) {
    if (!row) return;
    document.querySelector(".at")?.classList.remove("at");
    row.classList.add("at");
  }
  function step(by) {
    const all = rows(), now = all.findIndex((row) => row.classList.contains("at"));
    if (!all.length) return;
    const next = all[now < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(now + by, 0), all.length - 1)];
    mark(next);
    next.scrollIntoView({ block: "nearest" });
    (next.querySelector("a[data-open]") || next.querySelector("a"))?.focus({ preventScroll: true });
  }

  const click = (selector) => { const found = document.querySelector(selector); if (found) found.click(); return Boolean(found); };
  const label = (word) => click(`.at button[name="${word}"], .at button[name=label][value="${word}"]`);
  const help = () => { const dialog = document.getElementById("help"); if (dialog && !dialog.open) dialog.showModal(); return Boolean(dialog); };
  let going = 0;
  const KEYS = {
    "/": () => { const box = document.getElementById("find"); box?.focus(); box?.select(); return Boolean(box); },
    j: () => { step(1); return true; }, k: () => { step(-1); return true; },
    "[": () => click("a[rel=prev]"), "]": () => click("a[rel=next]"),
    r: () => label("right"), x: () => label("wrong"), u: () => label("unsure"),
    n: () => { const note = document.querySelector(".at input[name=note]"); note?.focus(); return Boolean(note); },
    d: () => click('a[data-go="diff"]'), w: () => click('a[data-go="wire"]'),
    y: () => { copy(linkHere()).then(() => say("Link copied"), () => say("Not copied")); return true; },
    "?": help,
  };
  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || kept.get("keys") === "off") return;
    if (event.target.closest("input, textarea, select, dialog, [contenteditable]")) return;
    if (event.key === "Enter") { // a focused link or button acts by itself
      const row = event.target === document.body && document.querySelector(".at[data-row]");
      if (row) (row.querySelector("a[data-open]") || row.querySelector("a"))?.click();
      return;
    }
    const second = Date.now() - going < 1500;
    going = event.key === "g" && !second ? Date.now() : 0;
    const done = second ? /^[a-z]$/.test(event.key) && click(`a[data-go="${event.key}"]`) : KEYS[event.key]?.();
    if (done) event.preventDefault();
  }

  function labels() {
    for (const button of document.querySelectorAll("[data-zone-switch]")) button.textContent = zoneName();
    for (const name of document.querySelectorAll("[data-zone-name]")) name.textContent = zoneName();
    for (const box of document.querySelectorAll("[data-keys-switch]")) box.checked = kept.get("keys") !== "off";
  }
  function pressed(event) {
    for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    // whoever comes back is at the same row
    const row = event.target.closest("a[data-open]")?.closest("[data-row][id]");
    if (row) history.replaceState(null, "", `#${row.id}`);
    const on = event.target.closest("button, input");
    if (!on) return;
    if ("copy" in on.dataset || "copyFrom" in on.dataset) copyOf(on);
    else if ("themeSwitch" in on.dataset) { setTheme(isDark() ? "light" : "dark"); kept.set("theme", root.dataset.theme); }
    else if ("zoneSwitch" in on.dataset) { zone = zone === "local" ? "utc" : "local"; kept.set("zone", zone); times(document); fields(); labels(); }
    else if ("keysSwitch" in on.dataset) kept.set("keys", on.checked ? "on" : "off");
    else if ("help" in on.dataset) help();
  }
  document.addEventListener("click", pressed);
  document.addEventListener("keydown", key);
  document.addEventListener("submit", (event) => { // addresses without empty filters, and with times in UTC
    if (event.target.method !== "get") return;
    const typed = new Map();
    for (const field of event.target.querySelectorAll("input, select")) {
      typed.set(field, field.value);
      if (field.matches(TIMES)) field.value = field.value === field.dataset.shown ? field.dataset.at : inUtc(field.value.trim());
      else if (field.id === "find" && (CLOCK.test(field.value) || /^\S+[ T]\d?\d:\d\d/.test(field.value))) field.value = inUtc(field.value);
      if (!field.value) field.disabled = true;
    }
    setTimeout(() => { for (const [field, value] of typed) { field.disabled = false; field.value = value; } });
  });
  document.addEventListener("DOMContentLoaded", () => { times(document); fields(); labels(); mark(); });
  addEventListener("hashchange", () => mark());
  window.sluice = { times, say, clock: (ms) => stamp(new Date(ms))[1].replace(/\.\d+/, "") };
})();

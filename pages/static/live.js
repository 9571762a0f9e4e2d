/* A call as it runs: events of data-live fill copies of the template data-live-block, as text alone. */
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const $ = (name) => document.querySelector(`[data-live${name}]`), box = $(""), root = document.documentElement;
  if (!box) return;
  box.hidden = false;
  const list = $("-blocks"), model = $("-block").content.firstElementChild, jump = $("-new"), blocks = new Map();
  let source, last = "", chunks = 0, seen = 0, follows = true, at = 0, over = false, lost = 0;
  const set = (node, text) => { if (node.textContent !== text) node.textContent = text; };
  const state = (text) => set($("-state"), text), say = (text) => set($("-say"), text);
  const since = (ms) => state(ms ? `LOST since ${sluice.clock(ms)}` : "LIVE");
  const show = (node, text) => { node.hidden = false; node.lastChild.append(text); };

  function tell(one) {
    if (!blocks.has(one.b)) {
      const row = model.cloneNode(true), made = { row, out: new Text(), held: new Text(), name: `#${one.b} ${one.kind} ${one.name}` };
      for (const part of row.querySelectorAll("[class]")) made[part.classList[0]] = part;
      made.old.append(made.out);
      made.wait.append(made.held);
      set(made.name_, made.name);
      list.insertBefore(row, list.children[[...blocks.keys()].filter((n) => n < one.b).length] || null);
      blocks.set(one.b, made);
    }
    const at = blocks.get(one.b), more = one.out - at.out.length;
    if (one.add) at.held.appendData(one.add);
    if (more > 0) { at.out.appendData(at.held.data.slice(0, more)); at.held.deleteData(0, more); }
    at.row.className = `block-row ${one.verdict}`;
    at.verdict.className = `verdict ${one.verdict}`;
    at.wait.classList.toggle("held", one.verdict === "hold");
    set(at.verdict, one.word);
    set(at.muted, one.why);
    if (one.cut) set(at.cut, one.cut);
    if (one.got) show(at.got_, one.got);
    if (at.word !== one.word && /[A-Z]{4}/.test(at.word + one.word)) say(`${at.name} ${one.word}`);
    at.word = one.word;
  }
  const atBottom = () => innerHeight + scrollY >= root.scrollHeight - 40;
  function scroll() {
    // scrolled up by the reader, the event of which is still to come
    if (scrollY < at - 40 && !atBottom()) follows = false;
    if (follows) { seen = chunks; scrollTo(0, root.scrollHeight); }
    at = scrollY;
    jump.hidden = follows || chunks === seen;
    set(jump.firstChild, `${chunks - seen} new ↓`);
  }
  function frame(event, data) {
    last = event.lastEventId || last;
    lost = 0;
    data.blocks.forEach(tell);
    if (data.loose) show($("-loose"), data.loose);
    since(0);
    set($("-figures"), data.line);
    chunks = data.chunks;
    scroll();
  }
  function shut(text) {
    source?.close();
    source = null;
    if (text) { over = true; state("not following"); say(text); }
  }
  function end(_, data) {
    shut(data.text);
    if (!data.over) return;
    state("OVER");
    $("-state").parentNode.className = "verdict";
    $("-say").className = "note";
    $("-stop").hidden = true;
    document.title = `over · ${document.title}`;
  }
  async function refused(url) { // an EventSource does not say why
    const stop = new AbortController();
    try {
      const answer = await fetch(url, { headers: { accept: "application/json" }, signal: stop.signal });
      if (answer.redirected) return shut("The login has ended.");
      const text = answer.ok ? "" : (await answer.json()).error.message;
      if (answer.status === 429) return shut(text);
      say(text);
    } catch { /* away */ } finally { stop.abort(); }
    setTimeout(open, 3000);
  }
  function open() {
    if (over || document.hidden || source) return;
    const url = box.dataset.live + (last && `?after=${last}`);
    source = new EventSource(url);
    const acts = {
      frame, lost: (_, data) => since(data.since), end,
      gap: () => { shut("More came than can be shown: read again."); location.reload(); },
    };
    for (const name in acts) source.addEventListener(name, (event) => acts[name](event, JSON.parse(event.data)));
    source.onerror = () => {
      since(lost ||= Date.now());
      if (source?.readyState === 2) { shut(); refused(url); }
    };
  }
  document.addEventListener("visibilitychange", () => (document.hidden ? shut() : open()));
  addEventListener("scroll", () => {
    follows = atBottom();
    at = scrollY;
    if (follows) scroll();
  });
  jump.onclick = () => { follows = true; scroll(); };
  $("-stop").onclick = (event) => {
    over = !over;
    set(event.target, over ? "Follow again" : "Stop following");
    if (over) { shut(); state("stopped"); } else open();
  };
  open();
});

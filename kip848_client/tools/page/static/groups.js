"use strict";
(() => {
  const {el, now, stamp, lasting, count, address, around, cells, anchor} = Live;
  const LEVELS = ["quiet", "abandoned", "rebalancing", "silent", "lag grows", "rebalancing long", "held back", "standing still"];
  const groups = new Map(), texts = new Map();
  let shown = [], wanted = null, found = [], foundVersion = -1, allFound = false, sortDue = false;
  const search = el("search"), box = el("rows"), pool = new Map();
  const narrow = matchMedia("(max-width: 600px)");
  const height = () => narrow.matches ? 56 : 34;
  const url = id => address("/groups/", id);

  function take(rows) {
    for (const row of rows) {
      groups.set(row.group_id, row);
      texts.set(row.group_id, `${row.name} ${row.text} ${row.state} ${row.type} ${LEVELS[row.level]} ${row.last}`.toLowerCase());
    }
  }
  const worse = (a, b) => b.level - a.level
    || (a.level > 1 ? (a.since_ms || 0) - (b.since_ms || 0)
      : (b.members > 0) - (a.members > 0) || (b.lag || 0) - (a.lag || 0))
    || (a.group_id < b.group_id ? -1 : 1);
  function arrange() {
    sortDue = false;
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    shown = [...groups.values()].filter(row => (wanted === null || row.level === wanted)
      && words.every(word => texts.get(row.group_id).includes(word))).sort(worse);
    chips(); draw();
    const none = groups.size ? "No group is like that." : "No groups yet.";
    el("empty").textContent = shown.length ? "" : none;
    document.title = `${[...groups.values()].filter(row => row.level >= 3).length || "no"} groups in trouble`;
  }
  function chips() {
    const counts = new Map();
    for (const row of groups.values()) counts.set(row.level, (counts.get(row.level) || 0) + 1);
    const levels = [...new Set([...counts.keys(), ...(wanted === null ? [] : [wanted])])].sort((a, b) => b - a);
    const texts = [["all", null, groups.size], ...levels.map(level => [LEVELS[level], level, counts.get(level) || 0])];
    const key = JSON.stringify([texts, wanted]);
    if (el("chips").dataset.key === key) return;
    el("chips").dataset.key = key;
    el("chips").replaceChildren(...texts.map(([text, level, number]) => {
      const button = document.createElement("button");
      if (level !== null) { const dot = document.createElement("i"); dot.className = `dot v${level}`; button.appendChild(dot); }
      button.append(`${text} ${count(number)}`);
      button.setAttribute("aria-pressed", String(wanted === level));
      button.onclick = () => { wanted = level; arrange(); };
      return button;
    }));
  }
  function sentence(row) {
    const since = row.since_ms && row.level > 0 ? `since ${stamp(row.since_ms)} (${lasting(now() - row.since_ms)}): ` : "";
    if (row.text) return since + row.text;
    return row.last ? `${stamp(row.last_ms)} ${row.last}` : "";
  }
  function fill(line, row) {
    const [dot, name, text, lag, behind, members, rebalances, state] = line.children;
    dot.firstChild.className = `dot v${row.level}`; dot.title = LEVELS[row.level];
    const set = (span, value) => { if (span.textContent !== value) span.textContent = value; };
    set(name, row.name); name.title = row.name;
    const said = sentence(row);
    set(text, said); text.title = said; text.className = row.text && row.level > 1 ? `t${row.level}` : "soft";
    set(lag, count(row.lag));
    set(behind, row.lag_ms ? lasting(row.lag_ms) : row.lag === null ? "–" : "0");
    set(members, count(row.members)); set(rebalances, String(row.rebalances)); set(state, row.state);
    line.href = url(row.group_id);
  }
  function make() {
    const line = document.createElement("a");
    line.className = "row"; line.setAttribute("role", "listitem");
    for (const kind of ["", "name", "", "n", "n", "n", "n", ""]) { const span = document.createElement("span"); span.className = kind; line.appendChild(span); }
    line.firstChild.appendChild(document.createElement("i"));
    box.appendChild(line);
    return line;
  }
  // Only the rows that can be seen are in the document.
  function draw() {
    const tall = height(), top = Math.max(0, scrollY - box.offsetTop), first = Math.max(0, Math.floor(top / tall) - 6);
    const last = Math.min(shown.length, Math.ceil((top + innerHeight) / tall) + 6);
    box.style.height = shown.length * tall + "px";
    const needed = new Set();
    for (let i = first; i < last; i++) needed.add(shown[i].group_id);
    const free = [];
    for (const [id, line] of pool) if (!needed.has(id)) { pool.delete(id); free.push(line); }
    for (let i = first; i < last; i++) {
      const row = shown[i];
      let line = pool.get(row.group_id);
      if (!line) { line = free.pop() || make(); pool.set(row.group_id, line); }
      line.style.transform = `translateY(${i * tall}px)`;
      line.dataset.index = i;
      fill(line, row);
    }
    for (const line of free) line.remove();
  }
  function lately() {
    // A deploy says itself what it cost.
    const few = allFound ? found : found.filter(f => f.kind !== "stand-still" || f.why !== "deploy" || f.ms >= 1e4).slice(0, narrow.matches ? 2 : 4);
    el("lately").hidden = !found.length;
    el("found-count").textContent = found.length >= 500 ? "(500 or more)" : `(${found.length})`;
    cells(el("found"), null, few.map(each => [
      anchor(address("/groups/", each.group_id, around(each.start_ms, each.ms)), stamp(each.start_ms)),
      each.kind === "all groups" ? "many groups" : anchor(url(each.group_id), each.group_id), each.text]));
    el("lately").classList.toggle("open", allFound);
    [...el("found").rows].forEach((row, i) => { row.title = few[i].text; });
    el("more-found").hidden = found.length <= few.length && !allFound;
    el("more-found").textContent = allFound ? "show less" : `show all ${found.length}`;
  }
  el("more-found").onclick = () => { allFound = !allFound; lately(); draw(); };
  let asking = false;
  async function askForFindings(version) {
    if (version === foundVersion || asking) return;
    asking = true;
    try {
      const answer = await Live.ask("/api/findings");
      found = answer.findings; foundVersion = answer.version; lately();
    } catch { /* asked again with the next news */ } finally { asking = false; }
  }
  function news(what) {
    if (what.again) { load(); return; }
    if (what.groups) take(what.groups);
    for (const id of what.gone || []) { groups.delete(id); texts.delete(id); }
    if (what.groups?.length || what.gone?.length) later();
    askForFindings(what.findings_version);
  }
  function later() { if (!sortDue) { sortDue = true; setTimeout(arrange, 150); } }
  async function load() {
    const all = await Live.ask("/api/groups");
    groups.clear(); texts.clear(); take(all.groups); Live.heard(all); arrange(); askForFindings(all.findings_version);
    return all.version;
  }
  let drawing = false;
  addEventListener("scroll", () => { if (!drawing) { drawing = true; requestAnimationFrame(() => { drawing = false; draw(); }); } }, {passive: true});
  addEventListener("resize", draw);
  search.oninput = arrange;
  el("zone").onclick = () => { el("zone").textContent = Live.zone(); draw(); lately(); };
  setInterval(draw, 1000);
  addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && document.activeElement !== search) { event.preventDefault(); search.focus(); search.select(); }
    if (event.key === "Escape") { search.value = ""; wanted = null; arrange(); }
    if (event.key === "Enter" && document.activeElement === search && shown.length) location.href = url(shown[0].group_id);
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const at = document.activeElement?.dataset?.index;
      const next = at === undefined ? 0 : Math.max(0, Math.min(shown.length - 1, Number(at) + (event.key === "ArrowDown" ? 1 : -1)));
      if (!shown.length) return;
      event.preventDefault();
      const y = box.offsetTop + next * height();
      if (y < scrollY + 60) scrollTo(0, y - 60); else if (y + 80 > scrollY + innerHeight) scrollTo(0, y + 80 - innerHeight);
      draw();
      pool.get(shown[next].group_id)?.focus({preventScroll: true});
    }
  });
  (async function start() {
    for (;;) {
      try { const version = await load(); Live.follow("", version, news); return; } catch { Live.lost(); Live.banner(); }
      await new Promise(done => setTimeout(done, 2000));
    }
  })();
})();

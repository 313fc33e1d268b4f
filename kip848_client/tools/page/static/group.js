"use strict";
(() => {
  const {el, now, stamp, lasting, count, address, cells} = Live;
  const query = new URLSearchParams(location.search);
  const path = location.pathname.slice("/groups/".length);
  const id = path === "" ? query.get("id") || "" : decodeURIComponent(path);
  const HOUR = 36e5, given = name => /^\d{1,15}$/.test(query.get(name) || "") ? Number(query.get(name)) : null;
  const fixed = given("to") !== null && given("to") < Date.now();
  let length = given("last") || HOUR, period = fixed ? [given("from") ?? given("to") - HOUR, given("to")] : null;
  let group = null, detail = null, took = 0, loadedAt = 0, due = false;
  const spanOf = () => period || [now() - length, now()];
  const asked = () => { const [from, to] = spanOf(); return `from=${Math.round(from)}` + (period ? `&to=${Math.round(to)}` : ""); };
  linkOf = f => address("/groups/", id, Live.around(f.start_ms, f.ms));
  el("live-name").textContent = document.title;

  function showNow() {
    if (!group) return;
    el("live-name").textContent = group.name;
    el("live-dot").className = `dot v${group.level}`;
    el("live-state").textContent = group.state + (detail?.state_since_ms ? ` for ${lasting(now() - detail.state_since_ms)}` : "");
    const since = group.since_ms && group.level ? `since ${stamp(group.since_ms)} (${lasting(now() - group.since_ms)}): ` : "";
    el("live-text").textContent = group.text ? since + group.text : "nothing is wrong now";
    el("live-text").className = `said t${group.level}`;
    const figures = [["records behind", count(group.lag)], ["behind", group.lag === null ? "–" : group.lag_ms ? lasting(group.lag_ms) : "0 s"],
      ["members", count(group.members)], ["partitions", count(group.partitions)], ["rebalances in an hour", count(group.rebalances)],
      ["commits a second", detail ? detail.commits_per_s.toFixed(1) : "–"], [group.type === "classic" ? "generation" : "epoch", count(detail?.epoch)]];
    if (group.per_s) figures.push(["lag, records a second", (group.per_s > 0 ? "+" : "") + group.per_s.toFixed(1)]);
    el("live-figures").replaceChildren(...figures.map(([name, value]) => {
      const box = document.createElement("div"), b = document.createElement("b");
      box.className = "figure"; b.textContent = value; box.append(b, name); return box; }));
  }
  const when = ms => ms ? `${stamp(ms)} (${lasting(now() - ms)})` : "–";
  function showDetail() {
    showNow();
    if (!detail?.members) return;
    const waits = member => Object.entries(member.waits_for).map(([owner, n]) => `${n} of ${owner}`).join(", ");
    cells(el("live-members"), ["member", "host", "owns", "since", "lag", "last commit", "state", "waits for"], detail.members.map(m =>
      [m.name, m.host, count(m.owned) + (m.gives_up ? `, gives up ${m.gives_up}` : ""), when(m.since_ms), count(m.lag), when(m.committed_ms),
       (m.state || "").toLowerCase().replaceAll("_", " "), waits(m)]));
    cells(el("live-partitions"), ["partition", "owner", "since", "committed", "lag", "behind", "last moved"], detail.partitions.map(p =>
      [p.partition + (p.held_back ? " (held back by a transaction)" : ""), p.owner || "nobody", when(p.since_ms), count(p.committed), count(p.lag),
       p.behind_ms === null ? "–" : p.behind_ms ? lasting(p.behind_ms) : "0 s", when(p.moved_ms)]));
    cells(el("live-lines"), null, [...detail.lines].reverse().map(([ms, text]) => [stamp(ms), text]));
    for (const [box, name, shown, left] of [["now-members", "Members", detail.members, detail.members_left_out],
      ["now-partitions", "Partitions", detail.partitions, detail.partitions_left_out]])
      el(box).firstElementChild.textContent = `${name} now (${count(shown.length)}${left ? ` of ${count(shown.length + left)}` : ""})`;
  }
  function showPeriod() {
    const [from, to] = spanOf();
    el("shown").textContent = `${stamp(from)} to ${period ? stamp(to) : "now"}`;
    el("link").href = address("/groups/", id, `from=${Math.round(from)}&to=${Math.round(to)}`);
    el("download").href = address("/report/", id, asked());
    for (const a of el("periods").querySelectorAll("[data-ms]")) {
      a.href = address("/groups/", id, `last=${a.dataset.ms}`);
      if (!period && Number(a.dataset.ms) === length) a.setAttribute("aria-current", "true"); else a.removeAttribute("aria-current");
    }
  }
  async function askForDetail() {
    try { detail = await Live.ask(address("/api/groups/", id)); group = detail.group || group; Live.heard(detail); showDetail(); return detail.version; }
    catch (error) { el("live-text").textContent = error.message; throw error; }
  }
  async function askForTimeline() {
    const began = performance.now();
    try {
      const drawn = await Live.ask(address("/api/timeline/", id, asked()));
      refresh(drawn.timelines, drawn.findings);
    } catch (error) { byId("findings").textContent = error.message; }
    took = performance.now() - began; loadedAt = Date.now();
  }
  // At once if something changed, but no more often than once a second, and not more than a fifth of the time.
  function later() {
    if (due) return;
    due = true;
    setTimeout(async () => {
      try { await askForDetail(); if (!period) await askForTimeline(); } catch { /* the next news try again */ } finally { due = false; }
    }, Math.max(50, loadedAt + Math.max(1000, 5 * took) - Date.now()));
  }
  function news(what) {
    if (what.group) group = what.group;
    if (what.changed) later();
    showNow();
  }
  byId("zone").addEventListener("click", () => { Live.zone(); showDetail(); showPeriod(); });
  setInterval(() => {
    if (document.hidden) return;
    showNow(); showPeriod();
    if (!period && loadedAt) slide(now());
  }, 1000);
  setInterval(() => { if (!document.hidden && !due) askForDetail().catch(() => {}); }, 5000);
  addEventListener("keydown", event => { if (event.key === "Escape") location.href = "/"; });
  showPeriod();
  (async function start() {
    for (;;) {
      let version = 0;
      try { version = await askForDetail(); } catch { if (!fixed) Live.lost(); }
      await askForTimeline();
      if (version || fixed) { Live.follow(`&group=${encodeURIComponent(id)}`, version, news); return; }
      Live.banner();
      await new Promise(done => setTimeout(done, 2000));
    }
  })();
})();

"use strict";
// What both live pages share: times, addresses, and news from the server.
const Live = (() => {
  let skew = 0, local = false;
  const el = id => document.getElementById(id);
  const now = () => Date.now() + skew;
  function stamp(ms) {
    const written = new Date(ms - (local ? new Date(ms).getTimezoneOffset() * 6e4 : 0)).toISOString();
    const today = new Date(now() - (local ? new Date().getTimezoneOffset() * 6e4 : 0)).toISOString().slice(0, 10);
    return (written.slice(0, 10) === today ? "" : written.slice(5, 10) + " ") + written.slice(11, 19);
  }
  function lasting(ms) {
    const s = Math.max(0, ms) / 1000;
    if (s < 9.95) return s.toFixed(1) + " s";
    if (s < 120) return Math.round(s) + " s";
    if (s < 7200) return (s / 60).toFixed(1) + " min";
    return s < 172800 ? (s / 3600).toFixed(1) + " h" : (s / 86400).toFixed(1) + " d";
  }
  const count = n => n === null || n === undefined ? "–" : n.toLocaleString("en");
  // "." and ".." would be taken for folders, an empty name for the first page, and no address has the end of a line.
  function address(head, id, query = "") {
    const plain = id !== "" && id !== "." && id !== ".." && !/(^|\/)\.{1,2}(\/|$)|^\/|\/\/|\/$|\n/.test(id);
    const more = plain ? query : "id=" + encodeURIComponent(id) + (query && "&" + query);
    return head + (plain ? encodeURIComponent(id) : "") + (more && "?" + more);
  }
  const around = (from, ms) => `from=${Math.max(0, Math.round(from - 3e4))}&to=${Math.round(from + (ms || 0) + 3e4)}`;
  function cells(table, heads, lines) {
    table.replaceChildren();
    if (heads) {
      const head = table.createTHead().insertRow();
      for (const text of heads) { const th = document.createElement("th"); th.textContent = text; head.appendChild(th); }
    }
    const body = table.createTBody();
    for (const line of lines) {
      const row = body.insertRow();
      for (const part of line) {
        const td = row.insertCell();
        if (part instanceof Node) td.appendChild(part); else td.textContent = part;
      }
    }
  }
  function anchor(href, text) { const a = document.createElement("a"); a.href = href; a.textContent = text; return a; }
  let silentSince = null, cluster = null;
  function banner() {
    const box = el("banner");
    let text = "", calm = false;
    if (silentSince !== null && Date.now() - silentSince > 2000) {
      text = `The program that serves this page has not answered for ${lasting(Date.now() - silentSince)}; what is shown is from then. Trying again.`;
    } else if (cluster) {
      const since = lasting(now() - cluster.since_ms);
      if (cluster.phase === "away") {
        const what = cluster.lost === "file" ? "The file of this page cannot be used" : "The cluster does not answer";
        text = `${what} since ${stamp(cluster.since_ms)} (${since}); the last known state is shown. ${cluster.text}`;
      }
      if (cluster.phase === "connecting") { text = "Connecting to the cluster."; calm = true; }
      if (cluster.phase === "reading") {
        const of = cluster.records ? ` (${count(Math.min(cluster.read, cluster.records))} of up to ${count(cluster.records)} records)` : "";
        text = `Reading the history of ${count(cluster.listed)} groups${of}; what is shown is not complete yet.`; calm = true;
      }
      if (!text && cluster.left_out) { text = `${count(cluster.left_out)} groups above --groups-max are not shown.`; calm = true; }
    }
    box.hidden = !text; box.classList.toggle("calm", calm);
    if (box.textContent !== text) box.textContent = text;
  }
  function heard(news) {
    skew = news.now_ms - Date.now(); silentSince = null; cluster = news.cluster;
    el("cluster").textContent = cluster.cluster_id ? `cluster ${cluster.cluster_id}` : "";
    banner();
  }
  // News by server-sent events. The browser connects again by itself; a stream that is silent for too long is ended.
  function follow(query, version, told) {
    let source = null, last = Date.now(), seen = version;
    const open = () => {
      source = new EventSource(`/events?version=${seen}${query}`);
      source.onmessage = event => {
        last = Date.now();
        const news = JSON.parse(event.data);
        seen = news.version; heard(news); told(news);
      };
      source.onerror = () => {
        silentSince = silentSince ?? Date.now();
        if (source.readyState === EventSource.CLOSED) setTimeout(() => { source.close(); open(); }, 2000);
      };
    };
    open();
    setInterval(() => {
      if (Date.now() - last > 25000) { silentSince = silentSince ?? last; last = Date.now(); source.close(); open(); }
      banner();
    }, 1000);
    addEventListener("pagehide", () => source.close());
    addEventListener("pageshow", event => { if (event.persisted) open(); });
  }
  async function ask(path) {
    const answer = await fetch(path, {headers: {Accept: "application/json"}});
    if (answer.status === 401) { location.href = "/login"; throw new Error("a token is needed"); }
    if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error || answer.statusText);
    return answer.json();
  }
  return {el, now, stamp, lasting, count, address, around, cells, anchor, heard, follow, ask, banner,
          zone: () => { local = !local; return local ? "local" : "UTC"; }, lost: () => { silentSince = silentSince ?? Date.now(); }};
})();

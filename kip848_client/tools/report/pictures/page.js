"use strict";
// The page of a report, and the group page of `kip848 groups serve`, which calls `refresh` again and again.
const shade = name => `var(--${name})`;  // page.css has each colour twice, for light and for dark
const STATE_COLOURS = {
  UNJOINED: shade("absent"), STABLE: shade("stable"), RECONCILING: shade("moving"), RELEASING_ASSIGNMENT: shade("deep"),
  FATAL: shade("dead"), UNREVOKED_PARTITIONS: shade("moving"), UNRELEASED_PARTITIONS: shade("waiting"),
  Empty: shade("absent"), Stable: shade("stable"), Reconciling: shade("moving"), Assigning: shade("deep"),
  Dead: shade("dead"), PreparingRebalance: shade("moving"), CompletingRebalance: shade("waiting"),
};  // grey and violet: none of the colours of members
const OTHER_STATE = shade("other");
const MARK_COLOURS = {fault: shade("m5"), refusal: shade("m1"), failure: shade("m3"), life: shade("m0")};
const BASE = Array.from({length: 8}, (_, n) => shade("m" + n));
const NS = "http://www.w3.org/2000/svg";
const byId = id => document.getElementById(id);
let DATA = [], FOUND = [], group = null, view = null, cursor = 0, colours = new Map(), local = false;
let linkOf = null;  // of a finding, on a page that has addresses for times

function colour(owner) {
  if (!colours.has(owner)) {
    const n = colours.size;
    colours.set(owner, n < BASE.length ? BASE[n] : `hsl(${(n * 137.5) % 360} 55% ${45 + (n % 3) * 10}%)`);
  }
  return colours.get(owner);
}
const isDate = () => group.start_ms > 1e11 && group.end_ms < 253402300800000;
const DAY = 864e5;
const iso = ms => new Date(ms - (local ? new Date(ms).getTimezoneOffset() * 6e4 : 0)).toISOString();
const zone = () => local ? "local" : "UTC";
// A time of day, with its date if the log is longer than a day; of a virtual clock, seconds since its start.
function clock(ms, step = 1) {
  if (!isDate()) return ((ms - group.start_ms) / 1000).toFixed(step < 1000 ? 3 : 0) + " s";
  const written = iso(ms), long = group.end_ms - group.start_ms > DAY;
  if (step >= DAY) return written.slice(0, 10);
  return (long ? written.slice(5, 10) + " " : "") + written.slice(11, step < 1000 ? 23 : step < 6e4 ? 19 : 16);
}
function lasted(ms) {
  if (ms === null) return "—";
  if (ms < 1000) return Math.round(ms) + " ms";
  if (ms < 12e4) return (ms / 1000).toFixed(2) + " s";
  const s = Math.round(ms / 1000);
  if (ms < 6e5) return `${Math.floor(s / 60)} min` + (s % 60 ? ` ${s % 60} s` : "");
  return ms < 72e5 ? (ms / 6e4).toFixed(1) + " min" : (ms / 36e5).toFixed(1) + " h";
}
function make(name, attributes, parent, text) {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.appendChild(node);
  return node;
}
// At the end of the log all is as it was last.
const at = (spans, ms) => spans.filter(s => s[0] <= ms && (ms < s[1] || (s[1] === ms && ms === group.end_ms))).map(s => s[2]);
function last(pairs, ms) { let found = null; for (const p of pairs) if (p[0] <= ms) found = p; return found; }

const LEFT = 150, ROW = 26, MEMBER_ROW = 24;
let rows = {};
function draw() {
  const svg = byId("chart"), width = svg.clientWidth || 1000;
  const right = width - 12, [from, to] = view, scale = (right - LEFT) / (to - from);
  const x = ms => LEFT + (Math.min(Math.max(ms, from), to) - from) * scale;
  svg.replaceChildren();
  let y = 24;
  const label = (text, top, height) => make("title", {},  // long names differ at their end
    make("text", {x: LEFT - 8, y: top + height / 2 + 4, "text-anchor": "end"}, svg,
         text.length > 21 ? "…" + text.slice(-20) : text), text);
  const bar = (span, top, height, fill, tip) => {
    if (span[1] < from || span[0] > to) return;
    const left = x(span[0]), node = make("rect",
      {x: left, y: top, width: Math.max(1, x(span[1]) - left), height, fill, rx: Math.min(3, height / 3)}, svg);
    make("title", {}, node, `${tip}\n${clock(span[0])} – ${clock(span[1])} (${lasted(span[1] - span[0])})`);
    return left;
  };
  // time axis
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 12e5, 18e5, 36e5,
    72e5, 216e5, 432e5, DAY, 2 * DAY, 5 * DAY, 10 * DAY], origin = isDate() ? 0 : group.start_ms;
  const step = steps.find(s => s * scale > 85) || 50 * DAY;
  const height = 24 + 22 + 22 + group.partitions.length * ROW + 16 + group.members.length * MEMBER_ROW + 16;
  svg.setAttribute("height", height);
  for (let t = Math.ceil((from - origin) / step) * step + origin; t <= to; t += step) {
    make("line", {x1: x(t), x2: x(t), y1: 18, y2: height, class: "rule"}, svg);
    make("text", {x: x(t), y: 12, "text-anchor": "middle", class: "soft"}, svg, clock(t, step));
  }
  const stood = [];
  for (const f of FOUND) {
    if (f.group_id !== group.group_id || !["all groups", "outage", "held back", "stand-still", "no reader"].includes(f.kind)) continue;
    if (f.start_ms + f.ms < from || f.start_ms > to) continue;
    const left = x(f.start_ms), wide = Math.max(1, x(f.start_ms + f.ms) - left);
    const over = (top, high, fill, strong) => make("title", {},
      make("rect", {x: left, y: top, width: wide, height: high, fill, "fill-opacity": strong}, svg), f.text);
    over(18, height - 18, "var(--cursor)", 0.12);
    stood.push([f, over]);
  }
  // group: state and epochs
  label("group", y, 14);
  for (const s of group.states) bar(s, y + 2, 12, STATE_COLOURS[s[2]] || OTHER_STATE, s[2]);
  let free = -1e9;
  for (const [t, epoch, reason] of group.epochs) {
    if (t < from || t > to) continue;
    const tick = make("line", {x1: x(t), x2: x(t), y1: y, y2: y + 16, stroke: "var(--ink)", "stroke-width": 1}, svg);
    make("title", {}, tick, `group epoch ${epoch}: ${reason}`);
    if (x(t) > free) { make("text", {x: x(t) + 2, y: y + 12, class: "soft"}, svg, epoch); free = x(t) + 24; }
  }
  y += 22;
  label("events", y, 14);
  for (const [t, who, kind, text] of group.marks) {
    if (t < from || t > to) continue;
    const cx = x(t), up = {fault: 3, refusal: 7, failure: 10, life: 13}[kind];
    const dot = make(kind === "fault" ? "path" : "circle", kind === "fault"
      ? {d: `M${cx - 4},${y + 9}l4,-8l4,8z`, fill: MARK_COLOURS[kind]}
      : {cx, cy: y + up, r: 2.6, fill: MARK_COLOURS[kind], "fill-opacity": 0.8}, svg);
    make("title", {}, dot, `${clock(t)} ${who}: ${text}`);
  }
  y += 22;
  for (const lane of group.partitions) {
    label(lane.partition, y, ROW - 4);
    for (const s of lane.read) bar(s, y + 2, 14, colour(s[2]), `${lane.partition} read by ${s[2]}`);
    const thin = lane.read.length || group.anyRead;
    for (const s of lane.held) bar(s, thin ? y + 18 : y + 2, thin ? 3 : 16, colour(s[2]), `${lane.partition} owned by ${s[2]}`);
    y += ROW;
  }
  for (const [f, over] of stood) {  // the bars of the partitions that stood still are paler
    const which = new Set(f.which);
    group.partitions.forEach((lane, i) => {
      if (which.has(lane.partition)) over(68 + i * ROW, ROW - 2, "var(--paper)", 0.55), over(68 + i * ROW, ROW - 2, "var(--cursor)", 0.2);
    });
  }
  y += 16;
  for (const lane of group.members) {
    label(lane.member, y, MEMBER_ROW - 6);
    make("rect", {x: LEFT - 6, y: y + 2, width: 4, height: MEMBER_ROW - 8, fill: colour(lane.member)}, svg);
    for (const s of lane.states) bar(s, y + 2, 10, STATE_COLOURS[s[2]] || OTHER_STATE, `${lane.member} ${lane.host}: ${s[2]}`);
    for (const s of lane.calls) bar(s, y + 13, 5, s[2].includes("lost") ? BASE[5] : s[2].includes("revoked") ? BASE[1] : BASE[0], `${lane.member}: ${s[2]}`);
    free = -1e9;
    for (const [t, epoch] of lane.epochs) {
      if (t < from || t > to || x(t) < free) continue;
      make("text", {x: x(t) + 2, y: y + 11, class: "epoch"}, svg, epoch);
      free = x(t) + 18;
    }
    y += MEMBER_ROW;
  }
  if (cursor >= from && cursor <= to) make("line", {x1: x(cursor), x2: x(cursor), y1: 14, y2: height, class: "cursor"}, svg);
  rows = {from, to, scale};
}
function cell(row, text, owner) {
  const td = row.insertCell();
  if (owner) { const i = document.createElement("i"); i.style.cssText = `display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px;background:${colour(owner)}`; td.appendChild(i); }
  td.appendChild(document.createTextNode(text));
  return td;
}
function fill(id, heads, lines) {
  const table = byId(id); table.replaceChildren();
  const head = table.createTHead().insertRow();
  for (const h of heads) { const th = document.createElement("th"); th.textContent = h; head.appendChild(th); }
  const body = table.createTBody();
  for (const line of lines) { const row = body.insertRow(); for (const [text, owner] of line) cell(row, text, owner); }
}
function show() {
  byId("clock").textContent = clock(cursor);
  byId("slider").value = Math.round(10000 * (cursor - group.start_ms) / (group.end_ms - group.start_ms));
  const owners = names => names.length ? names.join(" AND ") : "—";
  const columns = group.anyRead ? ["read", "held"] : ["held"], heads = {read: "read by", held: "owner, as the coordinator counts"};
  fill("partitions", ["partition", ...columns.map(name => heads[name])], group.partitions.map(lane =>
    [[lane.partition], ...columns.map(name => { const found = at(lane[name], cursor); return [owners(found), found[0]]; })]));
  const epoch = last(group.epochs, cursor);
  fill("members", ["member", "host", "joined", "state", "epoch" + (epoch ? ` (group ${epoch[1]})` : "")], group.members.map(lane => {
    const known = last(lane.epochs, cursor);
    return [[lane.member, lane.member], [lane.host], [clock(lane.since_ms)], [at(lane.states, cursor)[0] || "—"], [known ? String(known[1]) : "—"]];
  }));
  let near = group.marks.findIndex(m => m[0] > cursor);
  if (near < 0) near = group.marks.length;
  fill("events", ["time", "who", "what"], group.marks.slice(Math.max(0, near - 8), near + 4).map(
    ([t, who, , text]) => [[(t <= cursor ? "" : "→ ") + clock(t)], [who], [text]]));
  draw();
}
function choose(index, kept = new Map()) {
  group = DATA[index]; colours = kept;
  group.members.forEach(lane => colour(lane.member));
  group.anyRead = group.partitions.some(lane => lane.read.length);
  view = [group.start_ms, group.end_ms]; cursor = group.start_ms;
  byId("caption").hidden = !group.anyRead; byId("counted").hidden = group.anyRead;
  byId("title").textContent = `Group ${group.group_id}`;
  byId("subtitle").textContent = `${group.members.length} members, ${group.partitions.length} partitions, ${lasted(group.end_ms - group.start_ms)}` + (isDate() ? `, from ${iso(group.start_ms).slice(0, 19).replace("T", " ")}, times ${local ? "local" : "in UTC"}` : " of virtual time");
  const f = group.figures, entries = [
    ["rebalances", f.rebalances.length], ["median rebalance", lasted(f.rebalance.p50_ms)], ["longest", lasted(f.rebalance.max_ms)],
    ["median until all had their part", lasted(f.change.p50_ms)],
    ["partitions moved", f.moves], ["moved for nothing", f.bounces],
    ["kept in rebalances", f.stayed === null ? "—" : (100 * f.stayed).toFixed(1) + " %"],
    ["longest without a reader", lasted(f.without_reader.max_ms)]];
  const commits = Math.max(f.commits.done, f.commits.accepted);
  if (commits) entries.push(["commits", commits]);  // a log that keeps few of them does not count them
  const kinds = [["at most", "times without a reader that are “at most”"], ["at least", "times without a reader that are “at least”"]];
  for (const [kind, name] of kinds) if (f.bounds[kind]) entries.push([name, f.bounds[kind]]);
  if (f.empty_ms) entries.push(["without members, and nothing is known to have waited", lasted(f.empty_ms)]);
  // A recorded log has no heartbeats, no refusals and no callbacks: a 0 would say that there were none.
  if (f.heartbeats) entries.push(["heartbeats late by, 99 %", lasted(f.late.p99_ms)]);
  if (f.commits.failed || f.commits.refused) entries.push(["commits failed / refused", `${f.commits.failed} / ${f.commits.refused}`]);
  for (const kind of ["fault", "refusal", "failure"]) if (f.marks[kind]) entries.push([kind + "s", f.marks[kind]]);
  if (group.anyRead) entries.push(["read by two at once", f.two_readers.length, f.two_readers.length > 0]);
  byId("notes").textContent = f.notes.join("; ");
  byId("figures").replaceChildren(...entries.map(([name, value, bad]) => {
    const box = document.createElement("div"); box.className = "figure" + (bad ? " bad" : "");
    const b = document.createElement("b"); b.textContent = value; box.append(b, name); return box; }));
  const legend = (name, fill) => { const span = document.createElement("span"), i = document.createElement("i"); i.style.background = fill; span.append(i, name); return span; };
  const seen = [...group.states, ...group.members.flatMap(m => m.states)].map(s => s[2]);
  const states = [...new Map(seen.map(s => [s.toUpperCase(), s])).values()];
  byId("legend").replaceChildren(...group.members.map(m => legend(m.member, colour(m.member))), ...states.map(s => legend(s, STATE_COLOURS[s] || OTHER_STATE)), ...Object.entries(MARK_COLOURS).filter(([k]) => f.marks[k]).map(([k, c]) => legend(k, c)));
  fill("rebalances", ["from", "lasted", "group epochs", "why"], f.rebalances.map(r => [[clock(r.start_ms)], [r.end_ms === null ? "not over" : (r.reasons[0].includes("(its join phase") ? "at least " : "") + lasted(r.end_ms - r.start_ms)],
    [r.first_epoch === r.last_epoch ? String(r.first_epoch) : `${r.first_epoch}–${r.last_epoch}`], [[...new Set(r.reasons)].join(", ").replaceAll("_", " ")]]));
  show();
}
function zoom(factor, around) {
  const [from, to] = view, span = Math.max(1, Math.min(group.end_ms - group.start_ms, (to - from) * factor));
  let left = around - (around - from) * span / (to - from);
  left = Math.max(group.start_ms, Math.min(left, group.end_ms - span));
  view = [left, left + span]; show();
}
function pointed(event) {
  const box = byId("chart").getBoundingClientRect();
  return Math.max(rows.from, Math.min(rows.to, rows.from + (event.clientX - box.left - LEFT) / rows.scale));
}
function stepTo(direction) {
  const times = [...new Set([...group.epochs.map(e => e[0]), ...group.marks.map(m => m[0])])].sort((a, b) => a - b);
  const next = direction > 0 ? times.find(t => t > cursor) : times.filter(t => t < cursor).pop();
  if (next !== undefined) { cursor = next; if (cursor < view[0] || cursor > view[1]) zoom(1, cursor); show(); }
}
byId("group").onchange = e => choose(Number(e.target.value));
byId("slider").oninput = e => { cursor = group.start_ms + e.target.value / 10000 * (group.end_ms - group.start_ms); show(); };
byId("earlier").onclick = () => stepTo(-1);
byId("later").onclick = () => stepTo(1);
byId("in").onclick = () => zoom(0.5, Math.max(view[0], Math.min(cursor, view[1])));
byId("out").onclick = () => zoom(2, Math.max(view[0], Math.min(cursor, view[1])));
byId("all").onclick = () => { view = [group.start_ms, group.end_ms]; show(); };
const chart = byId("chart");
let down = false;
chart.addEventListener("pointerdown", e => { down = true; cursor = pointed(e); show(); });
chart.addEventListener("pointermove", e => { if (down) { cursor = pointed(e); show(); } });
addEventListener("pointerup", () => { down = false; });
chart.addEventListener("wheel", e => { e.preventDefault(); zoom(e.deltaY > 0 ? 1.25 : 0.8, pointed(e)); }, {passive: false});
addEventListener("keydown", e => { if (e.key === "ArrowRight") stepTo(1); if (e.key === "ArrowLeft") stepTo(-1); });
addEventListener("resize", draw);
function linked(found) {
  const index = DATA.findIndex(g => g.group_id === found.group_id), link = document.createElement("a");
  link.href = linkOf ? linkOf(found) : `#g=${index}&t=${Math.round(found.start_ms - DATA[index].start_ms)}&ms=${Math.round(found.ms || 0)}`;
  link.textContent = isDate() ? iso(found.start_ms).slice(0, 19).replace("T", " ") : (found.start_ms / 1000).toFixed(3) + " s";
  return link;
}
function follow() {
  const worst = FOUND.length ? linked(FOUND[0]).hash : "";
  const asked = new URLSearchParams((location.hash || worst).slice(1)), index = Number(asked.get("g") || 0);
  if (!DATA[index]) return;
  byId("group").value = index; choose(index);
  if (!asked.has("t")) return;
  cursor = Math.min(group.end_ms, group.start_ms + Number(asked.get("t")));
  const from = Math.max(group.start_ms, cursor - 30000), to = Math.min(group.end_ms, cursor + Number(asked.get("ms") || 0) + 30000);
  if (asked.has("ms") && to > from) view = [from, to];
  show();
}
function list() {
  fill("findings", [isDate() ? `when (${zone()})` : "when", "group", "what"], FOUND.map(f => [[""], [f.group_id], [f.text]]));
  const like = new Map(), extra = [];  // as in the terminal: of one kind in one group, the first three say it
  FOUND.forEach((f, i) => {
    const row = byId("findings").tBodies[0].rows[i], kind = f.group_id + "\n" + f.kind, count = (like.get(kind) || 0) + 1;
    row.cells[0].appendChild(linked(f));
    like.set(kind, count);
    if (count > 3) { row.hidden = true; extra.push(row); }
  });
  byId("more").hidden = !extra.length;
  byId("more").textContent = `show ${extra.length} more like these`;
  byId("more").onclick = () => { for (const row of extra) row.hidden = false; byId("more").hidden = true; };
  if (!FOUND.length) byId("findings").textContent = "nothing";
}
function begin(data, found) {
  DATA = data; FOUND = found;
  byId("group").replaceChildren(...DATA.map((g, i) => {
    const o = document.createElement("option"); o.value = i; o.textContent = g.group_id; return o; }));
  byId("group").hidden = DATA.length < 2;
  choose(0);
  list();
}
// The same group a moment later: what is looked at stays, and moves on with the time if it reached to its end.
function refresh(data, found) {
  if (!group) { begin(data, found); cursor = group.end_ms; show(); return; }
  const [from, to] = view, end = group.end_ms, whole = from <= group.start_ms && to >= end, atEnd = cursor >= end - 1;
  const kept = colours, place = cursor;
  DATA = data; FOUND = found;
  choose(0, kept);
  if (!whole) view = to >= end ? [from + group.end_ms - end, group.end_ms] : [Math.max(from, group.start_ms), Math.max(to, group.start_ms + 1)];
  cursor = atEnd ? group.end_ms : Math.max(place, group.start_ms);
  show();
  list();
}
// Time goes on, and nothing happens.
function slide(now) {
  if (!group || now <= group.end_ms) return;
  const end = group.end_ms, follows = view[1] >= end, atEnd = cursor >= end - 1;
  const on = spans => { for (const s of spans) if (s[1] >= end) s[1] = now; };
  on(group.states);
  for (const lane of group.partitions) { on(lane.held); on(lane.read); }
  for (const lane of group.members) on(lane.states);
  group.end_ms = now;
  if (follows) view = [view[0] + now - end, now];
  if (atEnd) cursor = now;
  byId("clock").textContent = clock(cursor);
  draw();
}
byId("zone").onclick = () => {
  local = !local;
  byId("zone").textContent = zone();
  if (group) { const place = cursor, seen = view; choose(DATA.indexOf(group), colours); cursor = place; view = seen; show(); list(); }
};

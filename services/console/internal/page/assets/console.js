// The console's page: asks for /state again and again, and shows it. What replicas say
// goes into the page as text alone, never as markup.
"use strict";

const often = 2000; // milliseconds
const monthOfSeconds = 30 * 24 * 3600;
let token = fromLink();

// fromLink takes a token from a link's fragment, which no server is sent, and takes it
// out of the address. It is kept in this page's memory alone.
function fromLink() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token") || "";
  if (given) history.replaceState(null, "", location.pathname);
  return given;
}

const at = (id) => document.getElementById(id);

function element(name, text, kind) {
  const e = document.createElement(name);
  e.textContent = text;
  if (kind) e.className = kind;
  return e;
}

// rows fills the body of a table; a cell is a text, an element, or [text, class]. The first cell is the
// header of its row.
function rows(id, list, empty) {
  const body = at(id).tBodies[0];
  const all = list.map((cells) => {
    const row = document.createElement("tr");
    cells.forEach((c, n) => {
      const [content, kind] = Array.isArray(c) ? c : [c];
      const cell = document.createElement(n === 0 ? "th" : "td");
      if (n === 0) cell.scope = "row";
      if (kind) cell.className = kind;
      cell.append(content);
      row.append(cell);
    });
    return row;
  });
  if (all.length === 0) {
    const cell = element("td", empty, "soft");
    cell.colSpan = at(id).tHead.rows[0].cells.length;
    const row = document.createElement("tr");
    row.append(cell);
    all.push(row);
  }
  body.replaceChildren(...all);
}

const known = (v) => v !== undefined && v !== null;
const figure = (v, show) => [known(v) ? show(v) : "", "n"];
const count = (v) => Math.round(v).toLocaleString("en");
const rate = (v) => v < 10 ? v.toFixed(2) : v < 100 ? v.toFixed(1) : count(v);
const bytes = (v) => v >= 1 << 30 ? (v / (1 << 30)).toFixed(2) + " GiB" : v >= 10 << 20 ? Math.round(v / (1 << 20)) + " MiB" : Math.round(v / 1024) + " KiB";
const percent = (v) => (100 * v).toFixed(v < 0.1 ? 1 : 0) + "%";

function time(seconds) {
  if (seconds === 0) return "0";
  if (seconds < 0) return "-" + time(-seconds);
  if (seconds < 0.001) return Math.round(seconds * 1e6) + " µs";
  if (seconds < 1) return (seconds * 1000).toPrecision(3) + " ms";
  if (seconds < 90) return seconds.toFixed(1) + " s";
  if (seconds < 5400) return Math.round(seconds / 60) + " min";
  if (seconds < 48 * 3600) return Math.round(seconds / 3600) + " h";
  return Math.round(seconds / 86400) + " days";
}

const codeKind = (code) => code >= "500" || code === "429" ? "bad" : code >= "400" ? "warn" : "";

function condition(r) {
  if (r.error) return [r.error, "bad"];
  if (!r.ready) return ["not ready: " + (r.failing || []).join(", "), "bad"];
  return ["ready", "good"];
}

function behind(r) {
  if (!known(r.lagSeconds)) return ["", "n"];
  if (r.lagRevisions === 0 && r.lagSeconds === 0) return ["0", "n"];
  const text = (r.lagRevisions > 0 ? count(r.lagRevisions) + " revisions, " : "") + time(r.lagSeconds);
  return [text, r.lagSeconds > 5 ? "n bad" : "n"];
}

function show(state) {
  const now = Date.parse(state.at) / 1000;
  charts(state);
  rows("replicas", state.replicas.map((r) => [
    r.service, r.address, condition(r),
    [r.publisher ? "publisher" : "", r.leader ? "leader" : ""].filter(Boolean).join(", "),
    r.version || "", r.source || "", behind(r), figure(r.watchers, count), figure(r.inFlight, count), figure(r.requestsPerSecond, rate),
    figure(r.deliveryP99Seconds, time), figure(r.cpus, (v) => v.toFixed(2)), figure(r.memoryBytes, bytes),
    figure(r.started, (v) => time(now - Date.parse(v) / 1000)),
  ]).concat((state.missing || []).map((m) => [m.service, "", [m.error, "bad"]])), "none");
  rows("etcd", state.etcd.map((m) => member(m, state.replicas)), "no API server reports on etcd");
  rows("nats", state.replicas.filter((r) => r.nats).map((r) => [
    r.address, r.nats.connected ? ["connected", "good"] : ["not connected", "bad"],
    figure(r.nats.disconnects, count), [count(r.nats.slowConsumers), r.nats.slowConsumers > 0 ? "n warn" : "n"],
  ]), "no API server");
  rows("resources", state.resources.map((r) => [r.resource, figure(r.objects, count), figure(r.bytes, bytes)]), "none");
  rows("clients", state.clients.map((c) => [[c.client, "file"], figure(c.perSecond, rate), figure(c.total, count)]), "none yet");
  rows("requests", state.requests.map((q) => [q.verb, [q.code, codeKind(q.code)], figure(q.perSecond, rate), figure(q.total, count)]), "none yet");
  certificates(state.certificates, now);
  rows("refusals", state.refusals.map((f) => [
    new Date(f.at).toLocaleTimeString("en-GB"), f.service + " " + f.address, f.what, f.why, figure(f.count, count),
  ]), "none since the console started");
  const ready = state.replicas.filter((r) => r.ready && !r.error).length;
  const well = ready === state.replicas.length && !state.missing;
  at("summary").className = well ? "good" : "bad";
  const text = ready + " of " + state.replicas.length + " replicas are ready";
  if (at("summary").textContent !== text) at("summary").textContent = text; // a changed status is read aloud
  document.title = (well ? "" : "! ") + "binnacle";
  document.querySelector("main").hidden = false;
}

// member is the row of a member of etcd.
function member(m, replicas) {
  const share = m.quotaBytes > 0 ? m.usedBytes / m.quotaBytes : undefined;
  const own = replicas.find((r) => known(r.diskSizeBytes) && m.endpoint.startsWith(r.address + " "));
  const free = own ? own.diskFreeBytes / own.diskSizeBytes : undefined;
  return [
    [m.endpoint, "file"],
    m.up ? [m.leader ? "up, leader" : "up", "good"] : ["down", "bad"],
    m.alarms ? [m.alarms.join(", "), "bad"] : "",
    figure(m.up ? m.usedBytes : undefined, bytes), figure(m.up ? m.sizeBytes : undefined, bytes),
    [known(share) ? percent(share) : "", "n " + (share > 0.8 ? "bad" : "")],
    [known(free) ? percent(free) + " of " + bytes(own.diskSizeBytes) : "", "n " + (free < 0.1 ? "bad" : "")],
  ];
}

// certificates shows one row for each service: the certificate that expires first, and the others on
// demand. What a reader opened stays open.
function certificates(list, now) {
  const open = new Set([...document.querySelectorAll("#certificates details[open]")].map((d) => d.dataset.service));
  const groups = new Map();
  for (const c of list) groups.set(c.service, [...(groups.get(c.service) || []), c]); // first to expire first
  const left = (c) => Date.parse(c.ends) / 1000 - now;
  const text = (c) => left(c) < 0 ? "expired" : time(left(c));
  rows("certificates", [...groups].map(([service, all]) => {
    const details = document.createElement("details");
    details.dataset.service = service;
    details.open = open.has(service);
    const items = document.createElement("ul");
    for (const c of all) items.append(element("li", c.use + ", " + c.file + ": " + text(c) + ", " + new Date(c.ends).toISOString().slice(0, 10)));
    details.append(element("summary", all.length + (all.length === 1 ? " certificate" : " certificates")), items);
    const first = all[0];
    return [service, [first.use + ", " + first.file.split("/").pop(), "file"],
      [text(first), "n " + (left(first) < 0 ? "bad" : left(first) < monthOfSeconds ? "warn" : "")], details];
  }), "none");
}

// charts draws the last 15 minutes.
function charts(state) {
  const all = [
    ["requests/s", "requestsPerSecond", rate], ["latency p99", "latencyP99Seconds", time], ["watchers", "watchers", count],
    ["replication lag", "lagSeconds", time], ["memory (RSS)", "memoryBytes", bytes], ["etcd size", "etcdBytes", bytes],
  ];
  at("charts").replaceChildren(...all.map(([name, key, text]) => chart(name, state.series.map((p) => [Date.parse(p.at) / 1000, p[key]]), text)));
}

const width = 300, height = 60; // as in the template

// chart is a line chart with its last value. The axis begins at zero.
function chart(name, points, text) {
  const box = at("chart").content.firstElementChild.cloneNode(true);
  const values = points.map((p) => p[1]);
  const most = Math.max(...values, 0), last = values.length > 0 ? values[values.length - 1] : 0;
  box.querySelector("b").textContent = text(last);
  box.querySelector("span").textContent = name + ", at most " + text(most);
  box.querySelector("svg").setAttribute("aria-label", name + " in the last 15 minutes: now " + text(last) + ", at most " + text(most) + ", at least " + text(Math.min(...values, most)));
  if (points.length < 2) return box;
  const end = points[points.length - 1][0];
  const place = ([when, v]) => (width * (1 - (end - when) / 900)).toFixed(1) + "," + (height - (most > 0 ? (height - 4) * v / most : 0)).toFixed(1);
  const path = points.map(place).join(" L");
  box.querySelector(".area").setAttribute("d", "M" + path + " L" + width + "," + height + " L" + place(points[0]).split(",")[0] + "," + height + " Z");
  box.querySelector(".line").setAttribute("d", "M" + path);
  return box;
}

// refused shows why nothing is shown, and asks for a token where one would help.
function refused(code, message) {
  at("summary").className = "bad";
  at("summary").textContent = "";
  at("refusal").textContent = message;
  at("login").hidden = code !== 401 && code !== 403;
  if (at("login").hidden) at("summary").textContent = message;
  else document.querySelector("main").hidden = true;
}

async function look() {
  try {
    const resp = await fetch("state", { headers: token ? { Authorization: "Bearer " + token } : {}, cache: "no-store" });
    const body = await resp.json();
    if (resp.ok) {
      at("login").hidden = true;
      show(body);
    } else {
      refused(resp.status, body.message);
    }
  } catch (e) {
    refused(0, "the console does not answer: " + e.message);
  }
  setTimeout(look, often);
}

addEventListener("DOMContentLoaded", () => {
  at("login").addEventListener("submit", (e) => {
    e.preventDefault();
    token = at("token").value.trim();
    at("token").value = "";
  });
  look();
});

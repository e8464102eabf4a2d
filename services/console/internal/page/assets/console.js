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

// rows fills the body of a table; a cell is a text, or [text, class].
function rows(id, list, empty) {
  const body = at(id).tBodies[0];
  const all = list.map((cells) => {
    const row = document.createElement("tr");
    for (const c of cells) row.append(Array.isArray(c) ? element("td", c[0], c[1]) : element("td", c));
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
const bytes = (v) => v >= 1 << 30 ? (v / (1 << 30)).toFixed(2) + " GiB" : Math.round(v / (1 << 20)) + " MiB";

function time(seconds) {
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
  const text = (r.lagRevisions > 0 ? count(r.lagRevisions) + " revisions, " : "") + time(r.lagSeconds);
  return [text, r.lagSeconds > 5 ? "n bad" : "n"];
}

function show(state) {
  const now = Date.parse(state.at) / 1000;
  rows("replicas", state.replicas.map((r) => [
    r.service, r.address, condition(r),
    [r.publisher ? "publisher" : "", r.leader ? "leader" : ""].filter(Boolean).join(", "),
    r.source || "", behind(r), figure(r.watchers, count), figure(r.inFlight, count), figure(r.requestsPerSecond, rate),
    figure(r.deliveryP99Seconds, time), figure(r.cpus, (v) => v.toFixed(2)), figure(r.memoryBytes, bytes),
    figure(r.started, (v) => time(now - Date.parse(v) / 1000)),
  ]).concat((state.missing || []).map((m) => [m.service, "", [m.error, "bad"]])), "none");
  rows("requests", state.requests.map((q) => [q.verb, [q.code, codeKind(q.code)], figure(q.perSecond, rate), figure(q.total, count)]), "none yet");
  rows("certificates", state.certificates.map((c) => {
    const left = Date.parse(c.ends) / 1000 - now;
    return [c.service, c.use, [c.file.split("/").pop(), "file"], [left < 0 ? "expired" : time(left), "n " + (left < 0 ? "bad" : left < monthOfSeconds ? "warn" : "")]];
  }), "none");
  rows("refusals", state.refusals.map((f) => [
    new Date(f.at).toLocaleTimeString("en-GB"), f.service + " " + f.address, f.what, f.why, figure(f.count, count),
  ]), "none since the console started");
  figures(state);
  const ready = state.replicas.filter((r) => r.ready && !r.error).length;
  const well = ready === state.replicas.length && !state.missing;
  at("summary").className = well ? "good" : "bad";
  at("summary").textContent = ready + " of " + state.replicas.length + " replicas are ready · " + new Date(state.at).toLocaleTimeString("en-GB");
  document.querySelector("main").hidden = false;
}

// figures are those of the whole suite.
function figures(state) {
  const sum = (list, what) => list.reduce((n, v) => n + (what(v) || 0), 0);
  const servers = state.replicas.filter((r) => known(r.lagSeconds));
  const slowest = Math.max(-1, ...servers.map((r) => known(r.deliveryP99Seconds) ? r.deliveryP99Seconds : -1));
  const publishers = servers.filter((r) => r.publisher).length;
  const all = [
    [rate(sum(state.requests, (q) => q.perSecond)), "requests/s"],
    [count(sum(servers, (r) => r.watchers)), "watchers"],
    [slowest < 0 ? "–" : time(slowest), "watch delivery p99"],
    [time(Math.max(0, ...servers.map((r) => r.lagSeconds))), "max replication lag"],
    [String(publishers), "publishers"],
    [bytes(sum(state.replicas, (r) => r.memoryBytes)), "total memory (RSS)"],
  ];
  at("figures").replaceChildren(...all.map(([value, what]) => {
    const box = document.createElement("div");
    box.append(element("b", value), element("span", what));
    return box;
  }));
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

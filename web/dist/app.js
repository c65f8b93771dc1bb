// The page: reads /v1/dependencies once, then follows /v1/stream. fetch and not EventSource, because EventSource cannot
// send the token.
"use strict";

const byId = (id) => document.getElementById(id);
const dependencies = new Map(); // name -> as the API describes it
const order = { open: 0, half_open: 1, closed: 2 };
const shapes = { open: "■", half_open: "◐", closed: "●" };
const words = { open: "open", half_open: "half-open", closed: "closed" };
const modes = { force_open: "forced open", force_closed: "forced closed", no_retries: "retries off" };
const silence = 20_000; // the server pings every 15 s, so this long without a byte is a dead connection

let token = sessionStorage.getItem("token") || "";
let heard = 0; // when the last byte came
let live = false;
let run = 0; // counts the connections; an older one that still runs gives up
let abort = new AbortController();

class Refused extends Error {}

async function ask(path, signal) {
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const answer = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit" });
  if (answer.status === 401 || answer.status === 403) {
    const problem = await answer.json().catch(() => ({}));
    throw new Refused(problem.detail || problem.title || "The server refuses this token.");
  }
  if (!answer.ok) throw new Error("HTTP " + answer.status);
  return answer;
}

async function readAll(signal) {
  const all = [];
  let cursor = "";
  do {
    const path = "v1/dependencies" + (cursor ? "?cursor=" + encodeURIComponent(cursor) : "");
    const page = await (await ask(path, signal)).json();
    all.push(...page.dependencies);
    cursor = page.next || "";
  } while (cursor);
  replaceAll(all);
}

function replaceAll(all) {
  dependencies.clear();
  for (const d of all) dependencies.set(d.name, d);
  heard = Date.now();
  draw();
}

// follow reads the stream until it ends. Lines end a field, an empty line ends an event.
async function follow(signal) {
  const answer = await ask("v1/stream?counters=1", signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = { name: "", data: [] };
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard = Date.now();
    setLive(true);
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (event.name === "goaway") return;
        handle(event.name, event.data.join("\n"));
        event = { name: "", data: [] };
      } else if (line.startsWith("event:")) {
        event.name = line.slice(6).trim();
      } else if (line.startsWith("data:")) {
        event.data.push(line.slice(5).replace(/^ /, ""));
      }
    }
  }
}

function handle(name, text) {
  if (!text) return;
  const data = JSON.parse(text);
  switch (name) {
    case "state":
      replaceAll(data.dependencies);
      return;
    case "change": // of state, or every second of counts
      dependencies.set(data.name, data);
      break;
    case "forget":
      dependencies.delete(data.name);
      break;
    default:
      return;
  }
  draw();
}

async function connect() {
  const mine = ++run;
  abort.abort();
  abort = new AbortController();
  const signal = abort.signal;
  for (let wait = 500; mine === run; ) {
    const began = Date.now();
    try {
      await readAll(signal);
      showLogin(false);
      await follow(signal);
    } catch (e) {
      if (mine !== run) return;
      if (e instanceof Refused) {
        setLive(false);
        showLogin(true, token ? e.message : "");
        return;
      }
    }
    if (mine !== run) return;
    setLive(false);
    if (Date.now() - began > 10_000) wait = 500;
    await new Promise((r) => setTimeout(r, wait * (0.5 + Math.random())));
    wait = Math.min(wait * 2, 10_000);
  }
}

function showLogin(on, why) {
  byId("login").hidden = !on;
  byId("list").hidden = on;
  byId("leave").hidden = on || !token;
  if (on) {
    if (why) byId("login-why").textContent = why;
    byId("token").focus();
  }
}

function setLive(on) {
  live = on;
  badge();
}

// badge says how far what is on the screen can be trusted.
function badge() {
  const b = byId("link");
  const age = heard ? Math.round((Date.now() - heard) / 1000) : 0;
  let text = "connecting";
  let kind = "";
  if (live && Date.now() - heard < silence) [text, kind] = ["live", "live"];
  else if (!navigator.onLine) [text, kind] = ["offline", "bad"];
  else if (heard) [text, kind] = ["stale " + age + " s", "warn"];
  if (b.textContent !== text) b.textContent = text;
  b.className = "badge " + kind;
  document.body.classList.toggle("stale", kind === "warn" || kind === "bad");
}

async function watchStore() {
  if (!byId("login").hidden) return;
  try {
    const s = await (await ask("v1/status", AbortSignal.timeout(3000))).json();
    byId("store").hidden = !s.degraded;
    byId("store").textContent = "degraded: the store does not answer";
  } catch {
    // The link's badge tells of it.
  }
}

const percent = (part, whole) => (whole > 0 ? ((100 * part) / whole).toFixed(1) + " %" : "–");
const count = (n) => n.toLocaleString("en");

function element(tag, className, ...children) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  e.append(...children.filter((c) => c !== ""));
  return e;
}

function stateCell(b) {
  const shape = element("span", "shape", shapes[b.effective] || "?");
  shape.setAttribute("aria-hidden", "true");
  const cell = element("td", "", element("span", "state " + b.effective, shape, words[b.effective] || b.effective));
  if (b.override) {
    const until = new Date(b.override.expires_at).toLocaleString();
    cell.append(element("small", "", (modes[b.override.mode] || b.override.mode) + " by " + b.override.actor + " until " + until));
    cell.append(element("small", "", "“" + b.override.reason + "”, applied by " + b.override.applied_by + " of " + b.override.instances));
    cell.append(element("small", "", "automatic: " + (words[b.automatic.state] || b.automatic.state)));
  } else if (b.effective !== "closed" && b.automatic.since) {
    const since = new Date(b.automatic.since).toLocaleTimeString();
    cell.append(element("small", "", "since " + since + (b.automatic.reason ? ", " + b.automatic.reason.replaceAll("_", " ") : "")));
  }
  return cell;
}

function row(d) {
  const w = d.window;
  const name = element("th", "", d.name);
  name.scope = "row";
  const retries = Math.max(0, w.attempts - w.requests);
  const spent = d.budget.remaining <= 0 && retries > 0;
  const budget = element("td", "n", element("span", spent ? "over" : "", percent(retries, w.requests) + " / " + d.budget.ratio_ppm / 10_000 + " %"));
  budget.append(element("small", "", spent ? "budget spent" : count(Math.max(0, d.budget.remaining)) + " left"));
  const failures = element("td", "n", percent(w.failure, w.success + w.failure));
  if (w.throttled) failures.append(element("small", "", count(w.throttled) + " throttled"));
  const instances = element("td", "n", count(w.instances));
  if (w.failing_instances) instances.append(element("small", "", count(w.failing_instances) + " failing"));
  const requests = element("td", "n", count(w.requests));
  if (w.rejected_breaker) requests.append(element("small", "", count(w.rejected_breaker) + " rejected"));
  return element("tr", "", name, stateCell(d.breaker), requests, failures, budget, instances);
}

let drawing = false;

// draw paints at most once a frame, however many events came.
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    const wanted = byId("filter").value.trim().toLowerCase();
    const all = [...dependencies.values()];
    const shown = all
      .filter((d) => d.name.includes(wanted))
      .sort((a, b) => order[a.breaker.effective] - order[b.breaker.effective] || (a.name < b.name ? -1 : 1));
    byId("rows").replaceChildren(...shown.map(row));
    byId("empty").hidden = all.length > 0;
    const unwell = all.filter((d) => d.breaker.effective !== "closed").length;
    const text = all.length === 0 ? "" : all.length + " in all, " + (unwell === 0 ? "all closed" : unwell + " not closed");
    if (byId("summary").textContent !== text) byId("summary").textContent = text;
    document.title = (unwell ? "(" + unwell + ") " : "") + "Retryplane";
  });
}

byId("login").addEventListener("submit", (e) => {
  e.preventDefault();
  token = byId("token").value.trim();
  byId("token").value = "";
  sessionStorage.setItem("token", token);
  connect();
});
byId("leave").addEventListener("click", () => {
  sessionStorage.removeItem("token");
  token = "";
  dependencies.clear();
  connect();
});
byId("filter").addEventListener("input", draw);
window.addEventListener("online", connect);
window.addEventListener("offline", badge);
setInterval(() => {
  if (live && Date.now() - heard > silence) connect(); // the connection died without telling
  badge();
}, 1000);
setInterval(watchStore, 5000);
connect();
watchStore();

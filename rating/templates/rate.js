// The rating page: one reply at a time. Each rating is stored in this browser first and removed when the
// server has saved it; an exported page stores it until it is sent back.

const $ = (id) => document.getElementById(id);
const given = JSON.parse($("given").textContent);
const LABELS = ["Bad", "Okay", "Good"];
const isWhole = given.unit === "conversation";
const HASTE = 150; // milliseconds; a faster second key press is ignored as a bounce
const store = `rating.${given.token}.`;
let items = given.items || [];
let acts = new Map(); // by index: {n, label, reason}, the last act and how many there were
let waiting = new Map(); // acts that the server does not have yet, by their key in the browser's storage
let view = "intro", index = 0, isSending = false, delay = 0, timer = null, haste = null;
let isKept = true; // whether this browser can store ratings

function make(tag, name, ...parts) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...parts);
  return made;
}

// Browser storage: one entry per act, so that two tabs do not overwrite each other.

function remember(key, act) {
  waiting.set(key, act);
  try { localStorage.setItem(store + key, JSON.stringify(act)); } catch { isKept = false; }
}

function forget(key) {
  waiting.delete(key);
  try { localStorage.removeItem(store + key); } catch { isKept = false; }
}

function recall() {
  const found = [];
  try {
    for (let i = 0; i < localStorage.length; i++) {
      const key = localStorage.key(i);
      if (key.startsWith(store)) found.push([key.slice(store.length), JSON.parse(localStorage.getItem(key))]);
    }
  } catch { isKept = false; }
  for (const [key, act] of [...waiting]) if (!found.some(([other]) => other === key)) found.push([key, act]);
  found.sort(([, one], [, other]) => one.at.localeCompare(other.at) || one.n - other.n);
  waiting = new Map(found);
}

function applyWaiting() {
  for (const [key, act] of [...waiting]) {
    const known = acts.get(act.index);
    const isOurs = act.index < items.length && items[act.index].key === act.key;
    if (!isOurs || (known && act.n < known.n)) forget(key); // of another plan, or outdated
    else acts.set(act.index, act);
  }
}

const ratedAt = (i) => { const act = acts.get(i); return Boolean(act && act.label); };
const countRated = () => items.reduce((sum, _, i) => sum + ratedAt(i), 0);
const firstOpen = () => { const i = items.findIndex((_, i) => !ratedAt(i)); return i < 0 ? items.length : i; };

function act(i, label, reason) {
  const known = acts.get(i);
  const made = {
    index: i, key: items[i].key, label, reason: reason.trim().replace(/\p{Cs}/gu, "\ufffd"),
    n: (known ? known.n : 0) + 1, at: new Date().toISOString(),
  };
  acts.set(i, made);
  if (given.server) remember(`${i}.${made.n}`, made);
  else remember(String(i), made);
  if (given.server) send();
}

function choose(label) {
  if (view !== "rate" || haste) return;
  act(index, label, $("reason").value);
  index = nextOpen(index);
  show(index < items.length ? "rate" : "done", `Last rating: ${label}.`);
}

// The next one in order that is not rated; those skipped by another tab come last.
function nextOpen(from) {
  for (let i = from + 1; i < items.length; i++) if (!ratedAt(i)) return i;
  return firstOpen();
}

function lastRated() {
  let last = -1;
  for (const [i, one] of acts) if (one.label && i < items.length && (last < 0 || i > last)) last = i;
  return last;
}

function undo() {
  if (view !== "rate" && view !== "done") return;
  const last = view === "rate" ? [...acts.keys()].filter((i) => i < index && ratedAt(i)).reduce((a, b) => Math.max(a, b), -1) : lastRated();
  if (last < 0) return say("There is nothing to undo.");
  const before = acts.get(last);
  act(last, null, "");
  index = last;
  show("rate", `${before.label} was undone.`);
  $("reason").value = before.reason || "";
}

// The server: acts are sent one by one and repeated until the server has saved them.

async function call(path, body) {
  const stop = new AbortController();
  const late = setTimeout(() => stop.abort(), 15000);
  try {
    const options = body
      ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : {};
    const response = await fetch(`${given.token}/${path}`, { ...options, signal: stop.signal, cache: "no-store", redirect: "error" });
    return { status: response.status, body: await response.json() };
  } catch {
    return { status: 0, body: null };
  } finally {
    clearTimeout(late);
  }
}

async function send() {
  if (isSending) return;
  isSending = true;
  clearTimeout(timer);
  while (waiting.size) {
    const [key, one] = waiting.entries().next().value;
    const { index: at, key: item, label, reason, n } = one;
    const answer = await call("ratings", { index: at, key: item, label, reason, n });
    if (answer.status === 200) {
      forget(key);
      delay = 0;
      complete(answer.body.completion);
    } else if (answer.status === 409) { // another tab was first: the rating on the server counts
      for (const [other, act] of [...waiting]) if (act.index === at) forget(other);
      adopt(answer.body);
      settle();
    } else if (answer.status >= 400 && answer.status < 500) {
      complain("The server rejected this rating.", (answer.body.error || {}).message || "");
      break;
    } else {
      delay = Math.min(10000, delay * 2 || 500);
      timer = setTimeout(send, delay);
      break;
    }
    tellSaved();
  }
  isSending = false;
  tellSaved();
}

function adopt(state) {
  if (state.items) items = state.items;
  acts = new Map(state.acts.map((one) => [one.index, one]));
  complete(state.completion);
  recall();
  applyWaiting();
}

// The code and the link that the study's site asks for; the server sends them after the last rating.
function complete({ code, url } = {}) {
  $("code").hidden = !code;
  $("code").textContent = `Your completion code: ${code}`;
  $("complete").hidden = !url;
  $("complete").href = url || "";
}

// The reply on screen may have been rated in another tab.
function settle() {
  const hasMore = view === "done" && firstOpen() < items.length; // the plan has grown
  if (!hasMore && (view !== "rate" || !ratedAt(index))) return draw();
  index = firstOpen();
  show(index < items.length ? "rate" : "done");
}

async function load() {
  const answer = await call("state");
  if (answer.status !== 200) {
    complain("The server does not answer.", "The page retries automatically. Your ratings are not lost.");
    setTimeout(load, 2000);
    return;
  }
  $("problem").replaceChildren();
  adopt(answer.body);
  begin();
  send();
}

// The screen.

function say(text) { $("status").textContent = text; }

function complain(title, text) {
  $("problem").replaceChildren(make("p", "problem", make("strong", "", title), ` ${text}`));
}

function tellSaved() {
  const left = given.server ? waiting.size : 0;
  document.body.dataset.unsaved = String(left);
  $("status").classList.toggle("unsaved", delay > 1000 && left > 0);
  if (delay > 1000 && left) say(`Not saved yet: ${left}. The server does not answer; the page retries automatically.`);
  else if ($("status").textContent.startsWith("Not saved")) say("All ratings are saved.");
}

function draw() {
  const rated = countRated();
  $("progress").hidden = view === "intro";
  const seconds = items.reduce((sum, item, i) => sum + (ratedAt(i) ? 0 : item.seconds), 0);
  $("count").textContent = `${rated} of ${items.length}`;
  $("left").textContent = seconds ? `about ${Math.ceil(seconds / 60)} min left` : "";
  $("fill").style.width = `${(100 * rated) / items.length}%`;
  for (const name of ["intro", "rate", "paused", "done"]) $(name).hidden = view !== name;
  $("hand").hidden = given.server || !(view === "paused" || view === "done");
  document.body.dataset.view = view;
  document.body.dataset.open = view === "rate" && !haste ? String(index) : "";
}

function show(name, said = "") {
  view = name;
  draw();
  document.body.dataset.open = "";
  if (name === "rate") {
    const item = items[index];
    const about = [];
    if (item.situation) about.push(make("h3", "", "The situation"), make("p", "", item.situation));
    const turns = [...(item.context || [])];
    if (isWhole) turns.push({ answers: false, text: item.prompt }, { answers: true, text: item.response });
    if (turns.length) {
      about.push(make("h3", "", isWhole ? "The conversation" : "Earlier"));
      for (const turn of turns) {
        const who = make("span", "unseen", turn.answers ? "Answer: " : "Message: ");
        about.push(make("div", turn.answers ? "turn answer" : "turn", who, turn.text));
      }
    }
    $("about").replaceChildren(...about);
    $("exchange").hidden = isWhole;
    $("prompt").textContent = item.prompt;
    $("reply").textContent = item.response;
    $("reason").value = "";
    $("place").textContent = `${isWhole ? "Conversation" : "Reply"} ${index + 1} of ${items.length}`;
    $("undo").disabled = ![...acts.keys()].some((i) => i < index && ratedAt(i));
    clearTimeout(haste);
    haste = setTimeout(() => { haste = null; document.body.dataset.open = String(index); }, HASTE);
    $("place").focus({ preventScroll: true });
    window.scrollTo(0, 0);
  } else if (name === "paused") {
    $("paused-title").focus();
  } else if (name === "done") {
    $("done-title").focus();
  }
  tellSaved();
  if (!$("status").textContent.startsWith("Not saved")) say(said);
}

function begin() {
  index = firstOpen();
  if (index >= items.length) show("done");
  else if (countRated() && view !== "paused") show("rate", "You continue where you stopped.");
  else if (view === "intro") show("intro");
  $("start").textContent = countRated() ? "Resume" : "Start";
  document.body.dataset.ready = "yes";
}

// An exported page: the file to send back.

function download() {
  const ratings = items.map((item, i) => ({ i, item, act: acts.get(i) })).filter(({ act }) => act && act.label)
    .map(({ i, item, act }) => ({ index: i, key: item.key, label: act.label, ...(act.reason && { reason: act.reason }), at: act.at }));
  const file = { format: given.format, token: given.token, rater: given.rater, ratings };
  const link = make("a", "");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(file, null, 1)], { type: "application/json" }));
  link.download = `${given.rater}-ratings.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  say(`Saved ${ratings.length} ratings as ${link.download}. Send that file back to the person who asked you.`);
}

// Keys and buttons.

for (const button of document.querySelectorAll(".labels button")) {
  button.addEventListener("click", () => choose(button.dataset.label));
}
$("start").addEventListener("click", () => show("rate"));
$("undo").addEventListener("click", undo);
$("undo-last").addEventListener("click", undo);
$("pause").addEventListener("click", () => show("paused"));
$("resume").addEventListener("click", () => show("rate"));
$("download").addEventListener("click", download);
$("reason").addEventListener("keydown", (event) => { if (event.key === "Escape") { event.stopPropagation(); $("place").focus(); } });
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (["TEXTAREA", "INPUT"].includes(event.target.tagName) || view === "intro") return;
  const key = event.key.toLowerCase();
  if (LABELS["123".indexOf(key)] && key.length === 1) choose(LABELS["123".indexOf(key)]);
  else if (key === "u") undo();
  else if (key === "p" && view === "rate") show("paused");
  else if (key === "p" && view === "paused") show("rate");
  else if (key === "r" && view === "rate") { event.preventDefault(); $("reason").focus(); }
});
window.addEventListener("beforeunload", (event) => {
  if ((given.server && waiting.size && !isKept) || (!given.server && !isKept && acts.size)) event.preventDefault();
});
if (given.server) {
  window.addEventListener("online", send);
  // Another tab of the same rater may have added ratings.
  document.addEventListener("visibilitychange", async () => {
    if (document.visibilityState !== "visible" || document.body.dataset.ready !== "yes") return;
    const answer = await call("state");
    if (answer.status === 200 && !isSending) { adopt(answer.body); settle(); send(); }
  });
}

$("keeping").textContent = given.server
  ? "Every rating is saved at once. You can close this page at any time; open the same link to continue."
  : "Your ratings stay in this browser until you save them as a file. Open this file again to continue.";
$("paused-text").textContent = given.server
  ? "Your ratings are saved. You can close this page; open the same link to continue."
  : "Your ratings are saved in this browser. Open this file again to continue, or send back what you have.";
$("done-text").textContent = given.server
  ? "Your ratings are saved. You can close this page."
  : "One step is left: send your ratings back.";
$("hand-text").textContent = "This saves a small file. Send it back to the person who asked you; you can save it again later.";
if (given.server) load();
else {
  recall();
  applyWaiting();
  begin();
  if (!isKept) complain("This browser cannot store your ratings.", "Do not close this page before you have saved your ratings as a file.");
}

// The page to try the judge: form, request and errors. try-result.js draws the result.

const SLOW = 5000; // milliseconds after which a message about the wait is shown
const EXAMPLE = {
  prompt: "We handed over the keys to my grandmother’s house today. I walked through the empty rooms one last time, and the kitchen still smelled of her bread.",
  emotion: "nostalgic",
  situation: "My grandmother’s house was sold a year after she died.",
  "reply-a": "Closing that door for the last time must have been so hard. I’m sorry you had to let it go. What a gift, though, that her bread was still there to greet you. What did the two of you do in that kitchen?",
  "reply-b": "Old houses cost a fortune to keep. My uncle sold his last year and bought a boat. Do you like boats?",
};

const $ = (id) => document.getElementById(id);
const form = $("exchange"), result = $("result"), judgeButton = $("judge");
const FIELDS = ["prompt", "emotion", "situation", "reply-a", "reply-b"];
let waiting = null; // aborts the current call
let kept = null; // the text typed before the example

const isComparing = () => !$("second").hidden;

function say(text) { $("status").textContent = text; }

function complain(title, text = "") {
  $("problem").replaceChildren(make("p", "problem", make("strong", "", title), " ", apart(text)));
}

function showSecond(shown) {
  $("second").hidden = !shown;
  $("replies").classList.toggle("two", shown);
  $("name-a").textContent = shown ? "Reply A" : "Reply";
  $("compare").setAttribute("aria-expanded", String(shown));
  $("compare").textContent = shown ? "Judge one reply only" : "Compare with a second reply";
}

function typed() {
  return { second: isComparing(), ...Object.fromEntries(FIELDS.map((id) => [id, $(id).value])) };
}

function fill(texts) {
  for (const id of FIELDS) $(id).value = texts[id];
  showSecond(texts.second);
  $("more").open = Boolean(texts.emotion || texts.situation);
  clearMarks();
  noteChange();
}

function toggleExample() {
  if (kept) {
    fill(kept);
    kept = null;
    say("Your own text is restored.");
  } else {
    const before = typed();
    kept = FIELDS.some((id) => before[id].trim() && before[id] !== EXAMPLE[id]) ? before : null;
    fill({ ...EXAMPLE, second: true });
    say("An example is filled in, with two replies to compare.");
  }
  $("example").textContent = kept ? "Restore my text" : "Fill in an example";
}

function clearMarks() {
  for (const id of FIELDS) {
    $(id).removeAttribute("aria-invalid");
    if (!["emotion", "situation"].includes(id)) $(id).removeAttribute("aria-describedby");
  }
  $("problem").replaceChildren();
}

// The first field that is needed and empty is named and gets the focus.
function isReady() {
  clearMarks();
  const needed = ["prompt", "reply-a", ...(isComparing() ? ["reply-b"] : [])];
  const empty = needed.find((id) => !$(id).value.trim());
  if (!empty) return true;
  const name = document.querySelector(`label[for="${empty}"]`).textContent;
  complain(`“${name}” is empty.`, "The judge needs both the message and the reply.");
  $(empty).setAttribute("aria-invalid", "true");
  $(empty).setAttribute("aria-describedby", "problem");
  $(empty).focus();
  return false;
}

function exchanges() {
  const about = { prompt: $("prompt").value };
  for (const id of ["emotion", "situation"]) if ($(id).value.trim()) about[id] = $(id).value;
  const replies = isComparing() ? ["a", "b"] : ["a"];
  return replies.map((id) => ({ id, ...about, response: $(`reply-${id}`).value }));
}

function setWaiting(stop) {
  waiting = stop;
  judgeButton.setAttribute("aria-disabled", String(Boolean(stop)));
  result.setAttribute("aria-busy", String(Boolean(stop)));
  $("stop").hidden = true;
  if (!stop) say("");
}

async function ask() {
  if (waiting || !isReady()) return;
  const asked = exchanges();
  const stop = new AbortController();
  setWaiting(stop);
  say("Scoring\u2026");
  const timer = setTimeout(() => {
    say("Still waiting: the judge is slow or busy. Your text is still here.");
    $("stop").hidden = false;
  }, SLOW);
  try {
    const answer = await call(asked, stop.signal);
    setWaiting(null);
    show(asked, answer);
  } catch (error) {
    setWaiting(null);
    hideResult();
    tell(error);
  } finally {
    clearTimeout(timer);
  }
}

async function call(asked, signal) {
  const headers = { "Content-Type": "application/json" };
  const key = $("key").value;
  if (/[^\x20-\x7e]/.test(key)) throw { status: 401 }; // not allowed in a header, so it cannot be a valid key
  if (key) headers.Authorization = `Bearer ${key}`;
  const response = await fetch("v1/score", {
    method: "POST", headers, signal, cache: "no-store", redirect: "error",
    body: JSON.stringify({ exchanges: asked, explain: true }),
  }).catch((error) => { throw error.name === "AbortError" ? error : { status: "unreached" }; });
  const body = await response.json().catch((error) => { if (error.name === "AbortError") throw error; return null; });
  if (!response.ok) throw { status: response.status, body, retry: response.headers.get("Retry-After") };
  const judgments = body && Array.isArray(body.judgments) ? body.judgments : [];
  if (asked.some(({ id }, place) => !judgments[place] || judgments[place].id !== id)) throw { status: "unread" };
  return body;
}

function tell(error) {
  const said = error.body && error.body.error && error.body.error.message;
  const told = typeof said === "string" ? said : "";
  if (error.status === 401) return askForKey();
  if (error.status === 503) {
    const seconds = /^\d+$/.test(error.retry || "") ? Number(error.retry) : null;
    if (seconds === null) return complain("The judge is busy. Try again in a moment; your text is still here.", told);
    return complain(`The judge is busy. Try again in ${seconds} second${seconds === 1 ? "" : "s"}; your text is still here.`);
  }
  if (error.status === "unreached") return complain("The server did not answer.", "It may have stopped, or the network is down. Your text is still here; try again.");
  if (error.status === "unread") return complain("This page cannot read the server’s answer.", "Your text is still here.");
  if (error.status) return complain(`The server did not score this (status ${error.status}).`, told || "Your text is still here.");
  if (error.name === "AbortError") return say("Stopped. Your text is still here.");
  complain("This page cannot show the server’s answer.", "Your text is still here.");
}

function askForKey() {
  const tried = $("key").value !== "";
  $("locked").hidden = false;
  complain(tried ? "That key was not accepted." : "This server needs a key.", "Enter it in the field above and try again; your text is still here.");
  $("key").focus();
  $("key").select();
}

function hideResult() {
  result.hidden = true;
  document.body.classList.remove("has-result");
}

function noteChange() {
  const note = result.querySelector(".changed");
  if (note) note.hidden = false;
}

form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
form.addEventListener("input", noteChange);
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) {
    event.preventDefault();
    ask();
  }
});
$("compare").addEventListener("click", () => {
  showSecond(!isComparing());
  noteChange();
  if (isComparing()) $("reply-b").focus();
});
$("example").addEventListener("click", toggleExample);
$("stop").addEventListener("click", () => { if (waiting) waiting.abort(); judgeButton.focus(); });

// Draws the result on the page to try the judge. Text becomes text nodes only; the browser rejects markup in strings.
"use strict";

const LABELS = ["Bad", "Okay", "Good"];
const STRONGEST = 0.5; // points of score for the full color, as in the reports
const TINT = 0.45; // share of the pure color; more would make the text unreadable

function make(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children.filter((child) => child !== null));
  return node;
}

// Text of unknown direction, isolated from the text around it.
const apart = (text) => make("bdi", "", String(text));
const figure = (value, places = 2) => value.toFixed(places).replace("-", "\u2212");
const sentence = (text) => String(text).replace(/^\p{Ll}/u, (letter) => letter.toUpperCase()).replace(/(?<![.!?])$/, ".");
const isFigure = (value) => typeof value === "number" && Number.isFinite(value);

function show(asked, answer) {
  const names = asked.length > 1 ? ["Reply A", "Reply B"] : ["The reply"];
  const title = make("h2", "", asked.length > 1 ? "Two replies, side by side" : "Estimated human rating");
  title.id = "result-title";
  const changed = make("p", "note changed", "You have changed the text since it was scored.");
  changed.hidden = JSON.stringify(exchanges()) === JSON.stringify(asked); // the text may change during the call
  const cards = make("div", asked.length > 1 ? "cards two" : "cards one",
    ...asked.map((exchange, place) => card(names[place], exchange, answer.judgments[place])));
  const prompt = make("div", "asked", make("p", "said", "Message"), quote(asked[0].prompt));
  result.replaceChildren(title, changed, ...flags(answer.judgments), prompt,
    ...(asked.length > 1 ? [comparison(answer.judgments)] : []), cards, ...legend(answer.judgments), trust(answer));
  result.hidden = false;
  document.body.classList.add("has-result");
  say(answer.judgments.map((judgment, place) => `${names[place]}: ${judgment.label || "unscored"}.`).join(" "));
  result.focus({ preventScroll: true });
  result.scrollIntoView(); // to its top, because focus alone shows only its edge
}

function quote(text, className = "") {
  const block = make("blockquote", className, text);
  block.dir = "auto";
  return block;
}

function flags(judgments) {
  const found = [...new Set(judgments.map(({ flag }) => flag).filter(Boolean))];
  return found.map((flag) => make("p", "flag",
    make("strong", "", "This may come from somebody in danger"), " (", apart(flag), ").",
    " Do not choose or send a reply based on this score. Have a person who can help read it now. If it is about you or somebody near you, call your local emergency number."));
}

function card(name, exchange, judgment) {
  const heading = make("h3", "", name);
  const reply = marked(name, exchange.response, judgment);
  if (!judgment.label || !isFigure(judgment.score)) {
    return make("article", "card", heading,
      make("div", "", make("p", "label none", "Unscored"), make("p", "", "No score: ", apart(judgment.unscored || "no reason was given"), ".")), reply);
  }
  const figures = make("div", "", make("p", "label", judgment.label),
    make("p", "score", "score ", make("strong", "", figure(judgment.score)), ", from 1 (Bad) to 3 (Good)"),
    bars(judgment), ...notLikeliest(judgment));
  return make("article", "card whole", heading, figures, reply);
}

function bars({ label, probabilities }) {
  return make("dl", "bars", ...LABELS.map((name) => {
    const share = probabilities[name];
    const fillBar = make("span", "fill");
    fillBar.style.width = `${100 * share}%`;
    const track = make("dd", "track", fillBar);
    track.setAttribute("aria-hidden", "true");
    return make("div", name === label ? "given" : "", make("dt", "", name), track, make("dd", "figure", `${figure(100 * share, 1)}\u00a0%`));
  }));
}

function notLikeliest({ label, probabilities }) {
  const isLikeliest = Math.max(...Object.values(probabilities)) === probabilities[label];
  return isLikeliest ? [] : [make("p", "score", `The label is Good only if P(Good) is above ${result.dataset.goodAbove}.`)];
}

function effectText(effect) {
  if (!isFigure(effect)) return "\u2013";
  if (Math.abs(effect) < 0.005) return "0.00";
  return effect > 0 ? `\u25b2\u00a0+${figure(effect)}` : `\u25bc\u00a0${figure(effect)}`;
}

const DOUBT = "But a neutral sentence in its place has a different effect, so the content of the part may not be the cause.";

function effectInWords({ effect, is_doubtful: isDoubtful }, score) {
  if (!isFigure(effect)) return "The effect of this part is unknown.";
  if (Math.abs(effect) < 0.005) return "This part had almost no effect on the score.";
  const way = effect > 0 ? "raised" : "lowered";
  return `This part ${way} the score by ${figure(Math.abs(effect))}: without it, ${figure(score - effect)} rather than ${figure(score)}.${isDoubtful ? ` ${DOUBT}` : ""}`;
}

// The reply with its parts marked. One tab stop; the arrow keys move between the parts.
function marked(name, reply, judgment) {
  const rationale = judgment.rationale ? [make("p", "said", "The judge’s rationale"), quote(judgment.rationale, "rationale")] : [];
  const parts = isFigure(judgment.score) && Array.isArray(judgment.parts) ? judgment.parts : [];
  if (!parts.length) return make("div", "", make("p", "said", "The reply"), quote(reply, "marked"), ...rationale);
  const line = make("p", "effect-line", matchMedia("(hover: none)").matches
    ? "Tap a part to read its effect." : "Point at a part, or move to it with Tab and the arrow keys, to read its effect.");
  line.setAttribute("aria-hidden", "true"); // each part has the same text
  const marks = parts.map((part) => mark(part, judgment.score));
  marks.forEach((item, place) => {
    item.tabIndex = place ? -1 : 0;
    for (const event of ["focus", "mouseenter"]) item.addEventListener(event, () => { line.textContent = effectInWords(parts[place], judgment.score); });
    item.addEventListener("keydown", (event) => moveMark(event, marks, place));
  });
  const block = make("blockquote", "marked");
  block.dir = "auto";
  marks.forEach((item, place) => block.append(item, parts[place].text.match(/\s*$/)[0]));
  block.setAttribute("role", "group");
  block.setAttribute("aria-label", `${name}, part by part`);
  return make("div", "", make("p", "said", "Effect of each part on the score"), block, line, ...rationale);
}

function mark(part, score) {
  const { text, effect, is_doubtful: isDoubtful } = part;
  const tone = isDoubtful || !isFigure(effect) || Math.abs(effect) < 0.005 ? "" : effect > 0 ? "raised" : "lowered";
  const shown = make("span", "effect", `${isDoubtful ? "? " : ""}${effectText(effect)}`);
  shown.setAttribute("aria-hidden", "true");
  const item = make("mark", tone, apart(text.trimEnd()), shown, make("span", "unseen", ` (${effectInWords(part, score)})`));
  if (tone) item.style.setProperty("--tint", (TINT * Math.min(1, Math.abs(effect) / STRONGEST)).toFixed(2));
  return item;
}

function moveMark(event, marks, place) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const next = marks[event.key === "Home" ? 0 : event.key === "End" ? marks.length - 1 : place + step];
  if (!next || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  marks[place].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function legend(judgments) {
  if (!judgments.some(({ parts, score }) => isFigure(score) && parts && parts.length)) return [];
  return [
    make("ul", "legend",
      make("li", "", make("b", "raised", "\u25b2\u00a0+"), " raised the score"),
      make("li", "", make("b", "lowered", "\u25bc\u00a0\u2212"), " lowered it"),
      make("li", "", make("b", "", "0.00"), " had almost no effect"),
      make("li", "", make("b", "", "\u2013"), " is unknown"),
      make("li", "", make("b", "", "?"), " may not be due to the content: a neutral sentence in its place has a different effect")),
    make("p", "hint", "Each figure is the score minus the score without that part. Removing a part also shortens the reply, which affects the score: compare the parts with each other."),
  ];
}

function comparison(judgments) {
  const [a, b] = judgments.map(({ score }) => score);
  if (!isFigure(a) || !isFigure(b)) return make("p", "winner", "One of the replies has no score, so they cannot be compared.");
  const gap = Math.abs(a - b);
  const said = gap < 0.005 ? `Both replies score ${figure(a)}.`
    : `Reply ${a > b ? "A" : "B"} scores higher, ${figure(Math.max(a, b))} vs. ${figure(Math.min(a, b))}.`;
  return make("p", "winner", said, make("span", "", ` One pair is not enough to compare two authors.`));
}

function trust(answer) {
  const judge = answer.judge || {};
  const section = make("div", "trust", make("h3", "", "How far to trust this"),
    make("p", "", make("strong", "", "Not for one reply alone."), " Do not use it for decisions about people, or about replies to somebody in danger."),
    answer.note ? make("p", "", apart(sentence(answer.note))) : null);
  if (Array.isArray(answer.caveats) && answer.caveats.length) {
    section.append(make("ul", "points", ...answer.caveats.map((caveat) => make("li", "", apart(caveat)))));
  }
  const calibration = answer.calibration ? `calibration ${String(answer.calibration).slice(0, 12)}` : "no calibration";
  section.append(make("p", "note", "Judge ", apart(`${judge.name} ${String(judge.version).slice(0, 12)}`), "; ", apart(calibration)));
  return section;
}

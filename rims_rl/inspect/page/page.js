// Looks through one recording of `rims-rl inspect`. docs/how-to/inspect.md says what its arrays mean.
"use strict";

const recording = JSON.parse(document.getElementById("recording").textContent);
const about = recording.about;
const frames = decode("frames"), frameEnds = decode("frame_ends");
const actions = decode("actions"), rewards = decode("rewards"), values = decode("values");
const active = decode("active"), attention = decode("input_attention"), communication = decode("communication");
const episodeStarts = decode("episode_starts"), events = decode("events");

const STEPS = frameEnds.length, RIMS = about.num_rims, ELEMENTS = about.elements.length;
const NULL = ELEMENTS; // the last entry of each row of attention
const POSITIONS = about.grid ? about.grid.rows * about.grid.columns : 0; // the first of the elements
const ACTION_SIZE = actions.length / STEPS;
const FULL_COLOUR = fullColour();

const state = { step: 0, rim: 0, playing: false, view: [0, STEPS], theme: null };
const $ = (id) => document.getElementById(id);

// ---------------------------------------------------------------------------------------------------------- the data

function decode(name) {
  const { type, data } = recording[name];
  const text = atob(data), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const kinds = {
    int8: Int8Array, uint8: Uint8Array, uint16: Uint16Array, int32: Int32Array, float32: Float32Array,
    float64: Float64Array,
  };
  return new kinds[type](bytes.buffer);
}

const isActive = (step, rim) => active[step * RIMS + rim] === 1;
const attentionTo = (step, rim, element) => attention[(step * RIMS + rim) * (ELEMENTS + 1) + element] / 65535;
const listensTo = (step, rim, other) => communication[(step * RIMS + rim) * RIMS + other] / 65535;

/** What the strongest colour stands for. Not less than four times an even share, or even attention would look strong. */
function fullColour() {
  let most = 0;
  for (let i = 0; i < attention.length; i++) if (i % (ELEMENTS + 1) !== NULL) most = Math.max(most, attention[i] / 65535);
  return Math.max(most, 4 / ELEMENTS);
}

function episodeAt(step) {
  let found = 0;
  about.episodes.forEach((episode, number) => { if (episode.first_step <= step) found = number; });
  return found;
}

/** Rewards of the episode up to, but not with, this step. */
function scoreBefore(step) {
  let score = 0;
  for (let t = about.episodes[episodeAt(step)].first_step; t < step; t++) score += rewards[t];
  return score;
}

function actionName(step) {
  const parts = Array.from(actions.subarray(step * ACTION_SIZE, (step + 1) * ACTION_SIZE));
  if (ACTION_SIZE === 1 && about.action_names) return about.action_names[parts[0]].toLowerCase();
  return parts.map((part) => short(part)).join(", ");
}

const short = (number) => String(Number(number.toPrecision(4)));
const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;
const clamp = (number, low, high) => Math.min(Math.max(number, low), high);

/** Not so tall that the timeline, all of it, does not fit below. */
const tallest = (most) => clamp(innerHeight - HEIGHT - 290, 180, most);

// -------------------------------------------------------------------------------------------------------- the screen

let drawnStep = -1, decoding = false;

/** Decoding is asynchronous: while one frame is decoded the step may change, and then only the newest matters. */
async function drawFrame() {
  if (decoding) return;
  decoding = true;
  try {
    while (drawnStep !== state.step) {
      const step = state.step, begin = step ? frameEnds[step - 1] : 0;
      const picture = new Blob([frames.subarray(begin, frameEnds[step])], { type: "image/webp" });
      const bitmap = await createImageBitmap(picture);
      const game = $("game");
      if (game.width !== bitmap.width || game.height !== bitmap.height) {
        game.width = bitmap.width;
        game.height = bitmap.height;
        sizeScreen();
      }
      game.getContext("2d").drawImage(bitmap, 0, 0);
      bitmap.close();
      drawnStep = step;
      game.dataset.step = step;
    }
  } finally {
    decoding = false;
  }
}

/** As large as fits, and heat map exactly over game. */
function sizeScreen() {
  const game = $("game"), heat = $("heat");
  const scale = Math.min($("screen").clientWidth / game.width, tallest(400) / game.height);
  for (const canvas of [game, heat]) {
    canvas.style.width = `${game.width * scale}px`;
    canvas.style.height = `${game.height * scale}px`;
  }
  heat.width = game.width * scale * devicePixelRatio;
  heat.height = game.height * scale * devicePixelRatio;
  drawHeat();
}

/** Attention of the chosen RIM to positions, each drawn in the middle of the part of the picture that it sees. */
function drawHeat() {
  const heat = $("heat"), context = heat.getContext("2d"), grid = about.grid;
  context.clearRect(0, 0, heat.width, heat.height);
  if (!grid) return;
  const small = new OffscreenCanvas(grid.columns, grid.rows), pixels = small.getContext("2d");
  let strongest = 0;
  for (let i = 0; i < POSITIONS; i++) {
    const share = attentionTo(state.step, state.rim, i);
    if (share > attentionTo(state.step, state.rim, strongest)) strongest = i;
    pixels.fillStyle = `rgba(255, 60, 200, ${0.85 * share / FULL_COLOUR})`;
    pixels.fillRect(i % grid.columns, Math.floor(i / grid.columns), 1, 1);
  }
  const [pitchY, pitchX] = [grid.pitch[0] * heat.height, grid.pitch[1] * heat.width];
  const [fieldY, fieldX] = [grid.field[0] * heat.height, grid.field[1] * heat.width];
  context.drawImage(
    small, (fieldX - pitchX) / 2, (fieldY - pitchY) / 2, grid.columns * pitchX, grid.rows * pitchY);
  context.strokeStyle = "white";
  context.lineWidth = devicePixelRatio;
  context.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
  context.strokeRect(
    (strongest % grid.columns) * pitchX, Math.floor(strongest / grid.columns) * pitchY, fieldX, fieldY);
}

// ------------------------------------------------------------------------------------------------- numbers and bars

function drawFacts() {
  const { step } = state, number = episodeAt(step), episode = about.episodes[number];
  const reward = rewards[step];
  const facts = [
    ["step", `${step} of ${STEPS - 1}`],
    ["episode", `${number + 1} of ${about.episodes.length}`],
    ["score before", short(scoreBefore(step))],
    ["action", actionName(step)],
    ["reward for it", short(reward), reward > 0 ? "good" : reward < 0 ? "bad" : ""],
    ["value", values[step].toFixed(2)],
  ];
  $("facts").replaceChildren(...facts.map(([name, value, kind]) => {
    const pair = document.createElement("div");
    pair.append(element("dt", name), element("dd", value, kind));
    return pair;
  }));
  $("mission").textContent = episode.mission ? `“${episode.mission}”` : "";
  const happens = about.events.filter((name, i) => i > 1 && events[step * about.events.length + i]); // not rewards
  $("happens").textContent = happens.join(", ");
}

function drawRims() {
  [...$("rims").children].forEach((button, rim) => {
    button.classList.toggle("active", isActive(state.step, rim));
    button.setAttribute("aria-pressed", rim === state.rim);
  });
}

function drawAttention() {
  const { step, rim } = state, on = isActive(step, rim), toNull = attentionTo(step, rim, NULL);
  const sums = new Map();
  about.elements.forEach((name, i) => {
    const group = i < POSITIONS ? "all positions" : name.replace(/ \d+$/, ""); // the words of a mission are one bar
    sums.set(group, (sums.get(group) ?? 0) + attentionTo(step, rim, i));
  });
  $("attention-title").textContent = `Input attention of RIM ${rim}`;
  $("attention").replaceChildren(...[...sums, ["null", toNull]].map(([name, share]) => {
    const bar = element("div", "", "bar"), track = element("div", "", "track"), fill = element("div", "", "fill");
    fill.style.width = `${100 * share}%`;
    fill.style.background = name === "null" ? css("--muted") : colour(rim);
    fill.style.opacity = on ? 1 : 0.35;
    track.append(fill);
    bar.append(element("span", name), track, element("span", percent(share)));
    return bar;
  }));
  const notes = [on ? "Active: it reads this." : "Not active: it reads nothing."];
  if (about.grid) notes.push(`Over the game, the strongest colour would be ${percent(FULL_COLOUR)}; ` +
    "dashed: what the strongest position sees.");
  $("note").textContent = notes.join(" ");
}

// -------------------------------------------------------------------------------------------------- who hears whom

const graphSize = () => Math.min($("graph").clientWidth, tallest(300));

function graphPoints(size) {
  const radius = size / 2 - 38;
  return Array.from({ length: RIMS }, (_, rim) => {
    const angle = 2 * Math.PI * rim / RIMS - Math.PI / 2;
    return [size / 2 + radius * Math.cos(angle), size / 2 + radius * Math.sin(angle), angle];
  });
}

function drawGraph() {
  const canvas = $("graph"), size = graphSize(), node = clamp(110 / RIMS, 7, 16);
  const context = prepare(canvas, size), { step, rim } = state;
  context.translate((canvas.clientWidth - size) / 2, 0);
  const points = graphPoints(size);
  // those of the chosen RIM last, so that they are on top
  const listeners = [...points.keys()].filter((k) => k !== rim).concat(rim);
  for (const listener of listeners) {
    for (let speaker = 0; speaker < RIMS; speaker++) {
      const weight = listensTo(step, listener, speaker);
      if (weight < 0.005) continue;
      context.strokeStyle = context.fillStyle = listener === rim ? colour(rim) : css("--muted");
      context.globalAlpha = listener === rim ? 1 : 0.25;
      context.lineWidth = 0.5 + 12 * weight;
      if (listener === speaker) drawLoop(context, points[listener], node);
      else drawArrow(context, points[speaker], points[listener], node);
    }
  }
  context.globalAlpha = 1;
  context.textAlign = "center";
  context.textBaseline = "middle";
  points.forEach(([x, y], k) => {
    context.beginPath();
    context.arc(x, y, node, 0, 7);
    context.fillStyle = isActive(step, k) ? colour(k) : css("--card");
    context.fill();
    context.lineWidth = k === rim ? 4 : 2;
    context.strokeStyle = k === rim ? css("--text") : colour(k);
    context.stroke();
    context.fillStyle = isActive(step, k) ? "#10131a" : css("--muted");
    context.font = `${Math.min(13, node)}px system-ui, sans-serif`;
    context.fillText(k, x, y);
  });
  const heard = points.map((_, k) => `${k}: ${percent(listensTo(step, rim, k))}`);
  const listens = points.some((_, k) => listensTo(step, rim, k) > 0);
  $("heard").textContent = listens ? `RIM ${rim} listens to ${heard.join(", ")}` : `RIM ${rim} listens to nobody now.`;
}

function drawArrow(context, [x0, y0], [x1, y1], node) {
  const length = Math.hypot(x1 - x0, y1 - y0), [dx, dy] = [(x1 - x0) / length, (y1 - y0) / length];
  // a little to the right, so that both directions can be seen
  const [ox, oy] = [-dy * 4, dx * 4], head = 5 + context.lineWidth;
  const [tipX, tipY] = [x1 + ox - dx * (node + 2), y1 + oy - dy * (node + 2)];
  context.beginPath();
  context.moveTo(x0 + ox + dx * node, y0 + oy + dy * node);
  context.lineTo(tipX - dx * head, tipY - dy * head);
  context.stroke();
  context.beginPath();
  context.moveTo(tipX, tipY);
  context.lineTo(tipX - dx * head - dy * head / 2, tipY - dy * head + dx * head / 2);
  context.lineTo(tipX - dx * head + dy * head / 2, tipY - dy * head - dx * head / 2);
  context.fill();
}

function drawLoop(context, [x, y, angle], node) {
  context.beginPath();
  context.arc(x + Math.cos(angle) * (node + 7), y + Math.sin(angle) * (node + 7), 9, 0, 7);
  context.stroke();
}

// ------------------------------------------------------------------------------------------------------ the timeline

const GUTTER = 74, ROW = clamp(220 / RIMS, 6, 20), AXIS = 22;
const LANES = { raster: { top: 8, height: RIMS * ROW }, value: { top: 0, height: 74 }, reward: { top: 0, height: 46 } };
LANES.value.top = LANES.raster.top + LANES.raster.height + 12;
LANES.reward.top = LANES.value.top + LANES.value.height + 12;
const HEIGHT = LANES.reward.top + LANES.reward.height + AXIS;
const VALUES = range(values), REWARDS = range(rewards);

function range(numbers) {
  let low = 0, high = 0;
  for (const number of numbers) [low, high] = [Math.min(low, number), Math.max(high, number)];
  return low === high ? [0, 1] : [low, high];
}

/** Left edge of a step; a step is as wide as the view allows. */
function xOf(step) {
  const [from, to] = state.view;
  return GUTTER + (step - from) / (to - from) * ($("timeline").clientWidth - GUTTER - 8);
}

function stepAt(x) {
  const [from, to] = state.view, share = (x - GUTTER) / ($("timeline").clientWidth - GUTTER - 8);
  return clamp(Math.floor(from + share * (to - from)), Math.ceil(from), Math.ceil(to) - 1);
}

/** What does not change with the cursor is drawn once, into a canvas of its own. */
let background = null;

function drawBackground() {
  const canvas = document.createElement("canvas"), visible = $("timeline");
  const context = prepare(canvas, HEIGHT, visible.clientWidth), right = visible.clientWidth - 8;
  const [from, to] = [Math.floor(state.view[0]), Math.min(Math.ceil(state.view[1]), STEPS)];
  const width = xOf(1) - xOf(0);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (const { top, height } of Object.values(LANES)) {
    context.fillStyle = css("--faint");
    context.fillRect(GUTTER, top, right - GUTTER, height);
  }
  context.save();
  context.beginPath();
  context.rect(GUTTER, 0, right - GUTTER, HEIGHT);
  context.clip();
  for (let rim = 0; rim < RIMS; rim++) {
    context.fillStyle = colour(rim);
    for (let t = from; t < to; t++) {
      if (!isActive(t, rim)) continue;
      let end = t + 1;
      while (end < to && isActive(end, rim)) end++; // one rectangle for each run
      context.fillRect(xOf(t), LANES.raster.top + rim * ROW + 1, Math.max((end - t) * width, 0.5), ROW - 2);
      t = end;
    }
  }
  const y = (lane, [low, high], number) => lane.top + lane.height - 3 - (number - low) / (high - low) * (lane.height - 6);
  context.strokeStyle = css("--line");
  for (const [lane, limits] of [[LANES.value, VALUES], [LANES.reward, REWARDS]]) {
    context.beginPath();
    context.moveTo(GUTTER, y(lane, limits, 0));
    context.lineTo(right, y(lane, limits, 0));
    context.stroke();
  }
  context.strokeStyle = css("--accent");
  context.lineWidth = 1.5;
  context.beginPath();
  for (let t = from; t < to; t++) context.lineTo(xOf(t + 0.5), y(LANES.value, VALUES, values[t]));
  context.stroke();
  for (let t = from; t < to; t++) {
    if (!rewards[t]) continue;
    const [zero, tip] = [y(LANES.reward, REWARDS, 0), y(LANES.reward, REWARDS, rewards[t])];
    context.fillStyle = css(rewards[t] > 0 ? "--good" : "--bad");
    const thick = Math.max(width * 0.8, 2);
    context.fillRect(xOf(t + 0.5) - thick / 2, Math.min(zero, tip), thick, Math.abs(zero - tip));
  }
  context.strokeStyle = css("--muted");
  context.lineWidth = 1;
  context.setLineDash([3, 3]);
  for (let t = Math.max(from, 1); t < to; t++) {
    if (!episodeStarts[t]) continue;
    context.beginPath();
    context.moveTo(xOf(t), LANES.raster.top);
    context.lineTo(xOf(t), LANES.reward.top + LANES.reward.height);
    context.stroke();
  }
  context.restore();
  drawLabels(context, right);
  background = canvas;
}

function drawLabels(context, right) {
  context.textAlign = "right";
  for (let rim = 0; rim < RIMS; rim += Math.ceil(11 / ROW)) {
    context.fillStyle = rim === state.rim ? css("--text") : css("--muted");
    context.font = `${rim === state.rim ? "bold " : ""}12px system-ui, sans-serif`;
    context.fillText(`RIM ${rim}`, GUTTER - 8, LANES.raster.top + (rim + 0.5) * ROW);
  }
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = css("--muted");
  for (const [name, lane, [low, high]] of [["value", LANES.value, VALUES], ["reward", LANES.reward, REWARDS]]) {
    context.fillText(name, GUTTER - 8, lane.top + lane.height / 2);
    context.fillText(short(high), GUTTER - 8, lane.top + 6);
    context.fillText(short(low), GUTTER - 8, lane.top + lane.height - 6);
  }
  context.textAlign = "center";
  const [from, to] = state.view, apart = 90 * (to - from) / (right - GUTTER);
  const magnitude = 10 ** Math.floor(Math.log10(apart));
  const tick = Math.max(1, magnitude * [1, 2, 5, 10].find((times) => times * magnitude >= apart));
  for (let t = Math.ceil(from / tick) * tick; t < to; t += tick) context.fillText(t, xOf(t + 0.5), HEIGHT - 9);
}

function drawTimeline() {
  const canvas = $("timeline");
  if (!background) drawBackground();
  const context = prepare(canvas, HEIGHT);
  context.drawImage(background, 0, 0, canvas.clientWidth, HEIGHT);
  context.strokeStyle = css("--text");
  context.lineWidth = 1;
  context.strokeRect(GUTTER, LANES.raster.top + state.rim * ROW, canvas.clientWidth - GUTTER - 8, ROW);
  const x = xOf(state.step + 0.5);
  context.fillStyle = css("--text");
  context.fillRect(x - 1, 2, 2, HEIGHT - AXIS - 2);
  context.beginPath();
  context.arc(x, 5, 5, 0, 7);
  context.fill();
  canvas.setAttribute("aria-valuenow", state.step);
}

function zoom(factor, centre = state.step + 0.5) {
  const [from, to] = state.view, width = clamp((to - from) * factor, Math.min(20, STEPS), STEPS);
  const begin = clamp(centre - (centre - from) / (to - from) * width, 0, STEPS - width);
  state.view = [begin, begin + width];
  background = null;
  drawTimeline();
}

/** Move the view along if the cursor is outside of it. */
function follow() {
  const [from, to] = state.view, width = to - from;
  if (state.step >= from && state.step + 1 <= to) return;
  const begin = clamp(state.step - width / 4, 0, STEPS - width);
  state.view = [begin, begin + width];
  background = null;
}

// ------------------------------------------------------------------------------------------------- drawing, in general

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (rim) => `hsl(${360 * (rim / RIMS + 0.62) % 360} 60% 58%)`; // as rim_colours in Python

function element(tag, text = "", kind = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

/** A cleared canvas of the right size for this screen's pixels, whose units are CSS pixels. */
function prepare(canvas, height, width = canvas.clientWidth) {
  canvas.width = Math.round(width * devicePixelRatio);
  canvas.height = Math.round(height * devicePixelRatio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(devicePixelRatio, devicePixelRatio);
  return context;
}

function draw() {
  drawFrame().catch((error) => fail(`A frame cannot be shown: ${error}`));
  drawHeat();
  drawFacts();
  drawRims();
  drawAttention();
  drawGraph();
  drawTimeline();
}

function redrawAll() {
  background = null;
  if (drawnStep >= 0) sizeScreen();
  draw();
}

function fail(text) {
  $("failure").textContent = text;
  $("failure").hidden = false;
}

// ------------------------------------------------------------------------------------------------- what one can do

function goTo(step) {
  state.step = clamp(step, 0, STEPS - 1);
  follow();
  draw();
}

function choose(rim) {
  if (rim >= RIMS) return;
  state.rim = rim;
  background = null;
  draw();
}

let played = 0; // steps, with fractions, that are due
let last = 0;

function setPlaying(playing) {
  if (playing && state.step === STEPS - 1) goTo(0);
  state.playing = playing;
  $("play").textContent = playing ? "Pause" : "Play";
  if (playing) {
    played = 0;
    last = performance.now();
    requestAnimationFrame(tick);
  }
}

function tick(now) {
  if (!state.playing) return;
  played += Math.max(0, now - last) / 1000 * about.fps * Number($("speed").value);
  last = now;
  const due = Math.floor(played);
  played -= due;
  if (due) goTo(state.step + due);
  if (state.step === STEPS - 1) setPlaying(false);
  else requestAnimationFrame(tick);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  redrawAll();
}

const preferred = matchMedia("(prefers-color-scheme: dark)");

function switchTheme() {
  state.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  setTheme(state.theme);
}

const KEYS = {
  ArrowLeft: (event) => goTo(state.step - (event.shiftKey ? 10 : 1)),
  ArrowRight: (event) => goTo(state.step + (event.shiftKey ? 10 : 1)),
  Home: () => goTo(0),
  End: () => goTo(STEPS - 1),
  " ": () => setPlaying(!state.playing),
  "+": () => zoom(1 / 1.5),
  "-": () => zoom(1.5),
  t: switchTheme,
  T: switchTheme,
};

function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
    if (/^[0-9]$/.test(event.key)) choose(Number(event.key));
    else if (KEYS[event.key]) KEYS[event.key](event);
    else return;
    event.preventDefault(); // Space would also press the button that has the focus
  });
  const buttons = {
    first: () => goTo(0), back: () => goTo(state.step - 1), forward: () => goTo(state.step + 1),
    last: () => goTo(STEPS - 1), play: () => setPlaying(!state.playing), theme: switchTheme,
  };
  for (const [id, act] of Object.entries(buttons)) $(id).addEventListener("click", act);

  const timeline = $("timeline");
  const drag = (event) => goTo(stepAt(event.offsetX));
  timeline.addEventListener("pointerdown", (event) => {
    const row = Math.floor((event.offsetY - LANES.raster.top) / ROW);
    if (event.offsetX < GUTTER) {
      if (row >= 0) choose(row);
      return;
    }
    setPlaying(false);
    timeline.setPointerCapture(event.pointerId);
    timeline.addEventListener("pointermove", drag);
    drag(event);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    timeline.addEventListener(end, () => timeline.removeEventListener("pointermove", drag));
  }
  timeline.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, stepAt(event.offsetX) + 0.5);
  }, { passive: false });

  $("graph").addEventListener("click", (event) => {
    const size = graphSize(), left = (event.target.clientWidth - size) / 2;
    const far = graphPoints(size).map(([x, y]) => Math.hypot(event.offsetX - left - x, event.offsetY - y));
    const nearest = far.indexOf(Math.min(...far));
    if (far[nearest] < 24) choose(nearest);
  });
  preferred.addEventListener("change", () => { if (!state.theme) setTheme(preferred.matches ? "dark" : "light"); });
  addEventListener("resize", redrawAll);
}

function begin() {
  const { env } = about, steps = about.steps === null ? "" : `, trained for ${about.steps.toLocaleString("en")} steps`;
  const distractors = env.distractors ? `, ${env.distractors} distractors` : "";
  $("title").textContent = `What do my RIMs do? ${env.name}${distractors}`;
  $("subtitle").textContent = `${about.run}: ${about.algo ?? "agent"}, ${RIMS} RIMs, ${about.num_active} active${steps}; ` +
    `${about.deterministic ? "most likely" : "sampled"} actions, seed ${about.evaluation_seed}` +
    (about.drop.length ? `, without RIM ${about.drop.join(", ")}` : "") +
    (about.force.length ? `, RIM always active: ${about.force.join(", ")}` : "");
  document.title = $("title").textContent;
  $("timeline").setAttribute("aria-valuemax", STEPS - 1);
  for (let rim = 0; rim < RIMS; rim++) {
    const button = element("button", rim, "rim");
    button.style.setProperty("--colour", colour(rim));
    button.title = `RIM ${rim}`;
    button.addEventListener("click", () => choose(rim));
    $("rims").append(button);
  }
  listen();
  setTheme(preferred.matches ? "dark" : "light");
}

addEventListener("error", (event) => fail(`This page has a fault: ${event.message}`));
begin();

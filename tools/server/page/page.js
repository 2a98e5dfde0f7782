"use strict";
// A chat with the server that gave this page. A model's text is hostile: it only ever becomes text nodes.

const $ = (id) => document.getElementById(id);
const KEPT = "halfbyte.conversation", SETTINGS = "halfbyte.settings", THEME = "halfbyte.theme", KEY = "halfbyte.key";
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed"];
const DEFAULTS = {system: "", temperature: 0.7, top_p: 0.95, top_k: 0, min_p: 0, repetition_penalty: 1, max_tokens: 1024, seed: ""};

function read(store, name, otherwise) {
  try { return JSON.parse(store.getItem(name)) ?? otherwise; } catch { return otherwise; }
}
function write(store, name, value) {
  try { store.setItem(name, JSON.stringify(value)); } catch { /* a browser that keeps nothing */ }
}

let turns = read(localStorage, KEPT, []);
if (!Array.isArray(turns)) turns = [];
let settings = {...DEFAULTS, ...read(localStorage, SETTINGS, {})};
let model = null, running = null;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Markdown, as far as models write it. Returns nodes; nothing is parsed as HTML.
function inline(text) {
  const out = [];
  const pattern = /(`+)([^`]+?)\1|\*\*(.+?)\*\*|(?<![\w*])\*([^*\s][^*]*?)\*(?![\w*])|\[([^\]]+)\]\((https?:\/\/[^\s)]+)\)/g;
  let at = 0;
  for (const found of text.matchAll(pattern)) {
    out.push(text.slice(at, found.index));
    if (found[2] !== undefined) out.push(element("code", {}, found[2]));
    else if (found[3] !== undefined) out.push(element("strong", {}, ...inline(found[3])));
    else if (found[4] !== undefined) out.push(element("em", {}, found[4]));
    else out.push(element("a", {href: found[6], rel: "noopener noreferrer", target: "_blank"}, found[5]));
    at = found.index + found[0].length;
  }
  out.push(text.slice(at));
  return out;
}

function codeBlock(lines) {
  const text = lines.join("\n");
  return element("pre", {tabindex: "0"}, element("button", {class: "small", type: "button", onclick: () => navigator.clipboard?.writeText(text)}, "Copy"), "\n", element("code", {}, text));
}

function cells(line) { return line.replace(/^\s*\||\|\s*$/g, "").split("|").map((cell) => cell.trim()); }

function markdown(text, depth = 0) {
  if (depth > 8) return [element("div", {class: "plain"}, text)];
  const out = [], lines = text.split("\n");
  let paragraph = [];
  const flush = () => {
    if (paragraph.length) out.push(element("p", {}, ...paragraph.flatMap((line, i) => i ? [element("br"), ...inline(line)] : inline(line))));
    paragraph = [];
  };
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i];
    const fence = line.match(/^\s*(```+|~~~+)/);
    if (fence) {
      flush();
      const code = [];
      while (++i < lines.length && !lines[i].trim().startsWith(fence[1])) code.push(lines[i]);
      out.push(codeBlock(code));
    } else if (/^\s*$/.test(line)) {
      flush();
    } else if (/^#{1,6} /.test(line)) {
      flush();
      out.push(element("h" + Math.min(5, 2 + line.match(/^#+/)[0].length), {}, ...inline(line.replace(/^#+ /, ""))));
    } else if (/^\s*([-*+]|\d+[.)]) /.test(line)) {
      flush();
      const isOrdered = /^\s*\d/.test(line), list = element(isOrdered ? "ol" : "ul");
      for (; i < lines.length && /^\s*([-*+]|\d+[.)]) /.test(lines[i]); i++) list.append(element("li", {}, ...inline(lines[i].replace(/^\s*([-*+]|\d+[.)]) /, ""))));
      i--;
      out.push(list);
    } else if (/^> ?/.test(line)) {
      flush();
      const quoted = [];
      for (; i < lines.length && /^> ?/.test(lines[i]); i++) quoted.push(lines[i].replace(/^> ?/, ""));
      i--;
      out.push(element("blockquote", {}, ...markdown(quoted.join("\n"), depth + 1)));
    } else if (line.length < 1000 && (lines[i + 1] ?? "").length < 1000 && line.includes("|") && /^\s*\|?[\s:|-]+\|[\s:|-]*$/.test(lines[i + 1] ?? "")) {
      flush();
      const table = element("table", {}, element("tr", {}, ...cells(line).map((cell) => element("th", {}, ...inline(cell)))));
      for (i += 2; i < lines.length && lines[i].includes("|"); i++) table.append(element("tr", {}, ...cells(lines[i]).map((cell) => element("td", {}, ...inline(cell)))));
      i--;
      out.push(table);
    } else {
      paragraph.push(line);
    }
  }
  flush();
  return out;
}

// The conversation.
function bodyOf(turn) {
  const parts = [];
  if (turn.thinking) parts.push(element("details", {class: "thinking"}, element("summary", {}, "Thinking"), element("div", {class: "plain"}, turn.thinking)));
  if (turn.role === "user") parts.push(element("div", {class: "plain"}, turn.content));
  else parts.push(...markdown(turn.content));
  if (turn.problem) parts.push(element("p", {class: "problem", role: "alert"}, turn.problem));
  return parts;
}

function toolsOf(turn, index) {
  const button = (label, action) => element("button", {class: "small", type: "button", "aria-label": label + " turn " + (index + 1), onclick: action}, label);
  const out = element("div", {class: "tools"}, button("Copy", () => navigator.clipboard?.writeText(turn.content)));
  if (!running) {
    if (turn.role === "user") out.append(button("Edit", () => edit(index)));
    else out.append(button("Retry", () => { turns = turns.slice(0, index); answer(); }));
  }
  if (turn.note) out.append(element("span", {}, turn.note));
  return out;
}

function articleOf(turn, index) {
  return element("article", {class: turn.role, "data-turn": index}, element("h2", {}, turn.role === "user" ? "You" : "Model"), element("div", {class: "body"}, ...bodyOf(turn)), toolsOf(turn, index));
}

function show() {
  $("turns").replaceChildren(...turns.map(articleOf));
  $("send").hidden = Boolean(running);
  $("stop").hidden = !running;
  write(localStorage, KEPT, turns);
  $("scroll").scrollTop = $("scroll").scrollHeight;
}

function showLast() {
  const scroll = $("scroll"), isAtEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
  const last = $("turns").lastElementChild;
  last.querySelector(".body").replaceChildren(...bodyOf(turns[turns.length - 1]));
  if (isAtEnd) scroll.scrollTop = scroll.scrollHeight;
}

function edit(index) {
  const article = $("turns").children[index], box = element("textarea", {rows: "4", "aria-label": "Edit turn " + (index + 1)});
  box.value = turns[index].content;
  const done = () => {
    const text = box.value.trim();
    if (!text) return show();
    turns = [...turns.slice(0, index), {role: "user", content: text}];
    answer();
  };
  article.replaceChildren(element("h2", {}, "You"), box, element("div", {class: "tools"}, element("button", {type: "button", class: "main", onclick: done}, "Send again"), element("button", {type: "button", onclick: show}, "Cancel")));
  box.focus();
}

function headers() {
  const key = read(sessionStorage, KEY, "");
  return {"Content-Type": "application/json", ...(key ? {Authorization: "Bearer " + key} : {})};
}

function bodyOfRequest() {
  const messages = turns.filter((turn) => turn.content || turn.role === "user").map(({role, content}) => ({role, content}));
  if (settings.system) messages.unshift({role: "system", content: settings.system});
  const body = {model: model?.id, messages, stream: true, stream_options: {include_usage: true}};
  for (const name of NUMBERS) if (settings[name] !== "" && Number.isFinite(Number(settings[name]))) body[name] = Number(settings[name]);
  return body;
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    held += value;
    for (let end; (end = held.indexOf("\n\n")) >= 0; held = held.slice(end + 2)) {
      const data = held.slice(0, end).replace(/^data: /, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

async function problemOf(response) {
  try { return (await response.json()).error.message; } catch { return "the server said " + response.status; }
}

async function answer() {
  if (running) return;
  const body = bodyOfRequest(), turn = {role: "assistant", content: "", thinking: ""};
  running = new AbortController();
  turns.push(turn);
  show();
  let first = 0, tokens = 0;
  try {
    const response = await fetch("/v1/chat/completions", {method: "POST", headers: headers(), body: JSON.stringify(body), signal: running.signal});
    if (!response.ok) throw new Error(await problemOf(response));
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      const delta = event.choices?.[0]?.delta ?? {};
      turn.content += delta.content ?? "";
      turn.thinking += delta.reasoning_content ?? "";
      const now = performance.now();
      if (event.choices?.length && !event.choices[0].finish_reason) tokens++;
      if (!first && tokens) first = now;
      if (tokens > 1 && now > first) turn.note = tokens + " tokens, " + ((tokens - 1) / (now - first) * 1000).toFixed(1) + " tokens/s";
      $("speed").textContent = turn.note ?? "";
      showLast();
    }
  } catch (error) {
    if (error.name !== "AbortError") turn.problem = error.message;
    if (/key/.test(turn.problem ?? "")) $("settings-dialog").showModal();
  }
  running = null;
  show();
  $("box").focus();
}

// Around it.
function theme(name) {
  document.documentElement.dataset.theme = name;
  write(localStorage, THEME, name);
}

function fillSettings() {
  for (const name of ["system", ...NUMBERS]) $(name).value = settings[name];
  $("key").value = read(sessionStorage, KEY, "");
}

function keepSettings() {
  for (const name of ["system", ...NUMBERS]) settings[name] = $(name).value;
  write(localStorage, SETTINGS, settings);
  write(sessionStorage, KEY, $("key").value);
  if (!model) about();
}

function megabytes(bytes) { return (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0) + " MB"; }

async function about() {
  try {
    const response = await fetch("/v1/models", {headers: headers()});
    if (!response.ok) throw new Error(await problemOf(response));
    const models = (await response.json()).data, choice = element("select", {"aria-label": "model"});
    const choose = () => {
      model = models[Math.max(choice.selectedIndex, 0)];
      document.title = model.id + " · halfbyte";
    };
    for (const {id} of models) choice.append(element("option", {}, id));
    choice.onchange = choose;
    choose();
    $("about").replaceChildren(models.length > 1 ? choice : model.id);
  } catch (error) {
    $("about").textContent = error.message;
  }
}

async function showCard() {
  const body = $("card-body");
  body.replaceChildren(element("p", {class: "faint"}, "..."));
  $("card-dialog").showModal();
  try {
    const response = await fetch("/v1/halfbyte/report" + (model ? "/" + encodeURIComponent(model.id) : ""), {headers: headers()});
    if (!response.ok) throw new Error(await problemOf(response));
    const report = await response.json(), rows = [["Name", model?.id ?? ""], ["Context", (model?.max_model_len ?? "") + " tokens"], ["Policy", report.policy],
      ["Products in", report.operand_dtype + ", packed codes times " + report.compute], ["All else in", report.stream_dtype], ["Keys and values", report.key_values], ["Device", report.device]];
    if (report.checkpoint) {
      const schemes = Object.entries(report.checkpoint.schemes).map(([scheme, count]) => count + " " + scheme).join(", ");
      rows.push(["Quantised", schemes + "; " + report.checkpoint.kept_tensors + " kept"], ["Size", megabytes(report.checkpoint.bytes)]);
      if (report.checkpoint.rel_rmse) rows.push(["Relative error", Number(report.checkpoint.rel_rmse).toFixed(4)]);
    }
    const originals = {};
    for (const tensor of report.tensors ?? []) originals[tensor.recorded ?? "unknown"] = (originals[tensor.recorded ?? "unknown"] ?? 0) + 1;
    rows.push(["Tensors were", Object.entries(originals).map(([dtype, count]) => count + " " + dtype).join(", ")]);
    for (const [dtype, bytes] of Object.entries(report.bytes_by_dtype ?? {})) rows.push(["As " + dtype, megabytes(bytes)]);
    body.replaceChildren(element("table", {}, ...rows.map(([name, value]) => element("tr", {}, element("th", {scope: "row"}, name), element("td", {}, String(value))))));
  } catch (error) {
    body.replaceChildren(element("p", {class: "problem"}, error.message));
  }
}

function exportAll() {
  const text = JSON.stringify({model: model?.id, system: settings.system, messages: turns.map(({role, content}) => ({role, content}))}, null, 2);
  const link = element("a", {href: URL.createObjectURL(new Blob([text], {type: "application/json"})), download: "conversation.json"});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("box").value.trim();
  if (!text || running) return;
  turns.push({role: "user", content: text});
  $("box").value = "";
  answer();
});
$("box").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("form").requestSubmit();
  }
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && running) running.abort(); });
$("stop").addEventListener("click", () => running?.abort());
$("new").addEventListener("click", () => { if (!running) { turns = []; show(); $("box").focus(); } });
$("settings").addEventListener("click", () => { fillSettings(); $("settings-dialog").showModal(); });
$("settings-dialog").addEventListener("close", keepSettings);
$("card").addEventListener("click", showCard);
$("export").addEventListener("click", exportAll);
$("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
theme(read(localStorage, THEME, matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
show();
about();

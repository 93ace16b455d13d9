// A small markdown that only ever makes elements of its own and text nodes: HTML in an answer stays
// text, pictures are not loaded, and links lead to http and https alone.
//
// A stream is rendered block by block: blocks that are complete are never touched again, so that a
// long answer costs per frame what its last block costs.

import { make } from "./dom.js";

const kMaxOpenBlock = 8000;  // characters; a longer block is cut at a line's end
const kFence = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const kOpening = /\n(?= {0,3}(?:`{3}|~{3})|#{1,6}\s)/;  // what follows begins a block without a blank line
const kHeading = /^(#{1,6})\s+(.*)$/;
const kMaxDepth = 20;  // of quotes and lists within each other

function link(text, address) {
  let url = null;
  try {
    url = new URL(address);
  } catch (error) {
    return document.createTextNode(`${text} (${address})`);
  }
  if (url.protocol !== "https:" && url.protocol !== "http:") return document.createTextNode(`${text} (${address})`);
  return make("a", { href: url.href, target: "_blank", rel: "noopener noreferrer", referrerpolicy: "no-referrer" }, text || url.href);
}

// Each piece of inline markup: what it begins with, and [its end in `text`, its element] or null. All search forward
// only, so that no text costs more than its length squared.
const kInline = {
  "`": (text, at) => {
    const marks = /^`+/.exec(text.slice(at, at + 20))[0];
    const end = text.indexOf(marks, at + marks.length);
    return end < 0 ? null : [end + marks.length, make("code", {}, text.slice(at + marks.length, end).trim())];
  },
  "*": (text, at, depth) => {
    const strong = text.startsWith("**", at);
    const marks = strong ? "**" : "*";
    const from = at + marks.length;
    const end = text.indexOf(marks, from + 1);
    if (end < 0 || /\s/.test(text[from]) || /\s/.test(text[end - 1])) return null;
    if (!strong && /\w/.test(text[at - 1] || " ")) return null;
    return [end + marks.length, addInline(make(strong ? "strong" : "em"), text.slice(from, end), depth + 1)];
  },
  "[": (text, at) => {
    const middle = text.indexOf("](", at);
    const end = middle < 0 ? -1 : text.indexOf(")", middle);
    const address = text.slice(middle + 2, end);
    if (end < 0 || text.slice(at, end).includes("\n") || /\s/.test(address)) return null;
    return [end + 1, link(text.slice(at + 1, middle), address)];
  },
};

function addInline(parent, text, depth = 0) {
  let plain = 0;  // where the text begins that is not yet added
  for (let at = 0; at < text.length && depth < kMaxDepth; ++at) {
    const found = kInline[text[at]] && kInline[text[at]](text, at, depth);
    if (!found) continue;
    parent.append(text.slice(plain, at), found[1]);
    plain = found[0];
    at = plain - 1;
  }
  parent.append(text.slice(plain));
  return parent;
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
}

function tableOf(lines) {
  const row = (line, kind) => make("tr", {}, ...cells(line).map((cell) => addInline(make(kind), cell)));
  return make("div", { class: "scrolled" },
      make("table", {}, row(lines[0], "th"), ...lines.slice(2).map((line) => row(line, "td"))));
}

function listOf(lines) {
  const ordered = /^\s*\d+[.)]\s/.test(lines[0]);
  const list = make(ordered ? "ol" : "ul");
  if (ordered) list.setAttribute("start", parseInt(lines[0], 10));
  for (const line of lines) {
    const item = /^\s*(?:[-*+]|\d+[.)])\s+(.*)$/.exec(line);
    if (item) list.append(addInline(make("li"), item[1]));
    else if (list.lastChild) addInline(list.lastChild, `\n${line.trim()}`);
  }
  return list;
}

const kListItem = /^\s*([-*+]|\d+[.)])\s/;

// One block: lines without a blank one between them, or a fence.
function blockOf(text, depth = 0) {
  const lines = text.split("\n");
  const fence = kFence.exec(lines[0]);
  if (fence) {
    const closed = lines.length > 1 && lines[lines.length - 1].trim().startsWith(fence[1]);
    return make("pre", {}, make("code", {}, lines.slice(1, closed ? -1 : undefined).join("\n")));
  }
  while (lines.length > 1 && !lines[lines.length - 1].trim()) lines.pop();
  const heading = kHeading.exec(lines[0]);
  if (heading) return addInline(make(`h${Math.min(6, heading[1].length + 2)}`), heading[2]);
  if (/^ {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$/.test(lines[0]) && lines.length === 1) return make("hr");
  if (lines.length > 1 && lines[0].includes("|") && /^[\s|:-]+$/.test(lines[1])) return tableOf(lines);
  if (depth < kMaxDepth && lines.every((line) => line.startsWith(">"))) {
    return make("blockquote", {}, blockOf(lines.map((line) => line.replace(/^> ?/, "")).join("\n"), depth + 1));
  }
  if (kListItem.test(lines[0])) return listOf(lines);
  const first = depth < kMaxDepth ? lines.findIndex((line) => kListItem.test(line)) : -1;
  if (first > 0) {
    return make("div", {}, addInline(make("p"), lines.slice(0, first).join("\n")),
        blockOf(lines.slice(first).join("\n"), depth + 1));
  }
  return addInline(make("p"), lines.join("\n"));
}

export class MarkdownStream {
  constructor(parent) {
    this.parent = parent;
    this.open = "";  // text of the last block
    this.shown = null;  // its element
  }

  // Where the first block of the open text ends: [end, begin of the next], or null.
  border() {
    const fence = kFence.exec(this.open.split("\n", 1)[0]);
    if (fence) {
      const closing = new RegExp(`\\n {0,3}${fence[1]}[${fence[1][0]}]* *\\n`).exec(this.open);
      return closing ? [closing.index + closing[0].length - 1, closing.index + closing[0].length] : null;
    }
    const blank = /\n[ \t]*\n/.exec(this.open);
    const opening = kHeading.test(this.open.split("\n", 1)[0]) ? /\n/.exec(this.open) : kOpening.exec(this.open);
    if (opening && (!blank || opening.index < blank.index)) return [opening.index, opening.index + 1];
    if (blank) return [blank.index, blank.index + blank[0].length];
    if (this.open.length < kMaxOpenBlock) return null;
    const line = this.open.lastIndexOf("\n");
    return line > 0 ? [line, line + 1] : [this.open.length, this.open.length];
  }

  append(text) {
    this.open += text;
    let closed = null;
    for (;;) {
      this.open = this.open.replace(/^(?:[ \t]*\n)+/, "");
      const border = this.border();
      if (!border) break;
      closed = blockOf(this.open.slice(0, border[0]));
      this.open = this.open.slice(border[1]);
      if (this.shown) this.shown.replaceWith(closed);
      else this.parent.append(closed);
      this.shown = null;
    }
    if (!this.open.trim()) return;
    // Of an open fence, whose first line is complete; what may close it is looked at with the rest.
    const known = this.open.length - text.length;
    if (closed === null && this.shown && this.shown.localName === "pre" && this.open.lastIndexOf("\n", known - 1) > 0 &&
        !/[`~]/.test(this.open.slice(this.open.lastIndexOf("\n", known - 1) + 1))) {
      this.shown.firstChild.firstChild.appendData(text);
      return;
    }
    const block = blockOf(this.open);
    if (this.shown) this.shown.replaceWith(block);
    else this.parent.append(block);
    this.shown = block;
  }
}

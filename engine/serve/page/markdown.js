// A model's text as elements: the parts of Markdown that models write. Everything else stays the text
// that it is. A block that has not changed keeps its elements, so that a stream redraws its end alone.

const blockStarts = /^(?:\s*```|#{1,6} |> ?|\s*(?:[-*+]|\d{1,9}[.)]) |\|| {0,3}(?:-{3,}|\*{3,}|_{3,})\s*$)/;

// [{kind, text, ...}]; `text` is the block's source.
function blocksOf(text) {
  const lines = text.split("\n"), blocks = [];
  for (let at = 0; at < lines.length;) {
    const line = lines[at];
    if (!line.trim()) { at += 1; continue; }
    const from = at;
    const takeWhile = test => { while (at < lines.length && test(lines[at])) at += 1; };
    const fence = /^(\s*)(`{3,})([^`]*)$/.exec(line);
    if (fence) {
      at += 1;
      takeWhile(one => !(one.trim().startsWith(fence[2]) && !one.trim().replace(/`/g, "")));
      const body = lines.slice(from + 1, at).map(one => one.startsWith(fence[1]) ? one.slice(fence[1].length) : one);
      blocks.push({kind: "code", language: fence[3].trim(), text: body.join("\n")});
      at += 1;
      continue;
    }
    at += 1;
    if (/^#{1,6} /.test(line)) {
      blocks.push({kind: "heading", text: line});
    } else if (/^ {0,3}(?:-{3,}|\*{3,}|_{3,})\s*$/.test(line)) {
      blocks.push({kind: "rule", text: line});
    } else if (/^> ?/.test(line)) {
      takeWhile(one => /^> ?/.test(one));
      blocks.push({kind: "quote", text: lines.slice(from, at).map(one => one.replace(/^> ?/, "")).join("\n")});
    } else if (/^\s*(?:[-*+]|\d{1,9}[.)]) /.test(line)) {
      takeWhile((one, next) => /^\s*(?:[-*+]|\d{1,9}[.)]) /.test(one) || /^\s+\S/.test(one));
      blocks.push({kind: "list", text: lines.slice(from, at).join("\n")});
    } else if (line.startsWith("|") && /^\|[\s:|-]+\|?\s*$/.test(lines[at] ?? "")) {
      takeWhile(one => one.startsWith("|"));
      blocks.push({kind: "table", text: lines.slice(from, at).join("\n")});
    } else {
      takeWhile(one => one.trim() && !blockStarts.test(one));
      blocks.push({kind: "paragraph", text: lines.slice(from, at).join("\n")});
    }
  }
  return blocks;
}

const spans = /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|\*\*(?=\S)([\s\S]*?\S)\*\*|\*(?=[^\s*])([^*\n]*?[^\s*])\*|\[([^\]\n]{1,300})\]\((https?:\/\/[^\s()]{1,2000})\)/;

function inline(text) {
  const parts = [];
  for (let found; (found = spans.exec(text));) {
    if (found.index) parts.push(text.slice(0, found.index));
    const [whole, , code, bold, italic, label, address] = found;
    if (code !== undefined) parts.push(make("code", {}, code.replace(/^ (.*) $/, "$1")));
    else if (bold !== undefined) parts.push(make("strong", {}, ...inline(bold)));
    else if (italic !== undefined) parts.push(make("em", {}, ...inline(italic)));
    else parts.push(make("a", {href: address, target: "_blank", rel: "noopener noreferrer", title: address}, label));
    text = text.slice(found.index + whole.length);
  }
  if (text) parts.push(text);
  return parts;
}

function listOf(text) {
  const items = [];
  for (const line of text.split("\n")) {
    const [, indent, mark, rest] = /^(\s*)([-*+]|\d{1,9}[.)]) (.*)$/.exec(line) ?? [];
    if (mark && (!items.length || indent.length < items[0].indent + 2)) items.push({indent: indent.length, mark, own: rest, inner: []});
    else if (items.length) items.at(-1).inner.push(line);
  }
  const ordered = /\d/.test(items[0]?.mark ?? "");
  const list = make(ordered ? "ol" : "ul", ordered ? {start: Number.parseInt(items[0].mark, 10)} : {});
  for (const {own, inner} of items) {
    const nested = inner.findIndex(line => /^\s*(?:[-*+]|\d{1,9}[.)]) /.test(line));
    const more = (nested < 0 ? inner : inner.slice(0, nested)).map(line => line.trim());
    const item = make("li", {}, ...inline([own, ...more].join("\n")));
    if (nested >= 0) item.append(listOf(inner.slice(nested).join("\n")));
    list.append(item);
  }
  return list;
}

function tableOf(text) {
  const cells = line => line.replace(/^\||\|\s*$/g, "").split("|").map(cell => cell.trim());
  const [head, , ...rows] = text.split("\n");
  const row = (name, line) => make("tr", {}, ...cells(line).map(cell => make(name, {}, ...inline(cell))));
  return make("table", {}, make("thead", {}, row("th", head)), make("tbody", {}, ...rows.map(line => row("td", line))));
}

function elementOf({kind, text, language}) {
  switch (kind) {
    case "code":
      return make("div", {class: "code"}, make("div", {}, language, copyButton(() => text, {class: "plain"})),
                  make("pre", {tabindex: 0}, make("code", {}, text)));
    case "heading": {
      const level = text.indexOf(" ");
      return make(level < 3 ? "h3" : "h4", {}, ...inline(text.slice(level + 1)));
    }
    case "rule":
      return make("hr");
    case "quote":
      return make("blockquote", {}, ...inline(text));
    case "list":
      return listOf(text);
    case "table":
      return tableOf(text);
    default:
      return make("p", {}, ...text.split("\n").flatMap((line, index) => index ? [make("br"), ...inline(line)] : inline(line)));
  }
}

// Draws `text` into `place`, which nothing else writes to.
function drawMarkdown(place, text) {
  const blocks = blocksOf(text), drawn = place.blocks ?? [];
  let same = 0;
  const isDrawn = ({kind, text, language}, old) => old?.kind === kind && old.text === text && old.language === language;
  while (same < blocks.length && isDrawn(blocks[same], drawn[same])) same += 1;
  while (place.childNodes.length > same) place.lastChild.remove();
  place.append(...blocks.slice(same).map(elementOf));
  place.blocks = blocks;
}

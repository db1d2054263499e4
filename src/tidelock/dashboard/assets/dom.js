// Creates elements. Names of tables and writers are untrusted, so they are only inserted as text.

export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  apply(node, props);
  append(node, children);
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, props = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  apply(node, props);
  append(node, children);
  return node;
}

function apply(node, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function fill(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

export function panel(title, width, ...body) {
  const more = h("span", { class: "more" });
  const content = h("div", { class: "body" }, body);
  const node = h("section", { class: `panel ${width}`, "aria-label": title }, h("header", {}, h("h2", {}, title), more), content);
  return { node, body: content, more };
}

export function tableOf(heads, rows, empty) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  return h("table", {}, h("thead", {}, h("tr", {}, heads.map((head) => h("th", head.props || {}, head.text ?? head)))), h("tbody", {}, rows));
}

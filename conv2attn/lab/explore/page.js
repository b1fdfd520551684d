// What is chosen, and how every part of the page follows it.

const data = JSON.parse(document.getElementById("data").textContent);
const state = { view: data.views[0], leading: null, layer: null, head: 0, query: [0, 0], alpha: null, channel: 0, carried: null, convolution: null };
const at = (id) => document.getElementById(id);
const MARKS = { query: "#fff", most: "#f0e442" };

function digits(value) {
  return value === 0 ? "0" : Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5 ? value.toExponential(2) : value.toPrecision(4);
}

function pair([row, column]) {
  return `(${[row, column].map((value) => (Number.isInteger(value) ? value : value.toFixed(2))).join(", ")})`.replaceAll("-", "−");
}

// The rows of a list of numbers; the unrounded value stays in the attribute data-value.
function list(id, rows) {
  at(id).replaceChildren(...rows.flatMap(([name, key, value, text]) => {
    const [term, found] = [document.createElement("dt"), document.createElement("dd")];
    term.textContent = name;
    Object.assign(found, { id: key, textContent: text ?? digits(value) });
    found.dataset.value = value;
    return [term, found];
  }));
}

function mostOf(row, layer) {
  const place = row.reduce((most, value, key) => (value > row[most] ? key : most), 0);
  return [Math.floor(place / layer.keys[1]), place % layer.keys[1]];
}

// Another image, or another quantity of the same layers; layer, head and query stay where the view has them.
function chooseView(number) {
  state.view = data.views[number];
  const { photo, layers } = state.view;
  if (photo && !ArrayBuffer.isView(photo.pixels)) photo.pixels = unpack(photo.pixels);
  const chosen = Math.max(0, layers.findIndex(({ name }) => name === state.layer?.name));
  const { query } = state;
  at("layer").replaceChildren(...layers.map((layer, place) => new Option(`${layer.name} (${layer.heads} heads)`, place)));
  at("layer").value = chosen;
  fillMatrix();
  chooseLayer(chosen);
  if (number !== 0) moveTo(query);
}

function chooseLayer(number) {
  const layer = (state.layer = state.view.layers[number]);
  for (const name of ["picture", "scores", "attention", "outside"]) if (layer[name] && !ArrayBuffer.isView(layer[name])) layer[name] = unpack(layer[name]);
  state.head = Math.min(state.head, layer.heads - 1);
  state.query = layer.queries.map((side) => Math.floor(side / 2));
  state.channel = 0;
  if (layer.leading && !ArrayBuffer.isView(layer.leading.attention)) layer.leading.attention = unpack(layer.leading.attention);
  state.leading = layer.leading ? state.leading : null;
  at("asking").hidden = !layer.leading;
  at("token").replaceChildren(new Option("the pixel in the frame", ""), ...Array.from({ length: layer.leading ? layer.extra : 0 }, (_, token) => new Option(`leading token ${token}`, token)));
  at("token").value = state.leading ?? "";
  const output = layer.output;
  if (output && !ArrayBuffer.isView(output.input)) [output.input, output.taps] = [unpack(output.input), unpack(output.taps)];
  state.carried = output && carriedImages(layer);
  state.convolution = output && convolutionOutput(layer, state.carried);
  at("sharpness").hidden = !layer.converted;
  at("output-section").hidden = at("kernel-section").hidden = !output;
  if (layer.converted) {
    at("alpha").value = Math.log2(Math.min(Math.max(Math.max(...layer.alphas), 1), 128));
    at("output-help").textContent = output
      ? `Output channel ${output.channel}, the one that varies most on the image. Blue is negative, orange is positive. Move α down ` +
        "and the attention blurs; move it up and the difference vanishes."
      : "";
  }
  const padding = layer.padding.some((amount) => amount > 0) ? `, padding included` : "";
  at("geometry").textContent =
    `${layer.heads} heads, ${layer.channels ? `${layer.channels.join(" to ")} channels, ` : ""}${layer.queries.join(" × ")} queries, ` +
    `${layer.keys.join(" × ")} keys${padding}. ` +
    (layer.extra ? `Leading tokens taken for no pixels, such as a class token: ${layer.extra}. ` : "") +
    (layer.kind === "stored" ? `Attention is right within ${layer.bits === 8 ? "0.4" : "7"} % of the largest weight of each head. ` : "") +
    (layer.terms ? `Scores: ${layer.terms}. ` : "") +
    (state.view.scores ? "Shown are scores before the softmax, above the lowest of each query. " : "") +
    (layer.converted ? "As α grows, this layer tends to a convolution: one head per tap." : "");
  fillChannels(output);
  fillHeads(layer);
  showFacts(layer);
  chooseAlpha();
}

function fillChannels(output) {
  at("input-channel").replaceChildren(...Array.from({ length: output?.width ?? 0 }, (_, channel) => new Option(output.first + channel, channel)));
}

function fillHeads(layer) {
  at("heads").replaceChildren(at("heads").firstElementChild, ...Array.from({ length: layer.heads }, (_, head) => {
    const [label, radio, canvas] = ["label", "input", "canvas"].map((tag) => document.createElement(tag));
    Object.assign(radio, { type: "radio", name: "head", value: head, checked: head === state.head });
    canvas.setAttribute("aria-hidden", "true");
    const name = document.createElement("span");
    name.textContent = layer.centers ? `${head}: ${pair(layer.centers[head])}` : `${head}`;
    label.append(radio, name, canvas);
    return label;
  }));
}

function chooseAlpha() {
  state.alpha = state.layer.converted ? 2 ** at("alpha").value : null;
  at("alpha-value").textContent = at("alpha-caption").textContent = state.alpha === null ? "" : digits(state.alpha);
  at("alpha-value").dataset.value = state.alpha;
  at("alpha").setAttribute("aria-valuetext", `alpha ${at("alpha-value").textContent}`);
  if (state.layer.output) showOutput();
  showHead();
  showQuery();
}

function showOutput() {
  const { layer, carried, convolution, alpha } = state;
  const found = attentionOutput(layer, carried, alpha);
  const difference = found.map((value, place) => value - convolution[place]);
  const most = largest(convolution);
  paintSigned(at("output-convolution"), convolution, layer.queries, 320, most);
  paintSigned(at("output-attention"), found, layer.queries, 320, most);
  paintSigned(at("output-difference"), difference, layer.queries, 320, largest(difference));
  list("output-numbers", [
    ["largest difference", "difference", largestDifference(found, convolution)],
    ["largest output of the convolution", "largest-output", most],
    ["largest leak of any head and query", "worst-leak", worstLeak(layer, alpha)],
  ]);
}

// What depends on the head, and not on the query.
function showHead() {
  const number = state.view.layers.indexOf(state.layer);
  document.querySelectorAll("#matrix button").forEach((each) => {
    each.setAttribute("aria-pressed", Number(each.dataset.layer) === number && Number(each.dataset.head) === state.head);
  });
  const { layer, head, alpha } = state;
  const mean = meanByDisplacement(layer, head, alpha);
  const shown = layer.keys.map((side) => Math.min(side - 1, 8));
  const across = 2 * layer.keys[1] - 1;
  const [rows, columns] = shown.map((reach) => 2 * reach + 1);
  const cut = Float64Array.from({ length: rows * columns }, (_, place) => {
    const row = Math.floor(place / columns) - shown[0] + layer.keys[0] - 1;
    return mean[row * across + (place % columns) - shown[1] + layer.keys[1] - 1];
  });
  paintShares(at("mean"), cut, [rows, columns], 320, [{ row: shown[0], column: shown[1], colour: MARKS.query }]);
  const inside = cut.reduce((sum, value) => sum + value, 0);
  at("mean-help").textContent = `Head ${head}, all queries: the attention at each displacement key − query, up to ` +
    `${shown.join(" and ")} rows and columns, ${digits(100 * inside)} % of the whole. White frame: the query itself.`;
  if (layer.output) showKernel();
}

function showKernel() {
  const { layer, head, channel } = state;
  const { taps, width } = layer.output;
  const [rows, columns] = [0, 1].map((axis) => [...new Set(layer.centers.map((center) => center[axis]))].sort((a, b) => a - b));
  const values = layer.centers.map((_, each) => taps[each * width + channel]);
  const most = largest(values) || 1;
  const kernel = rows.map((row) => columns.map((column) => layer.centers.findIndex(([r, c]) => r === row && c === column)));
  at("kernel").replaceChildren(...kernel.map((heads) => {
    const line = document.createElement("tr");
    line.append(...heads.map((each) => {
      const cell = document.createElement("td");
      if (each < 0) return cell;
      const colour = diverging(values[each] / most).map((part) => Math.round(128 + part / 2));
      cell.style.background = `rgb(${colour.join(" ")})`;
      cell.textContent = values[each].toFixed(columns.length > 5 ? 2 : 3).replace("-", "−");
      cell.title = `head ${each}, offset ${pair(layer.centers[each])}`;
      if (each === head) cell.setAttribute("aria-current", "true");
      return cell;
    }));
    return line;
  }));
  at("kernel").classList.toggle("wide", columns.length > 5);
  at("kernel").setAttribute("aria-label", `Kernel of ${rows.length} by ${columns.length} taps`);
  at("kernel-help").textContent = `Head ${head} carries the tap in the frame, at offset ${pair(layer.centers[head])}: ` +
    `the weight from input channel ${layer.output.first + channel} to output channel ${layer.output.channel}.`;
}

function percent(value) {
  return value === null ? "–" : `${Math.round(100 * value)} %`.replace("-0 ", "0 ");
}

// A fact of a head in its unit, as the columns of the page name it.
function inUnit(value, unit) {
  if (unit === "share") return percent(value);
  if (unit === "displacement") return pair(value);
  return typeof value === "number" ? digits(value) : value ?? "–";
}

function line(tag, cells) {
  const row = document.createElement("tr");
  row.append(...cells.map((text) => Object.assign(document.createElement(tag), { textContent: text })));
  return row;
}

// The graded facts, which `conv2attn heads` prints; a row for each head.
function showFacts({ facts, heads }) {
  at("facts-section").hidden = !facts;
  if (!facts) return;
  at("facts-help").textContent = `Shares of the attention's energy that position and content explain, and other facts of each head, ` +
    `on ${facts.grid.join(" × ")} pixels, at the sharpness of the file. One image does not tell content from position: – stands for that.`;
  at("facts").setAttribute("aria-label", "Measured facts of each head");
  at("facts").replaceChildren(
    line("th", ["head", ...facts.columns.map(({ title }) => title)]),
    ...Array.from({ length: heads }, (_, head) => {
      const one = facts.heads[head];
      const row = line("td", [head, ...facts.columns.map(({ name, unit }) => inUnit(one[name], unit))]);
      facts.columns.forEach(({ name, unit }, place) => {
        if (unit === "share") row.children[place + 1].dataset.value = one[name];
      });
      return row;
    }));
  at("span-section").hidden = !facts.span;
  if (!facts.span) return;
  at("span-help").textContent = "How much of each shift of a 3 × 3 kernel lies in the span of the heads, over all queries. Whether they can express every such convolution, conv2attn check-span decides.";
  at("span").replaceChildren(...[0, 1, 2].map((row) => {
    const cells = line("td", facts.span.slice(3 * row, 3 * row + 3).map(percent));
    [...cells.children].forEach((cell, column) => {
      const value = facts.span[3 * row + column];
      cell.dataset.value = value;
      cell.style.background = `rgb(${between(WHITE, ORANGE, 1 - value).map(Math.round).join(" ")})`;
      cell.title = `offset ${pair([row - 1, column - 1])}`;
    });
    return cells;
  }));
}

// What depends on the query.
function showQuery() {
  const { layer, head, query, alpha } = state;
  const rows = Array.from({ length: layer.heads }, (_, each) => (state.leading === null ? attentionRow(layer, each, query, alpha) : leadingRow(layer, each, state.leading)));
  const row = rows[head];
  const most = mostOf(row, layer);
  const weight = row[most[0] * layer.keys[1] + most[1]];
  const site = [0, 1].map((axis) => siteOf(layer, axis, query[axis]));
  const framed = [{ row: site[0], column: site[1], colour: MARKS.query }];
  const marks = [...framed, { row: most[0], column: most[1], colour: MARKS.most }];
  paint(at("image"), layer.picture, layer.keys, 352, greyscale, marks);
  const { photo } = state.view;
  if (photo && layer.kind === "stored") paintOver(at("attention"), photo, row, layer.keys, 352, marks);
  else paintShares(at("attention"), row, layer.keys, 352, framed);
  at("most").textContent = digits(weight);
  const entropy = row.reduce((sum, value) => sum - (value > 0 ? value * Math.log(value) : 0), 0);
  const displacement = [most[0] - site[0], most[1] - site[1]];
  list("numbers", [
    ...(layer.centers ? [["centre, in pixels", "center", pair(layer.centers[head]), pair(layer.centers[head])]] : []),
    ...(layer.kind === "quadratic" && !layer.converted ? [["α", "head-alpha", layer.alphas[head]]] : []),
    ["looks most at displacement", "displacement", pair(displacement), pair(displacement)],
    [state.view.scores ? "with a score above the lowest of" : "with weight", "weight", weight],
    ...(layer.converted ? [["leak: attention off the tap", "leak", leakOf(layer, head, query, alpha)]] : []),
    ...(state.view.scores ? [] : [["pixels it spreads over (e to the entropy)", "spread", Math.exp(entropy)]]),
    ...(layer.strength ? [["norm of its channel matrix", "strength", layer.strength[head]]] : []),
    ...(layer.extra ? [["attention to tokens that are no pixels", "extra", layer.outside[(head * layer.queries[0] + query[0]) * layer.queries[1] + query[1]]]] : []),
  ]);
  if (at("sheet").checked) paintSheet();
  [...at("facts").rows].forEach((row, place) => row.toggleAttribute("data-chosen", place === head + 1));
  document.querySelectorAll("#heads canvas").forEach((canvas, each) => {
    const { cut, sides, first } = around(rows[each], layer.keys, site);
    paintShares(canvas, cut, sides, 85, [{ row: site[0] - first[0], column: site[1] - first[1], colour: MARKS.query }]);
  });
  const asked = state.leading === null ? `Query ${pair(query)}` : `Leading token ${state.leading}`;
  at("told").textContent = `${asked}: head ${head} looks most at displacement ${pair(displacement)}, ` +
    (state.view.scores ? `with a score of ${digits(weight)} above its lowest.` : `with ${digits(100 * weight)} % of its attention.`);
}

function moveTo(query) {
  const found = query.map((place, axis) => Math.min(Math.max(place, 0), state.layer.queries[axis] - 1));
  if (found.every((place, axis) => place === state.query[axis])) return;
  state.query = found;
  showQuery();
}

function point(event) {
  const box = at("image").getBoundingClientRect();
  const share = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width];
  const { layer } = state;
  moveTo(share.map((part, axis) => Math.round((Math.floor(part * layer.keys[axis]) - layer.before[axis]) / layer.stride[axis])));
}

// Thumbnails of every head of every layer; a click shows that head large. Shifts alone look alike, and are folded.
function fillMatrix() {
  const { layers } = state.view;
  if (layers.some(({ facts }) => !facts)) at("sheet").checked = true;
  at("matrix-help").textContent = at("sheet").checked
    ? "What the query chosen below attends to, through every head, each on its own scale; in layers with another grid the query at the same place. Choose one to see it below."
    : "Displacement 0 is in the middle of each, each on its own scale. Choose one to see it below.";
  at("matrix").replaceChildren(...layers.map((layer, number) => {
    const [fold, title, row] = ["details", "summary", "div"].map((tag) => document.createElement(tag));
    const shifts = Boolean(layer.facts) && layer.facts.heads.every(({ kind }) => ["shift", "itself"].includes(kind));
    title.textContent = shifts ? `${layer.name}: ${layer.heads} heads, each at one displacement` : layer.name;
    row.append(...Array.from({ length: layer.heads }, (_, head) => thumbnail(layer, number, head)));
    fold.open = !shifts;
    fold.append(title, row);
    return fold;
  }));
}

// Every head of every layer from the query chosen: its place in another grid is the same share of the sides.
function paintSheet() {
  const { layer, query, view } = state;
  document.querySelectorAll("#matrix button").forEach((button) => {
    const [other, head] = [view.layers[button.dataset.layer], Number(button.dataset.head)];
    for (const name of ["scores", "attention"]) if (other[name] && !ArrayBuffer.isView(other[name])) other[name] = unpack(other[name]);
    const there = query.map((place, axis) => Math.floor(((place + 0.5) / layer.queries[axis]) * other.queries[axis]));
    paintShares(button.querySelector("canvas"), attentionRow(other, head, there, null), other.keys, 52, [{ row: siteOf(other, 0, there[0]), column: siteOf(other, 1, there[1]), colour: MARKS.query }]);
  });
}

function thumbnail(layer, number, head) {
  const [button, canvas, kind] = ["button", "canvas", "small"].map((tag) => document.createElement(tag));
  button.title = `${layer.name}, head ${head}`;
  if (layer.facts) {
    const { sides, values } = layer.facts.thumbnails[head];
    const { kind: word, peak, peak_mass: mass } = layer.facts.heads[head];
    paintShares(canvas, Float64Array.from(values, (code) => code / 99), sides.length > 1 ? sides : [1, sides[0]], 52, []);
    kind.textContent = word;
    button.title += `: ${word}, ${digits(100 * mass)} % at ${pair(peak)}`;
  }
  canvas.setAttribute("aria-hidden", "true");
  button.type = "button";
  button.setAttribute("aria-label", button.title);
  Object.assign(button.dataset, { layer: number, head });
  button.append(canvas, kind);
  button.addEventListener("click", () => {
    at("layer").value = number;
    state.head = head;
    chooseLayer(number);
    at("controls").scrollIntoView({ block: "start" });
  });
  return button;
}

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
at("image").addEventListener("pointermove", point);
at("image").addEventListener("pointerdown", point);
at("image").addEventListener("keydown", (event) => {
  const step = STEPS[event.key];
  if (!step) return;
  event.preventDefault();
  moveTo(state.query.map((place, axis) => place + step[axis]));
});
at("layer").addEventListener("change", () => chooseLayer(Number(at("layer").value)));
at("alpha").addEventListener("input", chooseAlpha);
at("input-channel").addEventListener("change", () => {
  state.channel = Number(at("input-channel").value);
  showKernel();
});
at("heads").addEventListener("change", (event) => {
  state.head = Number(event.target.value);
  showHead();
  showQuery();
});
at("about").textContent = `Choose a layer and a head, and see what each query attends to. The image is ${data.image}.`;
at("precision").hidden = !state.view.layers.some((layer) => layer.converted);
at("left-out").replaceChildren(...data.leftOut.map((reason) => Object.assign(document.createElement("p"), { textContent: `Not shown: ${reason}.` })));
at("viewing").hidden = data.views.length < 2;
at("view").replaceChildren(...data.views.map(({ name }, number) => new Option(name, number)));
at("view").addEventListener("change", () => chooseView(Number(at("view").value)));
at("token").addEventListener("change", () => {
  state.leading = at("token").value === "" ? null : Number(at("token").value);
  showQuery();
});
at("sheet").addEventListener("change", () => {
  fillMatrix();
  showHead();
  showQuery();
});
chooseView(0);

"use strict";
// Attention, leaks and outputs of a layer in double precision, from its centres and alpha or from its scores.

const ARRAYS = { f64: Float64Array, f32: Float32Array, u8: Uint8Array };

function unpack(packed) {
  const [code, text] = Object.entries(packed)[0];
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new ARRAYS[code](bytes.buffer);
}

// What a leading token, such as a class token, attends to through one head: a weight per key.
function leadingRow(layer, head, token) {
  const { leading, extra } = layer;
  const keys = layer.keys[0] * layer.keys[1];
  const start = (head * extra + token) * keys;
  return Float64Array.from(leading.attention.subarray(start, start + keys), (code) => leading.largest[head] * (code / 255) ** 2);
}

function siteOf(layer, axis, query) {
  return layer.before[axis] + layer.stride[axis] * query;
}

// The softmax of -alpha (key - site - centre)^2 along one axis: one row of weights per query.
function axisAttention(layer, head, axis, alpha) {
  const rows = [];
  for (let query = 0; query < layer.queries[axis]; query++) {
    const middle = siteOf(layer, axis, query) + layer.centers[head][axis];
    const nearest = Math.min(Math.max(Math.round(middle), 0), layer.keys[axis] - 1);
    const least = (nearest - middle) ** 2;
    const row = new Float64Array(layer.keys[axis]);
    let sum = 0;
    for (let key = 0; key < row.length; key++) sum += row[key] = Math.exp(-alpha * ((key - middle) ** 2 - least));
    rows.push(row.map((weight) => weight / sum));
  }
  return rows;
}

function alphaOf(layer, head, alpha) {
  return layer.converted && alpha !== null ? alpha : layer.alphas[head];
}

// What one query attends to through one head: a weight per key, row-major.
function attentionRow(layer, head, [row, column], alpha) {
  const [height, width] = layer.keys;
  const found = new Float64Array(height * width);
  if (layer.kind === "stored") {
    const start = ((head * layer.queries[0] + row) * layer.queries[1] + column) * found.length;
    const most = layer.largest[head];
    if (layer.bits === 8) return Float64Array.from(layer.attention.subarray(start, start + found.length), (code) => most * (code / 255) ** 2);
    return found.map((_, k) => most * (((layer.attention[(start + k) >> 1] >> (4 * ((start + k) & 1))) & 15) / 15) ** 2);
  }
  if (layer.kind === "quadratic") {
    const [down, across] = axesOf(layer, head, alpha);
    for (let k = 0; k < found.length; k++) found[k] = down[row][Math.floor(k / width)] * across[column][k % width];
    return found;
  }
  const [top, left] = [siteOf(layer, 0, row), siteOf(layer, 1, column)];
  const across = 2 * width - 1;
  const start = head * (2 * height - 1) * across;
  let most = -Infinity;
  for (let k = 0; k < found.length; k++) {
    const down = Math.floor(k / width) - top + height - 1;
    found[k] = layer.scores[start + down * across + (k % width) - left + width - 1];
    most = Math.max(most, found[k]);
  }
  let sum = 0;
  for (let k = 0; k < found.length; k++) sum += found[k] = Math.exp(found[k] - most);
  return found.map((weight) => weight / sum);
}

// Rows of both axes of a quadratic head, kept for the last alpha.
function axesOf(layer, head, alpha) {
  const sharpness = alphaOf(layer, head, alpha);
  layer.axes ??= [];
  if (layer.axes[head]?.alpha !== sharpness) {
    layer.axes[head] = { alpha: sharpness, rows: [0, 1].map((axis) => axisAttention(layer, head, axis, sharpness)) };
  }
  return layer.axes[head].rows;
}

// The attention of one query of one axis that misses the target, summed without the target: no cancellation.
function axisLeak(layer, head, axis, query, alpha) {
  const target = siteOf(layer, axis, query) + layer.centers[head][axis];
  let missed = 0;
  for (let key = 0; key < layer.keys[axis]; key++) if (key !== target) missed += Math.exp(-alpha * (key - target) ** 2);
  return missed / (1 + missed);
}

function both(first, second) {
  return first + second - first * second;
}

// The share of attention that does not reach the tap of the convolution.
function leakOf(layer, head, query, alpha) {
  return both(axisLeak(layer, head, 0, query[0], alpha), axisLeak(layer, head, 1, query[1], alpha));
}

function worstLeak(layer, alpha) {
  let worst = 0;
  for (let head = 0; head < layer.heads; head++) {
    const most = [0, 1].map((axis) => {
      const leaks = Array.from({ length: layer.queries[axis] }, (_, query) => axisLeak(layer, head, axis, query, alpha));
      return Math.max(...leaks);
    });
    worst = Math.max(worst, both(...most));
  }
  return worst;
}

// The input seen through the weights of each head: one image of keys per head, for the output channel that is shown.
function carriedImages(layer) {
  const { input, taps, width } = layer.output;
  const keys = layer.keys[0] * layer.keys[1];
  return Array.from({ length: layer.heads }, (_, head) => {
    const image = new Float64Array(keys);
    for (let channel = 0; channel < width; channel++) {
      const weight = taps[head * width + channel];
      for (let key = 0; key < keys; key++) image[key] += weight * input[channel * keys + key];
    }
    return image;
  });
}

// The output channel of the convolution: every query reads its targets.
function convolutionOutput(layer, carried) {
  const [height, width] = layer.queries;
  return Float64Array.from({ length: height * width }, (_, query) => {
    const site = [siteOf(layer, 0, Math.floor(query / width)), siteOf(layer, 1, query % width)];
    return layer.centers.reduce(
      (sum, [row, column], head) => sum + carried[head][(site[0] + row) * layer.keys[1] + site[1] + column],
      layer.output.bias,
    );
  });
}

// The output channel of the attention: each head mixes columns, then rows.
function attentionOutput(layer, carried, alpha) {
  const [height, width] = layer.queries;
  const [rows, columns] = layer.keys;
  const found = new Float64Array(height * width).fill(layer.output.bias);
  for (let head = 0; head < layer.heads; head++) {
    const [down, across] = axesOf(layer, head, alpha);
    const mixed = new Float64Array(rows * width);
    for (let row = 0; row < rows; row++) {
      for (let q = 0; q < width; q++) {
        let sum = 0;
        for (let k = 0; k < columns; k++) sum += across[q][k] * carried[head][row * columns + k];
        mixed[row * width + q] = sum;
      }
    }
    for (let p = 0; p < height; p++) {
      for (let q = 0; q < width; q++) {
        for (let row = 0; row < rows; row++) found[p * width + q] += down[p][row] * mixed[row * width + q];
      }
    }
  }
  return found;
}

function largestDifference(first, second) {
  return first.reduce((most, value, place) => Math.max(most, Math.abs(value - second[place])), 0);
}

// The mean over the queries of an axis of the attention at each displacement from them.
function axisMean(layer, axis, rows) {
  const mean = new Float64Array(2 * layer.keys[axis] - 1);
  rows.forEach((row, query) => {
    const start = layer.keys[axis] - 1 - siteOf(layer, axis, query);
    row.forEach((weight, key) => (mean[start + key] += weight / rows.length));
  });
  return mean;
}

// The mean over all queries of the attention at each displacement from them; it sums to 1.
function meanByDisplacement(layer, head, alpha) {
  const [height, width] = layer.keys;
  const across = 2 * width - 1;
  const mean = new Float64Array((2 * height - 1) * across);
  if (layer.kind === "quadratic") {
    const [down, right] = axesOf(layer, head, alpha).map((rows, axis) => axisMean(layer, axis, rows));
    return mean.map((_, place) => down[Math.floor(place / across)] * right[place % across]);
  }
  const queries = layer.queries[0] * layer.queries[1];
  for (let query = 0; query < queries; query++) {
    const [row, column] = [Math.floor(query / layer.queries[1]), query % layer.queries[1]];
    const start = (height - 1 - siteOf(layer, 0, row)) * across + width - 1 - siteOf(layer, 1, column);
    attentionRow(layer, head, [row, column], alpha).forEach((weight, k) => {
      mean[start + Math.floor(k / width) * across + (k % width)] += weight / queries;
    });
  }
  return mean;
}

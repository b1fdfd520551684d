// Pictures: one pixel per cell, enlarged without smoothing, with frames around cells.

const CIVIDIS = [[0, 32, 76], [0, 62, 110], [71, 84, 108], [110, 112, 115], [146, 142, 119], [187, 175, 104], [225, 206, 77], [255, 234, 70]];
const BLUE = [0, 114, 178], ORANGE = [213, 94, 0], WHITE = [255, 255, 255];

function between(first, second, share) {
  return first.map((value, place) => value + (second[place] - value) * share);
}

function sequential(share) {
  const place = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1);
  const step = Math.min(Math.floor(place), CIVIDIS.length - 2);
  return between(CIVIDIS[step], CIVIDIS[step + 1], place - step);
}

function diverging(share) {
  return share < 0 ? between(WHITE, BLUE, Math.min(-share, 1)) : between(WHITE, ORANGE, Math.min(share, 1));
}

function greyscale(value) {
  return [value, value, value];
}

// Draws `values` (rows x columns) in about `size` pixels; each mark is {row, column, colour} and frames a cell.
function paint(canvas, values, [rows, columns], size, colour, marks = []) {
  const small = document.createElement("canvas");
  [small.height, small.width] = [rows, columns];
  const pixels = small.getContext("2d").createImageData(columns, rows);
  for (let k = 0; k < rows * columns; k++) pixels.data.set([...colour(values[k]), 255], 4 * k);
  small.getContext("2d").putImageData(pixels, 0, 0);
  const scale = Math.max(1, Math.floor(size / Math.max(rows, columns)));
  [canvas.height, canvas.width] = [rows * scale, columns * scale];
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  for (const { row, column, colour: line } of marks) {
    const box = Math.max(scale, size / 28);
    const [x, y] = [(column + 0.5) * scale - box / 2, (row + 0.5) * scale - box / 2];
    for (const [shade, width] of [["#000", 4], [line, 2]]) {
      context.strokeStyle = shade;
      context.lineWidth = width * Math.min(1, size / 200);
      context.strokeRect(x, y, box, box);
    }
  }
}

// The part of a picture around a cell, at most 17 rows and columns: its values, its sides and its first cell.
function around(values, [rows, columns], [row, column]) {
  const [height, width] = [Math.min(rows, 17), Math.min(columns, 17)];
  const top = Math.min(Math.max(row - 8, 0), rows - height);
  const left = Math.min(Math.max(column - 8, 0), columns - width);
  const cut = Float64Array.from({ length: height * width }, (_, place) =>
    values[(top + Math.floor(place / width)) * columns + left + (place % width)]);
  return { cut, sides: [height, width], first: [top, left] };
}

function largest(values) {
  return values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
}

function paintShares(canvas, values, sides, size, marks) {
  const most = largest(values) || 1;
  paint(canvas, values, sides, size, (value) => sequential(value / most), marks);
}

function paintSigned(canvas, values, sides, size, most, marks) {
  paint(canvas, values, sides, size, (value) => diverging(value / (most || 1)), marks);
}

// A photo (rows x columns x 3) under attention: each cell as bright and as yellow as its share of the largest.
function paintOver(canvas, photo, values, [rows, columns], size, marks) {
  const [height, width] = photo.sides;
  const most = largest(values) || 1;
  const pixels = new ImageData(width, height);
  for (let k = 0; k < height * width; k++) {
    const cell = Math.floor((Math.floor(k / width) * rows) / height) * columns + Math.floor(((k % width) * columns) / width);
    const share = Math.sqrt(values[cell] / most);
    const colour = [0, 1, 2].map((part) => photo.pixels[3 * k + part] * (0.3 + 0.7 * share));
    pixels.data.set([...between(colour, [255, 234, 70], 0.45 * share), 255], 4 * k);
  }
  const small = document.createElement("canvas");
  [small.height, small.width] = [height, width];
  small.getContext("2d").putImageData(pixels, 0, 0);
  const scale = size / Math.max(rows, columns);
  [canvas.height, canvas.width] = [Math.round(rows * scale), Math.round(columns * scale)];
  const context = canvas.getContext("2d");
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  for (const { row, column, colour: line } of marks) {
    for (const [shade, thick] of [["#000", 4], [line, 2]]) {
      context.strokeStyle = shade;
      context.lineWidth = thick;
      context.strokeRect(column * scale, row * scale, scale, scale);
    }
  }
}

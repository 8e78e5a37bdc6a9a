// Decodes the page's columns: base64, inflate, and variable-length numbers (see columns.py).

async function inflated(id) {
  const text = atob(document.getElementById(id).textContent.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function decoded(bytes, layout) {
  let at = 0;
  const column = (rows, { rising, unit }) => {
    const values = new Float64Array(rows);
    let before = 0;
    for (let row = 0; row < rows; row += 1) {
      let coded = 0;
      let weight = 1;
      let byte;
      do {
        byte = bytes[at];
        at += 1;
        coded += (byte & 127) * weight;
        weight *= 128;
      } while (byte >= 128);
      let value = coded % 2 ? -(coded + 1) / 2 : coded / 2;
      if (rising) value += before;
      before = value;
      values[row] = value * unit;
    }
    return values;
  };
  const tables = {};
  for (const { name, rows, columns } of layout) {
    tables[name] = { rows };
    for (const described of columns) tables[name][described.name] = column(rows, described);
  }
  return tables;
}

// Runs the two halves of an exported network with onnxruntime-web. `make.py` embeds this file, the runtime, the networks and
// the pictures in one page, which therefore also works when it is opened from a disk.

const element = (id) => document.getElementById(id);
const LEAST_SIDE = 16; // pixels, as in efdm.style.export
const MAX_FILE = 50e6; // bytes

async function unpack(id) {
  const packed = await fetch(`data:;base64,${element(id).textContent.trim()}`);
  const bytes = new Response(packed.body.pipeThrough(new DecompressionStream("gzip")));
  return new Uint8Array(await bytes.arrayBuffer());
}

async function load() {
  const url = URL.createObjectURL(new Blob([await unpack("runtime.mjs")], { type: "text/javascript" }));
  const ort = await import(url);
  ort.env.wasm.wasmBinary = await unpack("runtime.wasm");
  ort.env.wasm.numThreads = self.crossOriginIsolated ? Math.min(4, navigator.hardwareConcurrency) : 1; // threads need isolation
  const options = { executionProviders: ["wasm"] };
  const prepare = await ort.InferenceSession.create(await unpack("prepare.onnx"), options);
  const apply = await ort.InferenceSession.create(await unpack("apply.onnx"), options);
  return { ort, prepare, apply };
}

// Draw a picture with at most this short side, over white where it is transparent.
async function draw(blob, canvas, side) {
  const bitmap = await createImageBitmap(blob);
  const scale = Math.min(1, side / Math.min(bitmap.width, bitmap.height));
  canvas.width = Math.max(LEAST_SIDE, Math.round(bitmap.width * scale));
  canvas.height = Math.max(LEAST_SIDE, Math.round(bitmap.height * scale));
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
}

// (1, 3, height, width) in [0, 1]
function toTensor(ort, canvas) {
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const count = width * height;
  const values = new Float32Array(3 * count);
  for (let i = 0; i < count; i++) {
    for (let c = 0; c < 3; c++) values[c * count + i] = data[4 * i + c] / 255;
  }
  return new ort.Tensor("float32", values, [1, 3, height, width]);
}

function show(tensor, canvas) {
  const [, , height, width] = tensor.dims;
  const count = width * height;
  const pixels = new Uint8ClampedArray(4 * count).fill(255); // rounds and clamps
  for (let i = 0; i < count; i++) {
    for (let c = 0; c < 3; c++) pixels[4 * i + c] = 255 * tensor.data[c * count + i];
  }
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d").putImageData(new ImageData(pixels, width, height), 0, 0);
}

function say(text, kind = "") {
  element("status").textContent = text;
  element("status").className = kind;
}

const chosen = { content: null, style: null }; // blobs
let prepared = null; // { style, side, features }
let network = null;
let wanted = false;
let running = false;

// Stylize with the current choices. Choices made meanwhile are used in another round.
async function update() {
  wanted = true;
  if (running || network === null) return;
  running = true;
  while (wanted) {
    wanted = false;
    say("Stylizing");
    element("download").hidden = true;
    await new Promise((done) => setTimeout(done, 30)); // lets the page show the status
    try {
      const seconds = await stylize();
      say(`${seconds.toFixed(1)} s`, "done");
    } catch (error) {
      say(error.name === "InvalidStateError" ? "This file is not a picture; choose a PNG, JPEG or WebP." : `${error}`, "error");
    }
  }
  running = false;
}

async function stylize() {
  const { ort, prepare, apply } = network;
  const side = Number(element("side").value);
  const { content, style } = chosen;
  await draw(content, element("content"), side);
  if (prepared === null || prepared.style !== style || prepared.side !== side) {
    const canvas = document.createElement("canvas");
    await draw(style, canvas, side);
    prepared = { style, side, features: await prepare.run({ style: toTensor(ort, canvas) }) };
  }
  const strength = new ort.Tensor("float32", [Number(element("strength").value)], [1]);
  const start = performance.now();
  const { picture } = await apply.run({ content: toTensor(ort, element("content")), strength, ...prepared.features });
  const seconds = (performance.now() - start) / 1000;
  show(picture, element("result"));
  element("result").toBlob((blob) => {
    URL.revokeObjectURL(element("download").href);
    element("download").href = URL.createObjectURL(blob);
    element("download").hidden = false;
  });
  return seconds;
}

function choose(role, blob) {
  if (blob.size > MAX_FILE) return say("This file is larger than 50 MB; choose a smaller one.", "error");
  chosen[role] = blob;
  update();
}

for (const role of ["content", "style"]) {
  element(`${role}-file`).addEventListener("change", ({ target }) => {
    if (!target.files.length) return;
    if (role === "style") press(null);
    choose(role, target.files[0]);
  });
}
element("strength").addEventListener("change", update);
element("side").addEventListener("change", update);

function press(button) {
  for (const other of element("gallery").children) other.setAttribute("aria-pressed", other === button);
}

for (const asset of document.querySelectorAll("script[data-style]")) {
  const button = document.createElement("button");
  const name = asset.dataset.style;
  const url = `data:image/webp;base64,${asset.textContent.trim()}`;
  button.innerHTML = `<img src="${url}" alt="${name}" title="${name}">`;
  button.addEventListener("click", async () => {
    press(button);
    element("style-file").value = "";
    choose("style", await (await fetch(url)).blob());
  });
  element("gallery").append(button);
}

try {
  network = await load();
  chosen.content = await (await fetch(`data:image/webp;base64,${element("photo").textContent.trim()}`)).blob();
  element("gallery").firstChild.click();
} catch (error) {
  say(`The network cannot be loaded: ${error}`, "error");
}

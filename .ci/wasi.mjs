// Runs a WASI program with node: `node .ci/wasi.mjs program.wasm arguments...`. Its root directory is this machine's.
import { readFile } from 'node:fs/promises';
import { WASI } from 'node:wasi';

const [program, ...args] = process.argv.slice(2);
const env = { ...process.env, PWD: process.cwd() };
const wasi = new WASI({ version: 'preview1', args: [program, ...args], env, preopens: { '/': '/' } });
const module = await WebAssembly.compile(await readFile(program));
const instance = await WebAssembly.instantiate(module, wasi.getImportObject());
process.exitCode = wasi.start(instance);

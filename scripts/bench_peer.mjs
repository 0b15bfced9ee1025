// Measures llama.cpp for bench_peers.py, through its npm package. Prints "TEST TOKENS_PER_SEC" for each test.
//
//   node bench_peer.mjs DIRECTORY MODEL THREADS N TEST...
//
// p512: prefill of 512 tokens. d4096: decoding N tokens at depth 4096. b8: decoding N tokens of each of 8 sequences. start:
// one token after "Hello".
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [directory, file, threads, n, ...tests] = process.argv.slice(2);
const { getLlama } = await import(pathToFileURL(createRequire(join(resolve(directory), "x.js")).resolve("node-llama-cpp")));
const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const model = await llama.loadModel({ modelPath: resolve(file) });
const now = () => performance.now() / 1000;
const token = (i) => 300 + ((i * 7919) % 20000); // ids that every real vocabulary has

// Generates `count` tokens after a prompt in each of several sequences. Returns the times of all tokens, in order.
async function times(sequences, prompt, count) {
  const context = await model.createContext({
    contextSize: prompt + count + 1, sequences, batchSize: Math.max(512, sequences), threads: +threads,
  });
  const begin = now(), all = [];
  await Promise.all(Array.from({ length: sequences }, async (_, k) => {
    const ids = Array.from({ length: prompt }, (_, i) => token(i + k));
    let left = count;
    for await (const _ of context.getSequence().evaluate(ids, { temperature: 0, yieldEogToken: true })) {
      all.push([now(), left === count]);
      if (--left === 0) break;
    }
  }));
  await context.dispose();
  return { begin, all };
}

for (const test of tests) {
  const size = +test.slice(1);
  if (test === "start") {
    const context = await model.createContext({ contextSize: 64, threads: +threads });
    for await (const _ of context.getSequence().evaluate(model.tokenize("Hello"), { temperature: 0, yieldEogToken: true })) break;
  } else if (test[0] === "p") {
    const { begin, all } = await times(1, size, 1);
    console.log(test, size / (all[0][0] - begin));
  } else { // measured from when every sequence has its first token
    const { all } = await times(test[0] === "b" ? size : 1, test[0] === "d" ? Math.max(size, 1) : 1, +n + 1);
    const from = all.findLastIndex(([, isFirst]) => isFirst);
    console.log(test, (all.length - 1 - from) / (all[all.length - 1][0] - all[from][0]));
  }
}
process.exit(0);

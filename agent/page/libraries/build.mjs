// Bundles what entry.js names into ../static/libraries.js, and the licences of all that went in beside it.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const out = process.argv[2] ?? "../static";
const { metafile } = await build({
  entryPoints: ["entry.js"],
  outfile: `${out}/libraries.js`,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "ascii",
  legalComments: "none",
  banner: { js: "// Built by `make page-libraries`; licences in libraries.txt." },
  metafile: true,
});
const packages = new Set(Object.keys(metafile.inputs).map((path) => path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1]).filter(Boolean));
const parts = [...packages].sort().map((name) => {
  const folder = `node_modules/${name}`;
  const about = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  if (!file) throw new Error(`${name} has no licence file`);
  return `${name} ${about.version} (${about.license})\n\n${readFileSync(`${folder}/${file}`, "utf8").trim()}\n`;
});
writeFileSync(`${out}/libraries.txt`, parts.join(`\n${"-".repeat(80)}\n\n`));

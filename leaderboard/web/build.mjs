// Writes bundle/ from src/: the same bytes for the same sources and lock file.

import { build } from "esbuild";
import { createHash } from "node:crypto";
import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";

const here = import.meta.dirname;
const out = path.join(here, "bundle");

/** SHA-256 over names and contents of what the bundle is made of; tests/leaderboard/page/test_bundle.py computes it, too. */
async function digest() {
  const sum = createHash("sha256");
  const files = await readdir(path.join(here, "src"), { recursive: true, withFileTypes: true });
  const sources = files
    .filter((file) => file.isFile())
    .map((file) => path.relative(here, path.join(file.parentPath, file.name)).replaceAll("\\", "/"))
    .sort();
  for (const name of ["build.mjs", "package-lock.json", "package.json", ...sources]) {
    sum
      .update(`${name}\0`)
      .update(await readFile(path.join(here, name)))
      .update("\0");
  }
  return sum.digest("hex");
}

/** Name, version and licence of every package that has code in the bundle. */
async function licences(inputs) {
  const names = new Set(inputs.map((input) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input)?.[1]).filter(Boolean));
  const parts = await Promise.all(
    [...names].sort().map(async (name) => {
      const folder = path.join(here, "node_modules", name);
      const { version, license } = JSON.parse(await readFile(path.join(folder, "package.json"), "utf8"));
      const file = (await readdir(folder)).find((each) => /^licen[cs]e/i.test(each));
      const text = file
        ? (await readFile(path.join(folder, file), "utf8")).replaceAll("\r\n", "\n").trim()
        : `Licence: ${license}`;
      return `${name} ${version} (${license})\n\n${text}\n`;
    }),
  );
  return parts.join(`\n${"-".repeat(72)}\n\n`);
}

const banner = `/* stsbench's board, Apache-2.0; libraries: LICENSES.txt; sources sha256:${await digest()} */`;
const { metafile } = await build({
  absWorkingDir: here,
  entryPoints: { board: "src/main.js", charts: "src/charts.js", grid: "src/grid.js" },
  outdir: "bundle",
  write: true,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["chrome120", "firefox128", "safari17.5"],
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  banner: { js: banner },
  define: { "process.env.NODE_ENV": '"production"' },
  logLevel: "warning",
});
const styles = await build({
  absWorkingDir: here,
  entryPoints: { board: "src/style/board.css" },
  outdir: "bundle",
  bundle: true,
  minify: true,
  legalComments: "none",
  metafile: true,
  target: ["chrome123", "firefox128", "safari17.5"],
  banner: { css: banner },
  logLevel: "warning",
});
await mkdir(out, { recursive: true });
await cp(path.join(here, "src/index.html"), path.join(out, "index.html"));
const inputs = [metafile, styles.metafile]
  .flatMap(({ outputs }) => Object.values(outputs))
  .flatMap((output) =>
    Object.entries(output.inputs)
      .filter(([, { bytesInOutput }]) => bytesInOutput)
      .map(([name]) => name),
  );
await writeFile(path.join(out, "LICENSES.txt"), await licences(inputs));
for (const name of await readdir(out)) {
  if (!["board.js", "charts.js", "grid.js", "board.css", "index.html", "LICENSES.txt"].includes(name))
    await rm(path.join(out, name), { recursive: true });
}

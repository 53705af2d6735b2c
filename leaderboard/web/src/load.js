// The board's data: scripts beside the page that register themselves by name. They load from file:// as from a server.

const NAME = /^(index|charts|grid|(tabs|entries|pairs|published)\/[A-Za-z0-9][\w.-]*)$/;
const held = new Map(); // name -> {promise, resolve, reject}

// No text becomes markup, a script comes from the board's own files only. The table's library sets these two texts.
const types = globalThis.trustedTypes;
types?.createPolicy("default", {
  createHTML(text) {
    if (text === "" || text === "&nbsp;") return text;
    throw new TypeError("the page takes no markup");
  },
});
const policy = types?.createPolicy("stsbench", { createScriptURL: (address) => address });

function slot(name) {
  if (!held.has(name)) {
    const parts = {};
    parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }));
    held.set(name, parts);
  }
  return held.get(name);
}

globalThis.stsbench = (name, data) => slot(name).resolve(data);

/** What is registered under that name: "index", "tabs/ID", "entries/ID", "pairs/ID.N", or a part of the page. Rejects where the file cannot be loaded. */
export function load(name) {
  const known = held.has(name);
  const { promise, reject } = slot(name);
  if (known || name === "index") return promise; // the page itself asks for the index
  if (!NAME.test(name)) return Promise.reject(new Error(`${name} is not a file of this board`));
  const script = document.createElement("script");
  script.src = policy ? policy.createScriptURL(`${name}.js`) : `${name}.js`;
  script.addEventListener("error", () => {
    held.delete(name); // the next attempt asks again
    reject(new Error(`${name}.js could not be loaded`));
  });
  document.head.append(script);
  return promise;
}

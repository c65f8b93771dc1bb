// Runs in the page before its own script and writes down what a reader sees, and when: which generation of each
// dependency is drawn, when the first rows were, and every breach of the content policy.
(() => {
  const witness = { seen: {}, first: 0, breaches: [], errors: [] };
  globalThis.witness = witness;
  addEventListener("securitypolicyviolation", (e) => witness.breaches.push(`${e.violatedDirective} ${e.blockedURI}`));
  addEventListener("error", (e) => witness.errors.push(String(e.message)));
  addEventListener("unhandledrejection", (e) => witness.errors.push(String(e.reason)));
  const look = () => {
    for (const e of document.querySelectorAll("[data-generation]")) {
      const { name, state, generation } = e.dataset;
      const list = (witness.seen[name] ??= []);
      const last = list.at(-1);
      if (last && last.generation === Number(generation) && last.state === state) continue;
      const sight = { generation: Number(generation), state, at: 0 };
      list.push(sight);
      // The frame that holds the change is painted before the callbacks of the next one.
      requestAnimationFrame(() => (sight.at = Date.now()));
    }
    if (!witness.first && document.querySelector("tr[data-name]")) {
      witness.first = -1;
      requestAnimationFrame(() => (witness.first = performance.now()));
    }
  };
  new MutationObserver(look).observe(document, {
    subtree: true, childList: true, attributes: true, attributeFilter: ["data-generation", "data-state"],
  });
})();

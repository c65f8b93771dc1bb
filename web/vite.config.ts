import { defineConfig } from "vite";

// The files keep their names from build to build: the server sends tags and browsers ask every time, so a hash in the
// name would only add noise to the repository's history.
export default defineConfig({
  base: "./", // the page may be served below a path
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "dist",
    emptyOutDir: true,
    target: ["chrome120", "firefox121", "safari17"],
    modulePreload: false,
    assetsInlineLimit: 0, // the content policy allows no data: addresses
    cssCodeSplit: false,
    rolldownOptions: {
      output: {
        entryFileNames: "app.js",
        assetFileNames: (asset) => (asset.names.some((n) => n.endsWith(".css")) ? "style.css" : "[name][extname]"),
        codeSplitting: false,
      },
    },
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8080" } },
});

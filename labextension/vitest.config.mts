import { defineConfig } from 'vitest/config';

export default defineConfig({
  // the icons alone: the rest registers web components, which happy-dom has no styles for
  resolve: {
    alias: [{ find: /^@jupyterlab\/ui-components$/, replacement: '@jupyterlab/ui-components/lib/icon' }]
  },
  test: {
    environment: 'happy-dom',
    include: ['tests/**/*.test.ts', 'tests/**/*.test.tsx'],
    // JupyterLab's packages import style sheets and each other without extensions
    server: { deps: { inline: [/@jupyterlab\//, /@lumino\//, /@jupyter\//] } },
    css: false,
    testTimeout: 60_000 // nothing is timed: a busy machine must not fail a test
  }
});
